"""``checkpoint_wrapper``: modules whose activations the backward pass computes again, chosen by a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from tracecomp.autograd.graph import save_on_cpu
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.module import Module
from tracecomp.nn.parameter import Parameter
from tracecomp.utils.checkpoint import checkpoint

_WRAPPED = "_checkpoint_wrapped_module"
_PREFIX = _WRAPPED + "."


class CheckpointImpl(Enum):
    """The implementations of ``checkpoint``."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module, ABC):
    """A wrapper of a module that keeps its names in ``named_parameters`` and ``state_dict``."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module: Any = mod
        self.register_state_dict_post_hook(_without_prefix)
        self.register_load_state_dict_pre_hook(_with_prefix)

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_WRAPPED], name)

    def __getitem__(self, key: int) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The parameters by their names in the wrapped module."""
        for name, parameter in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), parameter


def _without_prefix(module: Module, state: dict[str, Tensor], prefix: str, *args: object) -> None:
    for key in [k for k in state if k.startswith(prefix + _PREFIX)]:
        state[prefix + key.removeprefix(prefix + _PREFIX)] = state.pop(key)


def _with_prefix(module: Module, state: dict[str, Tensor], prefix: str, *args: object) -> None:
    for key in [k for k in state if k.startswith(prefix) and not k.startswith(prefix + _PREFIX)]:
        state[prefix + _PREFIX + key.removeprefix(prefix)] = state.pop(key)


class OffloadWrapper(ActivationWrapper):
    """A module that keeps its activations in the memory of the CPU."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """A module whose activations are computed again."""

    def __init__(
        self, mod: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            checkpoint_fn = partial(checkpoint, use_reentrant=checkpoint_impl is CheckpointImpl.REENTRANT)
        self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.checkpoint_fn(self._checkpoint_wrapped_module, *args, **kwargs)


def offload_wrapper(module: Module) -> Module:
    """``module`` with its activations in the memory of the CPU."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any,
) -> Module:  # fmt: skip
    """``module`` with activations that the backward pass computes again."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module, checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True, auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:  # fmt: skip
    """Wrap the parts of ``model`` for which ``check_fn`` is true, or those that ``auto_wrap_policy`` chooses."""
    policy = auto_wrap_policy or (lambda module, recurse, nonwrapped_numel: recurse or check_fn(module))
    _wrap_parts(model, policy, checkpoint_wrapper_fn)


def _wrap_parts(module: Module, policy: Callable[..., bool], wrapper: Callable[[Module], Module]) -> int:
    """Wrap parts of ``module``, the innermost ones first; the number of elements in parameters of wrapped parts."""
    wrapped = 0
    if not policy(module=module, recurse=True, nonwrapped_numel=_elements(module)):
        return wrapped
    for name, part in module.named_children():
        inside = _wrap_parts(part, policy, wrapper)
        if policy(module=part, recurse=False, nonwrapped_numel=_elements(part) - inside):
            inside = _elements(part)
            setattr(module, name, wrapper(part))
        wrapped += inside
    return wrapped


def _elements(module: Module) -> int:
    return sum(p.numel() for p in module.parameters())
