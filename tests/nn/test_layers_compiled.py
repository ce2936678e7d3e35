"""Every layer compiled: the whole of forward and backward is one graph with the results of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.nn.layers import LAYERS, LOSSES, Case, identify, make_input
from tests.references import by_numpy
from tracecomp import nn


def flat(value: Any) -> list[Any]:
    return [t for v in value for t in flat(v)] if isinstance(value, tuple | list) else [value]


@pytest.mark.sampled(22)
@pytest.mark.parametrize("case", LAYERS + LOSSES, ids=identify)
def test_layer_compiled_is_the_layer_run_by_numpy(case: Case) -> None:
    name, args, options, inputs = case
    rng = np.random.default_rng(1)
    arrays = [make_input(spec, rng) for spec in inputs]
    results = []
    for compiled in (False, True):
        tracecomp.manual_seed(0)
        layer = getattr(nn, name)(*args, **options)
        xs = [tracecomp.tensor(a) for a in arrays]
        xs = [x.requires_grad_() if x.is_floating_point() else x for x in xs]

        def step(layer: Any = layer, xs: Any = xs) -> list[Any]:
            outs = [t for t in flat(layer(*xs)) if t is not None]
            leaves = [*xs, *layer.parameters()]
            for leaf in leaves:
                leaf.grad = None
            floats = [t for t in outs if t.requires_grad]
            if floats:
                sum((t * t).sum() for t in floats).backward()
            return [*outs, *(leaf.grad for leaf in leaves if leaf.grad is not None)]

        call = tracecomp.compile(step) if compiled else by_numpy(step)
        for _ in range(3):
            found = call()
        results.append([np.array(t.detach()) for t in (*found, *layer.buffers())])
        if compiled:
            assert len(call.graphs) == 1
    assert len(results[0]) == len(results[1])
    for eager, native in zip(*results, strict=True):
        np.testing.assert_allclose(native, eager, rtol=1e-4, atol=1e-5)
