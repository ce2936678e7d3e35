"""The messages of the Open Inference Protocol over gRPC, made from a table of their fields.

They live in a separate descriptor pool: a client library in the same process, such as tritonclient, registers the
same names in the default one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message: TypeAlias = Any
"""A message. Its fields are not known before the table is read."""
SERVICE = "inference.GRPCInferenceService"
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
MANAGEMENT = ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload")
"""Each takes a message called like it with ``Request`` appended, and returns one with ``Response``."""

_FIELDS = """
ServerLiveRequest:
ServerLiveResponse: bool live = 1
ServerReadyRequest:
ServerReadyResponse: bool ready = 1
ModelReadyRequest: string name = 1; string version = 2
ModelReadyResponse: bool ready = 1
ServerMetadataRequest:
ServerMetadataResponse: string name = 1; string version = 2; repeated string extensions = 3
ModelMetadataRequest: string name = 1; string version = 2
ModelMetadataResponse: string name = 1; repeated string versions = 2; string platform = 3; \
repeated ModelMetadataResponse.TensorMetadata inputs = 4; repeated ModelMetadataResponse.TensorMetadata outputs = 5
ModelMetadataResponse.TensorMetadata: string name = 1; string datatype = 2; repeated int64 shape = 3
InferParameter: oneof bool bool_param = 1; oneof int64 int64_param = 2; oneof string string_param = 3; \
oneof double double_param = 4; oneof uint64 uint64_param = 5
InferTensorContents: repeated bool bool_contents = 1; repeated int32 int_contents = 2; \
repeated int64 int64_contents = 3; repeated uint32 uint_contents = 4; repeated uint64 uint64_contents = 5; \
repeated float fp32_contents = 6; repeated double fp64_contents = 7; repeated bytes bytes_contents = 8
ModelInferRequest: string model_name = 1; string model_version = 2; string id = 3; map parameters = 4; \
repeated ModelInferRequest.InferInputTensor inputs = 5; \
repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6; repeated bytes raw_input_contents = 7
ModelInferRequest.InferInputTensor: string name = 1; string datatype = 2; repeated int64 shape = 3; \
map parameters = 4; InferTensorContents contents = 5
ModelInferRequest.InferRequestedOutputTensor: string name = 1; map parameters = 2
ModelInferResponse: string model_name = 1; string model_version = 2; string id = 3; map parameters = 4; \
repeated ModelInferResponse.InferOutputTensor outputs = 5; repeated bytes raw_output_contents = 6
ModelInferResponse.InferOutputTensor: string name = 1; string datatype = 2; repeated int64 shape = 3; \
map parameters = 4; InferTensorContents contents = 5
ModelStreamInferResponse: string error_message = 1; ModelInferResponse infer_response = 2
ModelRepositoryParameter: oneof bool bool_param = 1; oneof int64 int64_param = 2; oneof string string_param = 3; \
oneof bytes bytes_param = 4
RepositoryIndexRequest: string repository_name = 1; bool ready = 2
RepositoryIndexResponse: repeated RepositoryIndexResponse.ModelIndex models = 1
RepositoryIndexResponse.ModelIndex: string name = 1; string version = 2; string state = 3; string reason = 4
RepositoryModelLoadRequest: string repository_name = 1; string model_name = 2; \
map:ModelRepositoryParameter parameters = 3
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name = 1; string model_name = 2; \
map:ModelRepositoryParameter parameters = 3
RepositoryModelUnloadResponse:
"""
"""One message a line, as in the protocol's proto file. ``map`` is a map of strings to InferParameter or to the named
message; ``oneof`` fields are those of a parameter's choice."""

_PACKAGE = "inference"
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> Any:
    """The descriptor of the proto file."""
    file = descriptor_pb2.FileDescriptorProto(name="tracecomp_inference.proto", package=_PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for line in _FIELDS.strip().splitlines():
        path, _, fields = line.partition(":")
        outer, _, name = path.rpartition(".")
        message = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        made[path] = message
        for field in filter(None, map(str.strip, fields.split(";"))):
            _add_field(message, path, field.split())
    return file


def _add_field(message: Message, path: str, words: list[str]) -> None:
    name, number = words[-3], int(words[-1])
    kind, _, values = words[-4].partition(":")
    label = _Field.LABEL_REPEATED if words[0] == "repeated" or kind == "map" else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if words[0] == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if kind == "map":
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), values or "InferParameter")
        kind = f"{path}.ParametersEntry"
    _set_type(field, kind)


def _set_type(field: Message, kind: str) -> None:
    if kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_file())


def message(name: str) -> Any:
    """The class of a message, such as ``ModelInferRequest``."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
