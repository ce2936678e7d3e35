"""Modules as functions of their parameters: ``functional_call``, ``stack_module_state``; modules without state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tracecomp.eager.modes import modes, module_changes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.norm import _BatchNorm


def functional_call(
    module: Any, parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]], args: Any = None,
    kwargs: dict[str, object] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call ``module(*args, **kwargs)`` with the named parameters and buffers instead of the module's.

    ``strict``: all must be given, and nothing else (RuntimeError). ValueError for a name given twice.
    """
    given: dict[str, Tensor] = {}
    single = isinstance(parameter_and_buffer_dicts, Mapping)
    if not (single or isinstance(parameter_and_buffer_dicts, list | tuple)):
        raise ValueError(
            "functional_call(): parameter_and_buffer_dicts must be a dict or a list of dicts, got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    if not hasattr(module, "named_parameters"):
        raise AttributeError(f"functional_call(): module must be torch.nn.Module, got {type(module)}")
    for part in [parameter_and_buffer_dicts] if single else parameter_and_buffer_dicts:
        for name in part:
            if name in given:
                raise ValueError(f"{name} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given.update(part)  # type: ignore[arg-type]
    if args is None:
        args = ()
    if not isinstance(args, tuple):
        args = (args,)
    with reparametrized(module, given, tie_weights, strict):
        return module(*args, **(kwargs or {}))


@contextmanager
def reparametrized(
    module: Any, parameters_and_buffers: Mapping[str, Tensor], tie_weights: bool = False, strict: bool = False
) -> Iterator[None]:
    """A block in which ``module`` has the named parameters and buffers, as in ``functional_call``."""
    if strict:
        _check_names(module, parameters_and_buffers)
    given = _with_ties(module, parameters_and_buffers) if tie_weights else parameters_and_buffers
    with _swapped(module, given):
        yield


def _slots(module: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """The dictionary and key of each named parameter and buffer, including all names of shared ones."""
    found = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for name, value in table.items():
                if value is not None:
                    found[f"{path}.{name}" if path else name] = (table, name)
    return found


def _check_names(module: object, given: Mapping[str, Tensor]) -> None:
    own = _slots(module)
    unexpected, missing = sorted(set(given) - set(own)), sorted(set(own) - set(given))
    if unexpected or missing:
        raise RuntimeError(
            f"Error(s) in reparametrizing {type(module).__name__}: unexpected keys {unexpected}, missing keys {missing}"
        )


def _with_ties(module: object, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``given`` for every name of a parameter that has several."""
    slots = _slots(module)
    owner = {name: id(table[key]) for name, (table, key) in slots.items()}
    values = {owner[name]: value for name, value in given.items() if name in owner}
    tied = {name: values[tensor] for name, tensor in owner.items() if tensor in values}
    return {**tied, **given}


@contextmanager
def _swapped(module: Any, given: Mapping[str, Tensor]) -> Iterator[None]:
    if modes.recorder is not None:  # which is to know the module as it is outside of this call
        for part in module.modules():
            module_changes.ran(part)
    slots = _slots(module)
    before = []
    try:
        for name, value in given.items():
            if name not in slots:
                continue  # as in PyTorch, unless ``strict``
            table, key = slots[name]
            before.append((table, key, table[key]))
            table[key] = value
        module_changes.changed()
        yield
    finally:
        for table, key, value in reversed(before):
            table[key] = value
        module_changes.changed()


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of modules of one class, stacked by name, for ``vmap`` over ``functional_call``."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(m.training is not models[0].training for m in models):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    params = {}
    for name in dict(models[0].named_parameters()):
        parts = [dict(m.named_parameters())[name] for m in models]
        params[name] = T.stack(parts).detach().requires_grad_(parts[0].requires_grad)
    buffers = {
        name: T.stack([dict(m.named_buffers())[name] for m in models]) for name in dict(models[0].named_buffers())
    }
    return params, buffers


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """``root``, whose batch norms use the statistics of their batch alone from now on and keep none."""
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def functionalize(func: Callable[..., object], *, remove: str = "mutations") -> Callable[..., Any]:
    """``func``: recorded graphs hold no writes in place, whatever the program does."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): Valid options for remove are: remove='mutations', "
            "remove='mutations_and_views'"
        )
    return func
