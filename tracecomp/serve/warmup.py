"""First runs of a model: they compile it, find the outputs' shapes, and check that batching keeps every bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tracecomp.base.errors import TracecompError
from tracecomp.serve.loading import Loaded
from tracecomp.serve.settings import Settings
from tracecomp.serve.signature import OPEN, Signature, TensorSpec
from tracecomp.serve.tensors import DATATYPES, NUMPY_NAMES, Array, array_bytes
from tracecomp_runtime.tensors import dtype_of

_ROWS = 4
"""Different rows of the examples. Batches repeat them, so few runs of single rows suffice for the comparison."""


def prepare(model: Loaded, settings: Settings) -> tuple[Signature, Sequence[int]]:
    """Run ``model`` on examples; return its signature and the numbers of rows that it is compiled for.

    TracecompError if it cannot run on the examples or the settings do not fit.
    """
    inputs = [replace(s, name=n) for s, n in zip(model.inputs, _names(settings.input_names, model.inputs), strict=True)]
    rows = min(model.max_rows, settings.max_batch_size)
    reason = model.not_batched or ("" if rows > 1 else "max_batch_size is 1")
    shapes = [_shape(spec, known, settings) for spec, known in zip(inputs, model.example_shapes, strict=True)]
    examples = [
        _example(spec, (_ROWS, *shape[1:]) if model.max_rows else shape)
        for spec, shape in zip(inputs, shapes, strict=True)
    ]
    try:
        singles = [model.run([e[k : k + 1] for e in examples]) for k in range(_ROWS)] if model.max_rows else []
        first = singles[0] if singles else model.run(examples)
    except Exception as error:  # a model may raise anything
        hint = "Set 'shapes' in its settings" if any(OPEN in s.shape[1:] for s in inputs) else "Check the file"
        raise TracecompError(f"the model fails on an example: {type(error).__name__}: {error}. {hint}") from error
    counts = [1] if reason else [*batch_sizes(rows)]
    if not reason:
        checked = {n + more for n in counts for more in (0, 1, n // 2)} if model.exact else counts
        reason = _difference(model, examples, singles, [n for n in sorted(checked) if 1 < n <= rows])
    outputs = _outputs(model, settings, first)
    return Signature(inputs, outputs, model.platform, 0 if reason else rows, reason), counts


def batch_sizes(most: int) -> Iterator[int]:
    """The numbers of rows that programs are compiled for: powers of two, and ``most``."""
    size = 1
    while size < most:
        yield size
        size *= 2
    yield most


def padded(arrays: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """``arrays`` with their last row repeated up to the next number in ``counts``."""
    rows = arrays[0].shape[0]
    more = next(count for count in counts if count >= rows) - rows
    return [np.concatenate([a, np.repeat(a[-1:], more, axis=0)]) if more else a for a in arrays]


def _difference(
    model: Loaded, examples: Sequence[Array], singles: Sequence[Sequence[Array]], counts: Sequence[int]
) -> str:
    """Why answers would differ between a batch and single rows; nothing if all bits agree."""
    for count in counts:
        found = model.run([np.resize(e, (count, *e.shape[1:])) for e in examples])
        for number, array in enumerate(found):
            if array.shape[:1] != (count,):
                return f"output {number} has no row for each row of the inputs"
            for row in range(count):
                alone = singles[row % _ROWS][number]
                if array[row : row + 1].shape != alone.shape or array_bytes(array[row]) != array_bytes(alone):
                    return f"output {number} differs between a batch of {count} rows and a single row"
    return ""


def _shape(spec: TensorSpec, known: tuple[int, ...], settings: Settings) -> tuple[int, ...]:
    """The shape of an input in the first runs: the settings' or a known one."""
    shape = tuple(settings.shapes.get(spec.name, known))
    if len(shape) != len(spec.shape) or any(n != size != OPEN for n, size in zip(shape, spec.shape, strict=True)):
        raise TracecompError(f"'shapes' of input {spec.name!r} is {[*shape]}; the input is {[*spec.shape]}")
    return shape


def _example(spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Values for the first runs. Integers are 0 and 1, which are valid indices and masks."""
    random = np.random.Generator(np.random.Philox(0))
    dtype = dtype_of(NUMPY_NAMES[spec.datatype])
    if spec.datatype in ("FP16", "BF16", "FP32", "FP64"):
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)


def _outputs(model: Loaded, settings: Settings, first: Sequence[Array]) -> list[TensorSpec]:
    """The outputs as the first run shows them; sizes are open where open sizes of the inputs may decide them."""
    names = model.output_names or [f"output_{k}" for k in range(len(first))]
    found = []
    start = 1 if model.max_rows else 0
    inner = any(OPEN in spec.shape[start:] for spec in model.inputs)
    for name, array in zip(names, first, strict=True):
        if array.dtype.name not in DATATYPES:
            raise TracecompError(f"output {name!r} has dtype {array.dtype.name}, which the protocol lacks")
        shape = tuple(OPEN if inner or axis < start else size for axis, size in enumerate(array.shape))
        found.append(TensorSpec(name, DATATYPES[array.dtype.name], shape))
    return [replace(s, name=n) for s, n in zip(found, _names(settings.output_names, found), strict=True)]


def _names(wanted: Sequence[str] | None, specs: Sequence[TensorSpec]) -> Sequence[str]:
    if wanted is not None and (len(wanted) != len(specs) or len({*wanted}) != len(specs)):
        raise TracecompError(f"the settings give {len(wanted)} different names for {len(specs)} tensors")
    return [spec.name for spec in specs] if wanted is None else wanted
