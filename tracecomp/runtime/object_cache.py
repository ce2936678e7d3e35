"""Compiled code on disk, under keys of all its inputs: a process loads the code that another process has compiled.

Entries are executed, so they are read only from files that no other user can have written (``private_files``). Without
such a folder nothing is stored, and a warning says why.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tracecomp.base import config
from tracecomp.base.user_warnings import warn_user
from tracecomp.runtime.private_files import make_folder, open_file

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows, where an open file cannot be deleted anyway
    _has_locks = False
else:
    _has_locks = True

LIMIT_BYTES = 512 * 2**20
"""Limit of all stored objects; above it, the least recently used ones are deleted."""
LIMIT_FILES = 2**14
"""Limit of their number: a scan of more files takes long where the system does not have their names in memory."""
WRITES_PER_TRIM = 64
"""Writes between two scans of the folder, which has thousands of files."""
_MAGIC = b"tracecomp object 1\n"
_DIGEST_BYTES = 32
"""SHA-256."""
_UNFINISHED = ".new-"
_shown: set[str] = set()


def _folder() -> Path | None:
    """The folder, created if needed; None, after a warning, if none is writable by this user only."""
    try:
        return make_folder(config.cache_directory())
    except OSError as error:
        _warn_once(
            f"compiled code cannot be cached: {error}",
            "Each process compiles it again",
            "Set TRACECOMP_CACHE_DIR to a folder that only you can write",
        )
        return None


def _warn_once(cause: str, cost: str, remedy: str) -> None:
    """Warn once in a process: the folder is the same for every line that compiles something."""
    if cause not in _shown:
        _shown.add(cause)
        warn_user(cause, cost, remedy, RuntimeWarning)


def read(key: str) -> bytes | None:
    """Return the object stored under ``key``; None if it is missing or damaged."""
    folder = _folder()
    if folder is None:
        return None
    try:
        descriptor = open_file(folder / f"{key}.o")
    except FileNotFoundError:
        return None
    except OSError as error:
        _warn_once(
            f"cached code is ignored: {error}",
            "This program is compiled again",
            "Delete the file, or set TRACECOMP_CACHE_DIR to another folder",
        )
        return None
    with os.fdopen(descriptor, "rb") as file, suppress(OSError, MemoryError):
        return _sealed(key, file)
    return None


def _sealed(key: str, file: BinaryIO) -> bytes | None:
    """The object in ``file``, if its seal is valid; else None."""
    size = os.fstat(file.fileno()).st_size - len(_MAGIC) - _DIGEST_BYTES
    if not 0 <= size <= LIMIT_BYTES or file.read(len(_MAGIC)) != _MAGIC:
        return None
    seal, code = file.read(_DIGEST_BYTES), file.read(size)
    if seal != _seal(key, code):
        return None
    if os.utime in os.supports_fd:
        with suppress(OSError):
            os.utime(file.fileno())  # trimming is by last use
    return code


def _seal(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


def write(key: str, code: bytes) -> None:
    """Store an object atomically. If it cannot be stored, a warning says why."""
    folder = _folder()
    if folder is None:
        return
    try:
        _remove_unfinished(folder)
        _write(folder, key, code)
        if int(key[:8], 16) % WRITES_PER_TRIM == 0:  # scan the folder sometimes; digests serve as random numbers
            _trim(folder)
    except OSError as error:
        _warn_once(
            f"compiled code cannot be cached: {error}",
            "Each process compiles it again",
            "Free disk space, or set TRACECOMP_CACHE_DIR to another folder",
        )


def _write(folder: Path, key: str, code: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=_UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            _lock(handle)  # while the file is open: an unfinished file without a lock has lost its writer
            file.write(_MAGIC + _seal(key, code) + code)
        with suppress(FileNotFoundError):  # closed and unlocked, another process may take it for abandoned
            os.replace(temporary, folder / f"{key}.o")
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _lock(handle: int) -> bool:
    """Acquire a file's lock; False if another process has it, or locks are not supported."""
    if not _has_locks:
        return False
    try:
        flock(handle, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


@cache
def _remove_unfinished(folder: Path) -> None:
    """Delete, once per process, unfinished files of processes that ended during a write."""
    for entry in os.scandir(folder):
        if entry.name.startswith(_UNFINISHED):
            with suppress(OSError):
                handle = open_file(Path(entry.path))
                try:
                    if _lock(handle):
                        os.unlink(entry.path)
                finally:
                    os.close(handle)


class Stored(NamedTuple):
    """A file of the cache: the time of its last use, in seconds, and whether it is intact, if known."""

    key: str
    nbytes: int
    used: float
    good: bool = True


def folder_of_entries() -> Path | None:
    """The folder of compiled code."""
    return _folder()


def entries(verify: bool = False) -> list[Stored]:
    """The entries of the cache; with ``verify``, each file is read and its seal compared."""
    folder, found = _folder(), []
    for entry in os.scandir(folder) if folder is not None else ():
        with suppress(OSError):
            if entry.name.endswith(".o"):
                info = entry.stat(follow_symlinks=False)
                key = entry.name.removesuffix(".o")
                found.append(Stored(key, info.st_size, info.st_mtime, not verify or _is_whole(key, Path(entry.path))))
    return found


def _is_whole(key: str, path: Path) -> bool:
    """Whether a file is intact, checked without counting as a use."""
    info = path.stat()
    with os.fdopen(open_file(path), "rb") as file:
        good = _sealed(key, file) is not None
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    return good


def clear() -> tuple[int, int]:
    """Delete all entries of the cache; return the number of files, and their bytes."""
    folder, count, nbytes = _folder(), 0, 0
    for stored in entries():
        with suppress(OSError):
            assert folder is not None
            os.unlink(folder / f"{stored.key}.o")
            count, nbytes = count + 1, nbytes + stored.nbytes
    return count, nbytes


def _trim(folder: Path) -> None:
    """Delete the least recently used objects, down to the limits."""
    found = sorted((s.used, s.nbytes, folder / f"{s.key}.o") for s in entries())
    total = sum(size for _, size, _ in found)
    for n, (_, size, path) in enumerate(found):
        if total <= LIMIT_BYTES and len(found) - n <= LIMIT_FILES:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size
