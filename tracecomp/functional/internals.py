"""Functions with an underscore that libraries call: PyTorch's own steps of public ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dtype_support import ALL, FLOATS
from tracecomp.functional.publish import function
from tracecomp.ir.types import DType, float32, int32, int64


@function(to="torch", takes=ALL)
def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes of ``input`` as int64."""
    return T.tensor(list(input.shape), dtype=int64)


@function(to="torch", takes=FLOATS)
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """The gradient of softmax along ``dim`` from its result."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


@function(to="torch", takes=FLOATS)
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: DType) -> Tensor:
    """The gradient of log_softmax along ``dim`` from its result."""
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


@function(to="torch")
def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """The start of each of ``size`` rows among sorted row numbers, and the end."""
    rows = T.arange(size + 1, dtype=input.dtype)
    return T.searchsorted(input, rows).to(int32 if out_int32 else int64)


@function(to="torch")
def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Rows and columns, or columns and rows, of the elements of compressed rows."""
    rows = T.repeat_interleave(T.arange(crow_indices.shape[-1] - 1), crow_indices.diff())
    both = (col_indices, rows) if transpose else (rows, col_indices)
    kind = int32 if out_int32 else int64
    return T.stack([x.to(kind) for x in both])


@function(to="torch")
def from_file(
    filename: str, shared: bool | None = False, size: int | None = 0, *, dtype: DType = float32, **options: Any
) -> Tensor:
    """``size`` numbers of a file, mapped into memory: writes go to the file if ``shared``.

    A shared file that is too short or missing is extended. RuntimeError if another is too short.
    """
    if not isinstance(filename, str):  # a number would be an open descriptor, which would be closed
        raise TypeError(f"from_file(): argument 'filename' must be str, not {type(filename).__name__}")
    for key in options.keys() - {"device", "layout", "pin_memory", "requires_grad"}:
        raise TypeError(f"from_file() got an unexpected keyword argument '{key}'")
    need = (size or 0) * dtype.itemsize
    if shared:
        with open(filename, "ab") as file:
            if file.tell() < need:
                file.truncate(need)
    try:
        memory = np.memmap(filename, dtype.numpy, "r+" if shared else "c", shape=(size or 0,))
    except ValueError as error:
        raise RuntimeError(f"from_file: {filename} is shorter than {need} bytes") from error
    return T.from_numpy(np.asarray(memory))
