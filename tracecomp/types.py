"""The names of ``torch.types``, for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from tracecomp.eager.device import device
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType

__all__ = ["Device", "FileLike", "Number", "Storage"]

_device, _dtype = device, DType
Number: TypeAlias = int | float | bool
Device: TypeAlias = device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | Any
Storage: TypeAlias = Any
_int, _float, _bool, _complex, _str = builtins.int, builtins.float, builtins.bool, builtins.complex, builtins.str
_Number = (int, float, bool)
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrOptionalTensors: TypeAlias = Tensor | Sequence[Tensor | None]
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_device_t: TypeAlias = Device
_symsize: TypeAlias = Size | Sequence[int]
