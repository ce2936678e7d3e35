"""Derivative rules of every record, at first and second order, against finite differences in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import Case, samples_of
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import OPS, Op, Sample
from tracecomp.ir.parser import parse_graph
from tracecomp.ir.printer import print_graph
from tracecomp.ir.types import complex128, float64
from tracecomp.ir.verify import verify
from tracecomp.ops.autodiff import vjp

# Zero almost everywhere, so that differences across a step say nothing.
STEPS = {"sign", "floor", "ceil", "trunc", "round"}
# They read one triangle of matrices taken to be symmetric, and so are their gradients.
SYMMETRIC = {"cholesky", "eigh", "eigvalsh"}
# Their complex vectors have a phase that nothing determines.
PHASES = {"eig", "eigh", "svd"}
DIFFERENTIABLE = [pytest.param(op, id=op.name) for op in OPS.values() if op.vjp is not None]


def smooth_cases(op: Op) -> Iterator[Case]:
    """Samples in float64 and complex128 alone, with elements, without special values."""
    for sample, case in zip(op.samples, samples_of(op), strict=True):
        floats = [t for t in (*case.types, *op.result_types(case.types, case.attrs)) if t.dtype.differentiable]
        special = any(spec[2] == "special" for spec in sample.args) or overwrites(sample)
        wide = all(t.dtype in (float64, complex128) for t in floats)
        if floats and not special and wide and all(a.size for a in case.arrays):
            yield case


def overwrites(sample: Sample) -> bool:
    """If several elements write to one place, each gets the gradient, as in PyTorch: not the slope."""
    return sample.attrs.get("mode") == "set" and not sample.args[1][2].startswith("distinct")


def gradient_graph(case: Case) -> tuple[Graph, list[int]]:
    """The graph from operands and cotangents to operand gradients, and which operands have one."""
    graph = Graph("gradient")
    operands = [graph.add_input(t, f"x{i}") for i, t in enumerate(case.types)]
    outs = [v for v in graph.add(case.op, operands, case.attrs) if v.dtype.differentiable]
    cotangents = [graph.add_input(v.type, f"d{i}") for i, v in enumerate(outs)]
    wrt = [i for i, v in enumerate(operands) if v.dtype.differentiable]
    found = vjp(graph, outs, cotangents, [operands[i] for i in wrt])
    for gradient in found:
        if gradient is not None:
            graph.add_output(gradient)
    return graph, [i for i, g in zip(wrt, found, strict=True) if g is not None]


def second_graph(case: Case) -> tuple[Graph, list[int]]:
    """The gradient of the sum of products of first gradients with given weights, with respect to the operands."""
    graph, _ = gradient_graph(case)
    outs: list[Value] = [o.value for o in graph.outputs]
    weights = [graph.add_input(v.type, f"w{i}") for i, v in enumerate(outs)]
    wrt = [i for i, given in enumerate(graph.inputs[: len(case.arrays)]) if given.value.dtype.differentiable]
    found = vjp(graph, outs, weights, [graph.inputs[i].value for i in wrt])
    graph.outputs.clear()
    for gradient in found:
        if gradient is not None:
            graph.add_output(gradient)
    return graph, [i for i, g in zip(wrt, found, strict=True) if g is not None]


def random_like(rng: np.random.Generator, array: Any) -> Any:
    """Standard normal numbers of the shape of ``array``, complex where it is."""
    x = np.asarray(rng.standard_normal(array.shape))
    return np.asarray(x + 1j * rng.standard_normal(array.shape)) if array.dtype.kind == "c" else x


def inner(a: Any, b: Any) -> float:
    """The sum of products of all parts: of gradients with a direction, the slope along it."""
    return float(np.sum(np.real(np.conj(a) * b)))


def check_directional(
    f: Any, arrays: list[Any], gradients: list[Any], wrt: list[int], rng: np.random.Generator, what: str,
    symmetric: bool = False,
) -> None:  # fmt: skip
    """The slope of ``f`` along a random direction against the gradients' inner product with it."""
    eps = 1e-6
    direction = {i: random_like(rng, a) for i, a in enumerate(arrays) if a.dtype.kind in "fc"}
    if symmetric:
        direction = {i: d + np.swapaxes(d.conj(), -1, -2) for i, d in direction.items()}

    def at(t: float) -> float:
        return float(f([a + t * direction[i] if i in direction else a for i, a in enumerate(arrays)]))

    slope = (at(eps) - at(-eps)) / (2 * eps)
    expected = sum(inner(g, direction[i]) for i, g in zip(wrt, gradients, strict=True))
    scale = 1 + sum(float(np.sum(np.abs(g * direction[i]))) for i, g in zip(wrt, gradients, strict=True))
    assert abs(slope - expected) <= 2e-6 * scale, f"{what}: slope {slope}, rule {expected}"


