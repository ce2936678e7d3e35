"""Random programs in a changing environment: ``python -m tests.fuzz.ambient --minutes 10 --seed 0``.

A program is a function made of lines of ``ambient_lines.py``, called several times. Calls differ in dtype and size, in
the transform around them (gradients, ``vmap``, ``jvp``, a backward pass), and in ambient state: gradient mode, default
dtype, autocast, seed, threads. Kinds of calls repeat, so that recordings serve calls: the last line of the command says
how many. Compared with eager mode, in bits: results, errors, gradients, what became of the arguments, and the ambient
state after the call. With PyTorch, if it is installed: values, where it has the operators.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import warnings
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

import tracecomp
from tests.fuzz.ambient_lines import LINES, SETUP
from tests.fuzz.command import by_command, smallest
from tracecomp.inspect.graph_runs import Unhurried

DTYPES = ("float32",) * 6 + (
    "float64", "bfloat16", "float16", "complex64", "bool", "int64", "uint8", "uint16", "int8",
)  # fmt: skip
SIZES = ((3, 4), (3, 4), (3, 4), (2, 4), (5, 2), (1, 4), (4, 4), (7, 3), (0, 4))
AMBIENT = ("no_grad", "float64", "autocast", "seed", "threads", "inference", "device")
AROUND = ("plain",) * 5 + ("backward",) * 3 + ("grad", "grad", "vmap", "jvp", "vmap of grad", "thread mode")
ASKS_FLOATS = ("backward", "grad", "jvp", "vmap of grad")
FLOATS = ("float32", "float32", "float64", "bfloat16")
HAS_TORCH = importlib.util.find_spec("torch") is not None
HALVES = ("bfloat16", "float16")
SHARED = ("reset",) * 5 + ("kept",) * 4 + ("new",)
"""The object ``s`` of a call: one object with its first attributes, one as the last call left it, or a new one."""
SERVED: Counter[str] = Counter()
"""Calls of compiled functions, and those that recordings served."""


@dataclass(frozen=True)
class Call:
    """The arguments of a call, and its surroundings."""

    dtype: str
    size: tuple[int, int]
    n: int
    ambient: tuple[str, ...] = ()
    around: str = "plain"
    attributes: bool = False


@dataclass(frozen=True)
class Program:
    lines: tuple[str, ...]
    calls: tuple[Call, ...]
    shared: str = "new"

    def text(self) -> str:
        body = "\n".join("    " + part for line in self.lines for part in line.split("\n"))
        return f"def step(x, y, n, s):\n    out = []\n{body}\n    return out\n"


def generate(seed: int) -> Program:
    """The program of ``seed``."""
    r = random.Random(seed)
    lines = tuple(r.choice(LINES) for _ in range(r.choice((1, 1, 2, 2, 3, 4))))
    dtypes = (r.choice(DTYPES), r.choice(DTYPES)) if r.random() < 0.3 else (r.choice(DTYPES),)
    sizes = (SIZES[0], r.choice(SIZES), r.choice(SIZES)) if r.random() < 0.4 else (r.choice(SIZES),)
    arounds = (r.choice(AROUND), r.choice(AROUND)) if r.random() < 0.4 else (r.choice(AROUND),)
    changing = r.random() < 0.5
    kinds = []
    for _ in range(r.choice((1, 2, 2, 3))):
        ambient = tuple(a for a in AMBIENT if r.random() < 0.2) if changing else ()
        n = r.choice((1, 2, 3)) if r.random() < 0.3 else 2
        around, dtype = r.choice(arounds), r.choice(dtypes)
        if around in ASKS_FLOATS and dtype not in FLOATS and r.random() < 0.9:
            dtype = r.choice(FLOATS)
        kinds.append(Call(dtype, r.choice(sizes), n, ambient, around, r.random() < 0.3))
    # A recording is compiled when a second call fits, and serves calls without Python from the third on.
    calls = [c for c in kinds for _ in range(r.choice((1, 2, 3)))]
    calls += [r.choice(kinds) for _ in range(r.choice((1, 2, 3)))]
    return Program(lines, tuple(calls), r.choice(SHARED))


class World:
    """A program in one library, with its own module."""

    def __init__(self, torch: Any, p: Program, compiled: bool = False) -> None:
        self.torch = torch
        self.space: dict[str, Any] = {"torch": torch, "np": np, "__name__": "ambient"}
        exec(compile(SETUP + p.text(), "<ambient>", "exec"), self.space)
        self.step: Any = self.space["step"]
        self.shared = None if p.shared == "new" else SimpleNamespace()
        self.keeps = p.shared == "kept"
        if compiled:
            self.step = Unhurried(self.step)

    def call(self, c: Call) -> Any:
        """Everything that is seen of a call."""
        torch = self.torch
        size = int(np.prod(c.size))
        values = (np.arange(2 * size) * 5 % 7 - 2).reshape(2, *c.size) * (1 if _whole(c.dtype) else 0.75)
        x, y = (self._tensor(v, c.dtype) for v in values)
        s = self._shared(y)
        if c.attributes:
            x.mark, s.extra = 2.0, c.n
        torch.manual_seed(3)
        with ExitStack() as stack:
            for name in c.ambient:
                self._enter(stack, name)
            try:
                found = self._around(c, x, y, s)
            except Exception as error:  # any error of the program is compared
                found = type(error)
            state = [
                torch.is_grad_enabled(), str(torch.get_default_dtype()), torch.is_autocast_enabled("cpu"),
                torch.is_inference_mode_enabled(), torch.get_num_threads(),
            ]  # fmt: skip
            random_state = None if torch is not tracecomp or isinstance(found, type) else torch.get_rng_state()
            if "inference" not in c.ambient:
                torch.set_grad_enabled("no_grad" not in c.ambient)
        marks = [getattr(x, "mark", None), getattr(y, "mark", None)]
        return shown(
            [found, x, y, None if x.grad is None else x.grad, vars(s), self.space["LOG"], marks, state, random_state]
        )

    def served(self) -> int:
        """How many calls the recordings of the compiled function have served."""
        return sum(e.calls() for e in self.step.entries)

    def _shared(self, y: Any) -> SimpleNamespace:
        """The object ``s`` of a call."""
        s = SimpleNamespace() if self.shared is None else self.shared
        if not self.keeps or not vars(s):
            vars(s).clear()
            vars(s).update(k=1.5, t=y * 1, items=[], count=0)
        return s

    def _tensor(self, values: Any, dtype: str) -> Any:
        if dtype == "uint16":
            return self.torch.from_numpy(np.abs(values).astype(np.uint16))
        return self.torch.tensor(np.abs(values) if dtype == "uint8" else values).to(getattr(self.torch, dtype))

    def _enter(self, stack: ExitStack, name: str) -> None:
        torch = self.torch
        if name == "no_grad":
            stack.enter_context(torch.no_grad())
        elif name == "inference":
            stack.enter_context(torch.inference_mode())
        elif name == "autocast":
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        elif name == "device":
            stack.enter_context(torch.device("cpu"))
        elif name == "float64":
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        elif name == "threads":
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
        else:
            torch.manual_seed(11)

    def _around(self, c: Call, x: Any, y: Any, s: Any) -> Any:
        func = self.torch.func

        def first(v: Any) -> Any:
            found = self.step(v, y, c.n, s)
            return next(t for t in found if isinstance(t, self.torch.Tensor) and t.is_floating_point())

        if c.around == "grad":
            return func.grad(lambda v: first(v).sum())(x)
        if c.around == "vmap":
            return func.vmap(first, randomness="same")(x)
        if c.around == "jvp":
            return func.jvp(first, (x,), (y * 1,))  # PyTorch writes to the tangent of the target
        if c.around == "vmap of grad":
            return func.vmap(func.grad(lambda v: first(v).sum()), randomness="same")(x)
        if c.around == "backward":
            x.requires_grad_()
            found = self.step(x, y, c.n, s)
            roots = [t for t in found if isinstance(t, self.torch.Tensor) and t.requires_grad]
            if roots:
                self.torch.autograd.backward([t.sum() for t in roots if not t.is_complex()])
            return found
        with self.torch.set_grad_enabled(self.torch.is_grad_enabled()) if c.around == "thread mode" else nullcontext():
            return self.step(x, y, c.n, s)


def _whole(dtype: str) -> bool:
    return dtype in ("bool", "int64", "uint8", "uint16", "int8")


def shown(v: Any) -> Any:
    """``v`` in a form that can be compared: tensors as dtype, shape, gradient flags and bytes."""
    if hasattr(type(v), "grad_fn"):
        asks = _flags(v)
        plain = v.detach().resolve_conj().resolve_neg()
        half = str(v.dtype).split(".")[-1] in HALVES
        return (str(v.dtype).split(".")[-1], tuple(v.shape), asks, (plain.float() if half else plain).numpy().copy())
    if isinstance(v, np.ndarray):
        return (str(v.dtype), v.shape, (), v.copy())
    if isinstance(v, dict):
        return {k: shown(x) for k, x in v.items()}
    if isinstance(v, list | tuple):
        return [shown(x) for x in v]
    if isinstance(v, type):
        return v.__name__
    if isinstance(v, SimpleNamespace):
        return shown(vars(v))
    return v if isinstance(v, int | float | complex | str | bytes | None) else str(v).replace("tracecomp", "torch")


def _flags(t: Any) -> tuple[object, ...]:
    """The gradient flags of a tensor. A view made in inference mode forbids reads after a write to its base."""
    try:
        return (t.requires_grad, t.is_leaf, t.is_inference())
    except RuntimeError as error:
        return (type(error).__name__, t.is_inference())


def unequal(a: Any, b: Any, exact: bool, loose: bool = False) -> str | None:
    """Return where two forms of ``shown`` differ; ``loose`` ones have the precision of bfloat16."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        if a[:2] != b[:2] or (exact and a[2] != b[2]):
            return f"{a[:3]} instead of {b[:3]}"
        if exact:
            same = a[3].tobytes() == b[3].tobytes() or _same_but_nan(a[3], b[3])
        else:
            loose = loose or a[0] in HALVES
            same = np.allclose(a[3], b[3], rtol=5e-2 if loose else 1e-3, atol=5e-2 if loose else 1e-4, equal_nan=True)
        return None if same else f"{a[3].tolist()} instead of {b[3].tolist()}"
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next((f"{k}: {d}" for k in a if (d := unequal(a[k], b[k], exact, loose)) is not None), None)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return next((f"[{i}] {d}" for i, (x, y) in pairs if (d := unequal(x, y, exact, loose)) is not None), None)
    if isinstance(a, float) and isinstance(b, float):
        return None if np.isclose(a, b, equal_nan=True) else f"{a} instead of {b}"
    return None if type(a) is type(b) and a == b else f"{str(a)[:200]} instead of {str(b)[:200]}"


