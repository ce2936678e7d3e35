"""Traversal of the tree of modules: the part of ``Module`` that enumerates and finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.nn.parameter import Parameter


class ModuleTree:
    """Iterators over modules, parameters and buffers with their dotted names, and access by name."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]

    def _replicate_for_data_parallel(self) -> Any:
        """This module again, with separate tables of the same buffers and modules, and without parameters."""
        replica = type(self).__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica.__dict__["_parameters"] = {}
        for table in ("_buffers", "_modules"):
            replica.__dict__[table] = self.__dict__[table].copy()
        replica.__dict__["_is_replica"] = True
        return replica

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module and all below, with dotted names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Any]:
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Any]:
        return (module for _, module in self.named_children())

    def _named_members(
        self, table: Callable[[Any], Any], prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: dict[int, Any] = {}  # by identity, and referenced: the reader of the names may replace the values
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in table(module).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen[id(value)] = value
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        return self._named_members(lambda m: m._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (value for _, value in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        return self._named_members(lambda m: m._buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (value for _, value in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Any:
        """The module at a dotted path; AttributeError when there is none."""
        module: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, ModuleTree):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: ModuleTree, strict: bool = False) -> None:
        """Put ``module`` at a dotted path."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, ModuleTree):
            raise ValueError(f"set_submodule(): module must be torch.nn.Module, not {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        setattr(parent, name, module)

    def _get_member(self, target: str, table: str, word: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in getattr(module, table):
            raise AttributeError(f"`{name}` is not {word}")
        return getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path; AttributeError when there is none."""
        return self._get_member(target, "_parameters", "an nn.Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path; AttributeError when there is none."""
        return self._get_member(target, "_buffers", "a buffer")
