"""Atomic writes of files."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import BinaryIO

from tracecomp.base.interrupts import uninterrupted

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_DESCRIPTORS = "/proc/self/fd"
"""Linux's names of the open files of a process."""
_OPEN_ALREADY = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")
"""Links to open files of a process: replacing their targets would write to an unread file."""


def write_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill the file at ``path``, which is replaced atomically on success, and unchanged on failure.

    On Linux nothing else remains in the folder if the process is killed, except between the two last system calls of a
    replacement. ``write`` may be called again, with an empty file, if the file system lacks files without a name.

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
    mode = 0o666 if old is None else 0o600  # a private file is never public
    for create in (_create_unnamed, _create_named):
        file: BinaryIO | None = None
        try:
            with uninterrupted:
                file = create(temporary, mode)
            with file:
                _fill(file, write, old)
                with uninterrupted:
                    if create is not _create_unnamed or not _give_name(file, temporary, real, old is None):
                        os.replace(temporary, real)
        except _Unsupported:
            continue
        except BaseException as error:
            with uninterrupted, suppress(OSError):
                os.unlink(temporary)
            if file is None and old is not None and isinstance(error, PermissionError):
                break  # no file can be created in the folder
            raise
        _sync_folder(folder)
        return
    _write_directly(real, write)


class _Unsupported(Exception):
    """The system does not support files without a name here."""


def _create_unnamed(temporary: str, mode: int) -> BinaryIO:
    """A file without a name in the folder of ``temporary``: if the process is killed, nothing remains."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir(_DESCRIPTORS):
        raise _Unsupported
    try:
        handle = os.open(os.path.dirname(temporary), os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, mode)
    except PermissionError:
        raise
    except OSError as error:
        raise _Unsupported from error
    return os.fdopen(handle, "wb")


def _create_named(temporary: str, mode: int) -> BinaryIO:
    return os.fdopen(os.open(temporary, _CREATE, mode), "wb")


def _give_name(file: BinaryIO, temporary: str, real: str, is_new: bool) -> bool:
    """Name a file that was created without a name; return whether it has the name ``real``.

    A name is given only if no file has it. A file that replaces a file therefore gets the name ``temporary`` first.
    """
    # Python follows the link of the descriptor only if a folder is given, which absolute names do not use.
    link = partial(os.link, f"{_DESCRIPTORS}/{file.fileno()}", src_dir_fd=file.fileno())
    try:
        if is_new:
            with suppress(FileExistsError):
                link(real)
                return True
        link(temporary)
    except OSError as error:
        raise _Unsupported from error
    return False


def _fill(file: BinaryIO, write: Callable[[BinaryIO], object], old: os.stat_result | None) -> None:
    """Write a new file, down to the disk, with the attributes of the ``old`` one."""
    write(file)
    file.flush()
    if old is not None and hasattr(os, "fchown"):
        _take_over(file.fileno(), old)
    os.fsync(file.fileno())


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
