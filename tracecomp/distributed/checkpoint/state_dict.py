"""States of models and optimizers by parameter names, the same for wrapped and plain models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tracecomp.distributed.collectives import broadcast
from tracecomp.distributed.objects import broadcast_object_list
from tracecomp.distributed.processes import get_rank, is_initialized
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.distributed import DistributedDataParallel
from tracecomp.nn.sharding import ShardedTensor
from tracecomp.optim.optimizer import Optimizer

Optimizers: TypeAlias = Optimizer | Iterable[Optimizer]


@dataclass
class StateDictOptions:
    """Options for getting and setting states.

    ``full_state_dict``: sharded tensors become whole ones, in all processes, or with ``cpu_offload`` in rank 0 alone;
    other ranks get an empty state. ``broadcast_from_rank0``: all ranks load the state of rank 0.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    broadcast_from_rank0: bool = False
    strict: bool = True


def _given(state: object, options: StateDictOptions | None) -> Any:
    """Return ``state`` in the form of the options; collective if tensors become whole."""
    if options is None or not options.full_state_dict:
        return state
    kept = not options.cpu_offload or not is_initialized() or get_rank() == 0
    return whole(state, kept) if kept or isinstance(state, Mapping) else {}


def whole(state: object, kept: bool = True) -> Any:
    """Replace sharded tensors by whole ones in sequence; a process without ``kept`` only takes part in the
    communication."""
    if isinstance(state, ShardedTensor):
        found = state.full_tensor()
        return found if kept else None
    if isinstance(state, Mapping):
        entries = {k: whole(v, kept) for k, v in state.items()}
        return entries if kept else {}
    if isinstance(state, list | tuple):
        return type(state)(whole(v, kept) for v in state)
    return state


def _taken(state: object, options: StateDictOptions | None) -> Any:
    """Return the ``state`` to load: unchanged, or that of rank 0."""
    if options is None or not options.broadcast_from_rank0:
        return state
    found = [_described(state) if get_rank() == 0 else None]
    broadcast_object_list(found, src=0)
    return _sent(found[0], state if get_rank() == 0 else None)


class _Sent(NamedTuple):
    """Description of a tensor that rank 0 sends."""

    shape: tuple[int, ...]
    dtype: Any


def _described(state: object) -> Any:
    """Replace every tensor of ``state`` by its shape and dtype."""
    if isinstance(state, Tensor):
        return _Sent(tuple(state.shape), state.dtype)
    if isinstance(state, Mapping):
        return {k: _described(v) for k, v in state.items()}
    return [_described(v) for v in state] if isinstance(state, list | tuple) else state


def _sent(described: Any, state: Any) -> Any:
    """Receive the tensors that rank 0 has described, in sequence."""
    if isinstance(described, _Sent):
        found = T.empty(described.shape, dtype=described.dtype) if state is None else state.detach().clone()
        broadcast(found, 0)
        return found
    if isinstance(described, Mapping):
        return {k: _sent(v, None if state is None else state[k]) for k, v in described.items()}
    if isinstance(described, list):
        return [_sent(v, None if state is None else state[i]) for i, v in enumerate(described)]
    return described


def _plain(model: Module) -> Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _names(model: Module) -> dict[int, str]:
    return {id(p): name for name, p in _plain(model).named_parameters()}


def get_model_state_dict(
    model: Module, *, submodules: object = None, options: StateDictOptions | None = None
) -> dict[str, Any]:  # fmt: skip
    """``model.state_dict()``, without the prefix of ``DistributedDataParallel``."""
    return dict(_given(dict(_plain(model).state_dict()), options))


def set_model_state_dict(
    model: Module, model_state_dict: Mapping[str, object], *, options: StateDictOptions | None = None
) -> Any:  # fmt: skip
    """Load the result of ``get_model_state_dict``; parameters without memory become the loaded tensors."""
    strict = True if options is None else options.strict
    without = any(p.is_meta for p in _plain(model).parameters())
    return _plain(model).load_state_dict(_taken(dict(model_state_dict), options), strict=strict, assign=without)


def _listed(optimizers: Optimizers) -> list[Optimizer]:
    return [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)


def _order(model: Module, optimizer: Optimizer) -> list[str]:
    """Names of an optimizer's parameters in its order. RuntimeError for one that the model lacks."""
    names = _names(model)
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p in params:
        if id(p) not in names:
            raise RuntimeError(f"the optimizer has a parameter of shape {list(p.shape)} that is not the model's")
    return [names[id(p)] for p in params]


def get_optimizer_state_dict(
    model: Module, optimizers: Optimizers, *, submodules: object = None, options: StateDictOptions | None = None
) -> dict[str, Any]:  # fmt: skip
    """States of optimizers with parameter names instead of numbers."""
    found: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _listed(optimizers):
        order, given = _order(model, optimizer), optimizer.state_dict()
        found["state"].update({order[number]: state for number, state in given["state"].items()})
        for group in given["param_groups"]:
            found["param_groups"].append({**group, "params": [order[number] for number in group["params"]]})
    return dict(_given(found, options))


def set_optimizer_state_dict(
    model: Module, optimizers: Optimizers, optim_state_dict: Mapping[str, Any], *,
    options: StateDictOptions | None = None,
) -> None:  # fmt: skip
    """Load the result of ``get_optimizer_state_dict``."""
    optim_state_dict = _taken(optim_state_dict, options)
    groups = list(optim_state_dict["param_groups"])
    for optimizer in _listed(optimizers):
        mine, groups = groups[: len(optimizer.param_groups)], groups[len(optimizer.param_groups) :]
        named = {"state": optim_state_dict["state"], "param_groups": mine}
        optimizer.load_state_dict(numbered(model, optimizer, named))


def numbered(model: Module, optimizer: Optimizer, named: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a state by parameter names to the optimizer's numbers."""
    number = {name: place for place, name in enumerate(_order(model, optimizer))}
    state = {number[name]: value for name, value in named["state"].items() if name in number}
    groups = [{**group, "params": [number[name] for name in group["params"]]} for group in named["param_groups"]]
    return {"state": state, "param_groups": groups}


def get_state_dict(
    model: Module, optimizers: Optimizers, *, submodules: object = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """States of a model and its optimizers."""
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(
    model: Module, optimizers: Optimizers, *, model_state_dict: Mapping[str, object],
    optim_state_dict: Mapping[str, object], options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """Load the result of ``get_state_dict``."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


def _init_optim_state(optim: Optimizer) -> None:
    """Create the state of an optimizer without steps: one step with gradients and learning rates of zero."""
    if optim.state:
        return
    rates = [group["lr"] for group in optim.param_groups]
    with no_grad():
        for group in optim.param_groups:
            group["lr"] = 0.0
            for p in group["params"]:
                if p.requires_grad:
                    p.grad = T.zeros_like(p)
    optim.step()
    for group, rate in zip(optim.param_groups, rates, strict=True):
        group["lr"] = rate
    optim.zero_grad()
