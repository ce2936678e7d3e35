"""Atomic writes of files."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")
"""Links to open files of a process: replacing their targets would write to an unread file."""


def write_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill the file at ``path``, which is replaced atomically on success, and unchanged on failure.

    An existing file keeps its mode and owner; if ``path`` is a link, its target is written. Devices and pipes are
    written directly, and so is a file in a folder where none can be created.
    """
    name = os.fspath(path)
    try:
        old = os.stat(name)
    except FileNotFoundError:
        old = None
    if old is not None and not os.access(name, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    if (old is not None and not stat.S_ISREG(old.st_mode)) or os.path.abspath(name).startswith(_OPEN_ALREADY):
        _write_directly(name, write)
        return
    real = os.path.realpath(name)
    folder = os.path.dirname(real)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    temporary = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
    try:
        handle = os.open(temporary, _CREATE, 0o666 if old is None else 0o600)  # a private file is never public
    except PermissionError:
        if old is None:
            raise
        _write_directly(real, write)
        return
    try:
        _fill(handle, write, old)
        os.replace(temporary, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _fill(handle: int, write: Callable[[BinaryIO], object], old: os.stat_result | None) -> None:
    """Write a new file, down to the disk, with the attributes of the ``old`` one."""
    with os.fdopen(handle, "wb") as file:
        write(file)
        file.flush()
        if old is not None and hasattr(os, "fchown"):
            _take_over(handle, old)
        os.fsync(handle)


def _write_directly(name: str, write: Callable[[BinaryIO], object]) -> None:
    with open(name, "wb") as file:
        write(file)


def _take_over(handle: int, old: os.stat_result) -> None:
    """Copy owner, group and mode; if the group cannot be kept, the group gets only the permissions of others."""
    mode = stat.S_IMODE(old.st_mode)
    for owner in (old.st_uid, -1):
        with suppress(PermissionError):
            os.fchown(handle, owner, old.st_gid)
            break
    else:
        mode = mode & ~stat.S_IRWXG | (mode & stat.S_IRWXO) << 3
    os.fchmod(handle, mode)  # after the owner: changing the owner clears bits


def _sync_folder(folder: str) -> None:
    """Sync the folder, if supported, so that the new name survives a power cut."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
