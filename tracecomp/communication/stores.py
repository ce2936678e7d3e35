"""Key-value stores for the rendezvous of processes."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tracecomp.communication.errors import DistQueueEmptyError, DistStoreError

_DEFAULT = timedelta(seconds=300)


def as_value(value: object) -> bytes:
    """Convert ``value`` to stored bytes: bytes, or a text's UTF-8. TypeError for anything else."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"store values must be str or bytes, got {type(value).__name__}")


class Store(ABC):
    """Keys with values of bytes, shared by several processes.

    Subclasses define ``_change`` (read and write under the store's lock) and ``_pause`` (wait until something may have
    changed).
    """

    def __init__(self, timeout: timedelta = _DEFAULT) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of ``get`` and ``wait``."""
        self._timeout = timeout

    @abstractmethod
    def _change(self, change: Callable[[dict[str, bytes]], object]) -> Any:
        """Run ``change``, which may read and write all keys and values, and return its result."""

    @abstractmethod
    def _pause(self, seconds: float) -> None:
        """Wait until something may have changed."""

    def _read(self, look: Callable[[dict[str, bytes]], object]) -> Any:
        """Like ``_change``, for a function that only reads."""
        return self._change(look)

    def set(self, key: str, value: object) -> None:
        """Write a value."""
        data = as_value(value)
        self._change(lambda table: table.__setitem__(key, data))

    def get(self, key: str) -> bytes:
        """Return the value, once it exists; DistStoreError after the timeout."""
        self.wait([key])
        found: bytes = self._read(lambda table: table[key])
        return found

    def add(self, key: str, amount: int) -> int:
        """Add to a counter that begins at 0; return its new value."""

        def change(table: dict[str, bytes]) -> int:
            value = int(table.get(key, b"0")) + amount
            table[key] = str(value).encode()
            return value

        found: int = self._change(change)
        return found

    def append(self, key: str, value: object) -> None:
        """Append to the existing value."""
        data = as_value(value)
        self._change(lambda table: table.__setitem__(key, table.get(key, b"") + data))

    def compare_set(self, key: str, expected_value: object, desired_value: object) -> bytes:
        """Write if the value is ``expected_value`` (or empty and missing); return the current value."""
        old, new = as_value(expected_value), as_value(desired_value)

        def change(table: dict[str, bytes]) -> bytes:
            if table.get(key, b"") == old:
                table[key] = new
            return table.get(key, old)

        found: bytes = self._change(change)
        return found

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        found: bool = self._read(lambda table: all(key in table for key in keys))
        return found

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return when all keys have values; DistStoreError after the timeout."""
        seconds = (timeout or self._timeout).total_seconds()
        end = time.monotonic() + seconds
        while not self.check(keys):
            left = end - time.monotonic()
            if left <= 0:
                raise DistStoreError(f"wait timeout after {seconds * 1000:.0f}ms, keys: {', '.join(keys)}")
            self._pause(left)

    def delete_key(self, key: str) -> bool:
        """Delete a key; return whether it existed."""
        found: bool = self._change(lambda table: table.pop(key, None) is not None)
        return found

    def num_keys(self) -> int:
        found: int = self._read(len)
        return found

    def list_keys(self) -> list[str]:
        found: list[str] = self._read(list)
        return found

    def multi_set(self, keys: Sequence[str], values: Sequence[object]) -> None:
        """Write several values."""
        data = {key: as_value(value) for key, value in zip(keys, values, strict=True)}
        self._change(lambda table: table.update(data))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return several values, once all exist."""
        return [self.get(key) for key in keys]

    def queue_push(self, key: str, value: object) -> None:
        """Add to the end of a queue."""
        self.set(f"{key}/{self.add(f'{key}/end', 1)}", value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Remove and return the first element of a queue; without ``block`` DistQueueEmptyError when it is empty."""
        if not block and self.queue_len(key) <= 0:
            raise DistQueueEmptyError(f"queue {key!r} is empty")
        place = f"{key}/{self.add(f'{key}/begin', 1)}"
        found = self.get(place)
        self.delete_key(place)
        return found

    def queue_len(self, key: str) -> int:
        """Return the number of elements in a queue."""
        return self.add(f"{key}/end", 0) - self.add(f"{key}/begin", 0)

    def has_extended_api(self) -> bool:
        """Whether ``append``, ``multi_get`` and ``multi_set`` work."""
        return True


class HashStore(Store):
    """A store within one process."""

    def __init__(self) -> None:
        super().__init__()
        self._table: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def _change(self, change: Callable[[dict[str, bytes]], object]) -> Any:
        with self._changed:
            found = change(self._table)
            self._changed.notify_all()
            return found

    def _read(self, look: Callable[[dict[str, bytes]], object]) -> Any:
        with self._changed:
            return look(self._table)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(min(seconds, 0.05))


class FileStore(Store):
    """A store in a file that all processes can access. The file is removed when ``world_size`` processes have closed
    it."""

    _LENGTHS = struct.Struct("<qq")

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self._path = file_name
        self._world_size = world_size
        self.add("\0users", 1)

    @property
    def path(self) -> str:
        return self._path

    def _change(self, change: Callable[[dict[str, bytes]], object]) -> Any:
        with open(self._path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            table = self._table(file)
            before = dict(table)
            found = change(table)
            for key in before.keys() - table.keys():
                file.write(self._LENGTHS.pack(len(key.encode()), -1) + key.encode())
            for key, value in table.items():
                if before.get(key) != value:
                    file.write(self._LENGTHS.pack(len(key.encode()), len(value)) + key.encode() + value)
            return found

    def _table(self, file: Any) -> dict[str, bytes]:
        """Combine all records of the file: a later one replaces an earlier one, length -1 removes."""
        file.seek(0)
        table: dict[str, bytes] = {}
        data, at = file.read(), 0
        while at < len(data):
            size, length = self._LENGTHS.unpack_from(data, at)
            at += self._LENGTHS.size
            key = data[at : at + size].decode()
            at += size
            if length < 0:
                table.pop(key, None)
                continue
            table[key] = data[at : at + length]
            at += length
        return table

    def _pause(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))

    def num_keys(self) -> int:
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        return [key for key in super().list_keys() if not key.startswith("\0")]

    def __del__(self) -> None:
        with suppress(Exception):  # the file may be gone
            if self._world_size > 0 and self.add("\0closed", 1) >= self._world_size:
                os.unlink(self._path)


class PrefixStore(Store):
    """The keys of another store that begin with ``prefix``."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        return self._store

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def _change(self, change: Callable[[dict[str, bytes]], object]) -> Any:
        raise NotImplementedError("a PrefixStore forwards all calls to its underlying store")

    def _pause(self, seconds: float) -> None:
        self._store._pause(seconds)

    def set(self, key: str, value: object) -> None:
        self._store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._key(key), amount)

    def append(self, key: str, value: object) -> None:
        self._store.append(self._key(key), value)

    def compare_set(self, key: str, expected_value: object, desired_value: object) -> bytes:
        return self._store.compare_set(self._key(key), expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check([self._key(key) for key in keys])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._store.wait([self._key(key) for key in keys], timeout or self._timeout)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        start = self._key("")
        return [key.removeprefix(start) for key in self._store.list_keys() if key.startswith(start)]

    def multi_set(self, keys: Sequence[str], values: Sequence[object]) -> None:
        self._store.multi_set([self._key(key) for key in keys], values)
