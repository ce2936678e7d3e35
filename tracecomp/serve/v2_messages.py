"""Inference requests and responses of the Open Inference Protocol over HTTP: JSON, and the binary tensor extension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from tracecomp.serve.engine import Inference
from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.json_tensors import Json, to_json, to_numbers, to_tensor
from tracecomp.serve.tensors import Buffer, TensorData

_STRICT = {"strict": True}


@dataclass
class InputMessage:
    """An input in the JSON header."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = field(default_factory=dict)
    data: Any = None

    __pydantic_config__: ClassVar[Any] = _STRICT


@dataclass
class OutputMessage:
    """A wanted output in the JSON header."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)

    __pydantic_config__: ClassVar[Any] = _STRICT


@dataclass
class RequestMessage:
    """The JSON header of a request."""

    inputs: list[InputMessage]
    id: str = ""
    outputs: list[OutputMessage] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)

    __pydantic_config__: ClassVar[Any] = _STRICT


_READER = TypeAdapter(RequestMessage)


def read_request(body: memoryview, header_length: int | None) -> tuple[RequestMessage, Inference]:
    """The request in a body whose first ``header_length`` bytes are JSON (all, if None). InvalidRequest if it is not
    one."""
    if header_length is not None and not 0 <= header_length <= len(body):
        raise InvalidRequest(f"Inference-Header-Content-Length is {header_length}, the body has {len(body)} bytes")
    header, binary = (body, body[:0]) if header_length is None else (body[:header_length], body[header_length:])
    try:
        message: RequestMessage = _READER.validate_json(bytes(header))
    except ValidationError as error:
        raise InvalidRequest(_reason(error)) from None
    tensors = list(_tensors(message, binary))
    wanted = [output.name for output in message.outputs]
    return message, Inference(tensors, wanted, *schedule(message.parameters))


def schedule(parameters: Mapping[str, Json]) -> tuple[int, float | None]:
    """Priority and timeout in seconds of a request's parameters, which name microseconds."""
    if not parameters:
        return 0, None
    for name in ("priority", "timeout", "sequence_id"):
        value = parameters.get(name, 0)
        if name == "sequence_id" and value in (0, ""):
            continue
        if type(value) is not int or value < 0 or name == "sequence_id":
            told = "sequences are not supported" if name == "sequence_id" else "must be a non-negative integer"
            raise InvalidRequest(f"parameter {name!r}: {told}")
    return parameters.get("priority", 0), parameters.get("timeout", 0) / 1e6 or None


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _tensors(message: RequestMessage, binary: memoryview) -> Iterator[TensorData]:
    offset = 0
    for given in message.inputs:
        length = given.parameters.get("binary_data_size")
        shape = tuple(given.shape)
        if length is None:
            yield to_tensor(given.name, given.datatype, shape, given.data)
            continue
        if type(length) is not int or not 0 <= length <= len(binary) - offset:
            left = len(binary) - offset
            raise InvalidRequest(f"input {given.name!r}: binary_data_size is {length}, {left} bytes are left")
        if given.data is not None:
            raise InvalidRequest(f"input {given.name!r} has both 'data' and 'binary_data_size'")
        yield TensorData(given.name, given.datatype, shape, binary[offset : offset + length])
        offset += length
    if offset != len(binary):
        raise InvalidRequest(f"{len(binary) - offset} bytes after the last input")


def write_response(
    message: RequestMessage, name: str, version: str, outputs: Sequence[TensorData]
) -> tuple[bytes, list[Buffer]]:
    """The JSON header of a response, and the bytes of binary outputs."""
    every = message.parameters.get("binary_data_output") is True
    binary = {o.name for o in message.outputs if o.parameters.get("binary_data", every) is True}
    told, buffers = [], []
    for tensor in outputs:
        one: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape]}
        if tensor.name in binary or (every and not message.outputs):
            one["parameters"] = {"binary_data_size": len(tensor.data)}
            buffers.append(tensor.data)
        else:
            one["data"] = to_numbers(tensor)
        told.append(one)
    header: dict[str, Any] = {"model_name": name, "model_version": version, "outputs": told}
    if message.id:
        header["id"] = message.id
    return to_json(header), buffers
