"""Every module of torch's own sample database: results, gradients, buffers, keys and text, in training and after."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's sample database needs it

from torch.testing._internal.common_modules import module_db  # noqa: E402

from tests.opinfo.run_opinfo import (  # noqa: E402
    Unsupported,
    convert,
    difference,
    float_leaves,
    grad_difference,
    tensor_difference,
)

RANDOM = ("FractionalMaxPool", "RReLU")
"""Modules that draw random numbers in each call, in other streams than torch's."""
SAMPLES = 6
"""Samples of each module and mode; torch has up to 216, which differ in few."""


def arguments(given: Any, memo: dict[int, Any]) -> tuple[Any, Any]:
    """The arguments as ours, modules among them with torch's parameters."""
    return convert(list(given.args), memo), convert(dict(given.kwargs), memo)


def pairs(info: Any, training: bool) -> Any:
    """torch's module, ours of the same state, and the arguments of a call."""
    made = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
    for sample in made[:: max(1, len(made) // SAMPLES)]:
        if sample.forward_input is None:
            continue
        given = sample.constructor_input
        theirs = info.module_cls(*given.args, **given.kwargs).to(torch.float64).train(training)
        args, kwargs = arguments(given, {})
        ours = getattr(tracecomp.nn, info.module_cls.__name__)(*args, **kwargs).double().train(training)
        ours.load_state_dict({key: convert(value.detach(), {}) for key, value in theirs.state_dict().items()})
        yield theirs, ours, sample.forward_input


def different(theirs: Any, ours: Any, call: Any, random: bool) -> str | None:
    """Return the difference after a call; None if there is none."""
    memo: dict[int, Any] = {}
    args, kwargs = arguments(call, memo)
    want, got = theirs(*call.args, **call.kwargs), ours(*args, **kwargs)
    text = difference(want, got, 1e-7, not random)
    if not text and not random:
        inputs = float_leaves([*call.args, *call.kwargs.values()])
        mine = [memo[id(x)] for x in inputs] + list(ours.parameters())
        text = grad_difference(want, got, inputs + list(theirs.parameters()), mine) if mine else None
    states = theirs.state_dict(), ours.state_dict()
    if text or list(states[0]) != list(states[1]):
        return text or f"keys {list(states[1])} instead of {list(states[0])}"
    for key in states[0]:
        text = text or tensor_difference(states[0][key], states[1][key], 1e-7, True)
    return text or (None if repr(theirs) == repr(ours) else f"{ours!r} instead of {theirs!r}")


MODULES = [
    info for info in module_db
    if "Lazy" not in info.name and info.name not in ("nn.TransformerEncoder", "nn.TransformerDecoder")
]  # fmt: skip
"""Lazy ones have no state to copy, and their results are those of what they become; stacks hold torch's own layers."""


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("info", MODULES, ids=lambda info: info.name)
def test_first_samples(info: Any, training: bool) -> None:
    random = any(word in info.name for word in RANDOM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for theirs, ours, call in pairs(info, training):
            drops = training and ("Dropout" in info.name or bool(getattr(theirs, "dropout", False)))
            try:
                text = different(theirs, ours, call, bool(random or drops))
            except Unsupported:
                continue
            assert text is None, text
