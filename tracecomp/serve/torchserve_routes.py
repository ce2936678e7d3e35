"""TorchServe's inference paths: ``/ping``, ``/predictions/NAME[/VERSION]`` and ``/v1/models/NAME:predict``.

A model without a handler takes and returns JSON. The body is the nested list of the only input, or an object of lists
by input name. One row may come without its first axis, and is returned without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tracecomp.serve.engine import Engine, Inference, ModelVersion
from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.handlers import PLATFORM, as_tensors
from tracecomp.serve.http import read_body, route, while_connected
from tracecomp.serve.json_tensors import Json, to_json, to_numbers, to_tensor
from tracecomp.serve.observation import annotate
from tracecomp.serve.signature import Signature, TensorSpec
from tracecomp.serve.tensors import TensorData


class TorchServeRoutes:
    """Handlers for the models of an engine."""

    def __init__(self, engine: Engine, max_body_bytes: int) -> None:
        self._engine, self._limit = engine, max_body_bytes

    def routes(self) -> list[Route]:
        """TorchServe's paths."""
        return [
            route("/ping", self.ping),
            route("/predictions/{name}", self.predict, "POST", "PUT"),  # curl -T sends PUT
            route("/predictions/{name}/{version}", self.predict, "POST", "PUT"),
            route("/v1/models/{name}:predict", self.predict_rows, "POST"),
        ]

    async def ping(self, request: Request) -> Response:
        """Whether all models are ready."""
        ready = self._engine.is_ready
        return JSONResponse({"status": "Healthy" if ready else "Unhealthy"}, 200 if ready else 503)

    async def predict(self, request: Request) -> Response:
        """The model's outputs for one request."""
        named = request.path_params["name"], request.path_params.get("version", "")
        self._engine.find(*named)  # an unknown model's body is not read
        body = await read_body(request, self._limit)
        model = self._engine.route(*named)  # the version may have been replaced meanwhile
        annotate(model=model.name, version=model.version)
        if model.signature.platform == PLATFORM:
            return await self._handled(request, model, body)
        tensors, single = _inputs(model.signature, _parsed(body))
        outputs = await while_connected(request, self._engine.infer(model, Inference(tensors)))
        told = {t.name: _nested(t, single) for t in outputs}
        answer = next(iter(told.values())) if len(told) == 1 else told
        return Response(to_json(answer), media_type="application/json")

    async def predict_rows(self, request: Request) -> Response:
        """KServe's first protocol: ``{"instances": rows}`` to ``{"predictions": rows}``.

        A row is a list, or an object by input name. With several outputs, a row of the answer is an object.
        """
        name = request.path_params["name"]
        self._engine.find(name)
        body = await read_body(request, self._limit)
        model = self._engine.route(name)
        annotate(model=model.name, version=model.version)
        if model.signature.platform == PLATFORM:
            raise InvalidRequest(f"model {name!r} is a handler; use /predictions/{name}")
        outputs = await while_connected(request, self._engine.infer(model, Inference(_rows(model, _parsed(body)))))
        told = {t.name: _nested(t, single=False) for t in outputs}
        rows = [*zip(*told.values(), strict=True)]
        predictions = [row[0] if len(told) == 1 else dict(zip(told, row, strict=True)) for row in rows]
        return Response(to_json({"predictions": predictions}), media_type="application/json")

    async def _handled(self, request: Request, model: ModelVersion, body: memoryview) -> Response:
        """The answer of a handler."""
        tensors = as_tensors(body, request.headers.get("content-type", ""))
        content, kind = await while_connected(request, self._engine.infer(model, Inference(tensors)))
        return Response(content.texts()[0], media_type=kind.texts()[0].decode())


def _parsed(body: memoryview) -> Json:
    try:
        return json.loads(bytes(body))
    except (ValueError, RecursionError):
        raise InvalidRequest("the body must be JSON: a nested list, or an object of lists by input name") from None


def _rows(model: ModelVersion, told: Json) -> list[TensorData]:
    """The tensors of a body with rows."""
    rows = told.get("instances") if isinstance(told, Mapping) else None
    if not isinstance(rows, list) or not rows:
        raise InvalidRequest("the body must be an object with a list of 'instances'")
    if not model.signature.max_rows:
        raise InvalidRequest(f"model {model.name!r} does not take rows: {model.signature.not_batched}")
    if isinstance(rows[0], Mapping):
        if not all(isinstance(row, Mapping) and row.keys() == rows[0].keys() for row in rows):
            raise InvalidRequest("the instances must have the same names")
        return _inputs(model.signature, {name: [row[name] for row in rows] for name in rows[0]})[0]
    return _inputs(model.signature, rows)[0]


def _inputs(signature: Signature, told: Json) -> tuple[list[TensorData], bool]:
    """The tensors of a body, and whether they are one row without its axis."""
    if not isinstance(told, Mapping):
        if len(signature.inputs) != 1:
            names = ", ".join(spec.name for spec in signature.inputs)
            raise InvalidRequest(f"the body must be an object of lists, by input name: {names}")
        told = {signature.inputs[0].name: told}
    specs = {spec.name: spec for spec in signature.inputs}
    if told.keys() != specs.keys():
        raise InvalidRequest(f"the model's inputs are {', '.join(specs)}; got {', '.join(told) or 'none'}")
    shapes = {name: _shape(name, data) for name, data in told.items()}
    single = bool(signature.max_rows) and all(len(shapes[n]) == len(specs[n].shape) - 1 for n in shapes)
    return [_tensor(specs[name], shapes[name], data, single) for name, data in told.items()], single


def _shape(name: str, data: Json) -> tuple[int, ...]:
    try:
        return np.array(data, object).shape
    except (ValueError, RecursionError):
        raise InvalidRequest(f"input {name!r}: the lists differ in length or depth") from None


def _tensor(spec: TensorSpec, shape: tuple[int, ...], data: Json, single: bool) -> TensorData:
    values = data if isinstance(data, list) else [data]
    if single:
        return to_tensor(spec.name, spec.datatype, (1, *shape), [data])
    return to_tensor(spec.name, spec.datatype, shape, values)


def _nested(tensor: TensorData, single: bool) -> Json:
    """An output as nested lists."""
    shape = tensor.shape[1:] if single else tensor.shape
    values = np.empty(shape, object)
    values.reshape(-1)[:] = to_numbers(tensor)
    return values.tolist()
