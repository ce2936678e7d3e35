"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc
import numpy as np

from tracecomp.base.errors import TracecompError
from tracecomp.serve.engine import Engine, Inference
from tracecomp.serve.errors import InvalidRequest, ServeError
from tracecomp.serve.grpc_messages import METHODS, SERVICE, Message, message
from tracecomp.serve.metadata import model_metadata, server_metadata
from tracecomp.serve.observation import HEADER, annotate, observed
from tracecomp.serve.tensors import NUMPY_NAMES, TensorData, array_bytes, byte_count
from tracecomp.serve.v2_messages import schedule

Context: TypeAlias = Any
"""gRPC's context of a call; the package has no types."""
Method = Callable[[Message, Context], Awaitable[Message]]

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 404: grpc.StatusCode.NOT_FOUND, 413: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL, 503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip
"""The field of typed contents for each datatype. FP16 and BF16 have raw contents only."""
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
        model = self._engine.route(request.model_name, request.model_version)
        annotate(model=model.name, version=model.version)
        priority, timeout = schedule(_parameters(request))
        left = context.time_remaining()
        if left is not None:
            timeout = min(left, timeout or left)
        inference = Inference(_tensors(request), [o.name for o in request.outputs], priority, timeout)
        outputs = await self._engine.infer(model, inference)
        return message("ModelInferResponse")(
            model_name=model.name, model_version=model.version, id=request.id,
            outputs=[{"name": t.name, "datatype": t.datatype, "shape": t.shape} for t in outputs],
            raw_output_contents=[bytes(t.data) for t in outputs],
        )  # fmt: skip


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
    values, dtype = np.array(getattr(given.contents, wanted)), np.dtype(NUMPY_NAMES[given.datatype])
    converted = values.astype(dtype)
    if dtype.kind in "iu" and (converted != values).any():
        raise InvalidRequest(f"input {given.name!r}: a value is outside the range of {given.datatype}")
    return TensorData(given.name, given.datatype, tuple(given.shape), array_bytes(converted))


def _answering(method: Method) -> Method:
    """``method``, with errors as status codes: ServeError with its reason, others without."""

    async def handle(request: Message, context: Context) -> Message:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        with observed(f"gRPC {method.__name__}", headers) as fields:
            context.set_trailing_metadata(((HEADER, fields["request_id"]),))
            fields["status"] = 200
            try:
                return await method(request, context)
            except ServeError as error:
                fields["status"] = error.status
                await context.abort(_CODES[error.status], str(error))
            except Exception:  # any error must become a status
                fields["status"] = 500
                _log.exception("a gRPC request failed")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error; the server's log has the traceback")

    return handle


def make_server(
    engine: Engine, address: str, max_bytes: int, certificate: tuple[bytes, bytes] | None = None
) -> tuple[Any, int]:
    """A server that listens on ``address`` once started, and its port. TracecompError if the address is taken.

    ``certificate`` is a private key and a certificate chain, both PEM, for TLS.
    """
    service = Service(engine)
    methods = {
        name: grpc.unary_unary_rpc_method_handler(
            _answering(getattr(service, _snake(name))),
            request_deserializer=message(f"{name}Request").FromString,
            response_serializer=message(f"{name}Response").SerializeToString,
        )
        for name in METHODS
    }
    options = [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # a second server on this port must fail, not share it
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    try:
        if certificate is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
    except RuntimeError as error:
        raise TracecompError(f"cannot listen on {address}: {error}") from None
    return server, port


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
