"""Files that no one but this user (and root) can have written, for code that will be executed.

A digest does not protect against a user who can write the file, and so the digest too. The protection is ownership and
permissions of the file, its folder and the folders above. Every folder on the path is checked from the root down. Once
a folder is safe, no other user can change its entries, so nothing can be exchanged between check and use.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

_LINKS = 40
"""Symbolic links on one path above which it counts as a loop, as in Linux."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""No link is followed, and a pipe instead of a file does not block."""


class UnsafeError(OSError):
    """Another user could have written the file."""


def make_folder(path: Path) -> Path:
    """Return ``path`` without links, created with mode 0700 if missing; ``UnsafeError`` if others may write it.

    A folder above may be writable for all, like ``/tmp``, if its sticky bit protects entries of other users.
    """
    ahead = deque(Path(os.path.abspath(path)).parts)
    here, links = Path(ahead.popleft()), 0
    while ahead:
        part = ahead.popleft()
        if part in (".", ".."):
            here = here.parent if part == ".." else here
            continue
        info = _made(here / part)
        if stat.S_ISLNK(info.st_mode):
            links += 1
            if links > _LINKS:
                raise UnsafeError(f"{path} has too many symbolic links")
            _check_owner(here / part, info)
            target = Path(os.readlink(here / part))
            ahead.extendleft(reversed(target.relative_to(target.anchor).parts))
            here = Path(target.anchor) if target.anchor else here
            continue
        here = here / part
        _check_folder(here, info, last=not ahead)
    return here


def _made(path: Path) -> os.stat_result:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return os.lstat(path)  # created concurrently; its owner is checked below
        os.chmod(path, 0o700)  # the umask may have removed bits
        return os.lstat(path)


def _check_owner(path: Path, info: os.stat_result) -> None:
    if hasattr(os, "geteuid") and info.st_uid not in (0, os.geteuid()):
        raise UnsafeError(f"{path} belongs to another user")


def _check_folder(path: Path, info: os.stat_result, last: bool) -> None:
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(f"{path} is not a folder")
    _check_owner(path, info)
    kept_apart = info.st_mode & stat.S_ISVTX and not last
    if hasattr(os, "geteuid") and info.st_mode & _OTHERS_WRITE and not kept_apart:
        raise UnsafeError(f"others may write {path} (chmod go-w makes it safe, after removing their files)")


def open_file(path: Path) -> int:
    """Open ``path``, in a folder of ``make_folder``, for reading; return the descriptor.

    ``UnsafeError`` for anything but a regular file that only this user (or root) writes, under one name: another user
    could have made a second name.
    """
    descriptor = os.open(path, _READ)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:  # 0 if another process has just replaced it
            raise UnsafeError(f"{path} is not a regular file")
        _check_owner(path, info)
        if hasattr(os, "geteuid") and info.st_mode & _OTHERS_WRITE:
            raise UnsafeError(f"others may write {path}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
