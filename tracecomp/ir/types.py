"""Element types and tensor types; PyTorch's promotion lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tracecomp.ir.immutable import immutable

Shape: TypeAlias = tuple[int, ...]


class DType:
    """An element type. One object exists per type, so ``is`` compares.

    ``kind`` is ``"bool"``, ``"int"``, ``"float"`` or ``"complex"``; ``short`` is the name in printed IR (``f32``).
    """

    __slots__ = ("itemsize", "kind", "name", "short", "signed")

    def __init__(self, name: str, short: str, kind: str, itemsize: int, signed: bool = True) -> None:
        self.name, self.short, self.kind, self.itemsize, self.signed = name, short, kind, itemsize, signed

    @property
    def numpy(self) -> np.dtype[Any]:
        return _numpy_dtype(self.name)

    @property
    def python(self) -> Any:
        """The Python type of a scalar of this type."""
        return _PYTHON[self.kind]

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def differentiable(self) -> bool:
        """Whether gradients pass through values of this type."""
        return self.kind in ("float", "complex")

    def to_real(self) -> DType:
        """The type of the real part: itself, unless complex."""
        return _REAL.get(self, self)

    def to_complex(self) -> DType:
        """The complex type with parts of this type; that of float32 parts for narrower types and integers."""
        return self if self.is_complex else _COMPLEX.get(self, complex64)

    @property
    def is_signed(self) -> bool:
        return self.signed

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (dtype_named, (self.name,))


bool_ = DType("bool", "b1", "bool", 1, signed=False)
uint8 = DType("uint8", "u8", "int", 1, signed=False)
int8 = DType("int8", "i8", "int", 1)
int16 = DType("int16", "i16", "int", 2)
int32 = DType("int32", "i32", "int", 4)
int64 = DType("int64", "i64", "int", 8)
float16 = DType("float16", "f16", "float", 2)
bfloat16 = DType("bfloat16", "bf16", "float", 2)
float32 = DType("float32", "f32", "float", 4)
float64 = DType("float64", "f64", "float", 8)

complex64 = DType("complex64", "c64", "complex", 8)
complex128 = DType("complex128", "c128", "complex", 16)

DTYPES: tuple[DType, ...] = (
    bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128,
)  # fmt: skip
# Types to store and convert: like PyTorch on a CPU, there is no arithmetic on them.
uint16 = DType("uint16", "u16", "int", 2, signed=False)
uint32 = DType("uint32", "u32", "int", 4, signed=False)
uint64 = DType("uint64", "u64", "int", 8, signed=False)
float8_e4m3fn = DType("float8_e4m3fn", "f8e4m3fn", "float", 1)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8e4m3fnuz", "float", 1)
float8_e5m2 = DType("float8_e5m2", "f8e5m2", "float", 1)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8e5m2fnuz", "float", 1)
float8_e8m0fnu = DType("float8_e8m0fnu", "f8e8m0fnu", "float", 1, signed=False)
# Names only, for instance in tables of types; no tensor has them.
complex32 = DType("complex32", "c32", "complex", 4)
quint8 = DType("quint8", "qu8", "int", 1, signed=False)
qint8 = DType("qint8", "q8", "int", 1)
qint32 = DType("qint32", "q32", "int", 4)
quint4x2 = DType("quint4x2", "qu4x2", "int", 1, signed=False)
quint2x4 = DType("quint2x4", "qu2x4", "int", 1, signed=False)
float4_e2m1fn_x2 = DType("float4_e2m1fn_x2", "f4e2m1fnx2", "float", 1)
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (
    DType(f"uint{n}", f"u{n}", "int", 1, signed=False) for n in range(1, 8)
)
int1, int2, int3, int4, int5, int6, int7 = (DType(f"int{n}", f"i{n}", "int", 1) for n in range(1, 8))

NAMED_DTYPES: tuple[DType, ...] = (
    complex32, quint8, qint8, qint32, quint4x2, quint2x4, float4_e2m1fn_x2, uint1, uint2, uint3, uint4, uint5, uint6,
    uint7, int1, int2, int3, int4, int5, int6, int7,
)  # fmt: skip
STORAGE_DTYPES: tuple[DType, ...] = (
    *NAMED_DTYPES, uint16, uint32, uint64, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu,
)  # fmt: skip
_PYTHON: dict[str, Any] = {"bool": bool, "int": int, "float": float, "complex": complex}
_COMPLEX = {float32: complex64, float64: complex128}
_REAL = {c: r for r, c in _COMPLEX.items()} | {complex32: float16}
_BY_NAME = {t.name: t for t in (*DTYPES, *STORAGE_DTYPES)} | {t.short: t for t in (*DTYPES, *STORAGE_DTYPES)}


_WORDS = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "complex32": "ComplexHalf", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "quint8": "QUInt8", "qint8": "QInt8", "qint32": "QInt32", "quint4x2": "QUInt4x2", "quint2x4": "QUInt2x4",
    **{f"uint{n}": f"UInt{n}" for n in range(1, 8)}, **{f"int{n}": f"Int{n}" for n in range(1, 8)},
} | {t.name: t.name.capitalize() for t in STORAGE_DTYPES if t.kind == "float"}  # fmt: skip


def type_word(dtype: DType) -> str:
    """PyTorch's word for an element type in messages: ``Float``, ``Long``, ..."""
    return _WORDS[dtype.name]


