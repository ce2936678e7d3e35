"""Program files: a header that describes the contents, and sections of bytes, each at a multiple of 64.

A file begins with ``MAGIC``, the format's version (4 bytes), the header's length (4 bytes) and the header's SHA-256,
all integers little-endian. The header is JSON; its ``sections`` have offset, size and SHA-256 of each section. The
digest of the header, ``Container.digest``, therefore identifies the whole file. A format gets a new number when an old
reader would misunderstand it; every reader supports all lower numbers. Since format 2 paths may have dynamic sizes.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any

MAGIC = b"\x93TCP\r\n\x1a\n"  # no text, and damaged by whoever converts the ends of lines
FORMAT = 4
ALIGNMENT = 64
HERE = "this machine"
"""The level of code that was made for the machine it runs on."""
MAX_HEADER = 64 * 2**20
FIXED = struct.Struct("<8sII32s")


class ProgramError(RuntimeError, ValueError):
    """A program file is damaged, of an unknown format, not the one that was pinned, or not for this machine.

    PyTorch raises a RuntimeError for most damaged files, and a ValueError for others.
    """


class Container:
    """A program file that is open for reading; its sections are memory-mapped."""

    def __init__(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        self.name = os.fspath(path) if name is None else name
        """The file in messages."""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            fixed = file.read(FIXED.size)
            if len(fixed) < FIXED.size or not fixed.startswith(MAGIC):
                raise self.error("is not a program file")
            _, version, length, self._digest = FIXED.unpack(fixed)
            if version > FORMAT:
                raise self.error(f"has format {version}; this version reads formats up to {FORMAT}")
            if length > min(MAX_HEADER, size - FIXED.size):
                raise self.error("is cut short: its header is incomplete")
            text = file.read(length)
            if sha256(text) != self._digest:
                raise self.error("is damaged: the digest of its header is wrong")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.header = self._parsed(text)
        self._start = first(length)
        self.held: dict[str, bytes] = {}
        """Sections that were computed later instead of read from the file."""
        self.arrays: dict[str, Any] = {}
        """The arrays of the file, once parsed."""

    @property
    def digest(self) -> str:
        """Identifies the whole file: ``sha256:...``."""
        return f"sha256:{self._digest.hex()}"

    def section(self, name: str, check: bool = True) -> memoryview:
        """The bytes of a section, compared with their digest unless ``check`` is off; ProgramError if they differ."""
        if name in self.held:
            return memoryview(self.held[name])
        place = self.header["sections"].get(name)
        if place is None:
            raise self.error(f"has no section {name!r}")
        start, size = self._start + place["offset"], place["size"]
        if start + size > len(self._map):
            raise self.error(f"is cut short: section {name!r} is incomplete")
        data = memoryview(self._map)[start : start + size]
        if check and sha256(data).hex() != place["sha256"]:
            raise self.error(f"is damaged: section {name!r} has a wrong digest")
        return data

    def code(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """The description of a piece of code in the file; a file with graphs compiles it on demand."""
        return told

    def error(self, text: str) -> ProgramError:
        """An error about this file."""
        return ProgramError(f"{self.name} {text}")

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            header = json.loads(text)
            places = [(p["offset"], p["size"], p["sha256"]) for p in header["sections"].values()]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self.error(f"is damaged: its header is invalid ({error})") from None
        good = all(type(n) is int and n >= 0 for place in places for n in place[:2])
        if not good or any(offset % ALIGNMENT for offset, _, _ in places):
            raise self.error("is damaged: its header has invalid section offsets")
        return dict(header)


def sha256(data: bytes | memoryview) -> bytes:
    """The digest of ``data``."""
    return bytes((_sha256_of_much if len(data) > _MUCH else _sha256_of_little)(data).digest())


_MUCH = 2**20
"""Bytes that take Python's own code some milliseconds, as long as loading OpenSSL takes."""


def _sha256_of_much(data: bytes | memoryview) -> Any:
    return import_module("hashlib").sha256(data)  # faster, but OpenSSL takes milliseconds to load


def _sha256_of_little(data: bytes | memoryview) -> Any:
    for name in ("_sha2", "_sha256"):  # of Python 3.12 and newer, of 3.11
        try:
            return import_module(name).sha256(data)
        except (ImportError, AttributeError):
            continue
    return _sha256_of_much(data)


def aligned(size: int) -> int:
    """``size`` bytes, and as many more as make it a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def first(header: int) -> int:
    """The offset of sections after a header of that many bytes."""
    return aligned(FIXED.size + header)
