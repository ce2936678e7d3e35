"""A store that one process serves over TCP to all.

A request is a count of fields, then each field's length and bytes: the operation's name, the seconds that it may wait,
its arguments. An answer has the same form; its first field is empty, or the error's text.
"""

from __future__ import annotations

import atexit
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tracecomp.communication.errors import DistError, DistNetworkError, DistStoreError
from tracecomp.communication.stores import HashStore, Store, as_value

_NUMBER = struct.Struct("<I")
_MOST = 1 << 28
"""Limits of bytes per field and fields per request; a peer that exceeds them is not a store."""
_LAST_ANSWERS = 10.0
"""Seconds in which an ending process sends pending answers. Reading clients need milliseconds, on a busy machine a
second."""


def _write(link: socket.socket, fields: Sequence[bytes]) -> None:
    link.sendall(_NUMBER.pack(len(fields)) + b"".join(_NUMBER.pack(len(f)) + f for f in fields))


def _exactly(link: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        more = link.recv(size - len(found))
        if not more:
            raise ConnectionError("the connection was closed")
        found += more
    return bytes(found)


def _read(link: socket.socket) -> list[bytes]:
    count = _NUMBER.unpack(_exactly(link, _NUMBER.size))[0]
    fields, total = [], count
    for _ in range(min(count, _MOST)):
        size = _NUMBER.unpack(_exactly(link, _NUMBER.size))[0]
        total += size
        if total > _MOST:
            raise ConnectionError("the message exceeds the store's size limit")
        fields.append(_exactly(link, size))
    return fields


def _texts(fields: Sequence[bytes]) -> list[str]:
    return [f.decode() for f in fields]


def _wait(table: HashStore, seconds: float, keys: Sequence[bytes]) -> list[bytes]:
    table.wait(_texts(keys), timedelta(seconds=seconds))
    return []


def _get(table: HashStore, seconds: float, keys: Sequence[bytes]) -> list[bytes]:
    _wait(table, seconds, keys)
    return table.multi_get(_texts(keys))


def _set(table: HashStore, seconds: float, fields: Sequence[bytes]) -> list[bytes]:
    table.multi_set(_texts(fields[::2]), fields[1::2])
    return []


def _append(table: HashStore, seconds: float, fields: Sequence[bytes]) -> list[bytes]:
    table.append(fields[0].decode(), fields[1])
    return []


_OPERATIONS: Mapping[str, Callable[[HashStore, float, Sequence[bytes]], list[bytes]]] = {
    "get": _get,
    "set": _set,
    "wait": _wait,
    "append": _append,
    "add": lambda table, _, f: [str(table.add(f[0].decode(), int(f[1]))).encode()],
    "compare_set": lambda table, _, f: [table.compare_set(f[0].decode(), f[1], f[2])],
    "check": lambda table, _, f: [b"1"] if table.check(_texts(f)) else [b""],
    "delete_key": lambda table, _, f: [b"1"] if table.delete_key(f[0].decode()) else [b""],
    "list_keys": lambda table, _, f: [key.encode() for key in table.list_keys()],
}


class _Handler(socketserver.BaseRequestHandler):
    """One client's requests, one after another."""

    server: StoreServer

    def handle(self) -> None:
        with suppress(OSError):
            while True:
                name, seconds, *fields = _read(self.request)
                self.server.asked[self] = fields if name in (b"wait", b"get") else []
                try:
                    answer = [b"", *_OPERATIONS[name.decode()](self.server.table, float(seconds), fields)]
                except (DistError, ValueError, LookupError) as error:
                    answer = [str(error).encode() or b"error"]
                try:
                    _write(self.request, answer)
                finally:
                    del self.server.asked[self]


class StoreServer(socketserver.ThreadingTCPServer):
    """Serve a store from threads of this process until ``close``."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, host: str, port: int) -> None:
        self.table = HashStore()
        self.asked: dict[_Handler, Sequence[bytes]] = {}  # unanswered requests: the keys that each waits for
        super().__init__((host, port), _Handler)
        atexit.register(self._answer)
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True, name="tracecomp store").start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop a client that does not speak this protocol."""

    def _answer(self) -> None:
        """Send pending answers whose keys exist: the end of the process would lose them."""
        deadline = time.monotonic() + _LAST_ANSWERS
        while time.monotonic() < deadline and any(self.table.check(_texts(k)) for k in list(self.asked.values())):
            time.sleep(0.005)

    def close(self) -> None:
        atexit.unregister(self._answer)
        self._answer()
        self.shutdown()
        self.server_close()


def _interface(host: str) -> str:
    """The interface on which the store of ``host`` listens: a loopback address excludes other machines.

    A machine's own name may resolve to the loopback there and to another address elsewhere, so it is not resolved.
    """
    return "127.0.0.1" if host == "localhost" or host.startswith("127.") else ""


class TCPStore(Store):
    """A store at ``host_name:port``, which the process with ``is_master`` serves.

    With ``world_size`` and ``wait_for_workers``, the constructor returns once that many processes have connected.
    ``port=0`` chooses a free one. DistNetworkError if there is no server within ``timeout``.
    """

    def __init__(
        self, host_name: str, port: int = 0, world_size: int | None = None, is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300), wait_for_workers: bool = True, multi_tenant: bool = False,
        master_listen_fd: int | None = None, use_libuv: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(timeout)
        self.host, self._lock = host_name, threading.Lock()
        self.server = "a process"  # the server's name in errors
        self._server: StoreServer | None = None
        if is_master:
            try:
                self._server = StoreServer(_interface(host_name), port)
            except OSError as error:
                raise DistNetworkError(f"The server socket has failed to listen on port {port}: {error}") from error
            port = self._server.server_address[1]
        self.port = port
        self._link = self._connected(time.monotonic() + timeout.total_seconds())
        if world_size is not None and world_size > 0 and wait_for_workers:
            self._meet(world_size)

    def clone(self) -> TCPStore:
        """Return the same store through a separate connection, for another thread."""
        return TCPStore(self.host, self.port, timeout=self.timeout, wait_for_workers=False)

    def _connected(self, deadline: float) -> socket.socket:
        while True:
            try:
                link = socket.create_connection((self.host, self.port), timeout=5.0)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return link
            except OSError as error:
                if time.monotonic() > deadline:
                    raise DistNetworkError(
                        f"The client socket has failed to connect to {self.host}:{self.port}: {error}"
                    ) from error
                time.sleep(0.05)

    def _meet(self, world_size: int) -> None:
        """Wait until all ``world_size`` processes have connected."""
        if self.add("\0joined", 1) % world_size == 0:
            self.set("\0complete", b"1")
        self.wait(["\0complete"])

    @property
    def address(self) -> str:
        """This machine's address in connections to the server."""
        return str(self._link.getsockname()[0])

    def _ask(self, name: str, *fields: bytes, timeout: timedelta | None = None) -> list[bytes]:
        seconds = (timeout or self._timeout).total_seconds()
        with self._lock:
            try:
                self._link.settimeout(seconds + 10.0)
                _write(self._link, [name.encode(), str(seconds).encode(), *fields])
                error, *answer = _read(self._link)
            except OSError as broken:
                what = f"{self.server} died; its store at {self.host}:{self.port} is lost"
                raise DistNetworkError(f"{what} ({broken})") from broken
        if error:
            raise DistStoreError(error.decode())
        return answer

    def _change(self, change: Callable[[dict[str, bytes]], object]) -> Any:
        raise NotImplementedError("only requests may change the values of a server")

    def _pause(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))

    def set(self, key: str, value: object) -> None:
        self._ask("set", key.encode(), as_value(value))

    def multi_set(self, keys: Sequence[str], values: Sequence[object]) -> None:
        self._ask("set", *(f for k, v in zip(keys, values, strict=True) for f in (k.encode(), as_value(v))))

    def get(self, key: str) -> bytes:
        return self._ask("get", key.encode())[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._ask("get", *(key.encode() for key in keys))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask("add", key.encode(), str(int(amount)).encode())[0])

    def append(self, key: str, value: object) -> None:
        self._ask("append", key.encode(), as_value(value))

    def compare_set(self, key: str, expected_value: object, desired_value: object) -> bytes:
        return self._ask("compare_set", key.encode(), as_value(expected_value), as_value(desired_value))[0]

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask("check", *(key.encode() for key in keys))[0])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._ask("wait", *(key.encode() for key in keys), timeout=timeout)

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete_key", key.encode())[0])

    def list_keys(self) -> list[str]:
        return [k for k in _texts(self._ask("list_keys")) if not k.startswith("\0")]

    def num_keys(self) -> int:
        return len(self.list_keys())

    def close(self) -> None:
        """Disconnect from the store; its server stops it."""
        self._link.close()
        if self._server is not None:
            self._server.close()
