"""Contents of sparse tensors, and conversions to another layout, dtype or device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.eager import device
from tracecomp.eager.device import layout, sparse_coo
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType
from tracecomp.sparse import tensors as parts
from tracecomp.sparse.handlers import handles
from tracecomp.sparse.tensors import (
    HANDLERS,
    CompressedTensor,
    CooTensor,
    SparseTensor,
    coalesce,
    compressed_of,
    coo_of,
    coo_of_dense,
    dense_of,
)

# ---- parts of a sparse tensor


@handles("is_sparse")
def _is_sparse(x: Tensor) -> bool:
    return isinstance(x, CooTensor)


@handles("is_sparse_csr")
def _is_sparse_csr(x: Tensor) -> bool:
    return isinstance(x, CompressedTensor) and x.layout is device.sparse_csr


@handles("layout")
def _layout(x: SparseTensor) -> layout:
    return x.layout


@handles("device")
def _device(x: SparseTensor) -> Any:
    return parts.place_of(x)


for _name in ("is_cuda", "is_quantized", "is_meta", "is_mps", "is_nested", "is_xpu", "is_mkldnn", "is_conj", "is_neg"):
    HANDLERS[_name] = lambda x: False
HANDLERS["is_cpu"] = lambda x: True
HANDLERS["is_floating_point"] = lambda x: x._stored.is_floating_point()
HANDLERS["is_complex"] = lambda x: x._stored.is_complex()
HANDLERS["is_signed"] = lambda x: x._stored.is_signed()


@handles("repr", "format")
def _repr(x: SparseTensor, *_: Any, **__: Any) -> str:
    """As PyTorch prints sparse tensors."""
    nnz = x._stored.shape[0]
    if isinstance(x, CooTensor):
        stored = [("indices", x._places)]
    else:
        assert isinstance(x, CompressedTensor)
        rows = x.layout in parts.BY_ROWS
        names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
        stored = [(names[0], x._compressed), (names[1], x._plain)]
    stored.append(("values", x._stored.detach()))
    texts = [str(t) if t.numel() else f"tensor([], size={tuple(t.shape)})" for _, t in stored]
    said = f", dtype={x.dtype}"
    kind = said if isinstance(x, CooTensor) and texts[-1].endswith(said + ")") else ""
    texts[-1] = texts[-1].removesuffix(kind + ")") + ")"  # COO tensors say their type behind the size
    more = ""
    shown = ",\n       ".join(
        f"{n}={text.replace(chr(10), chr(10) + ' ' * (len(n) + 8))}" for (n, _), text in zip(stored, texts, strict=True)
    )
    if x.grad_fn is not None:
        more += f", grad_fn=<{x.grad_fn.name()}>"
    elif x.requires_grad:
        more += ", requires_grad=True"
    if isinstance(x, CooTensor):
        return f"tensor({shown},\n       size={tuple(x.shape)}, nnz={nnz}{kind}, layout={x.layout}{more})"
    return f"tensor({shown}, size={tuple(x.shape)}, nnz={nnz}{more},\n       layout={x.layout})"


@handles("is_coalesced")
def _is_coalesced(x: CooTensor) -> bool:
    _coo_only(x, "is_coalesced")
    return x._coalesced


def _coo_only(x: Tensor, what: str) -> None:
    if not isinstance(x, CooTensor):
        raise RuntimeError(f"{what} expected sparse coordinate tensor layout but got {x.layout}")


HANDLERS["coalesce"] = lambda x: coalesce(x)


@handles("indices")
def _indices(x: CooTensor) -> Tensor:
    _coo_only(x, "indices")
    if not x._coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return x._places


@handles("values")
def _values(x: SparseTensor) -> Tensor:
    if isinstance(x, CooTensor) and not x._coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return x._stored


def _stored(name: str, kinds: Sequence[layout], field: str) -> None:
    @handles(name)
    def read(x: SparseTensor) -> Tensor:
        if x.layout not in kinds:
            raise RuntimeError(f"{name} expected {' or '.join(map(str, kinds))} tensor layout but got {x.layout}")
        found: Tensor = getattr(x, field)
        return found


_by_columns = (device.sparse_csc, device.sparse_bsc)
_stored("crow_indices", parts.BY_ROWS, "_compressed")
_stored("col_indices", parts.BY_ROWS, "_plain")
_stored("ccol_indices", _by_columns, "_compressed")
_stored("row_indices", _by_columns, "_plain")
HANDLERS["sparse_dim"] = lambda x: int(x._places.shape[0]) if isinstance(x, CooTensor) else 2
HANDLERS["dense_dim"] = lambda x: x._stored.dim() - 1 if isinstance(x, CooTensor) else 0


# ---- other forms


@handles("to_dense")
def _to_dense(x: SparseTensor, dtype: DType | None = None, **_: Any) -> Tensor:
    found = dense_of(x)
    return found if dtype is None else found.to(dtype)


@handles("to_sparse")
def to_sparse(x: Tensor, *args: Any, layout: layout | None = None, blocksize: object = None, **_: Any) -> SparseTensor:
    """``x`` (dense or sparse) in a sparse layout, COO unless told; the number of sparse dimensions may be given."""
    kind = layout or sparse_coo
    if isinstance(x, SparseTensor):
        if x.layout is kind:
            return x
        made = coo_of(x)
        return in_layout(made, kind, blocksize)
    count = args[0] if args and isinstance(args[0], int) else None
    if count is not None and not 0 < count <= x.dim():
        raise RuntimeError(f"sparse_dim argument must be in >0,<={x.dim()}, got {count}")
    return in_layout(coo_of_dense(x, count), kind, blocksize)


def in_layout(x: CooTensor, kind: layout, block: Any) -> SparseTensor:
    return x if kind is sparse_coo else compressed_of(x, kind, block)


def _to_layout(name: str, kind: layout) -> None:
    @handles(name)
    def convert(x: Tensor, *args: Any, **_: Any) -> SparseTensor:
        block = args[0] if args and isinstance(args[0], Sequence) else None
        made: SparseTensor = to_sparse(x, layout=kind, blocksize=block)
        return made


for _name in ("csr", "csc", "bsr", "bsc"):
    _to_layout(f"to_sparse_{_name}", getattr(device, f"sparse_{_name}"))
_to_layout("to_sparse_coo", sparse_coo)


@handles("to")
def _to(x: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return x._with(x._stored.to(*args, **kwargs))


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "bool", "cpu", "clone", "contiguous"):
    HANDLERS[_name] = (lambda n: lambda x, **k: x._with(getattr(x._stored, n)()))(_name)
HANDLERS["type_as"] = lambda x, other: x._with(x._stored.to(other.dtype))


@handles("sparse_mask")
def _sparse_mask(x: Tensor, mask: SparseTensor) -> Any:
    """The elements of ``x`` at the places of ``mask``."""
    places = coo_of(mask)._places
    if isinstance(x, SparseTensor):
        x = dense_of(x)
    return mask._with(x[tuple(places)])
