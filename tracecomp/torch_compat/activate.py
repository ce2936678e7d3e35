"""Making ``import torch`` mean tracecomp, for this process and its children, until it is undone."""

from __future__ import annotations

import os
import sys
from importlib import invalidate_caches
from pathlib import Path
from types import ModuleType, TracebackType

from tracecomp.torch_compat.finder import TorchFinder

SITE = Path(__file__).parent / "site"
"""The folder with the distribution ``torch``: a package of one file, and the metadata that installers read."""


def activate(folder: str) -> ModuleType:
    """The module ``torch``, from now on tracecomp. The package ``torch`` in ``folder`` calls this when imported."""
    finder = next((f for f in sys.meta_path if isinstance(f, TorchFinder)), None)
    if finder is None:
        finder = TorchFinder(folder)
        sys.meta_path.insert(0, finder)
    spec = finder.package()
    assert spec.loader is not None
    module = spec.loader.create_module(spec)
    assert module is not None
    module.__spec__, module.__loader__, module.__package__ = spec, spec.loader, "torch"
    sys.modules["torch"] = module
    finder.homes.name_loaded()
    return module


class as_torch:
    """From now on ``import torch`` gives tracecomp, in this process and in those it starts; a context manager too.

    RuntimeError when PyTorch itself has been imported already: one process cannot have both under one name.

    >>> import tracecomp
    >>> with tracecomp.as_torch():
    ...     import torch
    ...     print(torch.nn.Linear is tracecomp.nn.Linear)
    True
    """

    def __init__(self) -> None:
        present = sys.modules.get("torch")
        self.was_active = any(isinstance(f, TorchFinder) for f in sys.meta_path)
        if present is not None and not self.was_active:
            raise RuntimeError(
                f"as_torch(): PyTorch is imported already ({present.__file__}); call it before anything imports torch"
            )
        self.path = os.environ.get("PYTHONPATH")
        if self.was_active:
            return
        sys.path.insert(0, str(SITE))
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SITE), self.path)))
        invalidate_caches()
        self.torch = activate(str(SITE))

    def __enter__(self) -> ModuleType:
        return sys.modules["torch"]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.was_active:
            return
        for finder in [f for f in sys.meta_path if isinstance(f, TorchFinder)]:
            finder.homes.restore()
            sys.meta_path.remove(finder)
        sys.path.remove(str(SITE))
        if self.path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = self.path
        for name in [n for n in sys.modules if n == "functorch" or n.partition(".")[0] == "torch"]:
            del sys.modules[name]
