"""Primitives that have no form in ONNX, and why."""

from __future__ import annotations

NO_COMPLEX = "ONNX operators do not take complex numbers"
_MATRICES = "ONNX lacks matrix decompositions"
_BITS = "ONNX does not expose the bits of numbers"
_FUNCTIONS = "ONNX lacks this function and functions to compose it from"
_PROCESSES = "ONNX graphs run in one process"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("complex", "conj", "real", "imag", "view_as_real", "view_as_complex", "dft", "fft_c2c", "fft_r2c", "fft_c2r"),
        NO_COMPLEX,
    ),
    **dict.fromkeys(
        ("cholesky", "eigh", "svd", "eigvalsh", "svdvals", "ldl_factor", "ldl_solve", "matrix_solve", "matrix_inverse",
         "pinv", "slogdet", "qr", "geqrf", "reflections", "reflect", "triangular_solve", "pivot_order", "lu_factor",
         "eig", "eigvals", "hosted", "phase_free"),
        _MATRICES,
    ),
    **dict.fromkeys(("bitcast", "reinterpret", "nextafter"), _BITS),
    **dict.fromkeys(("lgamma", "digamma"), _FUNCTIONS),
    **dict.fromkeys(("all_reduce", "broadcast_from", "all_gather", "reduce_scatter", "all_to_all"), _PROCESSES),
    "opaque": "only this process has the function of a custom operator",
}  # fmt: skip
"""Why each of these cannot be exported."""
