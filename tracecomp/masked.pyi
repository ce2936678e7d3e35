# Written by `python -m tests.surface`; do not edit.

"""Reductions over unmasked elements, under the names of ``torch.masked``."""

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim
from tracecomp.ir.types import DType

def amax(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Largest unmasked element."""
def amin(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Smallest unmasked element."""
def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Position of the largest unmasked element."""
def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Position of the smallest unmasked element."""
def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Running products of unmasked elements."""
def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Running sums of unmasked elements."""
def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Logarithm of :func:`softmax`."""
def logaddexp(input: Tensor, other: Tensor, *, dtype: DType | None = None, input_mask: Tensor | None = None, other_mask: Tensor | None = None) -> Tensor:
    """:func:`torch.logaddexp` of masked operands."""
def logsumexp(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """log of the sum of exponentials of unmasked elements."""
def mean(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Mean of unmasked elements."""
def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Lower median of unmasked elements."""
def norm(input: Tensor, ord: float = ..., dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The p-norm of unmasked elements."""
def normalize(input: Tensor, ord: float, dim: int, *, eps: float = ..., dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Unmasked elements divided by their norm along ``dim``."""
def prod(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Product of unmasked elements."""
def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Softmax over unmasked elements."""
def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Softmax of negated unmasked elements."""
def std(input: Tensor, dim: Dim = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Standard deviation of unmasked elements."""
def sum(input: Tensor, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Sum of unmasked elements."""
def var(input: Tensor, dim: Dim = None, unbiased: bool | None = None, *, correction: float | None = None, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Variance of unmasked elements."""
