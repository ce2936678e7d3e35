"""The public part of ``torch._dynamo.testing``: backends that count, and comparison of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tracecomp import compiled
from tracecomp._dynamo.counting import counted, with_parts
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.graph import Graph


class CompileCounterWithBackend:
    """``backend=`` that counts: ``frame_count`` recordings, with those of parts, and ``op_count`` operators in them.

    A call with other shapes, types or values that the program reads makes a recording, like a frame of PyTorch's.
    Varying sizes are dynamic from the second one on. Operators are those of the graph.

    >>> import tracecomp as torch
    >>> from tracecomp._dynamo.testing import CompileCounterWithBackend
    >>> counter = CompileCounterWithBackend("inductor")
    >>> f = torch.compile(lambda x: (x * 2).sum(), backend=counter)
    >>> f(torch.ones(3)), f(torch.ones(3)), counter.frame_count, counter.op_count
    (tensor(6.), tensor(6.), 1, 2)
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._functions: list[compiled.Compiled] = []
        self.clear()

    def watch(self, made: compiled.Compiled) -> None:
        """Count the recordings of ``made``."""
        self._functions.append(made)

    @property
    def frame_count(self) -> int:
        return self._count("unique_graphs") - self._frames

    @frame_count.setter
    def frame_count(self, count: int) -> None:
        self._frames = self._count("unique_graphs") - count

    @property
    def op_count(self) -> int:
        return self._count("calls_captured") - self._ops

    @op_count.setter
    def op_count(self, count: int) -> None:
        self._ops = self._count("calls_captured") - count

    @property
    def graphs(self) -> list[Graph]:
        """The graphs in use."""
        return [g for f in self._functions for c in with_parts(f) for g in c.graphs]

    def clear(self) -> None:
        """Reset the counts."""
        self.frame_count = self.op_count = 0

    def _count(self, name: str) -> int:
        return counted(c for f in self._functions for c in with_parts(f))["stats"][name]


class CompileCounter(CompileCounterWithBackend):
    """``CompileCounterWithBackend("eager")``."""

    def __init__(self) -> None:
        super().__init__("eager")


def same(
    ref: Any, res: Any, fp64_ref: object = None, cos_similarity: bool = False, tol: float = 1e-4,
    equal_nan: bool = False, exact_dtype: bool = True, **options: object,
) -> bool:  # fmt: skip
    """Whether two results, with equal nesting, are equal up to ``tol``; with ``cos_similarity``, whether directions
    are.

    ``fp64_ref`` and ``options`` loosen the comparison of low precision in PyTorch, and have no effect here.
    """

    def go(a: Any, b: Any) -> bool:
        return same(a, b, None, cos_similarity, tol, equal_nan, exact_dtype)

    # Containers must match fully; only numbers are compared with a tolerance.
    if isinstance(ref, Tensor):
        if not isinstance(res, Tensor) or ref.shape != res.shape or (exact_dtype and ref.dtype is not res.dtype):
            return False
        a, b = (_numbers(t) for t in (ref, res))
        if cos_similarity:
            lengths = np.linalg.norm(a) * np.linalg.norm(b)
            return bool(lengths == 0 or np.vdot(a, b).real / lengths >= 0.99)
        return bool(np.allclose(b, a, rtol=tol, atol=tol, equal_nan=equal_nan))
    if isinstance(ref, list | tuple):
        return isinstance(res, list | tuple) and len(ref) == len(res) and all(map(go, ref, res))
    if isinstance(ref, Mapping):
        return isinstance(res, Mapping) and ref.keys() == res.keys() and all(go(ref[k], res[k]) for k in ref)
    if is_dataclass(ref):
        return type(ref) is type(res) and all(go(getattr(ref, f.name), getattr(res, f.name)) for f in fields(ref))
    if isinstance(ref, float | np.ndarray):
        return bool(np.allclose(ref, res, rtol=tol, atol=tol, equal_nan=equal_nan))
    return bool(ref == res)


def _numbers(t: Tensor) -> np.ndarray[Any, Any]:
    """The values as float64 or complex128, flattened."""
    array = t.detach().numpy() if t.is_complex() else t.detach().double().numpy()
    return array.reshape(-1)
