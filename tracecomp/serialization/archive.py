"""Zip archives of a pickle and raw memory. Declared sizes are accepted only if the archive's size permits them."""

from __future__ import annotations

import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from tracecomp.base.zip_archive import zip_archive
from tracecomp.eager.device import device
from tracecomp.eager.meta import new_array as new_meta_array
from tracecomp.ir.types import DType
from tracecomp.serialization.rebuilding import Memory

_EXPANSION = 4
"""How many times an archive's size its contents may take. PyTorch does not compress; bombs do a thousand times."""

_FREE_BYTES = 1 << 16
"""Bytes that any archive may have beyond that: small ones compress well."""
_PIECE = 1 << 24
"""Bytes of a member read at once, so that a false size is detected before memory is full."""
_ENCRYPTED = 1
"""The bit of a zip member's flags."""
_LENGTHS = 26
"""Offset, in the header before a member, of the lengths of its name and extra field."""


class ArchiveError(pickle.UnpicklingError, RuntimeError):
    """A file is not an archive, or a damaged one. PyTorch raises a RuntimeError there."""


class EmptyFileError(ArchiveError, EOFError):
    """A file without a byte. PyTorch raises an EOFError."""


class Archive:
    """An archive that is being read; ArchiveError describes an invalid one. RuntimeError for one of TorchScript.

    Memory is read; at a ``place`` without memory only its size is. Memory of the file named ``mapped`` is mapped
    copy-on-write, so that it is read lazily.
    """

    def __init__(self, file: BinaryIO, place: device | None = None, mapped: str | None = None) -> None:
        self._place, self._mapped = place, mapped
        if not file.seek(0, 2):
            raise EmptyFileError("the file is empty")
        if not zipfile.is_zipfile(file):
            raise ArchiveError("not a zip archive. Files of PyTorch before 1.6 must be saved again by a newer version.")
        self._limit = _FREE_BYTES + _EXPANSION * file.seek(0, 2)
        file.seek(0)
        self._zip = zipfile.ZipFile(file)
        self._members = {info.filename: info for info in self._zip.infolist()}
        if len(self._members) != len(self._zip.infolist()):
            raise ArchiveError("two members of the archive have the same name")
        pickled = next((name for name in self._members if name.endswith("/data.pkl")), None)
        if pickled is None and any(name.endswith("/constants.pkl") for name in self._members):
            raise RuntimeError("TorchScript files contain code and cannot be loaded")
        if pickled is None:
            raise ArchiveError("the archive has no data.pkl")
        self._root = pickled.removesuffix("data.pkl")
        self._memory: dict[str, Memory] = {}
        self.pickled = self._read(pickled).tobytes()
        self._swap = self._byte_order() != sys.byteorder

    @property
    def members(self) -> list[str]:
        """The names of members, below the archive's root."""
        return [name.removeprefix(self._root) for name in self._members]

    def read(self, name: str) -> bytes:
        """The bytes of a member, by its name below the root."""
        return self._read(self._root + name).tobytes()

    def close(self) -> None:
        """Nothing is read any more; the file stays open."""
        self._zip.close()

    def _byte_order(self) -> str:
        name = self._root + "byteorder"
        order = self._read(name).tobytes().decode() if name in self._members else "little"
        if order not in ("little", "big"):
            raise ArchiveError(f"unknown byte order {order!r:.20}")
        return order

    def _checked(self, name: str) -> zipfile.ZipInfo:
        """A member whose size, added to those before it, the archive's size explains."""
        info = self._members.get(name)
        if info is None:
            raise ArchiveError(f"the archive has no {name}")
        self._limit -= info.file_size
        if self._limit < 0:
            raise ArchiveError(f"{name} is too large for the size of the archive")
        if info.flag_bits & _ENCRYPTED:
            raise ArchiveError(f"{name} is encrypted")
        return info

    def _bytes(self, name: str, itemsize: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A member's bytes, read, mapped or only sized."""
        if self._place is not None:
            return new_meta_array((self._checked(name).file_size,), np.uint8, place=self._place)
        if self._mapped is None or self._swap:
            return self._read(name)
        info = self._checked(name)
        stream = self._zip.fp
        assert stream is not None
        stream.seek(info.header_offset + _LENGTHS)
        lengths = struct.unpack("<HH", stream.read(4))
        start = info.header_offset + _LENGTHS + 4 + sum(lengths)
        if info.compress_type != zipfile.ZIP_STORED or start % itemsize or not info.file_size:
            self._limit += info.file_size
            return self._read(name)
        if start + info.file_size > os.path.getsize(self._mapped):
            raise ArchiveError(f"{name} is cut off")
        return np.memmap(self._mapped, np.uint8, "c", start, (info.file_size,)).view(np.ndarray)

    def _read(self, name: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A member's bytes, of all of which together there is a limit."""
        info = self._checked(name)
        data = np.empty(info.file_size, np.uint8)
        position = 0
        with self._zip.open(info) as member:
            while piece := member.read(_PIECE):
                data[position : position + len(piece)] = np.frombuffer(piece, np.uint8)
                position += len(piece)
        if position != info.file_size:
            raise ArchiveError(f"{name} is cut off after {position} of {info.file_size} bytes")
        return data

    def memory(self, reference: object, folder: str = "data") -> Memory:
        """The memory of a persistent reference of the pickle, with storages in ``folder``."""
        match reference:
            case ("storage", DType() as dtype, str() as key, _, int() as size):
                pass
            case _:
                raise ArchiveError(f"unknown persistent reference {reference!r:.80}")
        name = f"{self._root}{folder}/{key}"
        if name not in self._memory:
            self._memory[name] = Memory(dtype, self._bytes(name, dtype.itemsize), self._swap)
        found = self._memory[name]
        if found.dtype is not dtype or size > found.array.size:
            raise ArchiveError(f"{size} elements of {dtype} do not match the storage under {key!r:.40}")
        return found


def write_archive(file: BinaryIO, root: str, pickled: bytes, memory: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write files that ``Archive`` reads; equal contents give equal files."""
    with zip_archive(file) as archive:

        def add(name: str, data: Any) -> None:
            archive.writestr(zipfile.ZipInfo(f"{root}/{name}"), data)

        add("data.pkl", pickled)
        add("byteorder", sys.byteorder)
        for key, array in memory.items():
            add(f"data/{key}", np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        add("version", "3\n")
