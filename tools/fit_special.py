"""Write ``tracecomp/functional/special/tables.py``: polynomials of special functions, fitted with mpmath.

    python tools/fit_special.py > tracecomp/functional/special/tables.py

Each approximates a smooth function on [-1, 1] of a mapped argument. It is the function's Chebyshev series, without
terms below 1e-17 of the largest, written in powers. If powers would cancel 3 digits more, it stays a Chebyshev series.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp

mp.mp.dps = 40
Fn = Callable[[mp.mpf], mp.mpf]


def series(f: Fn, count: int = 64) -> list[mp.mpf]:
    """Chebyshev coefficients of ``f`` on [-1, 1], the first one halved."""
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]
    values = [f(t) for t in nodes]
    found = []
    for j in range(count):
        terms = (v * mp.cos(mp.pi * j * (k + mp.mpf(1) / 2) / count) for k, v in enumerate(values))
        found.append(2 * mp.fsum(terms) / count)
    found[0] /= 2
    top = max(abs(c) for c in found)
    while abs(found[-1]) < top * mp.mpf("1e-17"):
        found.pop()
    return found


def powers(chebyshev: list[mp.mpf]) -> list[mp.mpf]:
    """The same polynomial in powers of its argument, lowest first."""
    count = len(chebyshev)
    result = [mp.mpf(0)] * count
    now, after = [1] + [0] * (count - 1), [0, 1] + [0] * (count - 2)
    for c in chebyshev:
        result = [r + c * term for r, term in zip(result, now, strict=True)]
        now, after = after, [2 * up - term for up, term in zip([0, *after], now, strict=False)]
    return result


def phase(order: int, x: mp.mpf) -> mp.mpc:
    """Slowly varying factor of the Hankel function at large x."""
    chi = x - (mp.mpf(order) / 2 + mp.mpf(1) / 4) * mp.pi
    return mp.sqrt(mp.pi * x / 2) * mp.mpc(mp.besselj(order, x), mp.bessely(order, x)) * mp.exp(-1j * chi)


def airy_phase(z: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    angle = 2 * z ** mp.mpf(1.5) / 3 - mp.pi / 4
    scale = mp.sqrt(mp.pi) * mp.root(z, 4)
    a, b = mp.airyai(-z) * scale, mp.airybi(-z) * scale
    return a * mp.cos(angle) - b * mp.sin(angle), a * mp.sin(angle) + b * mp.cos(angle)


def square_root(t: mp.mpf, limit: int) -> mp.mpf:
    """x in [0, limit] from t = 2 (x / limit)^2 - 1."""
    return mp.sqrt((t + 1) / 2) * limit


def inverse(t: mp.mpf, start: int) -> mp.mpf:
    """x in [start, inf) from t = 2 start / x - 1."""
    return 2 * start / (t + 1)


def inverse_square(t: mp.mpf, start: int) -> mp.mpf:
    """x in [start, inf) from t = 2 (start / x)^2 - 1."""
    return start / mp.sqrt((t + 1) / 2)


def small_y(order: int, x: mp.mpf) -> mp.mpf:
    log_part = 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
    if order == 0:
        return mp.bessely(0, x) - log_part
    return (mp.bessely(1, x) - log_part + 2 / (mp.pi * x)) / x


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    x = mp.mpf(3.75) * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


def large_airy(t: mp.mpf) -> mp.mpf:
    zeta = inverse(t, 3)
    x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(zeta) * 2 * mp.sqrt(mp.pi) * mp.root(x, 4)


def far_quantile(t: mp.mpf) -> mp.mpf:
    """-ndtri(exp(-s*s/2))/s at t = 1.33 - 14.3/(s + 4), by Newton's iteration on the logarithm."""
    s = mp.mpf("14.3") / (mp.mpf("1.33") - t) - 4
    y = s
    for _ in range(30):
        log = mp.log(mp.erfc(y / mp.sqrt(2)) / 2)
        y += (log + s * s / 2) * mp.exp(log + y * y / 2) * mp.sqrt(2 * mp.pi)
    return y / s


