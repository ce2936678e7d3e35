"""The folder of models: which names and versions it holds, and their files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tracecomp.base.errors import TracecompError
from tracecomp.serve.settings import Settings

SUFFIXES = (".tcp", ".pt2", ".onnx", ".mar")
"""Model files: program files, exported programs, ONNX models, archives with a handler."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SETTINGS = TypeAdapter(Settings)
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


@dataclass(frozen=True)
class Entry:
    """One version of a model in the folder."""

    name: str
    version: str
    path: Path
    settings: Settings
    allow_code: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        """Versions in order: the last one answers requests without a version."""
        return tuple(map(int, self.version.split(".")))


def entries(folder: Path, allow_code: bool = False) -> list[Entry]:
    """The models of a folder: ``NAME.onnx``, ``NAME/model.onnx`` and ``NAME/VERSION/model.onnx``, any suffix and stem.

    ``allow_code`` lets archives run their handlers.
    TracecompError names a version twice, a folder with several model files, or settings that do not fit.
    """
    if not folder.is_dir():
        raise TracecompError(f"{folder} is not a folder of models")
    found = sorted(_walk(folder), key=lambda entry: (entry.name, entry.order))
    for one, other in pairwise(found):
        if (one.name, one.order) == (other.name, other.order):
            raise TracecompError(f"{one.path} and {other.path} are the same version of {one.name}")
    return [replace(entry, allow_code=allow_code) for entry in found]


def _walk(folder: Path) -> Iterator[Entry]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in SUFFIXES:
            yield _entry(path.stem, "1", path, path.with_suffix(".json"))
        elif path.is_dir() and _NAME.fullmatch(path.name):
            yield from _versions(path)


def _versions(folder: Path) -> Iterator[Entry]:
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and _VERSION.fullmatch(path.name)]
    if any(path.suffix in SUFFIXES for path in folder.iterdir() if path.is_file()):
        inner.append(folder)
    for version in inner:
        files = [path for path in sorted(version.iterdir()) if path.is_file() and path.suffix in SUFFIXES]
        if len(files) > 1:
            raise TracecompError(f"{version} holds several model files: {', '.join(path.name for path in files)}")
        for path in files:
            yield _entry(folder.name, "1" if version is folder else version.name, path, version / "model.json")


def _entry(name: str, version: str, path: Path, told: Path) -> Entry:
    if not _NAME.fullmatch(name):
        raise TracecompError(f"{path}: a model's name has letters, digits, '.', '_' and '-', at most 128")
    return Entry(name, version, path, read_settings(told))


def read_settings(path: Path) -> Settings:
    """The settings in a file; the defaults where there is none. TracecompError names a wrong key or value."""
    if not path.is_file():
        return Settings()
    try:
        found: Settings = _SETTINGS.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise TracecompError(f"{path}: {where}: {first['msg']}") from None
    return found
