"""Files that nobody but this user (and root) can have written, for what is going to be run.

A digest does not protect against somebody who can write the file, since he can write the digest too. What protects is
who owns a file, its folder and the folders above, and who else may write them. Every folder on the way is looked at
from the root down: what a folder holds can be changed by nobody else once that folder itself has been found safe, so
nothing can be exchanged between the look and the use.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

_LINKS = 40
"""Symbolic links on one path before it is taken for a loop, as in Linux."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""No link is followed, and a pipe in the place of a file does not block."""


class UnsafeError(OSError):
    """Somebody else could have written what stands there."""


def make_folder(path: Path) -> Path:
    """``path`` without links, made with mode 0700 where it is missing; ``UnsafeError`` where others may write it.

    A folder above may be one that all write, like ``/tmp``, if its sticky bit keeps them from what is not theirs.
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
            return os.lstat(path)  # somebody was faster; whose it is will be seen
        os.chmod(path, 0o700)  # an umask may have taken bits away
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
    """A descriptor to read ``path``, in a folder of ``make_folder``.

    ``UnsafeError`` for anything but a regular file that only this user (or root) writes, under one name: a second name
    could have been made by somebody else.
    """
    descriptor = os.open(path, _READ)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_nlink > 1:  # 0 where another process has just replaced it
            raise UnsafeError(f"{path} is not a regular file")
        _check_owner(path, info)
        if hasattr(os, "geteuid") and info.st_mode & _OTHERS_WRITE:
            raise UnsafeError(f"others may write {path}")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
