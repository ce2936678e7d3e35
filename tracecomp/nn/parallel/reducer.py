"""Gradients of a model in several processes: buckets, sent while the rest of the backward pass still runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.communication import combine
from tracecomp.communication.group import Group
from tracecomp.communication.work import Work
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.ir.op import OPS
from tracecomp.ops.prim import prim

Array = np.ndarray[Any, Any]
Hook = Callable[[Any, "GradBucket"], Any]

_FIRST = 1 << 20
"""Bytes of the first bucket, small so that sending begins early."""


class Bucket:
    """Parameters of one dtype whose gradients are sent together, in the order in which they are likely to be ready."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = list(params)
        self.waiting: set[int] = set()
        self.rearm()

    def rearm(self) -> None:
        """Reset to wait for all gradients."""
        self.waiting = {id(p) for p in self.params}

    def joined(self, grads: Sequence[Tensor | None]) -> Tensor:
        """Concatenate gradients; zeros for missing ones."""
        pairs = zip(self.params, grads, strict=True)
        flat = [(T.zeros_like(p) if g is None else g).reshape(-1) for p, g in pairs]
        return flat[0].clone() if len(flat) == 1 else T.cat(flat)

    def split(self, flat: Tensor) -> list[Tensor]:
        """Split concatenated gradients."""
        pieces = flat.split([p.numel() for p in self.params])
        return [piece.reshape(p.shape) for p, piece in zip(self.params, pieces, strict=True)]


def buckets_of(params: Sequence[Tensor], cap: int) -> list[Bucket]:
    """Buckets of at most ``cap`` bytes, the first of a megabyte; the last parameters first."""
    found: list[Bucket] = []
    held: dict[Any, list[Tensor]] = {}
    for p in reversed(params):
        row = held.setdefault(p.dtype, [])
        row.append(p)
        if sum(q.nbytes for q in row) >= (cap if found else min(cap, _FIRST)):
            found.append(Bucket(held.pop(p.dtype)))
    return [*found, *(Bucket(row) for row in held.values())]


class GradBucket:
    """The argument of a communication hook: the concatenated gradients of a bucket."""

    def __init__(self, bucket: Bucket, index: int, count: int, buffer: Tensor) -> None:
        self._bucket, self._index, self._count, self._buffer = bucket, index, count, buffer

    def index(self) -> int:
        return self._index

    def buffer(self) -> Tensor:
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        return self._bucket.split(self._buffer)

    def parameters(self) -> list[Tensor]:
        return self._bucket.params

    def is_last(self) -> bool:
        return self._index == self._count - 1