def _differs(line: str) -> bool:
    """Whether PyTorch does something else: random numbers, and ``linearize``, whose results have no history there."""
    return any(word in line for word in ("rand", "dropout", "linearize"))


def _has_own_rule(lines: tuple[str, ...], c: Call) -> bool:
    """Whether PyTorch's ``vmap`` gives other shapes.

    ``resize_as_`` has no rule there: copies are resized, and the tensor keeps its shape. ``squeeze_()`` also removes a
    batch dimension of size 1. ``interpolate`` of an empty batch has another empty dimension.
    """
    if "vmap" not in c.around:
        return False
    of_size = {0: "interpolate", 1: "squeeze_()"}.get(c.size[0], "resize_as_")
    return any("resize_as_" in line or of_size in line for line in lines)


def _without_zeros(seen: list[Any], lines: tuple[str, ...]) -> list[Any]:
    """``seen`` with None for a gradient that is zero within the tolerance of ``unequal``, if a line uses forward mode.

    PyTorch's rule for products multiplies an operand by a tangent of zeros. The tangent of a linear function then
    depends on the operand, whose gradient is zero instead of None. Other lines may add rounding errors to it, such as
    those of the gradient of a softmax's sum.
    """
    if not any(word in line for line in lines for word in ("jacfwd", "jvp", "hessian", "dual")):
        return seen
    grad = seen[3]
    is_zero = grad is not None and unequal(grad, (*grad[:3], np.zeros_like(grad[3])), exact=False) is None
    return [*seen[:3], None if is_zero else grad, *seen[4:]]


