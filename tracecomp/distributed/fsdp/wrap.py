"""Policies for ``FullyShardedDataParallel``: functions of ``(module, recurse, nonwrapped_numel)``.

With ``recurse`` they return whether to visit the children of a module, else whether to wrap it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tracecomp.nn.containers import ModuleDict, ModuleList
from tracecomp.nn.module import Module
from tracecomp.nn.transformer import MultiheadAttention

Policy: TypeAlias = Callable[..., bool]
_LEAVES: Iterable[type[Module]] = (MultiheadAttention,)
_LISTS: Iterable[type[Module]] = (ModuleList, ModuleDict)


def always_wrap_policy(*args: object, **kwargs: object) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:  # fmt: skip
    """The modules for which ``lambda_fn`` is true."""
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: Iterable[type[Module]]
) -> bool:  # fmt: skip
    """The modules of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8),
    force_leaf_modules: Iterable[type[Module]] | None = None,
    exclude_wrap_modules: Iterable[type[Module]] | None = None,
) -> bool:  # fmt: skip
    """The modules with ``min_num_params`` elements in parameters that no inner module has taken; except lists."""
    leaves = tuple(_LEAVES if force_leaf_modules is None else force_leaf_modules)
    never = tuple(_LISTS if exclude_wrap_modules is None else exclude_wrap_modules)
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, leaves if recurse else never)


def _or_policy(module: Module, recurse: bool, nonwrapped_numel: int, policies: Iterable[Policy]) -> bool:
    """The modules that any of several policies chooses."""
    return any(policy(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel) for policy in policies)


class ModuleWrapPolicy:
    """The modules of some classes: ``ModuleWrapPolicy({Block})``."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, nonwrapped_numel: int = -1) -> bool:
        return recurse or isinstance(module, self._classes)


_wrapping: list[tuple[Callable[..., Module], dict[str, object]]] = []
"""The wrappers of the open ``enable_wrap`` blocks, the innermost last."""


@contextmanager
def enable_wrap(*, wrapper_cls: Callable[..., Module], **wrapper_kwargs: object) -> Iterator[None]:
    """A context in which ``wrap(module)`` is ``wrapper_cls(module, **wrapper_kwargs)``."""
    _wrapping.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _wrapping.pop()


def wrap(module: Module, **wrap_overrides: object) -> Module:
    """Wrap ``module`` as set by ``enable_wrap``; outside of it return ``module``."""
    if not _wrapping:
        return module
    wrapper, options = _wrapping[-1]
    return wrapper(module, **{**options, **wrap_overrides})
