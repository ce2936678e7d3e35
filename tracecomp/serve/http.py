"""Common parts of the HTTP handlers: limits, errors as JSON, and clients that leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from tracecomp.serve.errors import InvalidRequest, ServeError, TooLarge

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

MAX_BODY_BYTES = 64 << 20
"""The largest request body by default."""
_log = logging.getLogger("tracecomp.serve")


def answering(handler: Handler) -> Handler:
    """``handler``, with errors as responses: ServeError with its reason, others without."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except ServeError as error:
            return error_response(error)
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:  # any error must become a response
            _log.exception("%s %s failed", request.method, request.url.path)
            return error_response(ServeError("internal error; the server's log has the traceback"))

    return handle


def error_response(error: ServeError) -> JSONResponse:
    """An error as the protocol's JSON."""
    headers = {"Retry-After": "1"} if error.status == 503 else None
    return JSONResponse({"error": str(error)}, error.status, headers)


async def read_body(request: Request, limit: int) -> memoryview:
    """The whole body. TooLarge above ``limit`` bytes; InvalidRequest if it is compressed."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise InvalidRequest("compressed requests are not supported")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise TooLarge(f"the request has {length} bytes, the limit is {limit}")
    parts, total = [], 0
    async for part in request.stream():
        total += len(part)
        if total > limit:
            raise TooLarge(f"the request has more than {limit} bytes")
        parts.append(part)
    return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))


async def while_connected(request: Request, work: Coroutine[None, None, T]) -> T:
    """The result of ``work``, which is cancelled if the client leaves. The body must have been read."""
    task = asyncio.current_task()
    assert task is not None
    watching = asyncio.ensure_future(_cancel_when_left(request, task))
    try:
        return await work
    except asyncio.CancelledError:
        if watching.done() and not watching.cancelled():
            task.uncancel()
            raise ClientDisconnect from None
        raise
    finally:
        watching.cancel()


async def _cancel_when_left(request: Request, task: asyncio.Task[object]) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    task.cancel()
