"""``compile`` and ``trace``: the first call runs eagerly and is recorded; later calls that fit run the recording."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from types import MethodType
from typing import Any

from tracecomp.base import config
from tracecomp.base.errors import Source
from tracecomp.base.lazy_names import load_module
from tracecomp.compiled.call_dispatch import CallDispatcher
from tracecomp.compiled.eager_vs_compiled import Call
from tracecomp.compiled.kernel_profile import Profile
from tracecomp.compiled.mismatch_lines import first_difference, in_pieces
from tracecomp.compiled.program_state import SavedState
from tracecomp.compiled.recompile_policy import MAX_UNSETTLED
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.ir.graph import Graph
from tracecomp.record.capture import record
from tracecomp.record.pytree import flatten_call
from tracecomp.record.recording import Recording


class Compiled(CallDispatcher):
    """A function or module whose calls are recorded once per kind of call and then run from the recording.

    The base class runs its calls. Here are its options, and what users ask of it.
    """

    __slots__ = ()

    def __init__(
        self, fn: Any, *, fullgraph: bool = False, threads: int | None = None, backend: str = "native",
        dynamic: bool | None = None, fast_math: bool = False, disable: bool = False, checked: bool = False,
        verify: str | int | None = None, mismatch: str = "raise", wait: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(fn, fullgraph, threads, backend, dynamic, fast_math, checked, disable, wait)
        if verify is not None:
            self.__call__ = self._verifier = Verifier(self, verify, mismatch)
        if not hasattr(fn, "state_dict"):
            update_wrapper(self, fn, updated=())

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name == "fn":
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __reduce__(self) -> Any:
        return self._alike(), (self.fn,)

    def _alike(self) -> Callable[[Any], Compiled]:
        """Compiles other functions with the options of this one."""
        return partial(
            Compiled, fullgraph=self.fullgraph, threads=self.threads, backend=self.backend, dynamic=self.dynamic,
            fast_math=self.fast_math, checked=self.checked, wait=self.waits,
        )  # fmt: skip

    @property
    def _orig_mod(self) -> Any:
        """The module that was compiled, under PyTorch's name."""
        return self.fn

    @property
    def graphs(self) -> list[Graph]:
        """The graphs recorded so far, most recently used first."""
        return [e.recording.graph for e in self.entries]

    @property
    def recordings(self) -> int:
        """How many calls were recorded."""
        return self._recompile.recordings

    @property
    def misses(self) -> list[str]:
        """Why calls were recorded, or made separate programs."""
        return self._recompile.misses

    def _line_of_difference(self, call: Call, place: str, before: SavedState) -> Source | None:
        """The line where an eager call first differs from the recording that serves it, or sets ``place``.

        The call is made again, from the state ``before``.
        """
        args, kwargs = call
        source = None
        if self.parts is not None:
            source = in_pieces(self.parts.used(), partial(self._general, *args, **kwargs))
        elif self.entries:
            entry = self.entries[0]
            places = self._recompile.learned.places()
            _, new = record(self.fn, args, kwargs, self._name, False, places=places, follow=entry.follows)
            source = first_difference(self.fn, entry.recording, new)
        before.restore()
        return source or _above("inspect.line_watch").line_of_place(self.fn, call, place)

    def save(
        self, path: str | os.PathLike[str], *args: Any, also: Sequence[tuple[object, ...]] = (),
        kind: str = "code", levels: Sequence[str] | None = None, dynamic_shapes: object = None,
    ) -> str:  # fmt: skip
        """Write the programs of calls with ``args`` to a file, with the current state; return the file's digest.

        ``kind`` "code" is machine code, which needs only numpy and ``tracecomp_runtime``, without llvmlite and without
        this function's code. It is loaded by its digest only. ``levels`` are its processors: ``x86-64-v2``, ``-v3``,
        ``-v4`` and ``aarch64`` (default: those of this architecture). ``kind`` "graph" is text, checked and compiled
        where it is loaded. ``also`` are further tuples of arguments, of other shapes. Calls that are not recorded yet
        are made, until they settle.

        ``dynamic_shapes`` makes sizes dynamic, by the arguments' names or in their order, as in ``{"x": {0:
        Dim("batch", max=64)}}``; those of ``mark_dynamic`` are dynamic, too. Such a program takes all sizes of the
        range (from 1 on, unless ``Dim`` has ``min``), and sizes of one name are equal. It is recorded at some of them,
        on repeated elements of ``args``, and the changes of these calls are reverted.

        CaptureError names parts that cannot be saved; ValueError for a ``kind`` or level that does not exist, and for a
        size without an end.

        >>> import tracecomp, tempfile, os
        >>> double = tracecomp.compile(lambda x: x * 2)
        >>> path = os.path.join(tempfile.mkdtemp(), "double.tcp")
        >>> digest = double.save(path, tracecomp.ones(3))
        >>> tracecomp.load_program(path, digest=digest)(tracecomp.ones(3))
        tensor([2., 2., 2.])
        """
        digest: str = _above("compiled.saving").save(self, path, args, also, kind, levels, dynamic_shapes)
        return digest

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return recordings and their reasons, fusions and refusals, and memory: an ``inspect.Explanation``.

        With arguments, also the time and bottleneck of each kernel, and the number of calls after which compiling has
        paid. These are measured on copies of all state. ``print`` shows the result.
        """
        return _above("inspect.explain").explained(self, args, kwargs)

    def report(
        self, path: str | os.PathLike[str], *args: Any, against: object = None, errors: bool = False, **kwargs: Any
    ) -> Any:
        """Write all facts to one self-contained HTML file, and a JSON file next to it; return its path.

        With arguments, kernels are measured as in ``explain``. ``against`` is the JSON file of an earlier report: the
        page then begins with the changes. With ``errors``, every node is computed again, in its own type and in
        float64, which takes as long as the interpreter: the page can colour nodes by the distance.
        """
        return _above("inspect.report").write_report(self, path, args, kwargs, against, errors)

    def profile(self, *args: Any, calls: int = 10, **kwargs: Any) -> Profile:
        """Profile a call: time, bytes, operations and share of the machine's peak for each kernel.

        ``calls`` runs are timed, on copies of all state, so nothing changes; a call that is not compiled yet is first
        made until it is. RuntimeError when it does not run as native kernels alone.
        """
        structure, leaves = flatten_call(args, kwargs)
        for _ in range(MAX_UNSETTLED):
            for entry in self.entries:
                if entry.recording.guards.miss(structure, leaves) is None:
                    return self._plan(entry).profile(leaves, calls)
            with config.override(wait=True):
                self(*args, **kwargs)
        raise RuntimeError(f"profile(): {self._name} was not compiled: {self.eager_because or self.misses[-1:]}")


class HotCall(Compiled):
    """A call that the program did not ask to compile: the first graph break makes it eager, without a warning."""

    __slots__ = ()
    quiet = whole = True


def _above(module: str) -> Any:
    """Import a module of a higher layer, which inspects or saves compiled functions, on first use."""
    return load_module(f"tracecomp.{module}")


def compile(
    model: object = None,
    *,
    fullgraph: bool = False,
    threads: int | None = None,
    backend: str = "native",
    dynamic: bool | None = None,
    fast_math: bool = False,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    disable: bool = False,
    checked: bool = False,
    verify: str | int | None = None,
    mismatch: str = "raise",
    wait: bool = False,
) -> Any:
    """Record ``model`` (a function or module) in its first call and run it natively when a call fits; also a decorator.

    With ``fullgraph=False``, parts that cannot be captured run eagerly after a warning instead of raising CaptureError.
    ``backend`` is ``"native"`` or ``"interpret"``. Sizes in which a call differs from an earlier one become dynamic, so
    that one recording serves all of them, if the program permits it. With ``dynamic=True`` all sizes are dynamic from
    the first call on, with ``dynamic=False`` none (docs/capture.md). ``fast_math=True`` allows other rounding: products
    and sums fused, sums regrouped, ``tanh`` and ``erf`` of floats to 5 ULP (docs/numerics.md). ``checked=True`` checks
    every access and result of compiled programs, which then are slow (docs/testing.md): its findings raise CheckError,
    state being as before the call. ``mode`` and ``options`` are PyTorch's and change nothing here.

    Large programs are compiled in another process. Calls run eagerly meanwhile, with the same results. With
    ``wait=True`` they wait for the compiler; ``compiled.wait()`` returns when everything recorded so far is compiled.

    ``verify`` compares calls with eager ones, results and state: ``"first"`` the first that runs from a recording, a
    number every so many calls; TRACECOMP_CHECK=calls:100 does so for all functions. WrongResult where bits differ; with
    ``mismatch="warn"`` a warning.
    """
    if verify is None and not disable:
        verify = config.current().check_calls
    if model is None:
        return partial(
            compile, fullgraph=fullgraph, threads=threads, backend=backend, dynamic=dynamic, fast_math=fast_math,
            disable=disable, checked=checked, verify=verify, mismatch=mismatch, wait=wait,
        )  # fmt: skip
    return Compiled(
        model, fullgraph=fullgraph, threads=threads, backend=backend, dynamic=dynamic, fast_math=fast_math,
        disable=disable, checked=checked, verify=verify, mismatch=mismatch, wait=wait,
    )  # fmt: skip


def trace(fn: Callable[..., object], *args: Any, **kwargs: Any) -> Graph:
    """The graph of ``fn(*args, **kwargs)``, which is run once. CaptureError when it cannot be captured."""
    _, recording = record(fn, args, kwargs, getattr(fn, "__name__", type(fn).__name__), derive=False)
    assert isinstance(recording, Recording)
    return recording.graph


__all__ = ["Compiled", "compile", "trace"]
