"""uvicorn's HTTP protocol, with short responses in one packet, and a stop that resets no connection in use."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "
_IDLE_SECONDS = 0.5
"""Seconds that an idle connection stays open when the server stops: its client may be sending a request."""


class _Joining:
    """A transport that keeps the head of a response until the body is written, in the same turn of the event loop.

    Two packets would take two system calls and wake the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write the head together with the next bytes."""
        if self._head:
            data = self._head + data
            self._head = b""
        elif data.startswith(_HEAD):
            self._head = data
            asyncio.get_running_loop().call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection after the last write."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self.write(b"")


class Protocol(HttpToolsProtocol):
    """The protocol of a connection."""

    _is_stopping = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Use the transport."""
        joining = _Joining(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", joining))

    def on_headers_complete(self) -> None:
        """Begin to answer; tell the client that the connection closes when the server stops."""
        super().on_headers_complete()
        if self._is_stopping:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close the connection after its answer, or when it has been idle for a moment."""
        self._is_stopping = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_IDLE_SECONDS, super().shutdown)
        else:
            super().shutdown()
