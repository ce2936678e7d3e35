"""Compiled objects on disk, addressed by content: another process loads what one has compiled."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from tracecomp.base import config
from tracecomp.codegen.text import native
from tracecomp.codegen.text.native import Library
from tracecomp.codegen.text.target import Target

LIMIT_BYTES = 512 * 2**20
WRITES_PER_TRIM = 64
_MAGIC = b"tracecomp object 1\n"
_DIGEST_BYTES = 32


def library(text: str, target: Target) -> Library:
    """The loaded module of ``text``: from the cache, or compiled and put there."""
    return Library([object_code(text, target)], target)


def object_code(text: str, target: Target) -> bytes:
    """The machine code of ``text``: from the cache, or compiled and put there."""
    key = key_of(text, target)
    code = read(key)
    if code is None:
        code = native.compile_object(text, target)
        write(key, code)
    return code


def key_of(text: str, target: Target) -> str:
    """The name under which what ``text`` becomes on ``target`` is stored."""
    parts = (native.compiler_version(), target.triple, target.cpu, target.features, text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _path(key: str) -> Path:
    return config.cache_directory() / f"{key}.o"


def read(key: str) -> bytes | None:
    """The object stored under ``key``; None when there is none or it is not what was written."""
    path = _path(key)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    header = len(_MAGIC) + _DIGEST_BYTES
    code = data[header:]
    if data[:header] != _MAGIC + _seal(key, code):
        return None
    with suppress(OSError):
        os.utime(path)
    return code


def _seal(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def write(key: str, code: bytes) -> None:
    """Store an object: whole or not at all. A folder that cannot be written just means no cache."""
    folder = config.cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + _seal(key, code) + code)
        os.replace(temporary, _path(key))
        if int(key[:8], 16) % WRITES_PER_TRIM == 0:  # a look at the whole folder; digests are as good as dice
            _trim(folder)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)


def _trim(folder: Path) -> None:
    """Delete the objects that were not used for the longest time, down to the size limit."""
    entries = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.name.endswith(".o"):
                info = entry.stat()
                entries.append((info.st_mtime, info.st_size, entry.path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= LIMIT_BYTES:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size
