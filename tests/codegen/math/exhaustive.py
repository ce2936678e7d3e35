"""Functions of one float32 on every float32 there is: ``python -m tests.codegen.math.exhaustive exp log ...``

Bits must be the same for registers of every width, and errors within ``functions.ULP``, measured against float64. Takes
some minutes a function; without names, all of them. ``--sixteenth`` takes every sixteenth number only.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from tests.codegen.math.test_math import REFERENCE
from tests.codegen.programs import elementwise, scalar_op
from tracecomp.codegen.math.functions import ULP
from tracecomp.codegen.text import native
from tracecomp.ir.types import DType, float32
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.images import image_of

Array = np.ndarray[Any, Any]

_LIMITS = {"float16": (2.0**-10, 2.0**-14), "bfloat16": (2.0**-7, 2.0**-126), "float32": (2.0**-23, 2.0**-126)}
"""The distance from 1 to the next number, and the least normal number."""

CHUNK = 1 << 20
WIDTHS = (512, 256, 128)
"""Bits of registers; of those that the host has."""
EXACT = {"sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "abs": np.abs,
         "neg": np.negative}  # fmt: skip
_SPECIAL = {"erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "lgamma": "gammaln", "digamma": "psi", "sigmoid": "expit"}


def references() -> dict[str, Callable[[Array], Array]]:
    """Every function of one number, of float64: numpy's, and scipy's where that is installed."""
    found: dict[str, Callable[[Array], Array]] = {**REFERENCE, **EXACT}
    try:
        special = import_module("scipy.special")
    except ImportError:
        return found
    found |= {op: getattr(special, name) for op, name in _SPECIAL.items()}
    # scipy's is -inf there, C's and PyTorch's lgamma are not.
    return found | {"lgamma": lambda x: np.where(x == -np.inf, np.inf, special.gammaln(x))}


class Function:
    """One function as machine code, for each width."""

    def __init__(self, op: str, dtype: DType, size: int) -> None:
        program = elementwise(scalar_op(op, dtype), [dtype], dtype, size)
        host = native.host_target()
        targets = [replace(host, vector_bits=bits) for bits in WIDTHS if bits <= host.vector_bits]
        self.widths = [t.vector_bits for t in targets]
        self.executables = [Executable(program, image_of(program, target=t)) for t in targets]
        self.results = [np.empty(size, dtype.numpy) for _ in targets]

    def run(self, x: Array) -> list[Array]:
        """The results of every width; valid until the next run."""
        for executable, out in zip(self.executables, self.results, strict=True):
            executable.run([x], [out])
        return self.results


def errors(got: Array, exact: Array, floor: Array | float = 0.0) -> Array:
    """Units in the last place of ``got``'s type by which it is off ``exact``, which is a float64."""
    eps, normal = _LIMITS[got.dtype.name]
    with np.errstate(all="ignore"):
        size = np.maximum(np.maximum(np.abs(exact), floor), normal)
        power = (size.view(np.uint64) & np.uint64(0x7FF0000000000000)).view(np.float64)
        off: Array = np.abs(got.astype(np.float64) - exact) / (power * eps)
        rounded = exact.astype(got.dtype).astype(np.float64)
        found = got.astype(np.float64)
    odd = ~np.isfinite(off) | ~np.isfinite(found)
    if odd.any():
        same = (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        off[odd & same], off[odd & ~same] = 0.0, np.inf
    return off


@dataclass
class Sweep:
    """Errors on all numbers: their count, the largest and its place."""

    op: str
    numbers: int = 0
    worst: float = 0.0
    at: float = 0.0
    widths: tuple[int, ...] = ()
    different: int = 0

    @property
    def sound(self) -> bool:
        return self.different == 0 and self.worst <= (ULP[self.op][0] if self.op in ULP else 0.5)

    def __str__(self) -> str:
        bits = "equal bits" if not self.different else f"{self.different} DIFFERENT BITS"
        bound = ULP[self.op][0] if self.op in ULP else 0.5
        return f"| {self.op} | {self.numbers:,} | {self.worst:.4g} at {self.at!r} | {bound} | {bits} of {self.widths} |"


def sweep(op: str, reference: Callable[[Array], Array], starts: Iterator[int]) -> Sweep:
    """Try the floats whose bits are the ``CHUNK`` numbers from each of ``starts`` on."""
    function, found = Function(op, float32, CHUNK), Sweep(op)
    found.widths = tuple(function.widths)
    for start in starts:
        x = np.arange(start, start + CHUNK, dtype=np.uint64).astype(np.uint32).view(np.float32)
        first, *others = function.run(x)
        nan = np.isnan(first)
        for other in others:
            differ = (first.view(np.uint32) != other.view(np.uint32)) & ~(nan & np.isnan(other))
            found.different += int(differ.sum())
        with np.errstate(all="ignore"):
            exact = np.asarray(reference(x.astype(np.float64)), np.float64)
        off = errors(first, exact, _floor(op, x))
        worst = int(np.argmax(off))
        if off[worst] > found.worst:
            found.worst, found.at = float(off[worst]), float(x[worst])
        found.numbers += CHUNK
    return found


def _floor(op: str, x: Array) -> Array | float:
    """Return the least unit by which errors are measured, see ``functions.ULP``."""
    return np.where(x < 0, 1.0, 0.0) if op in ("lgamma", "digamma") else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("functions", nargs="*")
    parser.add_argument("--sixteenth", action="store_true")
    options = parser.parse_args()
    known = references()
    cpu = native.host_target().cpu
    print(f"{datetime.date.today()}, {cpu}", flush=True)
    sound = True
    for op in options.functions or known:
        start = time.monotonic()
        found = sweep(op, known[op], iter(range(0, 1 << 32, CHUNK * (16 if options.sixteenth else 1))))
        sound = sound and found.sound
        print(f"{found} {'' if found.sound else 'BEYOND ITS BOUND '}{time.monotonic() - start:.0f} s |", flush=True)
    return int(not sound)


if __name__ == "__main__":
    raise SystemExit(main())
