"""Logical shards of a global batch: computed one by one and summed along one tree, so that bits do not depend on the
number of processes.

The global batch is split into S shards, for any number of processes. A shard is what a process is in PyTorch: sizes
and numbers that a program sees are those of one shard. Each shard has a separate view of every parameter and separate
random numbers. Values common to shards (gradients, batch statistics) are combined by the primitive ``all_reduce``,
whose leaves are the shards.
"""

from __future__ import annotations

import hashlib
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.autograd.function import Function
from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import share
from tracecomp.communication.group import Group
from tracecomp.eager.modes import grad_enabled, modes, no_grad
from tracecomp.eager.overrides import DisableTorchFunction, TorchFunctionMode
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.parallel.reducer import Bucket, buckets_of, mean_over, sums_of_nodes
from tracecomp.nn.parallel.shard_values import Shards, seen, together
from tracecomp.ops.prim import prim

_STREAM = 0x2545F4914F6CDD1D
"""Difference of the seeds of neighbouring shards."""
_DRAWS = 1 << 32
"""Blocks of random numbers that one function may draw."""


class Buckets:
    """The buckets of one model's parameters."""

    def __init__(self, params: Sequence[Tensor], cap: int) -> None:
        self.of = {id(p): b for b in buckets_of(params, cap) for p in b.params}


class ShardPlan:
    """The group, the shards of this process, and the buckets of the models that are trained on them."""

    def __init__(self, group: Group, total: int) -> None:
        if total < group.size():
            raise ValueError(at_user_line(f"{total} shards are fewer than {group.size()} processes"))
        self.group, self.total = group, total
        self.own = range(*share(total, group.rank(), group.size()))
        self.places = range(len(self.own))
        self._models: weakref.WeakSet[Buckets] = weakref.WeakSet()

    def add(self, params: Sequence[Tensor], cap: int) -> Buckets:
        """Include the parameters of a model for as long as the result is referenced."""
        made = Buckets(params, cap)
        self._models.add(made)
        return made

    def bucket_of(self, param: object) -> Bucket | None:
        """The bucket of a parameter; None for other objects."""
        return next((b for model in self._models if (b := model.of.get(id(param))) is not None), None)

    def batches(self, each: Iterator[Any]) -> Iterator[Any]:
        """Combine the batches of this process's shards, which follow each other, into one of ``Shards``."""
        while row := [*itertools.islice(each, len(self.own))]:
            yield together(row, ShardPass(self))

    def begun(self) -> ShardPass:
        """Return a new pass."""
        return ShardPass(self)

    def check_same(self, what: str, values: Sequence[Any]) -> None:
        """RuntimeError unless all processes have the same values, which then are those of every shard."""
        if modes.recorder is not None:
            modes.recorder.refuse_here(f"calls {what} with a tensor that is not computed from shards", Section.EXCLUDE)
        digest = hashlib.sha256()
        for t in values:
            digest.update(t.detach().numpy().tobytes())
        mine = np.frombuffer(digest.digest(), np.uint8)
        bodies = self.group.worker.run(lambda: self.group.gather_bytes(mine, what))
        if any(body.tobytes() != mine.tobytes() for body in bodies):
            raise RuntimeError(
                at_user_line(
                    f"{what}: the processes hold different values, so the result would depend on their number. "
                    "Compute the tensor from batches of a DataLoader with a DistributedSampler"
                )
            )

    def cut(self, tensors: Sequence[Tensor]) -> list[Shards]:
        """Split the rows of this process into its shards, for one pass."""
        begun, count = ShardPass(self), len(self.own)
        for t in tensors:
            if not isinstance(t, Tensor) or not t.ndim or t.shape[0] % count:
                what = f"shape {list(t.shape)}" if isinstance(t, Tensor) else type(t).__name__
                raise ValueError(at_user_line(f"shard(): {what} cannot be cut into {count} equal shards along axis 0"))
        return [Shards(list(t.chunk(count)), begun) for t in tensors]


