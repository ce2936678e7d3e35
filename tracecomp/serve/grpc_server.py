"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from math import prod
from typing import Any, TypeAlias

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from tracecomp.base.errors import TracecompError
from tracecomp.serve.control import Control
from tracecomp.serve.engine import Engine, Inference, ModelVersion
from tracecomp.serve.errors import InvalidRequest, ServeError
from tracecomp.serve.grpc_messages import MANAGEMENT, METHODS, SERVICE, Message, message
from tracecomp.serve.metadata import model_metadata, server_metadata
from tracecomp.serve.observation import HEADER, annotate, observed
from tracecomp.serve.tensors import NUMPY_NAMES, TEXT, TensorData, array_bytes, byte_count, of_texts
from tracecomp.serve.v2_messages import schedule

Context: TypeAlias = Any
"""gRPC's context of a call; the package has no types."""
Method = Callable[[Message, Context], Awaitable[Message]]

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL, 503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", TEXT: "bytes_contents",
}  # fmt: skip
"""The field of typed contents for each datatype. FP16 and BF16 have raw contents only."""
_WANTS_END = "triton_enable_empty_final_response"
"""Triton's parameter of a request: send an empty response behind the last one."""
_log = logging.getLogger("tracecomp.serve")


class Service:
    """The protocol's methods for the models of an engine. Each takes a request and its context."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def server_live(self, request: Message, context: Context) -> Message:
        """The server runs."""
        return message("ServerLiveResponse")(live=True)

    async def server_ready(self, request: Message, context: Context) -> Message:
        """Whether all models are ready."""
        return message("ServerReadyResponse")(ready=self._engine.is_ready)

    async def model_ready(self, request: Message, context: Context) -> Message:
        """Whether a model is ready."""
        model = self._engine.find(request.name, request.version)
        return message("ModelReadyResponse")(ready=model.is_ready)

    async def server_metadata(self, request: Message, context: Context) -> Message:
        """The server's name, version and extensions."""
        return message("ServerMetadataResponse")(**server_metadata())

    async def model_metadata(self, request: Message, context: Context) -> Message:
        """A model's versions, inputs and outputs."""
        return message("ModelMetadataResponse")(**model_metadata(self._engine, request.name, request.version))

    async def model_infer(self, request: Message, context: Context) -> Message:
        """The model's outputs for one request. gRPC cancels the call when the client leaves."""
        model, inference = self._inference(request, context)
        return _response(request, model, await self._engine.infer(model, inference))

    async def model_stream_infer(self, requests: AsyncIterator[Message], context: Context) -> None:
        """Answer the requests of a stream in order. A handler with a generator sends several answers for one."""
        wrapped = message("ModelStreamInferResponse")
        async for request in requests:
            try:
                model, inference = self._inference(request, context)
                async with aclosing(model.stream(inference)) as answers:
                    async for outputs in answers:
                        await context.write(wrapped(infer_response=_response(request, model, outputs)))
                if request.parameters[_WANTS_END].bool_param:
                    last = _response(request, model, ())
                    last.parameters["triton_final_response"].bool_param = True
                    await context.write(wrapped(infer_response=last))
            except ServeError as error:  # the protocol continues with the next request
                await context.write(wrapped(error_message=str(error), infer_response={"id": request.id}))

    def _inference(self, request: Message, context: Context) -> tuple[ModelVersion, Inference]:
        model = self._engine.route(request.model_name, request.model_version)
        annotate(model=model.name, version=model.version)
        priority, timeout = schedule(_parameters(request))
        left = context.time_remaining()
        if left is not None:
            timeout = min(left, timeout or left)
        return model, Inference(_tensors(request), [o.name for o in request.outputs], priority, timeout)


