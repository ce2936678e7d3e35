"""Bits do not depend on the processor: neither on its description nor on measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.codegen.random_graphs import Maker
from tests.codegen.running import run_built, same_bits
from tests.codegen.text.test_target import host_is_x86, target_named
from tests.machines import MACHINES
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_printer import print_program
from tracecomp.nn import functional as F
from tracecomp.passes.building import Built, build
from tracecomp.passes.cost.machine import Machine, on
from tracecomp.passes.cost.rates import Rates
from tracecomp.runtime import compiler
from tracecomp.runtime.executable import Executable

TARGETS = {"Haswell": "avx2", "x86-64": "baseline", "tiny caches": "baseline"}
"""The instructions that a machine's programs are compiled to; those of this machine for the others."""

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def gradients(fn: Callable[..., Any]) -> Callable[..., Any]:
    def of_all(*args: Any) -> Any:
        leaves = [a.detach().requires_grad_() for a in args]
        return torch.autograd.grad(fn(*leaves).square().sum(), leaves)

    return of_all


def depthwise(x: Any, w: Any) -> Any:
    options = {"padding": w.shape[2] // 2, "groups": w.shape[0]}
    return F.conv2d(x.permute(0, 3, 1, 2), w, **options).permute(0, 2, 3, 1).contiguous()


def first_layer(x: Any, w: Any) -> Any:
    return F.conv2d(x.permute(0, 3, 1, 2), w, padding=1).permute(0, 2, 3, 1).contiguous()


CASES: dict[str, Case] = {
    "product": (lambda a, b: a @ b, ((37, 300), (300, 70))),
    "product of a transposed operand": (lambda a, b: a.t() @ b, ((400, 70), (400, 33))),
    "product of rows": (lambda a, b: a @ b.t(), ((5, 200), (9, 200))),
    "batched product": (lambda a, b: a @ b, ((3, 17, 40), (3, 40, 35))),
    "attention": (F.scaled_dot_product_attention, ((2, 2, 21, 16), (2, 2, 29, 16), (2, 2, 29, 16))),
    "perceptron": (lambda x, a, b: torch.relu(x @ a) @ b, ((24, 50), (50, 90), (90, 11))),
    "normalised": (lambda x: F.layer_norm(torch.softmax(x, -1), (130,)), ((20, 130),)),
    "columns": (lambda x: x.sum(0) + x.std(0) * x.amax(0), ((900, 37),)),
    "transposed": (lambda x: x.permute(2, 0, 1).contiguous() * 2, ((9, 33, 70),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 16, 12, 12), (24, 16, 3, 3))),
    "first layer": (lambda x, w: F.conv2d(x, w, padding=3, stride=2), ((1, 3, 23, 25), (20, 3, 7, 7))),
    "first layer, channels last": (first_layer, ((1, 7, 9, 3), (32, 3, 3, 3))),
    "more filters": (first_layer, ((1, 7, 9, 4), (70, 4, 3, 3))),
    "every other": (lambda x, w: F.conv2d(x, w, padding=1, stride=2) + 0.5, ((1, 8, 7, 9), (8, 8, 3, 3))),
    "few channels": (lambda x, w: F.conv2d(x, w, padding=1), ((2, 3, 9, 40), (5, 3, 3, 3))),
    "depthwise": (depthwise, ((1, 11, 13, 20), (20, 1, 3, 3))),
    "wide depthwise": (depthwise, ((1, 9, 10, 37), (37, 1, 7, 7))),
    "depthwise, channels first": (lambda x, w: F.conv2d(x, w, padding=2, groups=6), ((2, 6, 20, 24), (6, 1, 5, 5))),
    "line": (lambda x, w: F.conv1d(x, w, padding=2), ((2, 8, 50), (16, 8, 5))),
}
TRAINED = ("attention", "perceptron", "normalised", "convolution", "first layer", "depthwise", "few channels")
INTERPRETED = ("product of rows", "batched product", "every other", "depthwise", "few channels")
"""Cases small enough for the interpreter of loops, without functions, which it takes from numpy."""