class ShardPass:
    """One pass of the shards of this process: their views of parameters, and their random numbers.

    It belongs to its initial shards and to values computed from them.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self.plan = plan
        self._views: dict[int, list[Tensor]] | None = None
        self._numbers: _Numbers | None = None

    def view(self, param: Tensor | Shards, i: int) -> Tensor:
        """Return the ``i``-th shard's view of a parameter; other tensors unchanged."""
        if isinstance(param, Shards):
            part: Tensor = param.parts[i]
            return part
        bucket = self.plan.bucket_of(param)
        if bucket is None and param.requires_grad and grad_enabled():
            raise RuntimeError(
                at_user_line(
                    f"a tensor of shape {list(param.shape)} that needs gradients is combined with shards, but is not a "
                    "parameter of the model. Compute it from shards, or from the parameters of each shard"
                )
            )
        if bucket is None or not grad_enabled():
            return param
        views = {} if self._views is None else self._views
        if id(param) not in views:
            with DisableTorchFunction():
                found = _Spread.apply(self.plan, bucket, *bucket.params)
            count = len(bucket.params)
            for j, p in enumerate(bucket.params):
                views[id(p)] = [found[k * count + j] for k in self.plan.places]
        return views[id(param)][i]

    def has(self, value: object) -> bool:
        """Whether parameters of the model, or shards, are among arguments."""
        if isinstance(value, dict):
            return any(map(self.has, value.values()))
        if isinstance(value, list | tuple):
            return any(map(self.has, value))
        return isinstance(value, Shards) or self.plan.bucket_of(value) is not None

    def each(self, func: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Run ``func`` for each shard, with its views of parameters and its random numbers."""
        found = []
        numbers = self._numbers_now()
        with self._with_views(), numbers:
            for i in self.plan.places:
                numbers.begin(i)
                found.append(func(*seen(args, i, self), **seen(named, i, self)))
        return together(found, self)

    def _numbers_now(self) -> _Numbers:
        """Return the numbers of the next function: those of the last one if it drew none."""
        if modes.recorder is not None:  # equal nodes are one node, and a recorded call leaves nothing behind
            return _Numbers(self.plan.own)
        if self._numbers is None or not self._numbers.are_current():
            self._numbers = _Numbers(self.plan.own)
        return self._numbers

    @contextmanager
    def _with_views(self) -> Iterator[None]:
        """A context in which the shards share one set of views of parameters."""
        before = self._views
        self._views = {} if before is None else before
        try:
            yield
        finally:
            self._views = before

    @contextmanager
    def parameters(self) -> Iterator[None]:
        """The context of a forward pass, in which computations on parameters alone also run for each shard.

        Every forward pass has its own views of parameters, so that it may have its own backward pass.
        """
        with _Parameters(self), self._with_views():
            yield

    def mean(self, value: Shards) -> Tensor:
        """The mean over all shards of all processes, without gradient; float64 for integers."""
        known = value.known_mean()
        return self.start_mean(value)() if known is None else known

    def start_mean(self, value: Shards) -> Callable[[], Tensor]:
        """Start to compute the mean; return the function that waits for it."""
        with no_grad():
            parts = [t.detach() for t in value.parts]
            if not (parts[0].is_floating_point() or parts[0].is_complex()):
                parts = [t.double() for t in parts]
            return mean_over(self.plan.group, parts, self.plan.total)

    def summed(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """For each shard of this process, the sum over all shards of all processes; differentiable."""
        found = _Summed.apply(self.plan, *parts)
        return list(found)


class _Numbers:
    """Random numbers of each shard for one function, at the current state of the default generator.

    A function that draws advances the default generator by a fixed number of blocks, however many numbers the shards of
    this process draw. So the default generator is equal in all processes, and it is all of the random state: programs
    save, restore and seed it as in PyTorch, and batches that a resumed program skips draw nothing.
    """

    def __init__(self, shards: range) -> None:
        self._base = default_generator.state
        self._version = self._base._version
        with no_grad():
            self._states = [self._base + T.tensor([_signed(_STREAM * (i + 1)), 0]) for i in shards]
        self._versions = [state._version for state in self._states]

    def are_current(self) -> bool:
        """Whether the default generator is unchanged, so that these numbers serve another function."""
        base = default_generator.state
        return base is self._base and base._version == self._version

    def __enter__(self) -> None:
        """Nothing to do until the first shard begins."""

    def begin(self, i: int) -> None:
        """Draw from the numbers of the ``i``-th shard."""
        default_generator.state = self._states[i]

    def __exit__(self, *error: object) -> None:
        default_generator.state = self._base
        if [state._version for state in self._states] != self._versions:
            default_generator.advance(_DRAWS)


def _signed(word: int) -> int:
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


class _Spread(Function):
    """The parameters of a bucket once for each shard; the backward is the mean over all shards."""

    @staticmethod
    def forward(ctx: Any, plan: ShardPlan, bucket: Bucket, *params: Tensor) -> tuple[Tensor, ...]:
        ctx.plan, ctx.bucket = plan, bucket
        ctx.set_materialize_grads(False)
        return tuple(p.detach() for _ in plan.own for p in params)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        bucket, plan, count = ctx.bucket, ctx.plan, len(ctx.bucket.params)
        used = [any(grads[k * count + j] is not None for k in plan.places) for j in range(count)]
        leaves = [grads[k * count : (k + 1) * count] for k in plan.places]
        rows = [bucket.joined(row) for row in sums_of_nodes(leaves, (plan.own.start, plan.own.stop), plan.total)]
        flat = mean_over(plan.group, rows, plan.total)()
        return (None, None, *(g if u else None for g, u in zip(bucket.split(flat), used, strict=True)))


class _Summed(Function):
    """Give every shard the sum over all shards, which is also its derivative."""

    @staticmethod
    def forward(ctx: Any, plan: ShardPlan, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.plan = plan
        total = prim.all_reduce(*parts, op="SUM", group=plan.group.group_name, total=plan.total)
        return tuple(total.clone() for _ in parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *_Summed.apply(ctx.plan, *grads))


class _Parameters(TorchFunctionMode):
    """Replace parameters of the model by the current shard's views."""

    def __init__(self, context: ShardPass) -> None:
        self._context = context

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        if grad_enabled() and self._context.has((args, named)):
            return self._context.each(func, args, named)
        return func(*args, **named)
