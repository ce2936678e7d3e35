"""Time per kernel of a compiled call, with its work and its share of what the machine can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.compiled.backends import Backend, Interpreted, Native
from tracecomp.compiled.checked import Checked
from tracecomp.passes.cost.work import operations
from tracecomp.runtime import peaks
from tracecomp.runtime.threads import wanted

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of a call.

    ``seconds`` is the median over the profiled calls (all rounds of a kernel in a loop); ``nbytes`` the size of
    the arrays that it reads or writes and ``operations`` its scalar operations (two for a multiply-add, one for any
    function), both in one round; ``share`` is its part of the measured peak, of memory bandwidth or of float32
    multiply-adds, whichever is more. What fits the caches can pass 1. ``source`` names the user's lines.
    """

    name: str
    source: str
    seconds: float
    nbytes: int
    operations: int
    share: float


@dataclass(frozen=True)
class Profile:
    """The kernels of a compiled call in the order they run; ``print`` shows the most expensive first."""

    kernels: tuple[KernelProfile, ...]
    threads: int

    @property
    def seconds(self) -> float:
        """Time of all kernels of one call."""
        return sum(k.seconds for k in self.kernels)

    def table(self, rows: int = 30) -> str:
        """The ``rows`` most expensive kernels as text."""
        total = self.seconds or 1.0
        lines = [f"{'time':>10} {'share':>6} {'MB':>9} {'MFLOP':>9} {'peak':>6}  kernel"]
        for k in sorted(self.kernels, key=lambda k: -k.seconds)[:rows]:
            lines.append(
                f"{1e6 * k.seconds:>7.1f} us {100 * k.seconds / total:>5.1f}% {k.nbytes / 1e6:>9.3f} "
                f"{k.operations / 1e6:>9.2f} {100 * k.share:>5.0f}%  {k.name}  {k.source}"
            )
        if len(self.kernels) > rows:
            lines.append(f"and {len(self.kernels) - rows} more")
        counts = f"kernels {len(self.kernels)}, threads {self.threads}"
        return "\n".join([*lines, f"{1e6 * self.seconds:.1f} us: {counts}"])

    def __str__(self) -> str:
        return self.table()


def profile_backend(
    given: Backend, arrays: Sequence[Array], outputs: Sequence[Array], calls: int, seen: Any = None
) -> Profile:
    """Run ``given`` ``calls`` times on the given memory; RuntimeError where it is not native code alone.

    What calls with an equal ``seen`` need not prepare again has been prepared before.
    """
    backend = given.native if isinstance(given, Checked) else given
    if not isinstance(backend, Native):
        what = "runs in the interpreter" if isinstance(backend, Interpreted) else "needs routines of the host"
        raise RuntimeError(f"profile(): this program {what}; only programs of native kernels alone can be profiled")
    if seen is not None:
        backend.timed(arrays, outputs, seen)
    timed = [backend.timed(arrays, outputs, seen) for _ in range(max(calls, 1))]
    threads = wanted(backend.threads) if backend.executable.image.parallel else 1
    kernels = []
    for n, step in enumerate(backend.steps()):
        seconds = float(np.median([times[n] for times in timed]))
        nbytes = sum(p.size * p.dtype.itemsize for p in step.kernel.params)
        work = operations(step.kernel.body)
        least = max(nbytes / peaks.bandwidth(threads), work / peaks.flops(threads))
        source = step.label.partition(" (")[2].removesuffix(")")
        share = least / seconds if seconds else 0.0
        kernels.append(KernelProfile(step.kernel.name, source, seconds, nbytes, work, share))
    return Profile(tuple(kernels), threads)
