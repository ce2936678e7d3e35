"""``/v2/models/NAME/generate_stream``: the values of a handler's generator as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tracecomp.serve.engine import Engine, Inference
from tracecomp.serve.errors import InvalidRequest, ServeError
from tracecomp.serve.handlers import PLATFORM, as_tensors
from tracecomp.serve.http import read_body, route, while_connected
from tracecomp.serve.observation import annotate
from tracecomp.serve.tensors import TensorData


class GenerateRoutes:
    """Handlers for the models of an engine."""

    def __init__(self, engine: Engine, max_body_bytes: int) -> None:
        self._engine, self._limit = engine, max_body_bytes

    def routes(self) -> list[Route]:
        """The paths of Triton's generate extension that stream."""
        return [
            route(f"{path}/generate_stream", self.generate, "POST")
            for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
        ]

    async def generate(self, request: Request) -> Response:
        """An event for each answer to a JSON body. The status is an error's if there is no first answer."""
        named = request.path_params["name"], request.path_params.get("version", "")
        self._engine.find(*named)  # an unknown model's body is not read
        body = await read_body(request, self._limit)
        model = self._engine.route(*named)
        annotate(model=model.name, version=model.version)
        if model.signature.platform != PLATFORM:
            raise InvalidRequest(f"model {model.name!r} takes tensors; use infer")
        answers = model.stream(Inference(as_tensors(body, "application/json")))
        try:
            first = await while_connected(request, _first(answers))
        except BaseException:
            await answers.aclose()
            raise
        return StreamingResponse(_events(first, answers), media_type="text/event-stream")


async def _first(answers: AsyncGenerator[Sequence[TensorData], None]) -> Sequence[TensorData] | None:
    return await anext(answers, None)


async def _events(
    first: Sequence[TensorData] | None, answers: AsyncGenerator[Sequence[TensorData], None]
) -> AsyncIterator[str]:
    async with aclosing(answers):  # a client that leaves ends the computation
        if first is None:
            return
        yield _event(first)
        try:
            async for answer in answers:
                yield _event(answer)
        except ServeError as error:
            yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"


def _event(answer: Sequence[TensorData]) -> str:
    """JSON as it is, and text as a JSON string, which has no line breaks."""
    (body,), (media_type,) = (tensor.texts() for tensor in answer)
    text = body.decode(errors="replace")
    return f"data: {text if media_type == b'application/json' else json.dumps(text)}\n\n"