def uniform_gamma(rows: int, columns: int) -> list[list[mp.mpf]]:
    """The coefficients d[k][n] of the incomplete gamma function's uniform expansion (DLMF 8.12.9 to 8.12.14)."""
    last = columns + 2 * rows
    alpha = [mp.mpf(0), mp.mpf(1)]
    for n in range(2, last + 3):
        alpha.append((alpha[n - 1] - sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))) / (n + 1))
    logs = {2 * n - 1: mp.bernoulli(2 * n) / (2 * n * (2 * n - 1)) for n in range(1, rows + 1)}
    gamma = [mp.mpf(1)]  # of the scaled gamma function, from its logarithm's
    for k in range(1, rows):
        gamma.append(sum(j * c * gamma[k - j] for j, c in logs.items() if j <= k) / k)
    first = [mp.mpf(-1) / 3, *((n + 2) * alpha[n + 2] for n in range(1, last + 1))]
    found = [first]
    for k in range(1, rows):
        above = found[-1]
        found.append([(-1) ** k * gamma[k] * first[n] + (n + 2) * above[n + 2] for n in range(len(above) - 2)])
    return [row[:columns] for row in found]


TABLES: dict[str, Fn] = {
    "I0E_LARGE": lambda t: mp.exp(-inverse(t, 8)) * mp.besseli(0, inverse(t, 8)) * mp.sqrt(inverse(t, 8)),
    "I1E_LARGE": lambda t: mp.exp(-inverse(t, 8)) * mp.besseli(1, inverse(t, 8)) * mp.sqrt(inverse(t, 8)),
    "J0_SMALL": lambda t: mp.besselj(0, square_root(t, 8)),
    "J1_SMALL": lambda t: mp.besselj(1, square_root(t, 8)) / square_root(t, 8),
    "Y0_SMALL": lambda t: small_y(0, square_root(t, 8)),
    "Y1_SMALL": lambda t: small_y(1, square_root(t, 8)),
    "P0": lambda t: phase(0, inverse_square(t, 8)).real,
    "Q0": lambda t: phase(0, inverse_square(t, 8)).imag * inverse_square(t, 8),
    "P1": lambda t: phase(1, inverse_square(t, 8)).real,
    "Q1": lambda t: phase(1, inverse_square(t, 8)).imag * inverse_square(t, 8),
    "K0_SMALL": lambda t: (
        mp.besselk(0, square_root(t, 2)) + mp.log(square_root(t, 2) / 2) * mp.besseli(0, square_root(t, 2))
    ),
    "K0_LARGE": lambda t: mp.exp(inverse(t, 2)) * mp.besselk(0, inverse(t, 2)) * mp.sqrt(inverse(t, 2)),
    "K1_SMALL": lambda t: (
        square_root(t, 2)
        * (mp.besselk(1, square_root(t, 2)) - mp.log(square_root(t, 2) / 2) * mp.besseli(1, square_root(t, 2)))
    ),
    "K1_LARGE": lambda t: mp.exp(inverse(t, 2)) * mp.besselk(1, inverse(t, 2)) * mp.sqrt(inverse(t, 2)),
    "ERFCX": scaled_erfc,
    "NDTRI": far_quantile,
    "AIRY_MIDDLE": lambda t: mp.airyai(-2 + 5 * t),
    "AIRY_LARGE": large_airy,
    "AIRY_P": lambda t: airy_phase((mp.mpf(3) / 2 * inverse_square(t, 12)) ** (mp.mpf(2) / 3))[0],
    "AIRY_Q": lambda t: (
        airy_phase((mp.mpf(3) / 2 * inverse_square(t, 12)) ** (mp.mpf(2) / 3))[1] * inverse_square(t, 12)
    ),
}

CANCELLING = {"AIRY_MIDDLE"}


def main() -> None:
    print('"""Polynomials of special functions. Made by tools/fit_special.py; not edited by hand."""\n')
    for name, f in TABLES.items():
        coefficients = series(f)
        print(f"{name} = (")
        for c in coefficients if name in CANCELLING else powers(coefficients):
            print(f"    {float(c)!r},")
        print(")")
    print("GAMMA_UNIFORM = (")
    for row in uniform_gamma(8, 20):
        print("    (")
        for c in row:
            print(f"        {float(c)!r},")
        print("    ),")
    print(")")


if __name__ == "__main__":
    main()
