"""The server's HTTP side as an ASGI application, alone or mounted in an application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tracecomp.serve.engine import Engine
from tracecomp.serve.generate_routes import GenerateRoutes
from tracecomp.serve.http import MAX_BODY_BYTES, application, description, route
from tracecomp.serve.page import PageRoutes
from tracecomp.serve.repository import Entry, entries
from tracecomp.serve.settings import Settings
from tracecomp.serve.torchserve_routes import TorchServeRoutes
from tracecomp.serve.v2_routes import V2Routes

Models = str | PathLike[str] | Mapping[str, str | PathLike[str]]


class App:
    """An ASGI application for an engine. Processes start with the application. If it is mounted, they start with the
    first request, because only the outer application receives the lifespan events."""

    def __init__(self, engine: Engine, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        routes = [*V2Routes(engine, max_body_bytes).routes(), *TorchServeRoutes(engine, max_body_bytes).routes()]
        routes += GenerateRoutes(engine, max_body_bytes).routes()
        routes += [*PageRoutes(engine).routes(), route("/metrics", self._metrics)]
        self._paths = description("tracecomp serve", routes)
        self._inner = application([*routes, route("/", self._description, "OPTIONS")], self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the start and the end."""
        if self._loop is not asyncio.get_running_loop() and scope["type"] != "lifespan":
            await self.start()
        await self._inner(scope, receive, send)

    async def start(self) -> None:
        """Start the models' processes, once. RuntimeError in a second event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            await self.engine.start()
        elif self._loop is not loop:
            raise RuntimeError("an app of tracecomp.serve runs in one event loop; make an app for each")

    async def close(self) -> None:
        """End the models' processes."""
        await self.engine.close()
        self._loop = None

    async def _metrics(self, request: Request) -> Response:
        text, media_type = self.engine.metrics.text(request.headers.get("accept", ""))
        return Response(text, media_type=media_type)

    async def _description(self, request: Request) -> Response:
        return JSONResponse(self._paths)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        await self.start()
        yield
        await self.close()


def app(models: Models, *, max_body_bytes: int = MAX_BODY_BYTES) -> App:
    """Return an ASGI application that serves the models of a folder, or files by name.

    Run it with an ASGI server, or mount it: ``Mount("/models", app("models/"))`` in Starlette, ``mount`` in FastAPI.

    Args:
        models: a folder as for ``python -m tracecomp serve``, or a mapping of names to model files.
        max_body_bytes: the largest request body.

    Raises:
        TracecompError: the folder or a settings file is invalid.
    """
    return App(Engine(given(models)), max_body_bytes)


def given(models: Models) -> list[Entry]:
    """The entries of a folder, or of files by name."""
    if isinstance(models, Mapping):
        return [Entry(name, "1", Path(path), Settings()) for name, path in models.items()]
    return entries(Path(models))
