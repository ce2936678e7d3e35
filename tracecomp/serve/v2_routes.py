"""The Open Inference Protocol, version 2, over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tracecomp.serve.engine import Engine
from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.http import read_body, route, while_connected
from tracecomp.serve.metadata import model_metadata, server_metadata
from tracecomp.serve.observation import annotate
from tracecomp.serve.v2_messages import read_request, write_response

_LENGTH = "Inference-Header-Content-Length"
_LENGTH_KEY = _LENGTH.lower().encode()


class V2Routes:
    """Handlers for the models of an engine."""

    def __init__(self, engine: Engine, max_body_bytes: int) -> None:
        self._engine, self._limit = engine, max_body_bytes

    def routes(self) -> list[Route]:
        """The protocol's paths."""
        paths = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
        found = [route(f"{path}/infer", self.infer, "POST") for path in paths]  # often, so first
        for path in paths:
            found += [route(path, self.model), route(f"{path}/ready", self.model_ready)]
        return [
            *found,
            route("/v2", self.server),
            route("/v2/health/live", self.live),
            route("/v2/health/ready", self.ready),
        ]

    async def server(self, request: Request) -> Response:
        """The server's name, version and extensions."""
        return JSONResponse(server_metadata())

    async def live(self, request: Request) -> Response:
        """The server runs."""
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        """Whether all models are ready."""
        ready = self._engine.is_ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def model(self, request: Request) -> Response:
        """A model's versions, inputs and outputs."""
        name, version = _named(request)
        return JSONResponse(model_metadata(self._engine, name, version))

    async def model_ready(self, request: Request) -> Response:
        """Whether a model is ready."""
        model = self._engine.find(*_named(request))
        body = {"name": model.name, "ready": model.is_ready}
        return JSONResponse(body if model.is_ready else {**body, "error": model.process.failure},
                            200 if model.is_ready else 503)  # fmt: skip

    async def infer(self, request: Request) -> Response:
        """The model's outputs for one request."""
        self._engine.find(*_named(request))  # an unknown model's body is not read
        body = await read_body(request, self._limit)
        model = self._engine.route(*_named(request))  # the version may have been replaced meanwhile
        annotate(model=model.name, version=model.version)
        message, inference = read_request(body, _header_length(request))
        outputs = await while_connected(request, self._engine.infer(model, inference))
        header, buffers = write_response(message, model.name, model.version, outputs)
        if not buffers:
            return Response(header, media_type="application/json")
        content = b"".join([header, *buffers])
        return Response(content, headers={_LENGTH: str(len(header))}, media_type="application/octet-stream")


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


def _header_length(request: Request) -> int | None:
    text = dict(request.scope["headers"]).get(_LENGTH_KEY)
    if text is None:
        return None
    if not text.isdigit():
        raise InvalidRequest(f"{_LENGTH} must be a number of bytes, got {text.decode('latin-1')!r}")
    return int(text)
