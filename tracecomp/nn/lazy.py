"""Modules that learn the sizes of their parameters from the first input."""

from __future__ import annotations

from typing import Any

from tracecomp.nn.module import Module
from tracecomp.nn.parameter import is_lazy


class LazyModule(Module):
    """Mixin: ``initialize_parameters(*args)`` gives shapes at the first call, then the class becomes the plain one."""

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_state_dict_pre_hooks.clear()
        self._register_load_state_dict_pre_hook(self._take_shapes)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every uninitialized parameter and buffer a shape that fits the arguments of ``forward``."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer of this module still waits for its shape."""
        return any(is_lazy(v) for v in (*self._parameters.values(), *self._buffers.values()))

    def _take_shapes(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if is_lazy(value) and given is not None and not is_lazy(given):
                value.materialize(tuple(given.shape))  # type: ignore[union-attr]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        self._load_state_dict_pre_hooks.clear()
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become  # type: ignore[assignment]
        return self(*args, **kwargs)
