"""Rendezvous of processes: from an address or the environment to a transport."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tracecomp.communication.errors import DistBackendError, DistNetworkError
from tracecomp.communication.meeting import check_still_runs
from tracecomp.communication.messages import Alone, Transport
from tracecomp.communication.mpi import MpiTransport, available, started_by_mpi
from tracecomp.communication.sockets import SocketTransport
from tracecomp.communication.stores import FileStore, PrefixStore, Store
from tracecomp.communication.tcp_store import TCPStore


class Meeting(NamedTuple):
    """The result of a rendezvous."""

    store: Store | None
    rank: int
    size: int


_LOOK = 2.0
"""Seconds between checks whether rank 0 has ended, while this process tries to connect to it."""
_serving: dict[tuple[str, int], TCPStore] = {}
"""Stores that this process serves, by address, until it ends. A second rendezvous at the address uses the first one's
store, which faster processes may have reached already."""


def meet(backend: str, url: str | None, rank: int, size: int, seconds: float, store: Store | None) -> tuple[
    Transport, Store | None
]:  # fmt: skip
    """Return the transport to all processes, and the store of the rendezvous.

    Processes started by MPI use it; others TCP. ``rank`` and ``size`` are -1 if the address or the environment has
    them.
    """
    if store is None and url in (None, "env://") and _by_mpi(backend, rank, size):
        transport = MpiTransport()
        _agree("RANK", rank, transport.rank)
        _agree("WORLD_SIZE", size, transport.size)
        return transport, None
    if store is None and backend == "mpi" and url in (None, "env://") and rank < 0 and "RANK" not in os.environ:
        return Alone(), None
    found = Meeting(store, rank, size) if store is not None else by_url(url or "env://", rank, size, seconds)
    if found.rank < 0 or found.size < 1 or found.rank >= found.size:
        raise ValueError(f"rank {found.rank} of {found.size} processes: specify both rank and world_size")
    if found.size == 1:
        return Alone(), found.store
    assert found.store is not None
    board = PrefixStore(f"transport{found.size}/{_round(found)}", found.store)
    return SocketTransport(found.rank, found.size, board, _host(found.store), seconds), found.store


def _by_mpi(backend: str, rank: int, size: int) -> bool:
    if backend == "mpi" and not available() and ("RANK" in os.environ or rank >= 0):
        raise DistBackendError("the backend 'mpi' needs mpi4py and an MPI: pip install 'tracecomp[mpi]'")
    return started_by_mpi() and (size in (-1, _mpi_size()) or backend == "mpi")


def _mpi_size() -> int:
    """The number of processes that MPI's launcher has started, if it is known; else -1."""
    return int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or -1)


def _agree(name: str, given: int, found: int) -> None:
    if given not in (-1, found):
        raise ValueError(f"{name} is {given}, but MPI reports {found}")


def _round(found: Meeting) -> int:
    """The number of earlier rendezvous of as many processes: groups may be destroyed and created again."""
    assert found.store is not None
    return (found.store.add(f"transports/{found.size}", 1) - 1) // found.size


def _host(store: Store) -> str:
    """The address at which others reach this process."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        return store.address
    return "127.0.0.1" if isinstance(store, FileStore) else socket.gethostname()


def by_url(url: str, rank: int, size: int, seconds: float) -> Meeting:
    """The store, rank and number of processes of ``url`` (env://, file://, tcp://)."""
    parts = urlsplit(url)
    asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    rank, size = int(asked.get("rank", rank)), int(asked.get("world_size", size))
    if parts.scheme == "env":
        return _from_environment(rank, size, seconds)
    if parts.scheme not in ("file", "tcp"):
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    if rank < 0 or size < 0:
        missing = "rank" if rank < 0 else "world_size"
        raise ValueError(
            f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: {missing} parameter missing"
        )
    if parts.scheme == "file":
        path = parts.netloc + parts.path
        if not path:
            raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
        return Meeting(FileStore(path, size), rank, size)
    if parts.port is None:
        raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
    host = parts.hostname or "localhost"
    return Meeting(_served(host, parts.port, rank, size, seconds), rank, size)


def _from_environment(rank: int, size: int, seconds: float) -> Meeting:
    rank = int(_variable("RANK")) if rank < 0 else rank
    size = int(_variable("WORLD_SIZE")) if size < 0 else size
    host, port = _variable("MASTER_ADDR"), int(_variable("MASTER_PORT"))
    return Meeting(_served(host, port, rank, size, seconds), rank, size)


def _served(host: str, port: int, rank: int, size: int, seconds: float) -> Store:
    """The store at an address; rank 0 serves it, unless a launcher does."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    serves = rank == 0 and not agent and (host, port) not in _serving
    deadline = time.monotonic() + seconds
    while True:
        try:
            store = TCPStore(
                host, port, size, serves, timedelta(seconds=min(seconds, _LOOK)), wait_for_workers=False
            )  # fmt: skip
            break
        except DistNetworkError as error:
            if serves:
                raise
            if not agent:
                check_still_runs(0, rank, size)
            if time.monotonic() > deadline:
                where = "the launcher" if agent else "rank 0"
                raise DistNetworkError(f"cannot connect to {where} within {seconds:g} s: {error}") from error
    store.set_timeout(timedelta(seconds=seconds))
    store.server = "the launcher" if agent else "rank 0"
    if serves:
        _serving[host, port] = store
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return PrefixStore(f"attempt{attempt}", store) if agent else store


def _variable(name: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise ValueError(
            f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but "
            "not set"
        )
    return found