def dtype_named(name: str) -> DType:
    """The DType called ``name`` (``"float32"`` or ``"f32"``); KeyError when there is none."""
    return _BY_NAME[name]


@cache
def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16" or name.startswith("float8"):
        try:
            import ml_dtypes
        except ImportError as error:
            raise ImportError(f"{name} needs ml_dtypes: pip install 'tracecomp[bfloat16]'") from error
        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended
    if any(t.name == name for t in NAMED_DTYPES):
        raise TypeError(f"torch.{name} is not supported as the dtype of a tensor")
    return np.dtype(name)


_FROM_NUMPY: dict[Any, DType] = {np.dtype(t.name): t for t in (*DTYPES, uint16, uint32, uint64) if t.name != "bfloat16"}


def from_numpy_dtype(dtype: np.dtype[Any]) -> DType:
    """The DType of a numpy dtype; TypeError when tensors cannot hold it, ValueError for a foreign byte order."""
    found = _FROM_NUMPY.get(dtype)
    if found is None:
        if not dtype.isnative:
            raise ValueError(
                f"The given numpy array of dtype {dtype.str!r} has a byte order different from the native byte order. "
                'Convert it first: a.astype(a.dtype.newbyteorder("="))'
            )
        if dtype.name in _BY_NAME:  # an ml_dtypes type
            return _BY_NAME[dtype.name]
        raise TypeError(f"can't convert np.ndarray of type {dtype}; supported: {[t.name for t in DTYPES]}")
    return found


FOLLOWED_BELOW = 2**62
"""Plain integers of smaller magnitude may differ between calls of one recording: graphs compute with 64 bits."""

_INT_ORDER = (int8, int16, int32, int64)


@cache
def promote(a: DType, b: DType) -> DType:
    """The smallest type that holds both, by PyTorch's table.

    Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
    """
    if a is b:
        return a
    if a in STORAGE_DTYPES or b in STORAGE_DTYPES:
        raise RuntimeError(f"Promotion for {a!r} and {b!r} is not supported: convert one of them")
    # By kind first: bool, then whole, floating, complex numbers; within a kind by width.
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_complex or b.is_complex:
        wide = float64 in (a.to_real(), b.to_real())
        return complex128 if wide else complex64
    # A float dominates any integer, even a wider one, as in PyTorch.
    if a.kind != b.kind:
        return a if a.kind == "float" else b
    if a.kind == "float":
        # Neither half type contains the other.
        if {a, b} == {float16, bfloat16}:
            return float32
        rank = {float16: 0, bfloat16: 0, float32: 1, float64: 2}
        return a if rank[a] >= rank[b] else b
    # Unsigned and signed bytes are unordered: the next wider type holds both.
    if uint8 in (a, b):
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    return _INT_ORDER[max(_INT_ORDER.index(a), _INT_ORDER.index(b))]


def compute_dtype(t: DType) -> DType:
    """The type in which arithmetic on ``t`` is done: half types compute in float32."""
    return float32 if t in (float16, bfloat16) else t


@immutable
class TensorType:
    """Element type and shape of a value. Printed ``f32[64,784]``; a scalar is ``f32[]``."""

    dtype: DType
    shape: Shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are equal.

    Tuples compare elements before lengths. A variable size learns from each comparison, so lengths are compared first.
    """
    return len(a) == len(b) and tuple(a) == tuple(b)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """NumPy broadcasting of shapes; RuntimeError with PyTorch's wording on mismatch."""
    if shapes and all(same_shape(s, shapes[0]) for s in shapes):
        return shapes[0]
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for axis, size in reversed(list(enumerate(shape))):
            have = result[offset + axis]
            if size == have or size == 1:
                continue
            if have != 1:
                raise RuntimeError(
                    f"The size of tensor a ({have}) must match the size of tensor b ({size}) "
                    f"at non-singleton dimension {offset + axis}; shapes {', '.join(map(str, shapes))}"
                )
            result[offset + axis] = size
    return tuple(result)
