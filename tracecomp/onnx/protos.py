"""Names of onnx's own classes in annotations: it is loaded late, and its classes are made when they are."""

from __future__ import annotations

from typing import Any, TypeAlias

ModelProto: TypeAlias = Any
NodeProto: TypeAlias = Any
TensorProto: TypeAlias = Any
SparseTensorProto: TypeAlias = Any
AttributeProto: TypeAlias = Any