def recorded(name: str, backward: bool) -> tuple[Graph, list[Any]]:
    """The graph of a case, and operands with an infinite element each."""
    fn, shapes = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    graph = torch.trace(gradients(fn) if backward else fn, *map(torch.from_numpy, arrays))
    for array in arrays[-1:]:
        array.reshape(-1)[rng.integers(array.size)] = np.inf
    return graph, arrays


def built_for(machine: Machine, graph: Graph) -> Built:
    with on(machine):
        return build(graph)


def results(built: Built, graph: Graph, arrays: list[Any], target: str | None, patch: pytest.MonkeyPatch) -> list[Any]:
    with patch.context() as scope:
        if target is not None:
            narrow = target_named(target)
            scope.setattr(compiler, "host_target", lambda: narrow)
        executable = Executable(built.program)
    return run_built(built, executable, graph, arrays)


def interpreted(built: Built, graph: Graph, arrays: list[Any]) -> list[Any]:
    outputs = [np.zeros(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]
    given = iter(arrays)
    inputs = [i.data if i.role == "constant" else next(given) for i in built.graph.inputs]
    interpret_program(built.program, [*(np.array(a, order="C") for a in inputs), *built.constants], outputs)
    return outputs


@pytest.mark.sampled(12)
@host_is_x86
@pytest.mark.parametrize(("name", "backward"), [*((n, False) for n in CASES), *((n, True) for n in TRAINED)])
def test_every_machine_computes_the_same_bits(name: str, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program is scheduled for each machine and compiled to its instructions; also with an infinite element, and
    next to padding."""
    graph, arrays = recorded(name, backward)
    one, *others = MACHINES
    want = results(built_for(MACHINES[one], graph), graph, arrays, None, monkeypatch)
    for machine in others:
        found = results(built_for(MACHINES[machine], graph), graph, arrays, TARGETS.get(machine), monkeypatch)
        assert all(map(same_bits, found, want)), machine


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", INTERPRETED)
def test_a_machine_that_cannot_be_run_here_is_interpreted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = recorded(name, False)
    want = results(built_for(MACHINES["Zen 4"], graph), graph, arrays, None, monkeypatch)
    assert all(map(same_bits, interpreted(built_for(MACHINES["Neoverse N1"], graph), graph, arrays), want))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(20, 32))
def test_random_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = Maker(seed).make(10)
    built = [built_for(machine, graph) for machine in MACHINES.values()]
    want, *others = (results(b, graph, arrays, None, monkeypatch) for b in built)
    assert all(same_bits(a, b) for other in others for a, b in zip(other, want, strict=True))


def test_schedules_differ_where_bits_do_not() -> None:
    """The programs compared above differ."""
    graph, _ = recorded("product", True)
    assert len({print_program(built_for(machine, graph).program) for machine in MACHINES.values()}) >= 5


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["depthwise", "first layer, channels last", "more filters", "every other"])
def test_terms_of_padding_are_left_out_by_all_machines_or_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinite weight times padding is NaN; which results are NaN must not depend on registers or caches."""
    graph, arrays = recorded(name, False)
    arrays[1][:] = np.inf
    arrays[0] = np.abs(arrays[0])
    numbers = []
    for machine in MACHINES.values():
        numbers.append(np.isnan(results(built_for(machine, graph), graph, arrays, None, monkeypatch)[0]))
    assert all(np.array_equal(n, numbers[0]) for n in numbers)


def test_what_was_measured_changes_who_shares_a_loop_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, arrays = recorded("perceptron", True)
    slow = Rates(multiply_adds=1e9, divisions=1e8, gathers=1e8, load_bytes=1e9, bandwidth=1e9, wake_seconds=1e-6)
    fast = Rates(multiply_adds=1e12, divisions=1e11, gathers=1e11, load_bytes=1e12, bandwidth=1e12, wake_seconds=1e-4)
    texts, found = set(), []
    for rates in (slow, Rates(), fast):
        built = built_for(replace(MACHINES["Zen 4"], rates=rates).tuned(parallel_products=1 << 16), graph)
        texts.add(print_program(built.program))
        found.append(results(built, graph, arrays, None, monkeypatch))
    assert len(texts) > 1
    assert all(same_bits(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))
