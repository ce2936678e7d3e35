"""Common parts of the HTTP handlers: routes, limits, errors as JSON, and clients that leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from tracecomp import __version__
from tracecomp.serve.errors import InvalidRequest, NotFound, ServeError, TooLarge
from tracecomp.serve.observation import Observed

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

MAX_BODY_BYTES = 64 << 20
"""The largest request body by default."""
_UNWATCHED_SECONDS = 0.005
"""Seconds of a request before the connection is watched."""
_log = logging.getLogger("tracecomp.serve")


class Endpoint:
    """A handler as an ASGI application. Errors become responses: ServeError with its reason, others without."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._handler(request)
        except ServeError as error:
            response = error_response(error)
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception:  # any error must become a response
            _log.exception("%s %s failed", request.method, request.url.path)
            response = error_response(ServeError("internal error; the server's log has the traceback"))
        await response(scope, receive, send)


def route(path: str, handler: Handler, *methods: str) -> Route:
    """The route of a handler, for GET if no methods are named."""
    return Route(path, Endpoint(handler), methods=methods or ("GET",), name=handler.__name__)


def application(routes: Sequence[Route], lifespan: Lifespan[Any] | None = None) -> ASGIApp:
    """The routes as an ASGI application that observes each request. Other paths get status 404."""
    return Observed(Router(routes, default=Endpoint(_not_found), lifespan=lifespan))


async def _not_found(request: Request) -> Response:
    raise NotFound("there is no such path")


def description(title: str, routes: Sequence[Route]) -> dict[str, Any]:
    """The paths of an application in the form of OpenAPI."""
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                      for name in one.param_convertors]  # fmt: skip
        told = {"operationId": one.name, "parameters": parameters, "responses": {"200": {"description": "OK"}}}
        paths.setdefault(one.path, {}).update({method.lower(): told for method in sorted(one.methods or ())})
    return {"openapi": "3.0.1", "info": {"title": title, "version": __version__}, "paths": paths}


def error_response(error: ServeError) -> JSONResponse:
    """An error as the protocol's JSON."""
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return JSONResponse({"error": str(error)}, error.status, headers)


async def read_body(request: Request, limit: int) -> memoryview:
    """The whole body. TooLarge above ``limit`` bytes; InvalidRequest if it is compressed."""
    headers = dict(request.scope["headers"])
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise InvalidRequest("compressed requests are not supported")
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise TooLarge(f"the request has {int(length)} bytes, the limit is {limit}")
    parts, total, has_more = [], 0, True
    while has_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        total += len(part)
        if total > limit:
            raise TooLarge(f"the request has more than {limit} bytes")
        parts.append(part)
        has_more = message.get("more_body", False)
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


async def while_connected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of ``work``, which is cancelled if the client leaves. The body must have been read."""
    task = asyncio.current_task()
    assert task is not None
    watcher = _Watcher(request, task)
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.has_left:
            task.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watcher.stop()


class _Watcher:
    """Cancels a request's task when the client leaves. It begins late, because most requests are short."""

    def __init__(self, request: Request, task: asyncio.Task[Any]) -> None:
        self.has_left = False
        self._request, self._task = request, task
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, self._begin)
        self._watching: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Let the client leave."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _begin(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.has_left = True
        self._task.cancel()
