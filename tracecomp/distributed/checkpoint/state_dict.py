"""States of models and optimizers by names of parameters, the same for wrapped and plain models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tracecomp.nn.module import Module
from tracecomp.nn.parallel.distributed import DistributedDataParallel
from tracecomp.optim.optimizer import Optimizer


def _plain(model: Module) -> Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _names(model: Module) -> dict[int, str]:
    return {id(p): name for name, p in _plain(model).named_parameters()}


def get_model_state_dict(model: Module, **options: Any) -> dict[str, Any]:
    """``model.state_dict()``, without the prefix of ``DistributedDataParallel``."""
    return dict(_plain(model).state_dict())


def set_model_state_dict(model: Module, model_state_dict: Mapping[str, object], **options: Any) -> Any:
    """Load what ``get_model_state_dict`` gave."""
    return _plain(model).load_state_dict(dict(model_state_dict))


def _listed(optimizers: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _order(model: Module, optimizer: Optimizer) -> list[str]:
    """Names of an optimizer's parameters in its order. RuntimeError for one that the model does not have."""
    names = _names(model)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p in params:
        if id(p) not in names:
            raise RuntimeError(f"the optimizer has a parameter of shape {list(p.shape)} that is not the model's")
    return [names[id(p)] for p in params]


def get_optimizer_state_dict(model: Module, optimizers: Any, **options: Any) -> dict[str, Any]:
    """States of optimizers with names of parameters in place of numbers."""
    found: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _listed(optimizers):
        order, given = _order(model, optimizer), optimizer.state_dict()
        found["state"].update({order[number]: state for number, state in given["state"].items()})
        for group in given["param_groups"]:
            found["param_groups"].append({**group, "params": [order[number] for number in group["params"]]})
    return found


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: Mapping[str, Any], **options: Any
) -> None:  # fmt: skip
    """Load what ``get_optimizer_state_dict`` gave."""
    groups = list(optim_state_dict["param_groups"])
    for optimizer in _listed(optimizers):
        order = _order(model, optimizer)
        number = {name: place for place, name in enumerate(order)}
        mine, groups = groups[: len(optimizer.param_groups)], groups[len(optimizer.param_groups) :]
        state = {number[name]: value for name, value in optim_state_dict["state"].items() if name in number}
        numbered = [{**group, "params": [number[name] for name in group["params"]]} for group in mine]
        optimizer.load_state_dict({"state": state, "param_groups": numbered})


def get_state_dict(model: Module, optimizers: object, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """States of a model and its optimizers."""
    return get_model_state_dict(model), get_optimizer_state_dict(model, optimizers)


def set_state_dict(
    model: Module, optimizers: object, *, model_state_dict: Mapping[str, object],
    optim_state_dict: Mapping[str, object], **options: Any,
) -> Any:  # fmt: skip
    """Load what ``get_state_dict`` gave."""
    found = set_model_state_dict(model, model_state_dict)
    set_optimizer_state_dict(model, optimizers, optim_state_dict)
    return found
