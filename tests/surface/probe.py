"""Call each public function to find the graph it records and whether gradients pass."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tracecomp
from tracecomp.eager.tensor import Tensor


@dataclass(frozen=True)
class Found:
    """``made``: primitive or composed. ``differentiable`` and ``compiled``: yes, no, or a short remark."""

    made: str
    differentiable: str
    compiled: str


UNKNOWN = Found("", "", "")


def _floats(*shape: int) -> Tensor:
    return tracecomp.linspace(0.1, 0.9, steps=max(1, int(tracecomp.tensor(shape).prod()))).reshape(shape)


def _spd() -> Tensor:
    return tracecomp.eye(3) * 2 + 0.1


def _candidates() -> Iterator[tuple[Any, ...]]:
    """Arguments to try, from the most to the least likely to say something."""
    m, x, i, b = _floats(3, 3), _floats(3), tracecomp.tensor([0, 2, 1]), tracecomp.tensor([True, False, True])
    image, kernel = _floats(2, 4, 6, 6), _floats(4, 4, 3, 3)
    spd = _spd()
    yield from ((m,), (x,), (m, m), (x, x), (spd,), (spd, m), (m, x), (m, m, m), (x, x, x), (m, x, x), (x, m, m))
    yield from ((m, 1), (m, 0, 1), (x, 2), (m, 0, i), (x, 0, i, x), (m, 0, i.expand(3, 3), m), (m, i), (x, i))
    yield from ((x, 0, i, 1.0), (b,), (i,), (i, i), (i, 1), (x > 0.5, x, x), (m, [3, 3]), (m, (1, 0)))
    yield from ((m, (0,), (1,)), ([m, m],), ([x, x],), (image,), (image, 2), (image, (2, 2)), (image, kernel))
    yield from ((image[0], 2), (image[:, :, 0], 2), (image[:, :, 0], kernel[:, :, 0]), (image.unsqueeze(2), 2))
    yield from ((image.unsqueeze(4), kernel.unsqueeze(4)), (m, m > 0.5), (m, m > 0.5, 1.0), (m, m > 0.5, m))
    yield from ((x, m.shape), (3,), (3, 3), (0, 3), (0.0, 1.0, 3), ((2, 3),), ((2, 3), 1.0), (m, m, i))
    yield from ((m[None], m[None]), (m[None], m[None], m[None]), (m, m[None], m[None]))
    yield from ((m, x, (x, x)), (x, x, 0.5), (m, 0.5), (m, 0, 0, 1))
    square, flow = i.expand(3, 3), _floats(2, 5, 5, 2)
    yield from ((x, m, x), (m, 0, square), (m, (i,), x), (x, i, x), (0, 9, (3,)), (m, 0, square, m, "sum"))
    yield from ((i[None], m), (x, 0, i, x, "prod"), (m, x, 0, 0), (x, 0, (3, 1)))
    yield from ((x, x, (3,), (1,)), (image, flow), (image, 2.0, 2))
    yield from ((_floats(2, 2, 3), [2, 1, 4, 4]), (image, 2, 3), (image[:, :, 0], 2.0, 2), (image.unsqueeze(2), 2.0, 1))
    yield from ((m, 3, 0, 1), (m, (3,)), (m, (3, 3), (3, 1)), ("ij,jk->ik", m, m), (b, 3), (m, 1, True))
    yield from ((_floats(3, 2),), (x * 1j,), (x * 1j, x * 1j), (x * 1j, 4), (m * 1j, 4))
    yield from ((m, x, m), (_floats(16), 4, None, None, None, True, "reflect", False, None, True))


def calls(fn: Callable[..., Any]) -> Iterator[tuple[Any, ...]]:
    """Argument tuples that ``fn`` accepts."""
    for args in _candidates():
        state = tracecomp.get_rng_state()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = fn(*_copied(args))
        except Exception:
            continue
        finally:
            tracecomp.set_rng_state(state)
        if _tensors(out):
            yield args


def _copied(value: Any, leaves: list[Tensor] | None = None) -> Any:
    """Copies; with ``leaves``, floating and complex ones come from a leaf that requires grad and is added there."""
    if isinstance(value, Tensor):
        copy = value.clone()
        if leaves is None or not copy.dtype.differentiable:
            return copy
        leaves.append(copy.requires_grad_())
        return copy.clone()
    if type(value) in (list, tuple):
        return type(value)(_copied(v, leaves) for v in value)
    return value


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for v in value for t in _tensors(v)] if isinstance(value, tuple | list) else []


def probe(fn: Callable[..., Any]) -> Found:
    """Return the results of the first accepted calls; ``UNKNOWN`` if none is accepted."""
    best = UNKNOWN
    for args in itertools.islice(calls(fn), 4):
        made, compiled = _graph(fn, args)
        found = Found(made, _gradient(fn, args), compiled)
        if best is UNKNOWN or (found.differentiable == "yes" and best.differentiable != "yes"):
            best = found
        if best.differentiable == "yes":
            break
    return best


def _gradient(fn: Callable[..., Any], args: tuple[Any, ...]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaves: list[Tensor] = []
        try:
            outs = [t for t in _tensors(fn(*_copied(args, leaves))) if t.requires_grad]
            if not outs:
                return "no"
            total: Any = sum((tracecomp.view_as_real(t) if t.is_complex() else t).sum() for t in outs)
            found = tracecomp.autograd.grad(total, leaves, allow_unused=True)
        except Exception:
            return "no"
    return "yes" if any(g is not None for g in found) else "no"


def _graph(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = tracecomp.trace(lambda *a: fn(*a), *_copied(args))
    except Exception:
        return "composed", "no"
    nodes = [n for n in graph.live_nodes() if n.op.kind != "creation"]
    made = "primitive" if len(nodes) <= 1 else "composed"
    if any(n.op.kind == "external" for n in nodes):
        return made, "as a call of LAPACK"
    if any(o.role == "predicate" for o in graph.outputs):
        return made, "one graph per value seen"
    return made, "yes"
