"""``associative_scan``: all prefixes of a sequence under an associative function, in a logarithm of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.eager.tensor import Tensor
from tracecomp.func.vmap import vmap
from tracecomp.functional import names as T
from tracecomp.record.pytree import flatten, unflatten

_MODES = ("pointwise", "generic")


def associative_scan(
    combine_fn: Callable[..., object], xs: object, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """``xs[0], combine_fn(xs[0], xs[1]), ...`` along ``dim``, stacked; ``combine_fn`` has to be associative.

    ``xs`` is a tensor or a nested structure of tensors of one size along ``dim``. In the mode "pointwise"
    ``combine_fn`` receives many slices at once, in "generic" single pairs. Neighbours are combined pairwise, so the
    order of the sums follows from the length alone. ValueError for other modes and for no tensors; RuntimeError when
    ``combine_fn`` changes structure, shapes or dtypes.

    >>> import tracecomp as torch
    >>> from tracecomp._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a + b, torch.arange(5), dim=0)
    tensor([ 0,  1,  3,  6, 10])
    """
    if not callable(combine_fn):
        raise ValueError(at_user_line(f"associative_scan: Combine_fn must be a callable, but got {combine_fn}"))
    if combine_mode not in _MODES:
        raise ValueError(at_user_line(f"associative_scan: Combine_mode must be one of {_MODES}, got {combine_mode}"))
    leaves: list[Any] = []
    structure = flatten(xs, leaves)
    if not leaves or not all(isinstance(x, Tensor) for x in leaves):
        raise ValueError(at_user_line("associative_scan: Expected at least 1 xs leaf, all of them tensors"))
    rows = [T.movedim(x, dim, 0) for x in leaves]
    if any(x.shape[0] != rows[0].shape[0] or x.shape[0] == 0 for x in rows):
        raise ValueError(at_user_line("associative_scan: all xs need one size along dim, and more than 0"))
    rows = [x.flip(0) for x in rows] if reverse else rows

    def combine(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[Tensor]:
        found: list[Any] = []
        fn = combine_fn if combine_mode == "pointwise" else vmap(combine_fn)
        if flatten(fn(unflatten(structure, list(a)), unflatten(structure, list(b))), found) != structure:
            raise RuntimeError(at_user_line("associative_scan: combine_fn must return the structure of xs"))
        for x, y in zip(a, found, strict=True):
            if x.shape != y.shape or x.dtype != y.dtype:
                raise RuntimeError(
                    at_user_line(
                        f"associative_scan: combine_fn made {y.dtype} of shape {tuple(y.shape)} out of {x.dtype} of "
                        f"shape {tuple(x.shape)}"
                    )
                )
        return found

    done = _prefixes(combine, rows) if rows[0].shape[0] > 1 else [x.clone() for x in rows]
    return unflatten(structure, [T.movedim(x.flip(0) if reverse else x, 0, dim) for x in done])


def _prefixes(combine: Callable[..., list[Tensor]], rows: list[Tensor]) -> list[Tensor]:
    """All prefixes of ``rows``: those of pairs, and between them one more row each."""
    n = rows[0].shape[0]
    if n == 1:
        return rows
    odd = _prefixes(combine, combine([x[: n - 1 : 2] for x in rows], [x[1::2] for x in rows]))
    even = [x[:1] for x in rows]
    if n > 2:
        before = [x[: (n - 1) // 2] for x in odd]
        later = combine(before, [x[2::2] for x in rows])
        even = [T.cat((first, rest)) for first, rest in zip(even, later, strict=True)]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """``even[0], odd[0], even[1], ...``; ``even`` may be longer by one."""
    both = T.stack((even[: odd.shape[0]], odd), 1).flatten(0, 1)
    return T.cat((both, even[-1:])) if even.shape[0] > odd.shape[0] else both
