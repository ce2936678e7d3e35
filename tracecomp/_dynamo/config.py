"""Settings of PyTorch's capture: ``recompile_limit`` takes effect once it is set, others are accepted without
effect."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tracecomp.base.module_settings import patched
from tracecomp.compiled import stance

recompile_limit = 8
cache_size_limit: int  # a property of the module: its alias
accumulated_cache_size_limit = accumulated_recompile_limit = 256
assume_static_by_default = automatic_dynamic_shapes = optimize_ddp = True
capture_dynamic_output_shape_ops = capture_scalar_outputs = suppress_errors = verbose = False
allow_unspec_int_on_nn_module = force_parameter_static_shapes = inline_inbuilt_nn_modules = True
skip_fwd_side_effects_in_bwd_under_checkpoint = False


class _Settings(ModuleType):
    """A module in which one name is an alias of another, as in PyTorch."""

    @property
    def cache_size_limit(self) -> int:
        """``recompile_limit``."""
        return recompile_limit

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("cache_size_limit", "recompile_limit"):
            name, stance.current.limit = "recompile_limit", value
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Settings


@contextmanager
def patch(*settings: Any, **more: Any) -> Iterator[None]:
    """Settings for a block: ``patch("name", value)``, ``patch({"name": value})`` or ``patch(name=value)``."""
    limit = stance.current.limit
    try:
        with patched(sys.modules[__name__], *settings, **more):
            yield
    finally:
        stance.current.limit = limit