def _same_but_nan(a: Any, b: Any) -> bool:
    """Whether arrays are equal in bits apart from NaN, whose sign and payload have no meaning."""
    if a.dtype.kind == "c":
        return _same_but_nan(a.real, b.real) and _same_but_nan(a.imag, b.imag)
    zeros_agree = (np.signbit(a) == np.signbit(b)) | np.isnan(a) if a.dtype.kind == "f" else False
    return bool(np.array_equal(a, b, equal_nan=True) and np.all(zeros_agree))


def check(p: Program, ways: tuple[str, ...] = ("torch", "compiled")) -> str | None:
    """The first difference between compiled and eager mode, or eager mode and PyTorch."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        eager = World(tracecomp, p)
        wanted = [eager.call(c) for c in p.calls]
        if "compiled" in ways:
            compiled = World(tracecomp, p, compiled=True)
            for n, c in enumerate(p.calls):
                found = unequal(compiled.call(c), wanted[n], exact=True)
                if found is not None:
                    return f"compiled: call {n}: {found[:500]}"
            SERVED.update(calls=len(p.calls), served=compiled.served())
        if "torch" in ways and HAS_TORCH and not any(map(_differs, p.lines)):
            import torch

            theirs = World(torch, p)
            for n, c in enumerate(p.calls):
                try:
                    seen = theirs.call(c)
                except RuntimeError:  # a tensor left a function of ``torch.func``
                    return None
                # PyTorch has other operators for a dtype, and special rules for inference tensors in transforms.
                if isinstance(seen[0], str) or isinstance(wanted[n][0], str) or "inference" in c.ambient:
                    return None
                if _has_own_rule(p.lines, c):
                    return None
                ours, seen = (_without_zeros(v[:-1], p.lines) for v in (wanted[n], seen))
                # PyTorch rounds the products of a backward pass under autocast, too.
                found = unequal(ours, seen, exact=False, loose="autocast" in c.ambient)
                if found is not None:
                    return f"torch: call {n}: {found[:500]}"
    return None


def smaller(p: Program) -> list[Program]:
    """Programs that are a little simpler than ``p``."""
    found = [replace(p, lines=p.lines[:k] + p.lines[k + 1 :]) for k in range(len(p.lines)) if p.lines[1:]]
    found += [replace(p, shared="new")] if p.shared != "new" else []
    found += [replace(p, calls=p.calls[:k] + p.calls[k + 1 :]) for k in range(len(p.calls)) if p.calls[1:]]
    for k, c in enumerate(p.calls):
        simpler = [replace(c, ambient=c.ambient[:j] + c.ambient[j + 1 :]) for j in range(len(c.ambient))]
        simpler += [replace(c, around="plain"), replace(c, dtype="float32"), replace(c, size=(3, 4)), replace(c, n=2)]
        simpler += [replace(c, attributes=False)]
        found += [replace(p, calls=(*p.calls[:k], d, *p.calls[k + 1 :])) for d in simpler if d != c]
    return found


def difference(seed: int, ways: tuple[str, ...] = ("torch", "compiled")) -> str | None:
    """Return the difference that the program of a seed shows, reduced; None if there is none."""
    p = generate(seed)
    found = check(p, ways)
    if found is None:
        return None
    way = found.split(":")[0]
    p, found = smallest(p, lambda q: check(q, (way,)), smaller)
    return f"seed {seed}:\n{p.text()}    {p.calls}, s {p.shared}\n    {found}"


if __name__ == "__main__":
    failed = by_command(__doc__ or "", "programs", difference)
    print(f"recordings served {SERVED['served']} of {SERVED['calls']} calls")
    sys.exit(failed)
