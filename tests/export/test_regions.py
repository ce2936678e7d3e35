"""Exported programs with control operators and recurrent layers, slices up to the end, and buffers that are set."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp._dynamo.exc import UserError
from tracecomp._higher_order_ops import associative_scan, scan, while_loop
from tracecomp.export import Dim, export, load, save
from tracecomp.fx import Graph, GraphModule
from tracecomp.nn import functional as F


class Runs(nn.Module):
    """A module that runs one function of its buffer ``c`` and its argument."""

    c: torch.Tensor

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.fn = fn
        self.register_buffer("c", torch.arange(10.0) + 100)

    def forward(self, x: Any) -> Any:
        return self.fn(self, x)


CONTROL: dict[str, Callable[[Any, Any], Any]] = {
    "cond": lambda m, x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    "cond of a buffer": lambda m, x: torch.cond(x.sum() > 0, lambda x: x * m.c[:3], lambda x: x - m.c[:3], (x,)),
    "cond in cond": lambda m, x: torch.cond(
        x.sum() > 2.5,
        lambda x: torch.cond(x.mean() > 0.5, lambda x: x * 2.0, lambda x: x * 3, (x,)),
        lambda x: x - m.c[:3],
        (x,),
    ),
    "while_loop": lambda m, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (x.sum().long(), x))[1],
    "scan": lambda m, x: scan(lambda c, x: (c + x, c * x), torch.zeros(2, 3), x)[1],
    "associative_scan": lambda m, x: associative_scan(lambda a, b: a * b, x, 0),
}
LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4, 2, batch_first=True), "gru": lambda: nn.GRU(3, 2, bidirectional=True),
    "rnn": lambda: nn.RNN(3, 4, nonlinearity="relu"), "projected": lambda: nn.LSTM(3, 4, proj_size=2),
}  # fmt: skip


def test_regions_read_parameters() -> None:
    linear = nn.Linear(3, 3)
    model = Runs(lambda m, x: torch.cond(x.sum() > 0, lambda x: m.linear(x), lambda x: x, (x,)))
    model.linear = linear
    module = export(model, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        assert _same(module(x), model(x))


def _tensors(found: Any) -> list[Any]:
    return [found.detach().numpy()] if isinstance(found, torch.Tensor) else [a for x in found for a in _tensors(x)]


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(_tensors(a), _tensors(b), strict=True))


@pytest.mark.parametrize("name", [*CONTROL, *LAYERS])
def test_a_region_prints_as_code_and_gives_the_bits_of_the_module_in_every_form(name: str) -> None:
    model = Runs(CONTROL[name]) if name in CONTROL else LAYERS[name]()
    examples = [torch.randn(4, 2, 3), -torch.ones(4, 2, 3), torch.ones(4, 2, 3)]
    program = export(model, (examples[0],))
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    ways = [program.module(), load(file).module(), program.run_decompositions().module()]
    ways.append(copy.deepcopy(ways[0]))
    for x in examples:
        want = model(x)
        assert all(_same(way(x), want) for way in ways)


def test_arguments_without_a_literal_form_are_globals_of_the_code() -> None:
    class Thing:
        def __call__(self, x: Any) -> Any:
            return x * 2

        def __repr__(self) -> str:
            return "<no source at all>"

    def applied(x: Any, how: Any) -> Any:
        return how(x)

    graph = Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(applied, (x, Thing())))
    assert GraphModule(nn.Module(), graph)(3) == 6


def test_a_region_made_for_one_size_fixes_it_also_where_sizes_are_equal_by_chance() -> None:
    layer = nn.LSTM(2, 3, 2)
    layer(torch.ones(4, 2, 2))  # so that the regions of this size are at hand
    with pytest.raises(UserError, match="constant"):
        export(layer, (torch.ones(4, 2, 2),), dynamic_shapes=({1: Dim("n")},))
    closed = export(layer, (torch.ones(4, 2, 2),), dynamic_shapes=({1: Dim.AUTO},)).module()
    with pytest.raises(AssertionError, match="Guard failed"):
        closed(torch.ones(4, 3, 2))


def _set(m: Any, at: Any, x: Any) -> None:
    m.c[at] = x


FILLED: dict[str, Callable[[Any, Any], Any]] = {
    "first rows": lambda m, x: _set(m, slice(0, x.shape[0]), x),
    "last rows": lambda m, x: _set(m, slice(10 - x.shape[0], None), x),
    "from the end": lambda m, x: _set(m, slice(-x.shape[0], None), x),
    "all but one": lambda m, x: _set(m, slice(1, x.shape[0]), x[1:]),
    "at most ten": lambda m, x: _set(m, slice(0, min(10, x.shape[0])), x[:10]),
    "narrow": lambda m, x: m.c.narrow(0, 10 - x.shape[0], x.shape[0]).copy_(x),
    "read": lambda m, x: m.c.add_(m.c[: x.shape[0]].sum()),
    "rest": lambda m, x: m.c[x.shape[0] :].zero_(),
    "padded": lambda m, x: m.c.add_(F.pad(x, (0, 10 - x.shape[0]))),
    "joined": lambda m, x: m.c.copy_(torch.cat([x, m.c[x.shape[0] :]])),
    "joined behind": lambda m, x: m.c.copy_(torch.cat([m.c[: 10 - x.shape[0]], x])),
    "split": lambda m, x: m.c.split([x.shape[0], 10 - x.shape[0]])[0].copy_(x),
    "tensor_split": lambda m, x: m.c.tensor_split([x.shape[0]])[0].copy_(x),
    "slice_scatter": lambda m, x: m.c.copy_(m.c.slice_scatter(x, 0, 0, x.shape[0])),
}


@pytest.mark.parametrize("name", FILLED)
def test_a_slice_that_ends_with_its_axis_is_the_same_program(name: str) -> None:
    def step(m: Any, x: Any) -> Any:
        x = x * 2
        FILLED[name](m, x)
        return x + 1

    made = export(Runs(step), (torch.ones(5),), dynamic_shapes=({0: Dim("n", min=2, max=10)},)).module()
    for n in (2, 5, 9, 10):
        model, x = Runs(step), torch.arange(float(n))
        made.c.copy_(model.c)
        assert _same(made(x), model(x)) and _same(made.c, model.c), n


def _rebind(m: Any, x: Any) -> Any:
    m.c = m.c * 0.5 + x
    return x - m.c


def _add(m: Any, x: Any) -> Any:
    m.c += x
    m.c *= 2
    return m.c + 1


def _shift(m: Any, x: Any) -> Any:
    m.c = torch.cat([m.c[1:], x[:1]])
    m.c += 1
    return x.sum()


@pytest.mark.parametrize("step", [_add, _rebind, _shift])
def test_buffers_that_the_program_sets_are_written(step: Callable[[Any, Any], Any]) -> None:
    model = Runs(step)
    program = export(model, (torch.ones(10),))
    assert np.array_equal(model.c.numpy(), np.arange(10.0) + 100)
    for way in (program.module(), program.run_decompositions().module()):
        model = Runs(step)
        way.c.copy_(model.c)
        for _ in range(3):
            x = torch.randn(10)
            assert _same(way(x), model(x)) and _same(way.c, model.c)


def _old(m: Any, x: Any) -> Any:
    old, m.c = m.c, m.c + x
    return old


def _longer(m: Any, x: Any) -> None:
    m.c = torch.cat([m.c, x])


def _alias(m: Any, x: Any) -> Any:
    m.d = m.c
    return x


@pytest.mark.parametrize("step", [_old, _longer, _alias])
def test_a_tensor_that_no_buffer_can_hold_is_refused_and_the_module_is_left_alone(step: Any) -> None:
    model = Runs(step)
    model.register_buffer("d", torch.zeros(10))
    c, d = model.c, model.d
    with pytest.raises(UserError, match="keeps a tensor"):
        export(model, (torch.ones(10),))
    assert model.c is c and model.d is d
