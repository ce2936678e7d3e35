"""Recordings keep no tensors and arrays of the calls that they were made from."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracecomp as torch
from tests.collecting import collect
from tracecomp import nn


@dataclasses.dataclass
class Batch:
    """A dataclass that is an argument."""

    x: Any
    n: int = 2


class Pair(NamedTuple):
    """A named tuple that is an argument."""

    x: Any
    n: int = 2


def _branch(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x * 3


def _broken(x: Any) -> Any:
    y = x * 2
    torch._dynamo.graph_break()
    return y + x


def _trained(x: Any) -> Any:
    loss = (x * x).sum()
    loss.backward()
    return loss.detach()


def _marked(x: Any) -> Any:
    x.tag = "seen"
    return x * 2


def _filled(batch: Any) -> Any:
    batch.n = 3
    return batch.x * 2


def _written(x: Any) -> Any:
    x += 1
    return x * 2


def _listed(parts: Any) -> Any:
    parts.append(parts[0] * 2)
    return parts[0] + 1


Program = tuple[Callable[..., Any], Callable[[Any], Any], bool]
PROGRAMS: dict[str, Program] = {
    "tensor": (lambda x: x.sin().sum(), lambda x: x, False),
    "view of it": (lambda x: x[1:], lambda x: x, False),
    "itself": (lambda x: x, lambda x: x, False),
    "list": (lambda parts: parts[0] * 2, lambda x: [x, 1], False),
    "dictionary": (lambda parts: parts["x"] * 2, lambda x: {"x": x}, False),
    "dataclass": (lambda batch: batch.x * batch.n, Batch, False),
    "named tuple": (lambda pair: pair.x * pair.n, Pair, False),
    "branch": (_branch, lambda x: x, False),
    "broken": (_broken, lambda x: x, False),
    "module": (nn.Linear(4, 2), lambda x: x, False),
    "differentiated outside": (lambda x: (x * x).sum(), lambda x: x, True),
    "differentiated inside": (_trained, lambda x: x, True),
    "marked": (_marked, lambda x: x, False),
    "filled": (_filled, Batch, False),
    "written": (_written, lambda x: x, False),
    "appended to": (_listed, lambda x: [x], False),
    "which": (lambda x: x * 2 if x.is_leaf else x, lambda x: x, False),
}


@pytest.mark.filterwarnings("ignore:graph break in")
@pytest.mark.parametrize("dynamic", [False, None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_are_freed(name: str, dynamic: bool | None) -> None:
    fn, given, requires_grad = PROGRAMS[name]
    compiled = torch.compile(fn, dynamic=dynamic)
    references = []
    for size in (4, 4, 4, 4) if name == "module" else (4, 4, 5, 6, 6):
        x = torch.ones(size).requires_grad_(requires_grad)
        result = compiled(given(x))
        if result.requires_grad:
            result.sum().backward()
        references.append(weakref.ref(x))
        del x, result
    collect()
    assert all(r() is None for r in references)


def test_arrays_are_freed() -> None:
    compiled = torch.compile(lambda a: torch.from_numpy(a) * 2)
    references = []
    for size in (4, 4, 5, 5):
        a = np.ones(size, np.float32)
        compiled(a)
        references.append(weakref.ref(a))
        del a
    collect()
    assert all(r() is None for r in references)
