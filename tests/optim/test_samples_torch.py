"""Every optimizer of torch's sample database: parameters, state and groups after steps, and errors."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's sample database needs it

from torch.testing._internal.common_optimizers import optim_db  # noqa: E402

from tests.opinfo.run_opinfo import convert  # noqa: E402

STEPS = 6
TOLERANCE = {"Muon": 1e-3, "Rprop": 1e-7}
"""Muon's iteration is in bfloat16, whose roundings add up; torch holds Rprop's factors in float32."""
SCRATCH = "al"
"""An entry that LBFGS keeps in torch's state, though each step computes it again."""
IMPLEMENTATION = ("foreach", "both floats or both Tensors")
"""Refusals of combinations that are a matter of torch's several implementations."""


def after_steps(lib: Any, info: Any, options: dict[str, Any]) -> tuple[list[Any], Any]:
    """The parameters and the optimizer's state_dict."""
    name, shapes = info.optim_cls.__name__, [(4, 3), (5, 4)]
    start, goal = np.random.default_rng(1), np.random.default_rng(2)
    parameters = [lib.nn.Parameter(lib.tensor(start.normal(size=s))) for s in shapes]
    goals = [lib.tensor(goal.normal(size=s)) for s in shapes]
    optimizer = getattr(lib.optim, name)(parameters, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum(((p - g) ** 2).sum() for p, g in zip(parameters, goals, strict=True))
        loss.backward()
        return loss

    for _ in range(STEPS):
        if name == "SparseAdam":
            closure()
            for p in parameters:
                p.grad = p.grad.to_sparse()
            optimizer.step()
        else:
            optimizer.step(closure)
    return [p.detach().numpy() for p in parameters], optimizer.state_dict()


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.optim_cls.__name__)
def test_steps(info: Any) -> None:
    tolerance = TOLERANCE.get(info.optim_cls.__name__, 1e-9)
    for sample in info.optim_inputs_func(device="cpu", dtype=torch.float64):
        (want, theirs), (got, ours) = (
            after_steps(lib, info, options)
            for lib, options in ((torch, dict(sample.kwargs)), (tracecomp, convert(dict(sample.kwargs), {})))
        )
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance, err_msg=sample.desc)
        assert [sorted(group) for group in ours["param_groups"]] == [sorted(group) for group in theirs["param_groups"]]
        for key, state in theirs["state"].items():
            assert sorted(ours["state"][key]) == sorted(set(state) - {SCRATCH}), sample.desc


def parameters_of(given: Any, memo: dict[int, Any]) -> Any:
    """Parameters, tensors and collections of them as ours."""
    if isinstance(given, torch.Tensor):
        if id(given) not in memo:
            ours = convert(given.detach(), {})
            ours = tracecomp.nn.Parameter(ours) if isinstance(given, torch.nn.Parameter) else ours
            ours.grad = None if given.grad is None else convert(given.grad, {})
            memo[id(given)] = given, ours
        return memo[id(given)][1]
    if isinstance(given, dict):
        return {key: parameters_of(value, memo) for key, value in given.items()}
    return type(given)(parameters_of(v, memo) for v in given) if isinstance(given, list | tuple) else given


@pytest.mark.parametrize("info", optim_db, ids=lambda info: info.optim_cls.__name__)
def test_refusals(info: Any) -> None:
    cls = getattr(tracecomp.optim, info.optim_cls.__name__)
    for bad in info.optim_error_inputs_func("cpu", torch.float32):
        sample = bad.optimizer_error_input
        if any(word in bad.error_regex for word in IMPLEMENTATION) or _is_sparse(sample.params):
            continue
        with warnings.catch_warnings(), pytest.raises(bad.error_type) as caught:
            warnings.simplefilter("error")
            optimizer = cls(parameters_of(sample.params, {}), **convert(dict(sample.kwargs), {}))
            optimizer.step()
        assert re.search(bad.error_regex, str(caught.value)), (sample.desc, str(caught.value))


def _is_sparse(given: Any) -> bool:
    """Whether there is a sparse parameter: ``convert`` makes dense tensors only."""
    if isinstance(given, torch.Tensor):
        return bool(given.is_sparse)
    inside = given.values() if isinstance(given, dict) else given if isinstance(given, list | tuple) else ()
    return any(_is_sparse(value) for value in inside)


def test_sparse_parameters_are_refused() -> None:
    sparse = tracecomp.eye(3).to_sparse().requires_grad_()
    with pytest.raises(ValueError, match="SparseAdam requires dense parameter tensors"):
        tracecomp.optim.SparseAdam([sparse])
