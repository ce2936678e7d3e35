"""Programs written against torch's names, to be run by tracecomp (eagerly and compiled) and by torch itself.

A program is a function of one argument ``run`` in a module that says ``import tracecomp as torch``. ``run(fn, *args)``
compiles pure functions when the program runs compiled, and ``run.compile`` those that change state. The program returns
values to compare.
"""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp

PROGRAMS = Path(__file__).parent / "programs"
CALLS = 3  # the first records, the others run natively


@dataclass(frozen=True)
class Program:
    """``fn(run)``; ``where`` are the lines of the documents it comes from."""

    fn: Callable[[Any], Any]
    where: str
    compiles: bool
    exact_torch: bool


def program(where: str, *, compiles: bool = True, torch: bool = True) -> Callable[[Callable[[Any], Any]], Program]:
    """Mark a function as a program. ``compiles=False``: nothing in it is compiled; ``torch=False``: not for torch."""
    return lambda fn: Program(fn, where, compiles, torch)


class Eager:
    """Runs everything eagerly."""

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    def compile(self, fn: Any) -> Any:
        return fn


class Compiling:
    """Compiles its functions; pure functions are called several times, with equal results."""

    def __init__(self) -> None:
        self.compiled: list[Any] = []

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        compiled = self.compile(fn)
        first, *later = [compiled(*args, **kwargs) for _ in range(CALLS)]
        for result in later:
            assert_close(result, first)
        return later[-1]

    def compile(self, fn: Any) -> Any:
        self.compiled.append(tracecomp.compile(fn))
        return self.compiled[-1]

    def check(self) -> None:
        """Something was compiled, and all of it ran from a recording."""
        assert self.compiled
        for compiled in self.compiled:
            assert compiled.eager_because is None
            assert compiled.entries, "no recording was kept"
            assert any(e.plan is not None for e in compiled.entries), "no recording was run"


def programs(module: types.ModuleType) -> dict[str, Program]:
    return {name: p for name, p in vars(module).items() if isinstance(p, Program)}


def load(path: Path, package: str = "tracecomp") -> types.ModuleType:
    """The module of programs at ``path``, with its imports of tracecomp made imports of ``package``."""
    name = f"{package}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    source = path.read_text()
    if package != "tracecomp":
        source = source.replace("import tracecomp as torch", f"import {package} as torch").replace("tracecomp", package)
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """The same normal numbers for every library, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """The same integers of [0, high) for every library."""
    return np.random.default_rng(seed).integers(0, high, shape)


def settle(model: Any) -> Any:
    """Give every parameter the same values in every library."""
    for n, p in enumerate(model.parameters()):
        p.data.copy_(p.new_tensor(normal(*p.shape, seed=n) * (0.5 / max(1, p[0].numel()) ** 0.5)))
    return model


def assert_close(result: Any, expected: Any, tolerance: float = 2e-5, path: str = "result") -> None:
    """Equal structure, shapes and dtypes, and close numbers."""
    if hasattr(expected, "detach"):
        assert hasattr(result, "detach"), f"{path}: {type(result).__name__} instead of a tensor"
        a, b = result.detach(), expected.detach()
        assert tuple(a.shape) == tuple(b.shape), f"{path}: shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        assert str(a.dtype) == str(b.dtype), f"{path}: {a.dtype} instead of {b.dtype}"
        np.testing.assert_allclose(a.double().numpy(), b.double().numpy(), rtol=tolerance, atol=tolerance, err_msg=path)
    elif isinstance(expected, dict):
        assert list(result) == list(expected), f"{path}: keys"
        for key in expected:
            assert_close(result[key], expected[key], tolerance, f"{path}[{key!r}]")
    elif isinstance(expected, tuple | list):
        assert len(result) == len(expected), f"{path}: {len(result)} items instead of {len(expected)}"
        for i, (a, b) in enumerate(zip(result, expected, strict=True)):
            assert_close(a, b, tolerance, f"{path}[{i}]")
    elif isinstance(expected, (float, np.ndarray)):
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance, err_msg=path)
    else:
        assert result == expected, f"{path}: {result!r} instead of {expected!r}"
