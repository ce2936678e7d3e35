"""Padding by a constant or by the tensor's own elements."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.eager.modes import scope
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import as_index
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.memory_formats import following
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import exact_scalar
from tracecomp.functional.publish import function


def constant_pad(input: Tensor, pad: Sequence[int], value: complex = 0.0) -> Tensor:
    """``pad`` has (before, after) for each axis, the last one first; negative amounts cut off. RuntimeError if too
    many."""
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. "
            f"Pad length is {len(pad)} while the input has {input.ndim} dimensions."
        )
    missing = [0] * (input.ndim - len(pad) // 2)
    low = missing + list(pad[-2::-2])
    high = missing + list(pad[-1::-2])
    for axis, (size, before, after) in enumerate(zip(input.shape, low, high, strict=True)):
        if size + before + after < 0:
            raise RuntimeError(
                f"The input size {size}, plus negative padding {before} and {after} resulted in a negative output "
                f"size, which is invalid. Check dimension {axis} of your input."
            )
        start, length = max(-before, 0), size - max(-before, 0) - max(-after, 0)
        if length != size:
            input = input.narrow(axis, start, max(length, 0))
    low, high = [max(v, 0) for v in low], [max(v, 0) for v in high]
    if all(type(v) is int and v == 0 for v in (*low, *high)):  # static zeros, which are the same in every call
        return input.clone()
    fill = exact_scalar(value, input.dtype)
    padded = prim.pad(input, low=tuple(low), high=tuple(high), interior=(0,) * input.ndim, value=fill)
    return following(padded, input)


def _padded(x: Tensor, dim: int, before: int, after: int, mode: str) -> Tensor:
    """Extend one axis by its own elements on both sides; negative amounts cut elements off."""
    size = x.shape[dim]
    if mode == "reflect" and max(before, after) >= size:
        raise RuntimeError(
            f"Padding size should be less than the corresponding input dimension, but got: padding ({before}, {after}) "
            f"at a dimension of size {size}"
        )
    low, high = max(-before, 0), size - max(-after, 0)
    if mode == "circular" and max(before, after) > high - low:
        raise RuntimeError("Padding value causes wrapping around more than once.")
    parts = [x.narrow(dim, low, high - low)]
    if before > 0:
        parts.insert(0, _side(x, dim, before, (1, 0, high - before), mode))
    if after > 0:
        parts.append(_side(x, dim, after, (size - 1 - after, size - 1, low), mode))
    return T.cat(parts, dim)


def _side(x: Tensor, dim: int, count: int, starts: tuple[int, int, int], mode: str) -> Tensor:
    """The elements next to an axis; ``starts``: their first index for reflection, replication and wrapping."""
    if mode == "reflect":
        return x.narrow(dim, starts[0], count).flip(dim)
    if mode == "replicate":
        return x.narrow(dim, starts[1], 1).expand(*(count if d == dim else n for d, n in enumerate(x.shape)))
    return x.narrow(dim, starts[2], count)


@function(to="nn.functional", takes=ALL)
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad from the last axis on: ``pad = (left, right, top, bottom, ...)``.

    Modes: constant (``value``), reflect, replicate, circular. NotImplementedError for a mode or rank that PyTorch
    lacks.
    """
    pad = tuple(map(as_index, pad))
    with scope("pad"):
        if mode == "constant":
            return constant_pad(input, pad, 0.0 if value is None else value)
        if mode not in ("reflect", "replicate", "circular"):
            raise NotImplementedError(f"Unrecognised padding mode {mode}")
        if value is not None and value != 0:
            raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
        axes, given = len(pad) // 2, input
        if len(pad) % 2 or axes not in (1, 2, 3) or input.ndim not in (axes + 1, axes + 2):
            raise NotImplementedError(
                "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now; "
                f"got input of {input.ndim} dimensions and padding {list(pad)}"
            )
        for axis in range(axes):
            before, after = pad[2 * axis : 2 * axis + 2]
            dim = input.ndim - 1 - axis
            if (before, after) != (0, 0):
                input = _padded(input, dim, before, after, mode)
        return following(input, given) if mode != "circular" else input.contiguous()