class Reducer:
    """Replace the gradients of ``params`` by their mean over the group, once a backward pass has computed them all.

    A bucket is sent when it and the previous ones are complete, so all processes send in the same order.
    """

    def __init__(self, params: Sequence[Tensor], group: Group, cap: int, views: bool) -> None:
        self.group, self.views = group, views
        self.buckets = buckets_of(params, cap)
        self.enabled = True
        self.find_unused = False
        self.hook: tuple[Any, Hook] | None = None
        self._of = {id(p): b for b in self.buckets for p in b.params}
        self.divisor: int | None = None  # divisor of a mean, if it is not the number of processes
        self._started: list[Callable[[], Tensor]] = []
        self._unused: set[int] = set()
        for p in params:
            p.register_post_accumulate_grad_hook(self._arrived)

    @property
    def unfinished(self) -> list[Tensor]:
        """Parameters whose gradients are missing in an unfinished pass; empty between passes."""
        left = [p for b in self.buckets for p in b.params if id(p) in b.waiting]
        return left if len(left) < len(self._of) else []

    def restart(self) -> None:
        """Drop an unfinished pass."""
        self._started.clear()
        self._unused.clear()
        for bucket in self.buckets:
            bucket.rearm()

    def ready_without(self, unused: Sequence[Tensor]) -> None:
        """Exclude the gradients of parameters that a pass does not use."""
        self._unused = {id(p) for p in unused}
        for p in unused:
            self._of[id(p)].waiting.discard(id(p))

    def _arrived(self, param: Tensor) -> None:
        if not self.enabled:
            return
        bucket = self._of[id(param)]
        bucket.waiting.discard(id(param))
        while len(self._started) < len(self.buckets) and not self.buckets[len(self._started)].waiting:
            index = len(self._started)
            self._started.append(self._start(index, [p.grad for p in self.buckets[index].params]))
        if len(self._started) == len(self.buckets):
            self._finish()

    def answer(self) -> None:
        """Take part in a pass of other processes, with zeros."""
        started = [self._start(i, [None] * len(b.params)) for i, b in enumerate(self.buckets)]
        self._unused = {*self._of}
        self._used_somewhere()
        for get in started:
            get()
        self.restart()

    def _start(self, index: int, grads: Sequence[Tensor | None]) -> Callable[[], Tensor]:
        """Send a bucket; return the function that waits for the mean."""
        bucket = self.buckets[index]
        with no_grad():
            flat = bucket.joined(grads)
        if self.hook is not None:
            state, hook = self.hook
            future = hook(state, GradBucket(bucket, index, len(self.buckets), flat))
            return lambda: _first(future.wait() if hasattr(future, "wait") else future.result())
        get, factor = mean_over(self.group, [flat], self.group.size()), self.group.size() / (self.divisor or 1)
        return get if self.divisor is None else lambda: get() * factor

    def _finish(self) -> None:
        """Wait for all buckets, and write gradients."""
        used = self._used_somewhere()
        with no_grad():
            for bucket, get in zip(self.buckets, self._started, strict=True):
                for param, grad in zip(bucket.params, bucket.split(get()), strict=True):
                    if used is not None and id(param) not in used:
                        continue
                    if param.grad is None or self.views:
                        param.grad = grad
                    else:
                        param.grad.copy_(grad)
        self.restart()

    def _used_somewhere(self) -> set[int] | None:
        """Parameters that some process has used; None if not needed."""
        if not self.find_unused:
            return None
        order = [p for b in self.buckets for p in b.params]
        flags = T.tensor([0 if id(p) in self._unused else 1 for p in order])
        with no_grad():
            total = prim.all_reduce(flags, op="SUM", group=self.group.group_name, total=self.group.size())
        return {id(p) for p, count in zip(order, total.tolist(), strict=True) if count}


def mean_over(group: Group, leaves: Sequence[Tensor], total: int) -> Callable[[], Tensor]:
    """Start the mean of ``leaves`` over all ``total`` leaves of the group; return the function that waits for it.

    ``leaves`` are those of this process, or sums of them (``sums_of_nodes``). They are summed along the tree over
    leaves, then divided. During recording it is a node of the graph.
    """
    attrs: dict[str, Any] = {"op": "AVG", "group": group.group_name, "total": total}
    if modes.recorder is not None or group.size() == 1:
        with no_grad():
            found = prim.all_reduce(*leaves, **attrs)
        return lambda: found
    arrays, impl = [leaf._data for leaf in leaves], OPS["all_reduce"].impl
    work = Work(group.worker.submit(lambda: impl(*arrays, **attrs)), wrap)
    return lambda: work.result()


def sums_of_nodes(
    leaves: Sequence[Sequence[Tensor | None]], own: combine.Node, total: int
) -> Sequence[Sequence[Tensor | None]]:  # fmt: skip
    """Gradients of the leaves ``own``, added up to the largest nodes of the tree over all ``total`` leaves.

    Unlike the sums of ``mean_over``, these are part of a recorded graph: the addition becomes the epilogue of the
    product that computes a gradient. A process stores one gradient for each node instead of one for each leaf.
    """
    with no_grad():
        known = combine.of_leaves(leaves, own[0])
        return [combine.folded(_row_sums, node, known) for node in combine.parts(total, own)]


def _row_sums(left: Sequence[Tensor | None], right: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Elementwise sums. A missing gradient is zero, which may change the sign of the other's zeros."""
    pairs = zip(left, right, strict=True)
    return [_sum(b, a) if a is None else _sum(a, b) for a, b in pairs]


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None else first + (T.zeros_like(first) if second is None else second)


def _first(value: Any) -> Tensor:
    """The tensor in a hook's future, alone or in a list."""
    return value[0] if isinstance(value, list | tuple) else value
