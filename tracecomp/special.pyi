# Written by `python -m tests.surface`; do not edit.

"""Special functions under the names of ``torch.special``."""

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dims import Dim
from tracecomp.functional.promotion import Operand
from tracecomp.ir.types import DType

def airy_ai(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Airy function Ai."""
def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the first kind, order 0."""
def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the first kind, order 1."""
def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the second kind, order 0."""
def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the second kind, order 1."""
def chebyshev_polynomial_t(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev polynomial t of degree ``n`` at ``input``; 0 for negative degrees."""
def chebyshev_polynomial_u(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev polynomial u of degree ``n`` at ``input``; 0 for negative degrees."""
def chebyshev_polynomial_v(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev polynomial v of degree ``n`` at ``input``; 0 for negative degrees."""
def chebyshev_polynomial_w(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev polynomial w of degree ``n`` at ``input``; 0 for negative degrees."""
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise digamma; integers and bools become the default float dtype."""
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-x log(x), 0 at 0, -inf below."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erf; integers and bools become the default float dtype."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erfc; integers and bools become the default float dtype."""
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(x^2) erfc(x)."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise erfinv; integers and bools become the default float dtype."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise exp2; integers and bools become the default float dtype."""
def expit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise sigmoid; integers and bools become the default float dtype."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise expm1; integers and bools become the default float dtype."""
def gammainc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Lower regularised incomplete gamma function."""
def gammaincc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Upper regularised incomplete gamma function."""
def gammaln(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise lgamma; integers and bools become the default float dtype."""
def hermite_polynomial_h(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Hermite polynomial h of degree ``n`` at ``input``; 0 for negative degrees."""
def hermite_polynomial_he(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Hermite polynomial he of degree ``n`` at ``input``; 0 for negative degrees."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(-|x|) i0(x)."""
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """exp(-|x|) i1(x)."""
def laguerre_polynomial_l(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Laguerre polynomial l of degree ``n`` at ``input``; 0 for negative degrees."""
def legendre_polynomial_p(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Legendre polynomial p of degree ``n`` at ``input``; 0 for negative degrees."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise log1p; integers and bools become the default float dtype."""
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log of the distribution function of the standard normal, accurate far in the lower tail."""
def log_softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(softmax(x)) along ``dim``, computed without the quotient."""
def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), with x first clamped to [eps, 1 - eps]."""
def logsumexp(input: Tensor, dim: Dim, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """log(sum(exp(input))) over ``dim``, shifted by the maximum so that it does not overflow."""
def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind, order 0."""
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the first kind, order 1."""
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind, order 0."""
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind, order 1."""
def multigammaln(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """log of the multivariate gamma function of dimension ``p``."""
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Distribution function of the standard normal."""
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of :func:`ndtr`: by erfinv near 1/2, beyond by a polynomial of the root of the logarithm."""
def polygamma(input: int | Tensor, other: int | Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of digamma: ``polygamma(n, x)`` or ``x.polygamma(n)``."""
def psi(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elementwise digamma; integers and bools become the default float dtype."""
def round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """Rounded half to even, at ``decimals`` digits after the point."""
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind, order 0, times exp(x)."""
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind, order 1, times exp(x)."""
def shifted_chebyshev_polynomial_t(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Shifted chebyshev polynomial t of degree ``n`` at ``input``; 0 for negative degrees."""
def shifted_chebyshev_polynomial_u(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Shifted chebyshev polynomial u of degree ``n`` at ``input``; 0 for negative degrees."""
def shifted_chebyshev_polynomial_v(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Shifted chebyshev polynomial v of degree ``n`` at ``input``; 0 for negative degrees."""
def shifted_chebyshev_polynomial_w(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Shifted chebyshev polynomial w of degree ``n`` at ``input``; 0 for negative degrees."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
def softmax(input: Tensor, dim: int, dtype: DType | None = None, *, out: Tensor | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along ``dim``."""
def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """sin(x) / x, 1 at 0."""
def xlog1py(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """input * log1p(other), zero where ``input`` is zero."""
def xlogy(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """input * log(other), zero where ``input`` is zero."""
def zeta(input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor:
    """Hurwitz zeta function of exponent ``input`` at ``other``."""
