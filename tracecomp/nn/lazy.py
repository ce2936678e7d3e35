"""Modules that learn the sizes of their parameters from the first input."""

from __future__ import annotations

from typing import Any

from tracecomp.nn.module import Module
from tracecomp.nn.parameter import is_lazy


class LazyModuleMixin(Module):
    """Mixin: ``initialize_parameters(*args)`` sets shapes in the first call, then the class becomes the plain one.

    A subclass derives from it and from the plain module, which ``cls_to_become`` names. Its parameters are
    ``UninitializedParameter``, its buffers ``UninitializedBuffer``.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every uninitialized parameter and buffer a shape that fits the arguments of ``forward``."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer of this module has no shape yet."""
        return any(is_lazy(v) for v in (*self._parameters.values(), *self._buffers.values()))

    def _lazy_load_hook(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(value) and given is not None and not is_lazy(given):
                value.materialize(tuple(given.shape))  # type: ignore[union-attr]

    def _infer_parameters(self, module: Any, args: tuple[object, ...], kwargs: dict[str, object] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
