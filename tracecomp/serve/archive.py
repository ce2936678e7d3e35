"""Model archives (``.mar``): zip files that are unpacked within limits."""

from __future__ import annotations

import json
import re
import stat
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tracecomp.base.errors import TracecompError

MOST_BYTES = 8 << 30
"""Bytes of all unpacked files."""
MOST_FILES = 1000  # of an archive
MANIFEST = "MAR-INF/MANIFEST.json"
_PART = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+ -]{0,127}")
_STEP = 1 << 20  # bytes, read at once


def unpack(path: Path, folder: Path, most_bytes: int = MOST_BYTES) -> Mapping[str, Any]:
    """Unpack an archive into an empty folder; return the member ``model`` of its manifest.

    TracecompError for too many files or bytes, names that leave the folder, links, encryption, or a manifest that is
    missing or malformed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_FILES:
                raise TracecompError(f"{path.name} has {len(members)} files, the limit is {MOST_FILES}")
            for member in members:
                _check(path, member)
            left = most_bytes
            for member in members:
                if not member.is_dir():
                    left -= _extract(archive, member, folder / member.filename, left)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, zlib.error) as error:
        raise TracecompError(f"{path.name} is not a valid archive: {error}") from None
    except FileExistsError as error:
        raise TracecompError(f"{path.name} has two files {Path(error.filename).name!r}") from None
    except OSError as error:  # an offset behind the end, or a file and a folder of one name
        raise TracecompError(f"{path.name} cannot be unpacked: {error}") from None
    return _manifest(path, folder)


def _check(path: Path, member: zipfile.ZipInfo) -> None:
    name, mode = member.filename, member.external_attr >> 16
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or not parts or not all(_PART.fullmatch(part) for part in parts):
        raise TracecompError(f"{path.name}: file name {name!r} is not allowed")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise TracecompError(f"{path.name}: {name!r} is not a regular file")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise TracecompError(f"{path.name}: {name!r} is compressed in a way that is not supported")
    if member.flag_bits & 1:
        raise TracecompError(f"{path.name}: {name!r} is encrypted")


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write a file; its number of bytes. The sizes that an archive declares may be wrong, so bytes are counted."""
    target.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with archive.open(member) as source, target.open("xb") as file:
        while part := source.read(_STEP):
            total += len(part)
            if total > left:
                raise TracecompError("the archive exceeds the limit of unpacked bytes")
            file.write(part)
    return total


def _manifest(path: Path, folder: Path) -> Mapping[str, Any]:
    try:
        model = json.loads((folder / MANIFEST).read_bytes())["model"]
        handler = model["handler"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise TracecompError(f"{path.name}: {MANIFEST} is missing or does not name a handler") from None
    if not isinstance(handler, str) or not isinstance(model, dict):
        raise TracecompError(f"{path.name}: {MANIFEST} does not name a handler")
    if model.get("requirementsFile"):
        raise TracecompError(f"{path.name} names a requirementsFile; install its packages, and remove the entry")
    found: Mapping[str, Any] = model
    return found
