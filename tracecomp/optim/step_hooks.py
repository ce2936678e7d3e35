"""Hooks around the step of one optimizer, or of all, including those of other libraries.

A class's ``step`` is wrapped when its first object is created.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar, cast

from tracecomp.compiled import hot_modules
from tracecomp.eager.modes import module_changes
from tracecomp.utils.hooks import RemovableHandle, register

Hook = Callable[..., Any]
Step = TypeVar("Step", bound=Callable[..., Any])

BEFORE, AFTER = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
_global_optimizer_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[int, Hook] = OrderedDict()
# Invalidates guards of compiled calls.
module_changes.global_hooks += [_global_optimizer_pre_hooks, _global_optimizer_post_hooks]


def register_optimizer_step_pre_hook(hook: Hook) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` before every step of every optimizer; the handle removes it.

    Args:
        hook (Callable): returns None, or new args and kwargs as a tuple of two.
    """
    return register(_global_optimizer_pre_hooks, hook, False)


def register_optimizer_step_post_hook(hook: Hook) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` after every step of every optimizer; the handle removes it.

    Args:
        hook (Callable): its result is ignored.
    """
    return register(_global_optimizer_post_hooks, hook, False)


def before(optimizer: object) -> tuple[Hook, ...]:
    """The hooks that run before a step, in their order."""
    return (*_global_optimizer_pre_hooks.values(), *vars(optimizer).get(BEFORE, {}).values())


def after(optimizer: object) -> tuple[Hook, ...]:
    """The hooks that run after a step, in their order."""
    return (*vars(optimizer).get(AFTER, {}).values(), *_global_optimizer_post_hooks.values())


def hooked(step: Step) -> Step:
    """Wrap ``step`` with the hooks; a nested step of a superclass runs without them."""

    @functools.wraps(step)
    def run(self: object, *args: object, **kwargs: object) -> Any:
        outer = type(self).step  # type: ignore[attr-defined]
        if outer is not run and getattr(outer, "hooked", False):
            return step(self, *args, **kwargs)
        if hot_modules.switch.on and not args and not kwargs and hot_modules.counts(self):
            compiled = vars(self).get("_compiled_step")
            if compiled is not None:
                return compiled()
            return hot_modules.call(self, "_compiled_step", MethodType(run, self), (), {})
        given: tuple[object, ...] = (self, *args)
        for hook in before(self):
            changed = hook(self, given, kwargs)
            if changed is not None:
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                given, kwargs = changed
        result = step(*given, **kwargs)
        for hook in after(self):
            hook(self, given, kwargs)
        return result

    run.hooked = True  # type: ignore[attr-defined]
    return cast("Step", run)