def _response(request: Message, model: ModelVersion, outputs: Sequence[TensorData]) -> Message:
    return message("ModelInferResponse")(
        model_name=model.name, model_version=model.version, id=request.id,
        outputs=[{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in outputs],
        raw_output_contents=[bytes(t.data) for t in outputs],
    )  # fmt: skip


class Repository:
    """The methods of the model repository extension. Their metadata needs the token, as ``authorization``."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def repository_index(self, request: Message, context: Context) -> Message:
        """The models of the server and of its folder."""
        self._check(request, context)
        return message("RepositoryIndexResponse")(models=self._control.index(request.ready))

    async def repository_model_load(self, request: Message, context: Context) -> Message:
        """Load every version in the folder again, and unload those that the folder does not have."""
        self._check(request, context)
        await self._control.load(request.model_name)
        return message("RepositoryModelLoadResponse")()

    async def repository_model_unload(self, request: Message, context: Context) -> Message:
        """Unload all versions."""
        self._check(request, context, "unload_dependents")
        await self._control.unload(request.model_name)
        return message("RepositoryModelUnloadResponse")()

    def _check(self, request: Message, context: Context, *known: str) -> None:
        given = [value for key, value in context.invocation_metadata() if key == "authorization"]
        self._control.check(given[0] if given else "")
        unknown = [*{*getattr(request, "parameters", ())} - {*known}]
        if request.repository_name or unknown:
            raise InvalidRequest(f"not supported: {request.repository_name or ', '.join(unknown)}")


def _parameters(request: Message) -> Mapping[str, Any]:
    return {key: getattr(value, value.WhichOneof("parameter_choice") or "bool_param")
            for key, value in request.parameters.items()}  # fmt: skip


def _tensors(request: Message) -> Sequence[TensorData]:
    raw, inputs = request.raw_input_contents, request.inputs
    if not raw:
        return [_typed(given) for given in inputs]
    if len(raw) != len(inputs) or any(given.HasField("contents") for given in inputs):
        raise InvalidRequest(f"{len(inputs)} inputs and {len(raw)} raw contents; each input needs one, and no others")
    return [TensorData(i.name, i.datatype, tuple(i.shape), data) for i, data in zip(inputs, raw, strict=True)]


def _typed(given: Message) -> TensorData:
    """An input whose elements are numbers in the message."""
    byte_count(given.name, given.datatype, given.shape)
    wanted = _CONTENTS.get(given.datatype)
    filled = [field.name for field, _ in given.contents.ListFields()]
    if wanted is None or filled not in ([], [wanted]):
        told = f"needs {wanted}" if wanted else "needs raw contents"
        raise InvalidRequest(f"input {given.name!r} of {given.datatype} {told}, got {', '.join(filled) or 'none'}")
    if given.datatype == TEXT:
        texts = given.contents.bytes_contents
        if len(texts) != prod(given.shape):
            raise InvalidRequest(f"input {given.name!r}: {len(texts)} byte strings for shape {[*given.shape]}")
        return of_texts(given.name, tuple(given.shape), texts)
    values, dtype = np.array(getattr(given.contents, wanted)), np.dtype(NUMPY_NAMES[given.datatype])
    converted = values.astype(dtype)
    if dtype.kind in "iu" and (converted != values).any():
        raise InvalidRequest(f"input {given.name!r}: a value is outside the range of {given.datatype}")
    return TensorData(given.name, given.datatype, tuple(given.shape), array_bytes(converted))


def _answering(method: Method, request_class: Any) -> Method:
    """``method`` for serialized requests, with errors as status codes: ServeError with its reason, others without."""

    def parsed(data: bytes) -> Message:
        try:
            return request_class.FromString(data)
        except DecodeError:
            raise InvalidRequest("the request is not a message of the protocol") from None

    async def handle(given: Any, context: Context) -> Message:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        with observed(f"gRPC {method.__name__}", headers) as fields:
            context.set_trailing_metadata(((HEADER, fields["request_id"]),))
            fields["status"] = 200
            try:
                return await method(
                    parsed(given) if isinstance(given, bytes) else (parsed(data) async for data in given), context
                )
            except ServeError as error:
                fields["status"] = error.status
                await context.abort(_CODES[error.status], str(error))
            except Exception:  # any error must become a status
                fields["status"] = 500
                _log.exception("a gRPC request failed")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error; the server's log has the traceback")

    return handle


class Remote:
    """The server of gRPC. ``port`` is bound at once. TracecompError if it is taken.

    ``certificate`` is a private key and a certificate chain, both PEM, for TLS.
    """

    def __init__(self, address: str, max_bytes: int, certificate: tuple[bytes, bytes] | None = None) -> None:
        options = [
            ("grpc.max_receive_message_length", max_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # a second server on this port must fail, not share it
        ]
        self._server = grpc.aio.server(options=options)
        try:
            if certificate is None:
                self.port: int = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
        except RuntimeError as error:
            raise TracecompError(f"cannot listen on {address}: {error}") from None

    async def start(self, engine: Engine, control: Control | None = None) -> None:
        """Answer requests to the models of ``engine``, and those of management if there is a ``control``."""
        service = Service(engine)
        methods = _handlers(service, METHODS)
        methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            _answering(service.model_stream_infer, message("ModelInferRequest")),
            response_serializer=message("ModelStreamInferResponse").SerializeToString,
        )
        if control is not None:
            methods |= _handlers(Repository(control), MANAGEMENT)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Take no new requests, and give the others some seconds."""
        await self._server.stop(seconds)


def _handlers(service: object, names: Sequence[str]) -> dict[str, Any]:
    return {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(getattr(service, _snake(name)), message(f"{name}Request")),
            response_serializer=message(f"{name}Response").SerializeToString,
        )
        for name in names
    }


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
