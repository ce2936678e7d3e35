"""Logical shards of a global batch: computed one by one and summed along one tree, so that bits do not depend on the
number of processes.

The global batch is split into S shards, for any number of processes. Each shard has a separate view of every parameter
and separate random numbers. Values common to shards (gradients, batch statistics) are combined by the primitive
``all_reduce``, whose leaves are the shards.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tracecomp.autograd.api import backward
from tracecomp.autograd.function import Function
from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import share
from tracecomp.communication.group import Group
from tracecomp.eager.modes import grad_enabled, no_grad
from tracecomp.eager.overrides import DisableTorchFunction, TorchFunctionMode
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor, own
from tracecomp.functional import names as T
from tracecomp.functional.indexing.indexing import Index
from tracecomp.nn.parallel.reducer import Bucket, buckets_of, mean_over
from tracecomp.ops.prim import prim

_STREAM = 0x2545F4914F6CDD1D
"""Difference of the seeds of neighbouring shards."""
_DRAWS = 1 << 32
"""Blocks of random numbers that one pass may draw."""

Found = TypeVar("Found")


class ShardPlan:
    """Common state of all passes of one model: the group, the shards of this process, and buckets."""

    def __init__(self, params: Sequence[Tensor], group: Group, total: int, cap: int) -> None:
        if total < group.size():
            raise ValueError(at_user_line(f"{total} shards are fewer than {group.size()} processes"))
        self.group, self.total = group, total
        self.own = range(*share(total, group.rank(), group.size()))
        self.places = range(len(self.own))
        self.bucket_of = {id(p): b for b in buckets_of(params, cap) for p in b.params}

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
        self._views: dict[int, list[Tensor]] = {}
        with no_grad():
            base = own(default_generator.state)
            self._states = [base + T.tensor([_signed(_STREAM * (i + 1)), 0]) for i in plan.own]
            default_generator.state.copy_(base + T.tensor([0, _DRAWS]))

    def view(self, param: Tensor | Shards, i: int) -> Tensor:
        """Return the ``i``-th shard's view of a parameter; other tensors unchanged."""
        if isinstance(param, Shards):
            part: Tensor = param.parts[i]
            return part
        bucket = self.plan.bucket_of.get(id(param))
        if bucket is None and param.requires_grad and grad_enabled():
            raise RuntimeError(
                at_user_line(
                    f"a tensor of shape {list(param.shape)} that needs gradients is combined with shards, but is not a "
                    "parameter of the model. Compute it from shards, or from the parameters of each shard"
                )
            )
        if bucket is None or not grad_enabled():
            return param
        if id(param) not in self._views:
            with DisableTorchFunction():
                found = _Spread.apply(self.plan, bucket, *bucket.params)
            count = len(bucket.params)
            for j, p in enumerate(bucket.params):
                self._views[id(p)] = [found[k * count + j] for k in self.plan.places]
        return self._views[id(param)][i]

    def has(self, value: object) -> bool:
        """Whether parameters of the model, or shards, are among arguments."""
        if isinstance(value, dict):
            return any(map(self.has, value.values()))
        if isinstance(value, list | tuple):
            return any(map(self.has, value))
        return isinstance(value, Shards) or id(value) in self.plan.bucket_of

    def each(self, func: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Run ``func`` for each shard, with its views of parameters and its random numbers."""
        found = []
        for i in self.plan.places:
            with self.numbers(i):
                found.append(func(*_seen(args, i, self), **_seen(named, i, self)))
        return _together(found, self)

    @contextmanager
    def numbers(self, i: int) -> Iterator[None]:
        """A context with the random numbers of the ``i``-th shard."""
        before = default_generator.state
        default_generator.state = self._states[i]
        try:
            yield
        finally:
            default_generator.state = before

    def parameters(self) -> TorchFunctionMode:
        """A context in which computations on parameters alone also run for each shard."""
        return _Parameters(self)

    def mean(self, value: Shards) -> Tensor:
        """The mean over all shards of all processes, without gradient."""
        with no_grad():
            return mean_over(self.plan.group, [t.detach() for t in value.parts], self.plan.total)()

    def summed(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """For each shard of this process, the sum over all shards of all processes; differentiable."""
        found = _Summed.apply(self.plan, *parts)
        return list(found)


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
        rows = [bucket.joined(grads[k * count : (k + 1) * count]) for k in plan.places]
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


class Shards:
    """One value for each shard of this process. Functions and methods of tensors apply to each of them."""

    def __init__(self, parts: Sequence[Tensor], context: ShardPass) -> None:
        self.parts, self.context = list(parts), context

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        return next(within((args, named), Shards)).context.each(func, args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        first = getattr(self.parts[0], name)
        if callable(first) and not isinstance(first, type):
            return lambda *args, **kwargs: Shards.__torch_function__(
                lambda x, *a, **k: getattr(x, name)(*a, **k), (), (self, *args), kwargs
            )
        return _together([getattr(part, name) for part in self.parts], self.context)

    def backward(self) -> None:
        """Gradients of the mean over all shards of all processes. RuntimeError unless every shard is a scalar."""
        backward(self.parts)

    def item(self) -> Any:
        """RuntimeError: each shard has a different value."""
        raise RuntimeError(at_user_line("item() of shards: ask model.mean(value) in all processes, then its item()"))

    __bool__ = __float__ = __int__ = item

    def __repr__(self) -> str:
        return f"Shards({self.parts})"

    def __getitem__(self, index: Index) -> Any:
        return _by_operator(operator.getitem)(self, index)

    def __setitem__(self, index: Index, value: object) -> None:
        _by_operator(operator.setitem)(self, index, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    def __len__(self) -> int:
        return len(self.parts[0])

    def __hash__(self) -> int:
        return id(self)


def _by_operator(fn: Callable[..., object], swapped: bool = False) -> Callable[..., Any]:
    def run(self: Shards, *others: Any) -> Any:
        operands = (*others, self) if swapped else (self, *others)
        return Shards.__torch_function__(fn, (), operands)

    return run


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"):
    _fn = getattr(operator, _name)
    setattr(Shards, f"__{_name.strip('_')}__", _by_operator(_fn))
    setattr(Shards, f"__r{_name.strip('_')}__", _by_operator(_fn, swapped=True))
for _name in ("neg", "invert", "abs", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Shards, f"__{_name}__", _by_operator(getattr(operator, _name)))


def within(value: object, kind: type[Found], objects: bool = False) -> Iterator[Found]:
    """Yield objects of ``kind`` in lists, tuples and dictionaries; with ``objects``, also in attributes."""
    parts: Iterable[object] = ()
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif objects and hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in parts:
        yield from within(part, kind, objects)


def _seen(value: object, i: int, context: ShardPass) -> Any:
    """``value`` with the ``i``-th shard's tensors."""
    if isinstance(value, Shards):
        if value.context is not context:
            raise RuntimeError(
                at_user_line("shards of two calls of shard() meet: cut all tensors of a step in one call")
            )
        return value.parts[i]
    if isinstance(value, Tensor):
        return context.view(value, i)
    if isinstance(value, dict):
        return {k: _seen(v, i, context) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_seen(v, i, context) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_seen(v, i, context) for v in value)
    return value


def _together(values: list[Any], context: ShardPass) -> Any:
    """Combine the shards' results: tensors become Shards, numbers must be equal."""
    first = values[0]
    if isinstance(first, Tensor):
        return Shards(values, context)
    if isinstance(first, dict):
        return {k: _together([v[k] for v in values], context) for k in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(_together(list(row), context) for row in zip(*values, strict=True)))
    if isinstance(first, list | tuple) and type(first) in (list, tuple):
        return type(first)(_together(list(row), context) for row in zip(*values, strict=True))
    if any(v != first for v in values[1:]):
        raise RuntimeError(at_user_line(f"shards give different values, {first!r} and others: they take one way only"))
    return first
