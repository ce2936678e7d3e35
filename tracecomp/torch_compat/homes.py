"""PyTorch's ``__module__`` for public classes and functions, while ``import torch`` means tracecomp.

Libraries compare this name: ``cls.__module__.startswith("torch.optim")``, ``type(dtype).__module__ == "torch"``. A name
is changed only if its new module is one of tracecomp's that has it, so pickles and ``inspect`` find it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from types import FunctionType, ModuleType

from tracecomp.base.code_origin import is_own_module, torch_name
from tracecomp.torch_compat.names import table


@cache
def _modules_with(top: str) -> dict[str, list[str]]:
    """Name -> the modules in ``top`` that the table lists it for, the innermost ones first."""
    found: dict[str, list[str]] = {}
    modules = [m for m in table() if m == top or (m.startswith(f"{top}.") and top != "torch")]
    for module in sorted(modules, key=lambda m: (-m.count("."), m)):
        for name in table()[module]:
            found.setdefault(name, []).append(module)
    return found


class Homes:
    """The changed names. ``resolve`` imports a module of torch that is one of tracecomp's."""

    def __init__(self, resolve: Callable[[str], ModuleType | None]) -> None:
        self._resolve = resolve
        self._before: list[tuple[type | FunctionType, dict[str, str]]] = []
        self._loading, self._loaded = 0, list[ModuleType]()

    def name_loaded(self) -> None:
        """Change the names in all loaded modules."""
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and is_own_module(name):
                self.name_in(module)
        ours = vars(sys.modules["tracecomp"])
        for name in sorted(table()["torch"]):
            value = ours.get(name)
            if isinstance(value, type) and value.__module__.startswith("tracecomp."):
                self._set(value, __module__="torch", __qualname__=name, __name__=name)

    @contextmanager
    def loading(self, module: ModuleType) -> Iterator[None]:
        """While ``module`` is executed. Names change when the outermost module is complete: homes import others."""
        self._loading += 1
        try:
            yield
            self._loaded.append(module)
        finally:
            self._loading -= 1
        while self._loaded and not self._loading:
            self.name_in(self._loaded.pop())

    def name_in(self, module: ModuleType) -> None:
        """Change the names of what ``module`` defines."""
        own = module.__name__
        for value in list(vars(module).values()):
            if isinstance(value, type | FunctionType) and value.__module__ == own:
                home = self._home(own, value)
                if home is not None:
                    self._set(value, __module__=home)

    def restore(self) -> None:
        """Undo all changes."""
        for value, names in self._before:
            _rename(value, names)
        self._before.clear()

    def _home(self, own: str, value: type | FunctionType) -> str | None:
        top = ".".join(torch_name(own).split(".")[:2])
        homes = [(home, self._resolve(home)) for home in _modules_with(top).get(value.__qualname__, ())]
        same = (home for home, module in homes if module is sys.modules[own])  # it has the source of the class
        others = (home for home, module in homes if module and vars(module).get(value.__qualname__) is value)
        return next(same, None) or next(others, None)

    def _set(self, value: type | FunctionType, **names: str) -> None:
        self._before.append((value, {attribute: getattr(value, attribute) for attribute in names}))
        _rename(value, names)


def _rename(value: type | FunctionType, names: dict[str, str]) -> None:
    """Set the names. From Python 3.13 on, a class of another module forgets its line, which ``inspect`` needs."""
    lines = {k: v for k, v in vars(value).items() if k == "__firstlineno__"}
    for attribute, name in (names | lines).items():
        setattr(value, attribute, name)


class HomeLoader(SourceFileLoader):
    """Loads a module of tracecomp, and changes the names of its classes and functions."""

    homes: Homes

    def exec_module(self, module: ModuleType) -> None:
        with self.homes.loading(module):
            super().exec_module(module)