def float_results(case: Case, arrays: list[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        found = case.op.impl(*arrays, **case.attrs)
    results = map(np.asarray, found if isinstance(found, tuple) else (found,))
    return [r for r in results if r.dtype.kind in "fc"]


def has_phases(case: Case) -> bool:
    return case.op.name in PHASES and any(t.dtype.is_complex for t in case.op.result_types(case.types, case.attrs))


def without_phases(results: list[Any], cotangents: list[Any]) -> list[Any]:
    """Cotangents of a function of eigenvectors, or of U and V, that a phase of theirs does not change."""
    of = 0 if len(results) == 3 else 1  # U, S and V, or values and vectors
    turned = np.einsum("...ik,...ik->...k", results[of].conj(), cotangents[of])
    if len(results) == 3:
        turned += np.einsum("...ki,...ki->...k", results[2], cotangents[2].conj())
    found = list(cotangents)
    found[of] = cotangents[of] - results[of] * (1j * turned.imag)[..., None, :]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_gradient_is_the_slope(op: Op) -> None:
    checked = 0
    for case in smooth_cases(op):
        rng = np.random.default_rng(1)
        graph, wrt = gradient_graph(case)
        verify(graph)
        results = float_results(case, list(case.arrays))
        cotangents = [random_like(rng, r) for r in results]
        if has_phases(case):
            cotangents = without_phases(results, cotangents)
        gradients = graph.interpret(*case.arrays, *cotangents)
        for i, g in zip(wrt, gradients, strict=True):
            assert g.shape == case.arrays[i].shape and g.dtype == case.arrays[i].dtype, str(case)

        def along(arrays: list[Any], case: Case = case, cotangents: list[Any] = cotangents) -> float:
            return sum(inner(r, c) for r, c in zip(float_results(case, arrays), cotangents, strict=True))

        check_directional(along, list(case.arrays), gradients, wrt, rng, str(case), op.name in SYMMETRIC)
        checked += 1
    assert checked or op.name == "cast", f"no smooth sample of {op.name}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_second_gradient_is_the_slope_of_the_first(op: Op) -> None:
    if op.name in STEPS:
        pytest.skip("zero first derivative")
    for case in smooth_cases(op):
        if has_phases(case):
            continue
        rng = np.random.default_rng(2)
        first, wrt_first = gradient_graph(case)
        second, wrt = second_graph(case)
        verify(second)
        cotangents = [random_like(rng, r) for r in float_results(case, list(case.arrays))]
        weights = [random_like(rng, case.arrays[i]) for i in wrt_first]
        gradients = second.interpret(*case.arrays, *cotangents, *weights)

        def along(
            arrays: list[Any], first: Graph = first, cotangents: list[Any] = cotangents, weights: list[Any] = weights
        ) -> float:
            found = first.interpret(*arrays, *cotangents)
            return sum(inner(g, w) for g, w in zip(found, weights, strict=True))

        check_directional(along, list(case.arrays), gradients, wrt, rng, str(case), op.name in SYMMETRIC)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("op", DIFFERENTIABLE)
def test_gradient_graphs_print_and_parse(op: Op) -> None:
    for case in smooth_cases(op):
        graph, _ = gradient_graph(case)
        text = print_graph(graph)
        again = parse_graph(text)
        verify(again)
        assert print_graph(again) == text
