"""The server process of ``tracecomp serve``: HTTP and gRPC in one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp as ASGIApplication

from tracecomp.base.errors import TracecompError
from tracecomp.serve.asgi import App
from tracecomp.serve.control import Control
from tracecomp.serve.engine import Engine
from tracecomp.serve.grpc_server import Remote
from tracecomp.serve.management import Management
from tracecomp.serve.observation import JsonLines, TextLines
from tracecomp.serve.repository import entries
from tracecomp.serve.snapshot import Snapshot
from tracecomp.serve.transport import Protocol

_TOKEN = "TRACECOMP_SERVE_TOKEN"
"""The variable of the environment that holds the management token."""
_STOP_SECONDS = 10
"""Seconds that running requests may take after a signal to stop."""


@dataclass(frozen=True)
class Options:
    """Addresses and limits of the server. Port 0 is any free port; a port of None is not opened."""

    folder: Path
    host: str
    port: int
    grpc_port: int | None
    max_body_bytes: int
    log_requests: bool
    management_port: int | None = None
    allow_code: bool = False
    snapshot: Path | None = None
    log_json: bool = False
    certfile: Path | None = None
    keyfile: Path | None = None

    @property
    def scheme(self) -> str:
        """The suffix of "http" and "grpc": "s" with TLS."""
        return "s" if self.certfile else ""


def run(options: Options) -> int:
    """Serve until a signal ends the process; the exit code."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if options.log_json else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("tracecomp.serve").setLevel(logging.INFO if options.log_requests else logging.WARNING)
    found = entries(options.folder, options.allow_code)
    snapshot = None if options.snapshot is None else Snapshot(options.snapshot, options.folder)
    if snapshot is not None:
        found, missing = snapshot.select(found)
        for url in missing:
            print(f"error: {options.snapshot} names {url}, which the folder lacks", file=sys.stderr, flush=True)
    engine = Engine(found)
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(_listener(options.host, options.port))
        manager = None
        if options.management_port is not None:
            manager = open_sockets.enter_context(_listener("127.0.0.1", options.management_port))
        asyncio.run(_serve(engine, snapshot, listener, manager, options))
    return 0


def _http(application: ASGIApplication, certfile: Path | None = None, keyfile: Path | None = None) -> Any:
    try:
        server: Any = uvicorn.Server(uvicorn.Config(
            application, log_config=None, access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS, ws="none", http=Protocol, proxy_headers=False,
            ssl_certfile=certfile, ssl_keyfile=keyfile,
        ))  # fmt: skip
        server.config.load()
    except (OSError, ssl.SSLError) as error:
        raise TracecompError(f"cannot read the certificate: {error}") from None
    server.capture_signals = nullcontext  # a signal stops all servers together
    return server


async def _serve(
    engine: Engine, snapshot: Snapshot | None, listener: socket.socket, manager: socket.socket | None, options: Options
) -> None:
    application = App(engine, options.max_body_bytes)
    servers = {_http(application, options.certfile, options.keyfile): listener}
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await application.start()
    if snapshot is not None:
        snapshot.restore(engine)
    addresses = [f"http{options.scheme}://{_address(options.host, listener.getsockname()[1])}"]
    remote: Any = None
    if options.grpc_port is not None:
        remote = Remote(_address(options.host, options.grpc_port), options.max_body_bytes, _certificate(options))
        addresses.append(f"grpc{options.scheme}://{_address(options.host, remote.port)}")
    print(f"serving {_count(engine)} on {' and '.join(addresses)}", flush=True)
    control = None
    if manager is not None:
        control = _control(engine, manager, options)
        servers[_http(Management(control).application())] = manager
    if remote is not None:
        await remote.start(engine, control)
    running = [loop.create_task(server.serve([sock])) for server, sock in servers.items()]
    watching, stopping = loop.create_task(_report(engine)), loop.create_task(stop.wait())
    try:
        await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        for server in servers:
            server.should_exit = True
        # The models end last: both protocols still answer what they have accepted.
        await asyncio.gather(*running, *([] if remote is None else [remote.stop(_STOP_SECONDS)]))
    finally:
        for task in (watching, stopping):
            task.cancel()
        await application.close()


def _certificate(options: Options) -> tuple[bytes, bytes] | None:
    if options.certfile is None:
        return None
    chain = options.certfile.read_bytes()
    return (options.keyfile or options.certfile).read_bytes(), chain


def _control(engine: Engine, manager: socket.socket, options: Options) -> Control:
    """Management for HTTP and gRPC. Print its port and a generated token."""
    token, note = os.environ.get(_TOKEN, ""), f"the token of {_TOKEN}"
    if not token:
        token = secrets.token_urlsafe(32)
        note = f"token {token}"
    print(f"management on http://127.0.0.1:{manager.getsockname()[1]} with {note}", flush=True)
    return Control(engine, options.folder, token, options.allow_code)


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
        made.listen(2048)  # clients may connect once the addresses are printed
    except OSError as error:
        made.close()
        raise TracecompError(f"cannot listen on {_address(host, port)}: {error.strerror or error}") from None
    return made
