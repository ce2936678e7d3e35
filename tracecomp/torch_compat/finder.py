"""The import of ``torch.x.y``: it resolves to ``tracecomp.x.y``, or to a stand-in for names that only PyTorch has.

Submodules are tracecomp's own objects. The package ``torch`` itself is a separate module in front of tracecomp: it has
another name, version and origin, and does not expose tracecomp's internal packages.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any

from tracecomp.base.code_origin import is_own_module, torch_name
from tracecomp.torch_compat.homes import HomeLoader, Homes
from tracecomp.torch_compat.names import TORCH_VERSION, table
from tracecomp.torch_compat.stand_in import TorchModule, missing, stand_in_module, while_importing
from tracecomp.torch_version import TorchVersion

_OTHER_HOMES = {
    "torch.ops": "tracecomp.library", "functorch": "tracecomp._functorch.functorch",
    "torch.nn.utils.stateless": "tracecomp.func.stateless",
}  # fmt: skip
_OWN = ("__version__", "__name__", "__spec__", "__path__", "__loader__", "__package__", "__file__", "__doc__")


def home_of(name: str) -> str:
    """The module of tracecomp that ``name`` is."""
    return _OTHER_HOMES.get(name) or "tracecomp" + name.removeprefix("torch")


class TorchPackage(ModuleType):
    """The module ``torch``: tracecomp's names, its own version."""

    # Held by the class: objects that end at exit still use ``torch``, when ``sys.modules`` is already empty.
    _tracecomp = sys.modules["tracecomp"]

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._find(name)
        except AttributeError:
            return missing("torch", name, while_importing(inspect.currentframe()))
        if isinstance(value, ModuleType):
            adopt(value)
        return value

    @staticmethod
    def _find(name: str) -> Any:
        if name == "ops":
            return import_module(_OTHER_HOMES["torch.ops"]).ops
        if name == "torch":
            return sys.modules["torch"]
        value = getattr(TorchPackage._tracecomp, name)
        if isinstance(value, ModuleType) and f"torch.{name}" not in table():
            raise AttributeError(name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        elif name != "ops":
            setattr(self._tracecomp, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._tracecomp, name)

    def __dir__(self) -> list[str]:
        ours = self._tracecomp
        hidden = {k for k, v in vars(ours).items() if isinstance(v, ModuleType) and f"torch.{k}" not in table()}
        return sorted({*dir(ours), *_OWN} - hidden)


def adopt(module: ModuleType) -> ModuleType:
    """``module``, and the modules among its names, with the words of torch for what they lack."""
    if type(module) is ModuleType and module.__name__.startswith("tracecomp."):
        module.__class__ = TorchModule
        name = torch_name(module.__name__)
        if not hasattr(module, "__path__") and any(other.startswith(name + ".") for other in table()):
            module.__path__ = []  # makes it a package, so that importers search below it
        for child in tuple(vars(module).values()):
            if isinstance(child, ModuleType):
                adopt(child)
    return module


class _Existing(Loader):
    """Loads a module by handing out the one that exists, which keeps its own ``__spec__``."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        if self.spec is not None:
            module.__spec__ = self.spec


class TorchFinder(MetaPathFinder):
    """A finder for ``torch`` and its submodules. Classes of tracecomp's modules get PyTorch's ``__module__``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.homes = Homes(_imported)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torch":
            return self.package()
        if is_own_module(fullname):
            return self._own(fullname, path)
        if not (fullname in _OTHER_HOMES or (fullname.startswith("torch.") and _top(fullname) in table())):
            return None
        module = _own_module(home_of(fullname))
        if module is not None:
            # The import may have imported ``fullname``, too. Python would then load the module again, by its own spec.
            sys.modules.pop(fullname, None)
            return ModuleSpec(fullname, _Existing(adopt(module)), is_package=hasattr(module, "__path__"))
        if fullname not in table() or _is_a_question(inspect.currentframe()):
            return None
        made = stand_in_module(fullname)
        return ModuleSpec(fullname, _Existing(made), is_package=hasattr(made, "__path__"))

    def _own(self, fullname: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """How to load a module of tracecomp."""
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            loader = HomeLoader(fullname, spec.loader.path)
            spec.loader, loader.homes = loader, self.homes
        return spec

    def package(self) -> ModuleSpec:
        """How to load the package ``torch``."""
        module = TorchPackage("torch", sys.modules["tracecomp"].__doc__)
        module.__version__ = TorchVersion(TORCH_VERSION)
        module.__file__ = f"{self.folder}/torch/__init__.py"
        spec = ModuleSpec("torch", _Existing(module), origin=module.__file__, is_package=True)
        spec.submodule_search_locations = module.__path__ = [f"{self.folder}/torch"]
        return spec


def _top(name: str) -> str:
    """``torch.nn`` for ``torch.nn.modules.conv``."""
    return ".".join(name.split(".")[:2])


def _own_module(name: str) -> ModuleType | None:
    """The module of tracecomp called ``name``, imported; None when there is none."""
    if name not in sys.modules:
        parent = name.rpartition(".")[0]
        if _own_module(parent) is None or (name not in sys.modules and find_spec_below(parent, name) is None):
            return None
        import_module(name)
    return sys.modules[name]


def _imported(name: str) -> ModuleType | None:
    """The module of torch called ``name``, imported, if it is one of tracecomp's."""
    if name not in sys.modules and _own_module(home_of(name)) is None:
        return None
    return import_module(name)


def find_spec_below(parent: str, name: str) -> ModuleSpec | None:
    """The spec of ``name`` if its parent is a package that has it."""
    return find_spec(name) if hasattr(sys.modules[parent], "__path__") else None


def _is_a_question(frame: FrameType | None) -> bool:
    """Whether ``importlib.util.find_spec`` is the caller, not an import: then stand-ins do not count."""
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return frame is not None and frame.f_code is find_spec.__code__
