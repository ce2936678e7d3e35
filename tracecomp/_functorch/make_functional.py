"""Modules without their state, the predecessor of ``torch.func.functional_call``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.func import functional_call, stack_module_state
from tracecomp.nn import Module

State = tuple[Tensor, ...]


class FunctionalModule(Module):
    """``f(params, *args)`` calls the module with these parameters, in the order of ``named_parameters``."""

    def __init__(self, stateless_model: Module, names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.names = tuple(names)

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.stateless_model, dict(zip(self.names, params, strict=True)), args, kwargs)


class FunctionalModuleWithBuffers(Module):
    """``f(params, buffers, *args)`` calls the module with these parameters and buffers."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str], buffer_names: Sequence[str]) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        given = zip((*self.param_names, *self.buffer_names), (*params, *buffers), strict=True)
        return functional_call(self.stateless_model, dict(given), args, kwargs)


def _taken(model: Module, disable_autograd_tracking: bool) -> tuple[Module, dict[str, Tensor], dict[str, Tensor]]:
    """A copy of ``model``, and copies of its parameters and buffers by name."""
    stateless = copy.deepcopy(model)
    params = {k: p.detach().clone().requires_grad_(p.requires_grad) for k, p in model.named_parameters()}
    if disable_autograd_tracking:
        params = {k: p.detach() for k, p in params.items()}
    return stateless, params, {k: b.detach().clone() for k, b in model.named_buffers()}


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, State]:
    """Return ``model`` as a function, and its parameters. RuntimeError when it has buffers."""
    stateless, params, buffers = _taken(model, disable_autograd_tracking)
    if buffers:
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) instead."
        )
    return FunctionalModule(stateless, tuple(params)), tuple(params.values())


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, State, State]:
    """Return ``model`` as a function, its parameters, and its buffers."""
    stateless, params, buffers = _taken(model, disable_autograd_tracking)
    function = FunctionalModuleWithBuffers(stateless, tuple(params), tuple(buffers))
    return function, tuple(params.values()), tuple(buffers.values())


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, State, State]:
    """One function for models of one class, and their parameters and buffers stacked, for ``vmap``."""
    params, buffers = stack_module_state(models)
    function, *_ = make_functional_with_buffers(models[0])
    return function, tuple(params.values()), tuple(buffers.values())
