"""``Shards``: one value for each logical shard of this process, on which functions of tensors work shard by shard."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from tracecomp.autograd.api import backward
from tracecomp.base.errors import at_user_line
from tracecomp.communication.world import world
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor, assign_
from tracecomp.functional.indexing.indexing import Index

Found = TypeVar("Found")


class Context(Protocol):
    """The pass to which shards belong (``ShardPass``)."""

    plan: Any
    states: list[Tensor]

    def each(self, func: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Run ``func`` for each shard."""

    def view(self, param: Tensor | Shards, i: int) -> Any:
        """The ``i``-th shard's view of a tensor."""

    def mean(self, value: Shards) -> Tensor:
        """The mean over all shards of all processes."""

    def start_mean(self, value: Shards) -> Callable[[], Tensor]:
        """Start to compute the mean."""

    def summed(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """For each shard of this process, the sum over all shards."""

    def parameters(self) -> AbstractContextManager[None]:
        """The context of a forward pass."""


_KEEP = frozenset({"detach", "clone", "cpu", "data"})
"""Functions that return the values of their operand: a known mean stays known."""
_POINTWISE = frozenset({
    "add", "sub", "mul", "truediv", "div", "neg", "abs", "pow", "sqrt", "exp", "log", "float", "double", "to", "item",
    "add_", "sub_", "mul_", "div_", "iadd", "isub", "imul", "itruediv", "lt", "le", "gt", "ge", "eq", "ne", "isnan",
    "isfinite", "isinf",
})  # fmt: skip
"""Functions of operands that are equal in all shards whose result is too."""


class Shards:
    """One value for each shard of this process. Functions and methods of tensors apply to each of them.

    Its mean over the shards of all processes is known once ``backward`` has computed it, or if a collective has made
    the shards equal (``uniform``). ``item()`` then does not communicate, so one process alone may call it.
    """

    def __init__(self, parts: Sequence[Tensor], context: Context, uniform: bool = False) -> None:
        self.parts, self.context, self.uniform = list(parts), context, uniform
        self._mean: Tensor | Callable[[], Tensor] | None = None
        self._version = 0

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["parts", "states", "mean_of_version"], (self.context.plan, self.uniform)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: object, stride: object) -> Shards:
        plan, uniform = context
        made = Shards(inner["parts"], plan.continued(inner["states"]), uniform)
        if inner["mean_of_version"] is not None:
            made.know(inner["mean_of_version"])
        return made

    @property
    def states(self) -> Sequence[Tensor]:
        """The states of the random numbers."""
        return self.context.states

    @property
    def mean_of_version(self) -> Tensor | None:
        """The mean, unless it is unknown or the parts are equal."""
        return None if self.uniform else self.known_mean()

    def know(self, mean: Tensor | Callable[[], Tensor]) -> None:
        """Note the mean over all shards, or a function that waits for it."""
        self._mean, self._version = mean, self.parts[0]._version

    def become(self, value: Tensor) -> None:
        """Write one value to all shards, which all processes do."""
        with no_grad():
            for part in self.parts:
                assign_(part, value)
        self.uniform = True

    def known_mean(self) -> Tensor | None:
        """The mean over all shards, if it is known without communication."""
        if self.uniform:
            return self.parts[0].detach()
        if self._mean is None or self.parts[0]._version != self._version:
            return None
        if not isinstance(self._mean, Tensor):
            self._mean = self._mean()
        return self._mean

    def _called(
        self, name: str, func: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]
    ) -> Any:
        """Run ``func`` for each shard."""
        found = self.context.each(func, args, named)
        if isinstance(found, Shards):
            if name in _KEEP:
                found.uniform = self.uniform
                if self._mean is not None and self.parts[0]._version == self._version:
                    found.know(self._mean)
            elif name in _POINTWISE and not any(True for _ in within((args, named), Tensor)):
                found.uniform = all(x.uniform for x in within((args, named), Shards))
        return found

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        named = kwargs or {}
        first = next(within((args, named), Shards))
        return first._called(getattr(func, "__name__", ""), func, args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("tolist", "numpy") and not self.uniform:
            raise RuntimeError(
                at_user_line(f"{name}() of shards: their values differ. Use item() of a scalar: the mean over shards")
            )
        first = getattr(self.parts[0], name)
        if callable(first) and not isinstance(first, type):
            return lambda *args, **kwargs: self._called(
                name, lambda x, *a, **k: getattr(x, name)(*a, **k), (self, *args), kwargs
            )
        if isinstance(first, Tensor):
            return self._called(name, lambda x: getattr(x, name), (self,), {})
        return together([getattr(part, name) for part in self.parts], self.context)

    def backward(self, gradient: None = None, retain_graph: bool | None = None) -> None:
        """Gradients of the mean over all shards of all processes. RuntimeError unless every shard is a scalar."""
        if gradient is not None:
            raise RuntimeError(at_user_line("backward() of shards: gradient is not supported. Multiply the loss by it"))
        if self.known_mean() is None and self.parts[0].numel() == 1 and self.context.plan is world.plan:
            self.know(self.context.start_mean(self))
        backward(self.parts, retain_graph=retain_graph)

    def item(self) -> Any:
        """The mean over all shards of all processes, a float unless the shards are equal.

        Every process must call it, unless the mean is known. RuntimeError unless every shard has one element.
        """
        if self.parts[0].numel() != 1:
            return self.parts[0].item()  # raises
        return self.context.mean(self).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        """RuntimeError unless all shards have the same truth value; every process calls it."""
        found = float(_by_operator(operator.ne)(self, 0).item())
        if found not in (0.0, 1.0):
            raise RuntimeError(at_user_line("a condition differs between shards, which take one branch together"))
        return bool(found)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

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
    if (_own := getattr(operator, f"i{_name.strip('_')}")) is not operator.imatmul:
        setattr(Shards, f"__{_own.__name__}__", _by_operator(_own))
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


def seen(value: object, i: int, context: Context) -> Any:
    """``value`` with the ``i``-th shard's tensors."""
    if isinstance(value, Shards):
        if value.context.plan is not context.plan:
            raise RuntimeError(
                at_user_line("an operator combines shards of two models. Create both with TRACECOMP_SHARDS")
            )
        return value.parts[i]
    if isinstance(value, Tensor):
        return context.view(value, i)
    if isinstance(value, dict):
        return {k: seen(v, i, context) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(seen(v, i, context) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(seen(v, i, context) for v in value)
    return value


def together(values: list[Any], context: Context) -> Any:
    """Combine the shards' results: tensors become Shards, numbers must be equal."""
    first = values[0]
    if isinstance(first, Tensor):
        return Shards(values, context)
    if isinstance(first, dict):
        return {k: together([v[k] for v in values], context) for k in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(together(list(row), context) for row in zip(*values, strict=True)))
    if isinstance(first, list | tuple) and type(first) in (list, tuple):
        return type(first)(together(list(row), context) for row in zip(*values, strict=True))
    if any(v != first for v in values[1:]):
        raise RuntimeError(
            at_user_line(f"shards give different values, {first!r} and others, but all of them must take one branch")
        )
    return first
