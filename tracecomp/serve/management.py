"""Load, unload and list models over HTTP, on a separate port that needs a token.

TorchServe's ``/models`` and the model repository extension of the Open Inference Protocol. Only model files in the
server's folder can be loaded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from tracecomp.serve.control import Control
from tracecomp.serve.engine import ModelVersion
from tracecomp.serve.errors import InvalidRequest, NotFound, ServeError
from tracecomp.serve.http import Handler, application, description, read_body, route
from tracecomp.serve.repository import Entry
from tracecomp.serve.traffic import Traffic

_log = logging.getLogger("tracecomp.serve")
_MOST_BODY_BYTES = 1 << 16  # settings of a model
_TRAFFIC = TypeAdapter(Traffic)
_LATER = "Processing worker updates..."
_REGISTER = {"url": None, "model_name": None, "initial_workers": ("1",), "synchronous": ("true", "false")}
"""TorchServe's parameters of a registration, with the values that are supported."""


class Management:
    """Handlers that need the token of ``control``."""

    def __init__(self, control: Control) -> None:
        self._control, self._engine = control, control.engine
        self._loading: set[asyncio.Task[None]] = set()

    def application(self) -> ASGIApp:
        """The ASGI application of the management port."""
        one, all_of = "/models/{name}/{version}", "/v2/repository/models/{name}"
        paths: Sequence[tuple[str, str, Handler]] = [
            ("GET", "/models", self.names),
            ("POST", "/models", self.register),
            ("GET", "/models/{name}", self.describe),
            ("GET", one, self.describe),
            ("PUT", "/models/{name}", self.scale),
            ("PUT", one, self.scale),
            ("DELETE", "/models/{name}", self.unregister),
            ("DELETE", one, self.unregister),
            ("PUT", f"{one}/set-default", self.set_default),
            ("GET", "/traffic/{name}", self.traffic),
            ("PUT", "/traffic/{name}", self.set_traffic),
            ("POST", "/v2/repository/index", self.index),
            ("POST", f"{all_of}/load", self.load),
            ("POST", f"{all_of}/unload", self.unload),
        ]
        self._paths = description("tracecomp serve, management", [route(p, h, m) for m, p, h in paths])
        routes = [("OPTIONS", "/", self.describe_paths), *paths]
        return application([route(p, self._allowed(h), m) for m, p, h in routes])

    def _allowed(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            self._control.check(request.headers.get("authorization", ""))
            return await handler(request)

        return handle

    # ---- TorchServe

    async def names(self, request: Request) -> Response:
        """The models and the files of their default versions, in pages."""
        first, limit = _number(request, "next_page_token", 0), _number(request, "limit", 100)
        defaults = [model for model in self._engine if self._engine.is_default(model)]
        page = defaults[first : first + limit]
        told: dict[str, Any] = {"models": [{"modelName": m.name, "modelUrl": self._url(m)} for m in page]}
        if first + limit < len(defaults):
            told["nextPageToken"] = str(first + limit)
        return JSONResponse(told)

    async def describe_paths(self, request: Request) -> Response:
        """The paths in the form of OpenAPI."""
        return JSONResponse(self._paths)

    async def describe(self, request: Request) -> Response:
        """One version, the default one if none is named, or ``all``."""
        name, version = _named(request)
        model = self._engine.find(name, "" if version == "all" else version)
        models = self._engine.models[name].values() if version == "all" else [model]
        return JSONResponse([self._described(model) for model in models])

    async def register(self, request: Request) -> Response:
        """Load the model file ``url`` of the folder."""
        given = request.query_params
        for key, value in given.items():
            if key not in _REGISTER or (_REGISTER[key] is not None and value not in (_REGISTER[key] or ())):
                raise InvalidRequest(f"parameter {key}={value} is not supported; write the model's settings file")
        url = given.get("url", "")
        entry = next((e for e in self._control.files() if str(e.path.relative_to(self._control.folder)) == url), None)
        if entry is None:
            raise NotFound(f"the server's folder has no model file {url!r}")
        if given.get("model_name", entry.name) != entry.name:
            raise InvalidRequest(f"the file's place in the folder names the model: {entry.name!r}")
        if given.get("synchronous") == "false":
            task = asyncio.get_running_loop().create_task(self._load(entry))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)
            return JSONResponse({"status": _LATER}, 202)
        await self._engine.load(entry)
        told = f'Model "{entry.name}" Version: {entry.version} registered with 1 initial workers'
        return JSONResponse({"status": told})

    async def _load(self, entry: Entry) -> None:
        try:
            await self._engine.load(entry)
        except ServeError as error:
            _log.error("%s", error)

    async def scale(self, request: Request) -> Response:
        """TorchServe's number of worker processes, which is 1 here."""
        name, version = _named(request)
        self._engine.find(name, version)
        if {_number(request, key, 1) for key in ("min_worker", "max_worker")} != {1}:
            raise InvalidRequest("each version has 1 worker process, whose threads use all cores")
        if request.query_params.get("synchronous") != "true":
            return JSONResponse({"status": _LATER}, 202)
        told = f", version: {version}" if version else ""
        return JSONResponse({"status": f"Workers scaled to 1 for model: {name}{told}"})

    async def unregister(self, request: Request) -> Response:
        """Unload one version, the default one if none is named."""
        name, version = _named(request)
        await self._engine.unload(name, version)
        return JSONResponse({"status": f'Model "{name}" unregistered'})

    async def set_default(self, request: Request) -> Response:
        """Let a version answer the requests that name none."""
        name, version = _named(request)
        self._engine.set_default(name, version)
        return JSONResponse({"status": f'Default version successfully updated for model "{name}" to "{version}"'})

    async def traffic(self, request: Request) -> Response:
        """How the requests that name no version are distributed."""
        name, _ = _named(request)
        self._engine.find(name)
        traffic = self._engine.traffic(name)
        return JSONResponse({"weights": {**traffic.weights}, "shadow": traffic.shadow})

    async def set_traffic(self, request: Request) -> Response:
        """Set weights and the shadow version: ``{"weights": {"1": 9, "2": 1}, "shadow": "3"}``."""
        name, _ = _named(request)
        body = await read_body(request, _MOST_BODY_BYTES)
        try:
            traffic: Traffic = _TRAFFIC.validate_json(bytes(body))
        except ValidationError as error:
            raise InvalidRequest(f"the body is not a distribution: {error.errors()[0]['msg']}") from None
        self._engine.set_traffic(name, traffic)
        return await self.traffic(request)

    def _described(self, model: ModelVersion) -> dict[str, Any]:
        settings, waiting = model.entry.settings, model.batcher.waiting
        status = "READY" if model.is_ready else "UNLOADING" if model.process.is_given_up else "LOADING"
        return {
            "modelName": model.name, "modelVersion": model.version, "modelUrl": self._url(model),
            "defaultVersion": self._engine.is_default(model), "engine": "tracecomp", "runtime": "python",
            "minWorkers": 1, "maxWorkers": 1,
            "batchSize": settings.max_batch_size, "maxBatchDelay": settings.max_delay_ms,
            "workers": [{
                "id": "1", "status": status, "pid": model.process.pid, "startTime": model.process.start_time,
                "gpu": False, "memoryUsage": model.process.memory_bytes,
            }],
            "jobQueueStatus": {
                "remainingCapacity": max(settings.max_queue - waiting, 0), "pendingRequests": waiting,
            },
        }  # fmt: skip

    # ---- the model repository extension

    async def index(self, request: Request) -> Response:
        """The models of the server and of its folder; only ready ones with ``{"ready": true}``."""
        only_ready = (await _parameters(request, "ready")).get("ready", False)
        return JSONResponse(self._control.index(only_ready))

    async def load(self, request: Request) -> Response:
        """Load every version in the folder again, and unload those that the folder does not have."""
        await _parameters(request)
        await self._control.load(request.path_params["name"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        """Unload all versions."""
        await _parameters(request, "unload_dependents")
        await self._control.unload(request.path_params["name"])
        return JSONResponse({})

    def _url(self, model: ModelVersion) -> str:
        return str(model.entry.path.relative_to(self._control.folder))


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


def _number(request: Request, name: str, default: int) -> int:
    """A parameter that is a natural number."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequest(f"parameter {name!r} must be a number, got {text!r}")
    return int(text)


async def _parameters(request: Request, *known: str) -> Mapping[str, Any]:
    """The members of a JSON body and of its ``parameters``; an empty body has none. InvalidRequest for others."""
    body = await read_body(request, _MOST_BODY_BYTES)
    try:
        told = json.loads(bytes(body) or b"{}")
        found = {**told, **told.get("parameters", {})}
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise InvalidRequest("the body must be a JSON object") from None
    found.pop("parameters", None)
    unknown = [key for key, value in found.items() if key not in known or not isinstance(value, bool)]
    if unknown:
        raise InvalidRequest(f"parameters that are not supported: {', '.join(unknown)}")
    return found
