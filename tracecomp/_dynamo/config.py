"""Settings of PyTorch's capture, so that programs that set them run; recordings follow none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
assume_static_by_default = automatic_dynamic_shapes = optimize_ddp = True
capture_dynamic_output_shape_ops = capture_scalar_outputs = suppress_errors = verbose = False
allow_unspec_int_on_nn_module = force_parameter_static_shapes = inline_inbuilt_nn_modules = True
skip_fwd_side_effects_in_bwd_under_checkpoint = False


@contextmanager
def patch(*settings: Any, **more: Any) -> Iterator[None]:
    """Settings for a block: ``patch("name", value)``, ``patch({"name": value})`` or ``patch(name=value)``."""
    new = dict(settings[0]) if settings and isinstance(settings[0], dict) else dict([settings] if settings else [])
    own = globals()
    new.update(more)
    before = {name: own[name] for name in new if name in own}
    own.update(new)
    try:
        yield
    finally:
        for name in new:
            own.pop(name)
        own.update(before)
