"""Request identifiers, log lines and OpenTelemetry spans, in the same form for HTTP and gRPC."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from types import TracebackType
from typing import Any, TypeAlias

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
_HEADER = HEADER.encode()
_ID = re.compile(r"[!-~]{1,128}")
_log = logging.getLogger("tracecomp.serve.requests")
_fields: ContextVar[dict[str, Any]] = ContextVar("fields")
Span: TypeAlias = Any
"""A span of OpenTelemetry, which is optional."""


def annotate(**fields: str | int) -> None:
    """Add facts to the log line and the span of the current request, if there is one."""
    _fields.get({}).update(fields)


class observed:
    """Log the request ``name`` and trace it; the context is its fields, to which the caller adds ``status``.

    Its identifier is the header ``x-request-id``, or a new one.
    """

    def __init__(self, name: str, headers: Mapping[str, str]) -> None:
        given = headers.get(HEADER, "")
        self._fields: dict[str, Any] = {"request_id": given if _ID.fullmatch(given) else os.urandom(16).hex()}
        self._name, self._span = name, _span(name, headers)

    def __enter__(self) -> dict[str, Any]:
        self._token, self._start = _fields.set(self._fields), time.perf_counter()
        if self._span is not None:
            self._entered = self._span.__enter__()
        return self._fields

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fields = self._fields
        if self._span is not None:
            self._entered.set_attributes({f"tracecomp.{key}": value for key, value in fields.items()})
            self._span.__exit__(kind, error, trace)
        if _log.isEnabledFor(logging.INFO):
            fields["seconds"] = round(time.perf_counter() - self._start, 6)
            _log.info("%s %s", self._name, fields.get("status", ""))
        _fields.reset(self._token)


@cache
def _opentelemetry() -> tuple[Any, Any] | None:
    try:
        return import_module("opentelemetry.trace"), import_module("opentelemetry.propagate")
    except ImportError:
        return None


def _span(name: str, headers: Mapping[str, str]) -> AbstractContextManager[Span] | None:
    modules = _opentelemetry()
    if modules is None:
        return None
    trace, propagate = modules
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # no SDK exports spans
        return None
    made: AbstractContextManager[Span] = trace.get_tracer("tracecomp.serve").start_as_current_span(
        name, context=propagate.extract(headers), kind=trace.SpanKind.SERVER
    )
    return made


class Observed:
    """ASGI middleware that observes each request and returns its identifier."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with observed(f"{scope['method']} {scope['path']}", Headers(scope=scope)) as fields:

            async def send_with_id(message: Message) -> None:
                if message["type"] == "http.response.start":
                    fields["status"] = message["status"]
                    message["headers"].append((_HEADER, fields["request_id"].encode()))
                await send(message)

            await self._app(scope, receive, send_with_id)


class JsonLines(logging.Formatter):
    """Log lines as JSON objects, with the fields of the current request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        told = {"time": self.formatTime(record), "level": record.levelname, "message": record.getMessage()}
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**told, **_fields.get({})})


class TextLines(logging.Formatter):
    """Log lines as text, with the identifier of the current request."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback if there is one."""
        fields = _fields.get({})
        return f"{record.levelname} {super().format(record)}" + "".join(f" {k}={v}" for k, v in fields.items())
