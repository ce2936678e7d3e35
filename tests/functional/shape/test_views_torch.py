"""Which functions return views, and of which part of memory, against torch: for all memory layouts of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")


def tensors(t: Any) -> Iterator[tuple[Any, Any]]:
    """Tensors and what they are views of: dense, cut, turned, expanded, of another type."""
    a = t.arange(24, dtype=t.float32).reshape(4, 6)
    yield a, a
    yield a, a[::2]
    yield a, a[1:, 1:5]
    yield a, a.t()
    yield a, a[None].expand(3, 4, 6)
    yield a, a[:, None, :].expand(4, 3, 6)
    yield a, a.reshape(2, 2, 6)[:, 1:, ::2]
    yield a, a.reshape(2, 3, 4).permute(2, 0, 1)
    yield a, a.reshape(24)[::3]
    yield a, a.view(t.int32)[1:]
    yield a, t.view_as_complex(a.reshape(4, 3, 2))[1:]


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name.strip(): eval(f"lambda x: x.{name}")
    for name in """
    flatten(); flatten(0, 1); reshape(-1); reshape(1, *x.shape); reshape(*x.shape[:-1], -1, 1); ravel(); contiguous()
    reshape(*x.shape[:-1], 2, -1); unflatten(-1, (2, -1)); view(*x.shape[:-1], 2, -1); view(-1); view(-1, x.shape[-1])
    unfold(-1, 2, 1); unfold(0, 2, 1); movedim(0, -1); narrow(0, 1, 1).squeeze(); unsqueeze(1); narrow(0, 1, 1)
    select(-1, 1); split(1, 0)[1]; chunk(2, -1)[1]; unbind(-1)[0]; tensor_split(2, -1)[1]; broadcast_to((2, *x.shape))
    mT; diagonal(); diagonal(1, 0, -1); diagonal(-1, -1, 0); as_strided((2, 2), (1, 2)); detach(); squeeze()
    as_strided((2, 2), (1, 2), 1); swapaxes(0, -1); positive(); to(x.dtype); reshape_as(x); reshape(x.shape[0], -1)
    permute(*range(x.ndim)[::-1]); unsqueeze(0).expand(2, *([-1] * x.ndim)); type(x.dtype); real
    """.replace("\n", ";").split(";")
    if name.strip()
}


def seen(function: Callable[[Any], Any], base: Any, x: Any) -> object:
    """Return where the result begins in memory, and its strides; or the error."""
    try:
        found = function(x)
    except Exception as error:  # both libraries must raise the same error
        return type(error)
    strides = [s for s, n in zip(found.stride(), found.shape, strict=True) if n > 1]
    at = found.data_ptr() - base.data_ptr()
    shared = 0 <= at < base.numel() * base.element_size()
    return (at if shared else None), strides, tuple(found.shape), str(found.dtype).split(".")[-1]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_views_are_those_of_torch(name: str) -> None:
    pairs = zip(tensors(torch), tensors(tracecomp), strict=True)
    for n, ((base, x), (ours, y)) in enumerate(pairs):
        assert (n, seen(FUNCTIONS[name], ours, y)) == (n, seen(FUNCTIONS[name], base, x))
