"""Every layer against PyTorch: same weights, same input, same output, gradients, buffers and printed form."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.nn.layers import LAYERS, LOSSES, Case, identify, make_input
from tracecomp import nn

torch = pytest.importorskip("torch")


def tensors(library: Any, arrays: list[Any], differentiable: int) -> list[Any]:
    made = [library.tensor(a) for a in arrays]
    return [t.requires_grad_() if t.is_floating_point() and i < differentiable else t for i, t in enumerate(made)]


def flat(value: Any) -> list[Any]:
    return [t for v in value for t in flat(v)] if isinstance(value, tuple | list) else [value]


def close(ours: Any, theirs: Any, what: str) -> None:
    assert (ours is None) == (theirs is None), what
    if ours is None:
        return
    assert str(ours.dtype) == str(theirs.dtype), what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("case", LAYERS + LOSSES, ids=identify)
def test_layer_is_that_of_torch(case: Case) -> None:
    name, args, options, inputs = case
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(*args, **options)
    ours = getattr(nn, name)(*args, **options)
    state = {k: tracecomp.tensor(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    assert repr(ours) == repr(theirs)
    rng = np.random.default_rng(1)
    arrays = [make_input(spec, rng) for spec in inputs]
    for training in (True, False):
        ours.train(training), theirs.train(training)
        differentiable = 1 if name == "SoftMarginLoss" else len(arrays)
        mine, other = (tensors(library, arrays, differentiable) for library in (tracecomp, torch))
        given = (ours(*mine), theirs(*other))
        results = [flat(g) for g in given]
        for i, (a, b) in enumerate(zip(*results, strict=True)):
            close(a, b, f"output {i}")
        grad_of = [[r for r in row if r.is_floating_point() and r.requires_grad] for row in results]
        assert len(grad_of[0]) == len(grad_of[1])
        if grad_of[0]:
            sum((r * r).sum() for r in grad_of[0]).backward()
            sum((r * r).sum() for r in grad_of[1]).backward()
        for i, (a, b) in enumerate(zip(mine, other, strict=True)):
            close(a.grad, b.grad, f"gradient of input {i}")
        theirs_by_name = dict(theirs.named_parameters())
        for key, parameter in ours.named_parameters():
            close(parameter.grad, theirs_by_name[key].grad, f"gradient of {key}")
            parameter.grad = theirs_by_name[key].grad = None
        for key, value in ours.state_dict().items():
            close(value, theirs.state_dict()[key], key)


@pytest.mark.parametrize("name", sorted({case[0] for case in LAYERS + LOSSES}))
def test_argument_names_and_defaults(name: str) -> None:
    def arguments(cls: Any) -> dict[str, Any]:
        return {
            k: p.default if not callable(p.default) else "function"
            for k, p in inspect.signature(cls.__init__).parameters.items()
            if k not in ("self", "args", "kwargs")
        }

    assert arguments(getattr(nn, name)) == arguments(getattr(torch.nn, name))


def test_every_class_of_torch_nn_is_here() -> None:
    theirs = {n for n in dir(torch.nn) if inspect.isclass(getattr(torch.nn, n)) and n[0].isupper()}
    unsupported = {"DataParallel", "Container", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions"}
    assert theirs - set(nn.__all__) <= unsupported
