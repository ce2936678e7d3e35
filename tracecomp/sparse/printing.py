"""How sparse tensors print: their parts, each as a tensor does, and what belongs to the whole."""

from __future__ import annotations

from typing import Any

from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.printing import options, tensor_text
from tracecomp.ir.types import bool_, int64


def _part(name: str, part: Any, indent: int) -> str:
    """A part, whose type the whole states."""
    text = tensor_text(part.detach(), [] if part.numel() else [f"size={tuple(part.shape)}"])
    first, *rest = text.split("\n")
    return "\n".join([f"{name}={first}", *(" " * (indent + len(name) + 1) + r if r else r for r in rest)])


def sparse_text(x: Any) -> str:
    """The text that ``repr`` gives."""
    prefix = "tensor("
    indent = len(prefix)
    names = ("indices", "values") if x.is_sparse else (
        ("crow_indices", "col_indices", "values") if x.by_rows else ("ccol_indices", "row_indices", "values")
    )  # fmt: skip
    parts = [_part(n, p, indent) for n, p in zip(names, x.parts(), strict=True)]
    text = prefix + (",\n" + " " * indent).join(parts)
    told = [f"size={tuple(x.shape)}", f"nnz={x._nnz()}"]
    if x.dtype not in (default_dtype(), default_dtype().to_complex(), int64, bool_):
        told.append(f"dtype={x.dtype}")
    told.append(f"layout={x.layout!r}")
    if x.grad_fn is not None:
        told.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        told.append("requires_grad=True")
    last = len(text) - text.rfind("\n") + 1
    first = x.is_sparse
    for item in told:
        if first or last + len(item) + 2 > options.linewidth:
            text += ",\n" + " " * indent + item
            last = indent + len(item)
        else:
            text += ", " + item
            last += len(item) + 2
        first = False
    return text + ")"
