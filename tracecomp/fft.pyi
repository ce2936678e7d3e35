# Written by `python -m tests.surface`; do not edit.

"""Fourier transforms under the names of ``torch.fft``."""

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim
from tracecomp.functional.dims import Sizes
from tracecomp.ir.types import DType

def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Discrete Fourier transform, in one dimension."""
def fft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Discrete Fourier transform, in the last two dimensions."""
def fftfreq(n: int, d: float = ..., *, dtype: DType | None = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Frequencies of a transform of ``n`` samples at distance ``d``."""
def fftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Discrete Fourier transform, in several dimensions."""
def fftshift(input: Tensor, dim: Dim = None) -> Tensor:
    """Move the zero frequency to the middle."""
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real transform of a signal of which ``input`` is one half, in one dimension."""
def hfft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real transform of a signal of which ``input`` is one half, in the last two dimensions."""
def hfftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real transform of a signal of which ``input`` is one half, in several dimensions."""
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Inverse discrete Fourier transform, in one dimension."""
def ifft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Inverse discrete Fourier transform, in the last two dimensions."""
def ifftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Inverse discrete Fourier transform, in several dimensions."""
def ifftshift(input: Tensor, dim: Dim = None) -> Tensor:
    """The inverse of :func:`fftshift`."""
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the inverse transform of a real tensor, in one dimension."""
def ihfft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the inverse transform of a real tensor, in the last two dimensions."""
def ihfftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the inverse transform of a real tensor, in several dimensions."""
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real tensor of which ``input`` is the half spectrum, in one dimension."""
def irfft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real tensor of which ``input`` is the half spectrum, in the last two dimensions."""
def irfftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real tensor of which ``input`` is the half spectrum, in several dimensions."""
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the transform of a real tensor, the rest of which is its conjugate, in one dimension."""
def rfft2(input: Tensor, s: Sizes | None = None, dim: Sizes = ..., norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the transform of a real tensor, the rest of which is its conjugate, in the last two dimensions."""
def rfftfreq(n: int, d: float = ..., *, dtype: DType | None = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """The non-negative frequencies of :func:`fftfreq`."""
def rfftn(input: Tensor, s: Sizes | None = None, dim: Dim = None, norm: str | None = None, *, out: Tensor | None = None) -> Tensor:
    """Half of the transform of a real tensor, the rest of which is its conjugate, in several dimensions."""
