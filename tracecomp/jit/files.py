"""Scripts in files: program files of the kind "script", which need none of the classes they were made from."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.compiled import compile
from tracecomp.compiled.program_files import container
from tracecomp.compiled.program_files.load import FAULTS, LoadedProgram, load_program
from tracecomp.jit.collect import Collector
from tracecomp.jit.language import NotSupportedError
from tracecomp.jit.restore import Restorer
from tracecomp.nn.module import Module
from tracecomp_runtime import tensors
from tracecomp_runtime.container import MAGIC, Container, ProgramError


class TracedProgram(Module):
    """A traced program that was saved as its graph, because its text is not supported in scripts.

    It takes the shapes and dtypes it was traced with, and no gradient goes through it. Its state are its buffers.
    """

    def __init__(self, program: LoadedProgram) -> None:
        super().__init__()
        self._program = program
        for name, tensor in program.state.items():
            self.register_buffer(name.replace(".", "_"), tensor)

    def forward(self, *args: Any) -> Any:
        """The results for arguments as those that it was traced with; TypeError for others."""
        return self._program(*args)

    def extra_repr(self) -> str:
        """The program."""
        return repr(self._program)


def save(
    value: object, f: Any, extra: Mapping[str, object] | None = None, examples: Sequence[object] | None = None
) -> None:
    """Write a module or function to a path or open file, with ``extra`` texts or bytes by name.

    Constructs that scripts do not support are written as the graph of ``examples``, if there are any; NotSupportedError
    otherwise.
    """
    try:
        _write(value, f, extra or {})
    except NotSupportedError as error:
        if examples is None or extra:
            raise
        try:
            _write_graph(value, f, examples)
        except RuntimeError as second:
            raise NotSupportedError(f"{error}; and its graph cannot be saved: {second}") from error


def _write_graph(value: object, f: Any, examples: Sequence[object]) -> None:
    function = compile(getattr(value, "forward", value), fullgraph=True)
    if not hasattr(f, "write"):
        function.save(f, *examples, kind="graph")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program")
        function.save(path, *examples, kind="graph")
        with open(path, "rb") as written:
            shutil.copyfileobj(written, f)


def _write(value: object, f: Any, extra: Mapping[str, Any]) -> None:
    collector = Collector()
    header = collector.description(value)
    for name, x in extra.items():
        if not isinstance(x, str | bytes | bytearray):
            raise TypeError(f"save(): the extra file {name!r} must be str or bytes, not {type_name(x)}")
    sections = {f"extra/{n}": x.encode() if isinstance(x, str) else bytes(x) for n, x in extra.items()}
    container.write(f, header, {"tensors": tensors.to_bytes(collector.arrays()), **sections})


def is_program(f: Any) -> bool:
    """Whether a path or file begins as program files do."""
    if not hasattr(f, "read"):
        with open(f, "rb") as file:
            return is_program(file)
    here = f.tell()
    begin = f.read(len(MAGIC))
    f.seek(here)
    return bool(begin == MAGIC)


def load(f: Any, kind: type[Module], extra: dict[str, object] | None = None, name: str | None = None) -> Any:
    """The module (of a class that derives from ``kind``) or function in a program file.

    ``extra`` receives the file's bytes for the names in it. Messages call the file ``name``, which is its path by
    default.

    ProgramError describes an invalid file. Files may be untrusted: scripts can reach only tensors.
    """
    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "wb") as copy:
                shutil.copyfileobj(f, copy)
            return load(path, kind, extra, getattr(f, "name", "the program file"))
    file = Container(f, name)
    if file.header.get("kind") == "graph":
        return TracedProgram(load_program(f))
    if file.header.get("kind") != "script":
        raise file.error(f"is of the kind {file.header.get('kind')!r}, which torch.jit.load does not read")
    try:
        return _read(file, kind, extra)
    except ProgramError:
        raise
    except NotSupportedError as error:
        raise file.error(f"is damaged: {error}") from None
    except FAULTS as error:
        raise file.error(f"is damaged: {type(error).__name__}: {error}") from error


def _read(file: Container, kind: type[Module], extra: dict[str, object] | None) -> Any:
    arrays = tensors.arrays(file.section("tensors"), file)
    for name in extra or {}:
        assert extra is not None
        extra[name] = bytes(file.section(f"extra/{name}"))
    return Restorer(file.header, [arrays[str(k)] for k in range(len(arrays))], kind).root()
