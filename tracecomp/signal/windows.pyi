# Written by `python -m tests.surface`; do not edit.

"""Window functions, as in ``torch.signal.windows``."""

from collections.abc import Sequence
from tracecomp.eager.device import Device
from tracecomp.eager.device import Layout
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType

def bartlett(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Triangular window."""
def blackman(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Blackman window of ``M`` points, periodic unless ``sym``."""
def cosine(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Half a sine wave."""
def exponential(M: int, *, center: float | None = None, tau: float = ..., sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """exp(-|n - center| / tau)."""
def gaussian(M: int, *, std: float = ..., sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """exp(-((n - middle) / std)^2 / 2)."""
def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Sum of cosines with coefficients ``a``."""
def general_hamming(M: int, *, alpha: float = ..., sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """alpha - (1 - alpha) cos."""
def hamming(M: int, *, alpha: float = ..., sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Hamming window."""
def hann(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Hann window of ``M`` points, periodic unless ``sym``."""
def kaiser(M: int, *, beta: float = ..., sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """i0(beta sqrt(1 - x^2)) / i0(beta) for x from -1 to 1."""
def nuttall(M: int, *, sym: bool = True, dtype: DType | None = None, layout: Layout = None, device: Device = None, requires_grad: bool = False) -> Tensor:
    """Nuttall window of ``M`` points, periodic unless ``sym``."""
