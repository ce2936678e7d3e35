"""The constructors by type of old programs: ``torch.sparse.FloatTensor(indices, values, size)`` and its siblings."""

from __future__ import annotations

from typing import Any

from tracecomp.ir.types import DTYPES, DType, type_word
from tracecomp.sparse.creation import sparse_coo_tensor
from tracecomp.sparse.handlers import handles
from tracecomp.sparse.tensors import CooTensor, SparseTensor


class _TypedMeta(type):
    """``isinstance(x, FloatTensor)`` asks for layout and dtype; calling makes a tensor."""

    dtype: DType

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, CooTensor) and x.dtype is cls.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> CooTensor:
        """Construct from sizes, or from indices, values and an optional size; TypeError if the values have another
        type."""
        if all(isinstance(n, int) for n in args):
            return sparse_coo_tensor(args or (0,), dtype=cls.dtype)
        made = sparse_coo_tensor(*args, **kwargs)
        if made.dtype is not cls.dtype:
            raise TypeError(f"expected values of type {cls.dtype}, but got {made.dtype}")
        return made


TYPED = {
    f"{type_word(t)}Tensor": _TypedMeta(f"{type_word(t)}Tensor", (), {"dtype": t, "__doc__": f"{t} in COO layout."})
    for t in DTYPES
    if not t.is_complex
}


@handles("new")
def _new(x: SparseTensor, *args: Any) -> CooTensor:
    """A tensor of the type of ``x``, from sizes, or from indices, values and a size."""
    return TYPED[f"{type_word(x.dtype)}Tensor"](*args)


@handles("type")
def _type(x: SparseTensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the type, or a conversion."""
    if dtype is None:
        return f"torch.sparse.{type_word(x.dtype)}Tensor"
    return x._with(x._stored.type(getattr(dtype, "dtype", dtype)))
