"""``torch.FloatStorage`` and its siblings: memory with elements of one type, from a number, a sequence or bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.tensor import wrap
from tracecomp.functional.publish import publish
from tracecomp.functional.storage import TypedStorage
from tracecomp.ir import types
from tracecomp.ir.types import DType


class _StorageMeta(type):
    """``isinstance(x, FloatStorage)`` tests the dtype; a call creates a ``TypedStorage``."""

    dtype: DType

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, TypedStorage) and x.dtype is cls.dtype

    def __call__(cls, data: int | Sequence[Any] = 0) -> TypedStorage:
        """Return memory with zeros, ``data`` of them, or with the elements of a sequence."""
        kind = cls.dtype.numpy
        return TypedStorage(wrap(np.zeros(data, kind) if isinstance(data, int) else np.array(data, kind)))

    def from_buffer(cls, data: bytes | bytearray | memoryview, byte_order: str | None = None) -> TypedStorage:
        """Copy the elements in ``data``, in the "little", "big" or "native" order of bytes.

        ValueError for elements of several bytes without an order.
        """
        kind = cls.dtype.numpy
        if byte_order is None and kind.itemsize > 1:
            raise ValueError(f"{cls.__name__}.from_buffer(): 'byte_order' must be 'little', 'big' or 'native'")
        array = np.frombuffer(data, kind).copy()
        return TypedStorage(wrap(array.byteswap() if byte_order not in (None, "native", sys.byteorder) else array))

    _from_buffer = from_buffer


_DOC = """Memory with elements of type {0}.

>>> import tracecomp as torch
>>> torch.{1}Storage(2).tolist()
[{2}, {2}]
"""
_ZERO = {"bool": "False", "int": "0", "complex": "0j"}
_WORDS = ("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float", "Half", "Int", "Long",
          "Short")  # fmt: skip
for _dtype in types.DTYPES:
    _word = types.type_word(_dtype)
    if _word in _WORDS:
        _fields = {"dtype": _dtype, "__doc__": _DOC.format(_dtype.name, _word, _ZERO.get(_dtype.kind, "0.0"))}
        publish(_StorageMeta(f"{_word}Storage", (), _fields), f"torch.{_word}Storage")
