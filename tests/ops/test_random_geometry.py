"""Convolutions and contractions of random geometry against PyTorch, with gradients, eagerly and natively."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import type_of
from tracecomp.ir.graph import Graph
from tracecomp.ops.autodiff import vjp
from tracecomp.passes.building import build
from tracecomp.runtime.executable import Executable

torch = pytest.importorskip("torch")


def with_gradients(op: str, x: Any, w: Any, cotangent: Any, attrs: dict[str, Any]) -> Graph:
    graph = Graph(op)
    a, b = graph.add_input(type_of(x), "x"), graph.add_input(type_of(w), "w")
    out = graph.apply(op, a, b, **attrs)
    given = graph.add_input(type_of(cotangent), "cotangent")
    graph.add_output(out)
    for gradient in vjp(graph, [out], [given], [a, b]):
        assert gradient is not None
        graph.add_output(gradient)
    return graph


def check(op: str, x: Any, w: Any, attrs: dict[str, Any], theirs: Any) -> None:
    """Value and both gradients against ``theirs(x, w)``."""
    tx, tw = (torch.from_numpy(v).requires_grad_() for v in (x, w))
    out = theirs(tx, tw)
    cotangent = np.random.default_rng(0).standard_normal(out.shape)
    want = [out.detach(), *torch.autograd.grad(out, (tx, tw), torch.from_numpy(cotangent))]
    graph = with_gradients(op, x, w, cotangent, attrs)
    built = build(graph)
    native = [np.empty(o.value.shape) for o in graph.outputs]
    Executable(built.program).run([x, w, cotangent, *built.constants], native)
    for mine, code, reference in zip(graph.interpret(x, w, cotangent), native, want, strict=True):
        np.testing.assert_allclose(mine, reference.numpy(), rtol=1e-10, atol=1e-10, err_msg=str(attrs))
        np.testing.assert_allclose(code, reference.numpy(), rtol=1e-10, atol=1e-10, err_msg=str(attrs))


@pytest.mark.parametrize("seed", range(40))
def test_convolution(seed: int) -> None:
    rng = random.Random(seed)
    rank, groups = rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 2, 3))
    channels, filters = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    kernel, stride, dilation = (tuple(rng.randint(1, top) for _ in range(rank)) for top in (3, 3, 2))
    padding = tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in range(rank))
    size = tuple(
        max(1, d * (k - 1) + 1 - sum(p)) + rng.randint(0, 6) for d, k, p in zip(dilation, kernel, padding, strict=True)
    )
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((rng.randint(1, 3), channels, *size))
    w = numbers.standard_normal((filters, channels // groups, *kernel))

    def theirs(tx: Any, tw: Any) -> Any:
        padded = torch.nn.functional.pad(tx, [n for pair in reversed(padding) for n in pair])
        return getattr(torch.nn.functional, f"conv{rank}d")(padded, tw, None, stride, 0, dilation, groups)

    check("conv", x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}, theirs)


@pytest.mark.parametrize("seed", range(40))
def test_contraction(seed: int) -> None:
    rng = random.Random(seed)
    labels = "abcdef"[: rng.randint(1, 6)]
    sizes = {c: rng.choice((1, 2, 3, 5, 8, 17)) for c in labels}
    kinds = {c: rng.choice(("batch", "left", "right", "summed")) for c in labels}
    sides = (
        [c for c in labels if kinds[c] != "right"],
        [c for c in labels if kinds[c] != "left"],
        [c for c in labels if kinds[c] != "summed"],
    )
    for side in sides:
        rng.shuffle(side)
    lhs, rhs, out = map("".join, sides)
    numbers = np.random.default_rng(seed)
    x, w = (numbers.standard_normal([sizes[c] for c in side]) for side in (lhs, rhs))
    spec = f"{lhs},{rhs}->{out}"
    check("contract", np.asarray(x), np.asarray(w), {"spec": spec}, lambda a, b: torch.einsum(spec, a, b))
