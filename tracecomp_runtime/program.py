"""Saved programs, loaded: machine code with its weights and state, called on numpy arrays."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracecomp_runtime import processor, tensors
from tracecomp_runtime.container import HERE, Container, ProgramError
from tracecomp_runtime.nesting import flatten, told
from tracecomp_runtime.path import Path
from tracecomp_runtime.threads import available

Array = np.ndarray[Any, Any]


class Program:
    """A program from a file. Call it with numpy arrays, like the saved function with tensors. Call it with numpy
    arrays, like the saved function with tensors.

    ``state`` are the arrays that it reads and writes in addition to its arguments, by name; those that it only reads
    are read-only. ``numbers`` are settings that it reads in every call, such as a learning rate, as 0-d arrays.
    ``gradients`` are those of the last call.
    """

    def __init__(self, file: Container, threads: int | None, check: bool) -> None:
        header = file.header
        self.name: str = header["name"]
        self.digest = file.digest
        self.level = _level(file)
        self._structure = header["arguments"]
        file.arrays = arrays = file.arrays or dict(tensors.arrays(file.section("tensors", check), file))
        written = set(header["written"])
        self.state: Mapping[str, Array] = {
            name: arrays[f"state:{name}"].copy() if name in written else arrays[f"state:{name}"]
            for name in header["state"]
        }
        self.numbers: Mapping[str, Array] = {name: np.array(value, np.float64) for name, value in header["numbers"]}
        self.gradients: dict[str, Array] = {}
        self.threads = threads or available()
        codes = header["levels"][self.level]
        self._paths = [Path(self, file, path, codes[k]) for k, path in enumerate(header["paths"])]
        only = self._paths[0].native() if len(self._paths) == 1 and not self._paths[0].sizes else None
        self._call: Callable[..., Any] = only or self._general

    def __call__(self, *args: Any) -> Any:
        """The results for ``args``. TypeError where a dtype or shape is not one that was saved."""
        return self._call(*args)

    def __repr__(self) -> str:
        kinds = " or ".join(sorted({str(p) for p in self._paths}))
        return f"<program {self.name}({kinds}), {len(self.state)} arrays of state, {self.level}>"

    def _general(self, *args: Any) -> Any:
        leaves: list[Any] = []
        flatten(self._structure, args, leaves, self.name)
        fitting = [(p, sizes) for p in self._paths if (sizes := p.match(leaves)) is not None]
        if not fitting:
            wanted = "; or ".join(map(str, self._paths))
            raise TypeError(f"{self.name} was saved for ({wanted}), but got ({', '.join(map(told, leaves))})")
        for path, sizes in fitting:
            held, result = path.run(leaves, sizes)
            if held:
                return result
        raise RuntimeError(f"{self.name}: no saved path matches the values in this call")


def _level(file: Container) -> str:
    have = file.header["levels"]
    if HERE in have:
        return HERE
    if sys.platform != "linux":  # the code makes Linux's system calls
        raise file.error(f"holds code for Linux; this system is {sys.platform}. Save the program with kind='graph'")
    for level in processor.levels():
        if level in have:
            return level
    mine = processor.levels()[0] if processor.levels() else None
    advice = f"levels=[{mine!r}]" if mine else "kind='graph'"
    here = mine or platform.machine()
    raise file.error(f"holds code for {', '.join(have)}; this processor is {here}. Save the program with {advice}")


def load_program(
    path: str | os.PathLike[str], *, digest: str | None = None, threads: int | None = None, check: bool = True
) -> Program:
    """Load the program that was saved as machine code at ``path``.

    A file with machine code can do anything that this process can: it is loaded only with the correct ``digest``, which
    saving it returned. ``threads`` is its number of threads (default: the cores of this process). ``check`` also
    compares weights with their digests. ProgramError describes an invalid file.
    """
    file = Container(path)
    if file.header.get("kind") != "code":
        raise file.error("holds a graph without machine code. Use tracecomp.load_program to compile it")
    if digest is None:
        raise file.error("holds machine code. Pass the digest that saving it returned, digest='sha256:...'")
    if digest != file.digest:
        raise file.error(f"has the digest {file.digest}, expected {digest}")
    return from_container(file, threads, check)


def from_container(file: Container, threads: int | None, check: bool = True) -> Program:
    """Load the program in a file whose code is trusted."""
    try:
        return Program(file, threads, check)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ProgramError):
            raise
        raise file.error(f"is damaged: {type(error).__name__}: {error}") from error
