"""The server process of ``tracecomp serve``: HTTP and gRPC in one event loop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from tracecomp.base.errors import TracecompError
from tracecomp.serve.asgi import App
from tracecomp.serve.engine import Engine
from tracecomp.serve.grpc_server import make_server

_STOP_SECONDS = 10
"""Seconds that running requests may take after a signal to stop."""


@dataclass(frozen=True)
class Options:
    """Addresses and limits of the server. Port 0 is any free port; without a ``grpc_port`` there is only HTTP."""

    folder: Path
    host: str
    port: int
    grpc_port: int | None
    max_body_bytes: int
    log_requests: bool


def run(options: Options) -> int:
    """Serve until a signal ends the process; the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    engine = Engine.of_folder(options.folder)
    listener = _listener(options.host, options.port)
    with listener:
        asyncio.run(_serve(engine, listener, options))
    return 0


async def _serve(engine: Engine, listener: socket.socket, options: Options) -> None:
    application = App(engine, options.max_body_bytes)
    await application.start()
    addresses = [f"http://{_address(options.host, listener.getsockname()[1])}"]
    remote: Any = None
    if options.grpc_port is not None:
        remote, port = make_server(engine, _address(options.host, options.grpc_port), options.max_body_bytes)
        await remote.start()
        addresses.append(f"grpc://{_address(options.host, port)}")
    config = uvicorn.Config(
        application, log_level="info" if options.log_requests else "warning", access_log=options.log_requests,
        lifespan="on", server_header=False, timeout_graceful_shutdown=_STOP_SECONDS, ws="none",
    )  # fmt: skip
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)  # uvicorn drains the server, then sends itself the signal again
    watching = asyncio.ensure_future(_report(engine))
    print(f"serving {_count(engine)} on {' and '.join(addresses)}", flush=True)
    try:
        await uvicorn.Server(config).serve([listener])
    finally:
        watching.cancel()
        if remote is not None:
            await remote.stop(_STOP_SECONDS)
        await application.close()


async def _report(engine: Engine) -> None:
    """Print models that cannot be served, and that the others are ready."""
    await engine.settled()
    for model in engine:
        name = f"{model.name}, version {model.version}"
        if not model.is_ready:
            print(f"error: {name}: {model.process.failure}", file=sys.stderr, flush=True)
        elif model.signature.not_batched:
            print(f"{name}: requests are not batched: {model.signature.not_batched}", file=sys.stderr, flush=True)
    print("ready" if engine.is_ready else "the other models are ready", flush=True)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def _count(engine: Engine) -> str:
    count = len(engine.entries)
    return f"{count} model{'' if count == 1 else 's'}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small packets at once only on sockets that name their protocol.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise TracecompError(f"cannot listen on {_address(host, port)}: {error.strerror or error}") from None
    return made
