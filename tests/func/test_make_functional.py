"""The functions of ``functorch`` for modules, compared with the modules themselves."""

from __future__ import annotations

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp._functorch import functorch


def test_a_module_is_a_function_of_its_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    function, params = functorch.make_functional(model)
    x = torch.randn(5, 3)
    assert torch.equal(function(params, x), model(x))
    assert torch.equal(function([p * 0 for p in params], x), torch.zeros(5, 1))
    with torch.no_grad():
        model[0].weight.add_(1)
    assert not torch.equal(function(params, x), model(x))


def test_buffers_are_given_beside_parameters_and_stacked_for_vmap() -> None:
    models = [nn.BatchNorm1d(3).eval() for _ in range(2)]
    models[1].running_mean.fill_(2.0)
    with pytest.raises(RuntimeError, match="has buffers"):
        functorch.make_functional(models[0])
    x = torch.randn(4, 3)
    function, params, buffers = functorch.make_functional_with_buffers(models[1])
    assert torch.equal(function(params, buffers, x), models[1](x))
    function, params, buffers = functorch.combine_state_for_ensemble(models)
    found = functorch.vmap(function, in_dims=(0, 0, None))(params, buffers, x)
    assert torch.allclose(found, torch.stack([m(x) for m in models]))
