"""Dynamic sizes of exported programs: how to request them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, NoReturn

from tracecomp._dynamo.exc import UserError, UserErrorType
from tracecomp.eager.tensor import Tensor
from tracecomp.utils._pytree import SUPPORTED_NODES

__all__ = ["AdditionalInputs", "Constraint", "Dim", "ShapesCollection", "dims"]


@dataclass(frozen=True)
class _DimHint:
    """The handling of an unnamed size: ``kind`` is "auto", "dynamic" or "static"."""

    kind: str
    min: int | None = None
    max: int | None = None

    def __call__(self, min: int | None = None, max: int | None = None) -> _DimHint:
        """The same with a range."""
        if (min or 0) < 0 or (max or 0) < 0:
            raise AssertionError(f"min and max must be non-negative, got min={min}, max={max}")
        if min is not None and max is not None and min > max:
            raise AssertionError(f"min must be <= max, got min={min}, max={max}")
        return replace(self, min=min, max=max)


class Dim:
    """A size that calls may change; those of one name are equal. ``min`` and ``max`` are the ends of its range.

    ``d + 1``, ``d - 1`` and ``2 * d`` are sizes that follow from ``d``. For sizes without a name: ``Dim.DYNAMIC``, one
    that may change; ``Dim.AUTO``, one that may change if the program permits it; ``Dim.STATIC``, that of the example.
    AssertionError for a name that is not an identifier or an empty range.

    Example:
        >>> from tracecomp.export import Dim
        >>> batch = Dim("batch", min=2, max=64)
        >>> (2 * batch + 1).__name__
        '2*batch + 1'
    """

    AUTO: ClassVar[_DimHint] = _DimHint("auto")
    DYNAMIC: ClassVar[_DimHint] = _DimHint("dynamic")
    STATIC: ClassVar[_DimHint] = _DimHint("static")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        low = 0 if min is None else min
        if max is not None and max < low:
            raise AssertionError(f"Cannot create Dim with inconsistent min={low}, max={max}")
        if not isinstance(name, str):
            raise AttributeError(f"Dim(): name must be str, not {type(name).__name__}")
        if not name.isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__ = name
        self.min: int = low
        self.max: int | None = max
        self.root, self.factor, self.offset = self, 1, 0

    def _derived(self, factor: int, offset: int) -> Dim:
        found = Dim.__new__(Dim)
        root, found.factor, found.offset = self.root, factor, offset
        found.root = root
        times = root.__name__ if factor == 1 else f"{factor}*{root.__name__}"
        found.__name__ = times + (f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "")
        found.min = factor * root.min + offset
        found.max = None if root.max is None else factor * root.max + offset
        return found

    def _number(self, other: object, what: str, least: int | None = None) -> int:
        if type(other) is not int or (least is not None and other < least):
            kind = "positive integer" if least else "integer"
            raise NotImplementedError(f"Attempted to {what} {self.__name__} by {other}, where a {kind} was expected.")
        return other

    def __add__(self, other: object) -> Dim:
        return self._derived(self.factor, self.offset + self._number(other, "increase"))

    __radd__ = __add__

    def __sub__(self, other: object) -> Dim:
        return self._derived(self.factor, self.offset - self._number(other, "decrease"))

    def __rsub__(self, other: object) -> NoReturn:
        raise NotImplementedError(f"Attempted to negate {self.__name__}: a derived size must grow with its base.")

    def __mul__(self, other: object) -> Dim:
        n = self._number(other, "multiply", 1)
        return self._derived(self.factor * n, self.offset * n)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        ends = [str(n) for n in (f"min={self.min}" if self.min else "", f"max={self.max}" if self.max else "") if n]
        return f"Dim({', '.join([repr(self.__name__), *ends])})"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """A ``Dim`` for each name, all with the same range."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class Constraint(NamedTuple):
    """A size that has been left open: of leaf ``argument`` along ``axis``."""

    argument: int
    axis: int
    dim: Dim | _DimHint


class ShapesCollection:
    """Dynamic shapes keyed by the tensors among the arguments: ``shapes[x] = {0: Dim("batch")}``."""

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[object, Any]] = {}

    def __setitem__(self, t: object, shape: object) -> None:
        known = self._shapes.get(id(t), (t, shape))[1]
        if known != shape:
            raise AssertionError(f"Shapes assigned to input are different: {known} and {shape}")
        self._shapes[id(t)] = t, shape

    def __getitem__(self, t: object) -> Any:
        return self._shapes.setdefault(id(t), (t, {}))[1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(
        self, m: object, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the ``dynamic_shapes`` argument of ``export``."""
        return {name: _noted(x, self._shapes) for name, x in named_arguments(m, args, kwargs or {}).items()}


def _noted(x: object, shapes: Mapping[int, tuple[object, Any]]) -> Any:
    """Replace each tensor in ``x`` by its entry."""
    if id(x) in shapes:
        return shapes[id(x)][1]
    if isinstance(x, dict):
        return {k: _noted(v, shapes) for k, v in x.items()}
    if isinstance(x, tuple | list):
        return [_noted(v, shapes) for v in x]
    return None


class AdditionalInputs:
    """Other arguments of a program: the sizes in which they differ are left open, other differences are errors."""

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[object, ...], Mapping[str, object]]] = []

    def add(self, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None) -> None:
        """Arguments that the program will be called with."""
        if type(args) is not tuple:
            raise AssertionError(f"Representative args {args} must be a tuple")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(
        self, m: object, args: tuple[object, ...], kwargs: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the ``dynamic_shapes`` argument of ``export``. ValueError if anything but sizes differs."""
        all_named = [named_arguments(m, a, k) for a, k in [(args, kwargs or {}), *self._examples]]
        return {name: _differing([named[name] for named in all_named], name) for name in all_named[0]}

    def verify(self, ep: Any) -> None:
        """Run the exported program on all of them."""
        for args, kwargs in self._examples:
            ep.module()(*args, **kwargs)


def _differing(values: list[Any], name: str) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        shapes = [tuple(t.shape) for t in values]
        if len({len(s) for s in shapes}) > 1:
            raise ValueError(f"{name} has {sorted({len(s) for s in shapes})} dimensions")
        return [Dim.DYNAMIC if len(set(sizes)) > 1 else None for sizes in zip(*shapes, strict=True)]
    if isinstance(first, dict):
        return {k: _differing([v[k] for v in values], f"{name}[{k!r}]") for k in first}
    if isinstance(first, tuple | list):
        return [_differing(list(parts), f"{name}[{i}]") for i, parts in enumerate(zip(*values, strict=True))]
    # Anything else becomes a constant of the program.
    if any(v != first for v in values):
        raise ValueError(f"{name} is {first!r} and {next(v for v in values if v != first)!r}: only sizes may differ")
    return None


def named_arguments(module: Any, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, Any]:
    """The arguments by the names of ``forward``'s parameters, as far as they are given."""
    signature = inspect.signature(getattr(module, "forward", module))
    by_name: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        by_name.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return by_name


def left_open(named: Mapping[str, object], dynamic_shapes: object, leaves: Sequence[object]) -> Iterator[Constraint]:
    """The sizes that ``dynamic_shapes``, by name or in order of the arguments, leaves open. UserError for nonsense."""
    if dynamic_shapes is None:
        return
    if isinstance(dynamic_shapes, Mapping):
        if set(dynamic_shapes) != set(named):
            raise _invalid(
                "When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names "
                f"{list(named)} of `inputs`, but here they are {list(dynamic_shapes)}. Alternatively, you could also "
                "ignore arg names entirely and specify `dynamic_shapes` as a list/tuple matching `inputs`."
            )
        pairs = [(f"inputs['{name}']", x, dynamic_shapes[name]) for name, x in named.items()]
    elif isinstance(dynamic_shapes, tuple | list):
        if len(dynamic_shapes) != len(named):
            raise _invalid(f"`dynamic_shapes` has {len(dynamic_shapes)} entries for {len(named)} inputs")
        pairs = [(f"inputs[{i}]", x, d) for i, (x, d) in enumerate(zip(named.values(), dynamic_shapes, strict=True))]
    else:
        raise _invalid(f"Expected `dynamic_shapes` to be a dict, list or tuple, got {type(dynamic_shapes).__name__}")
    number = {id(x): k for k, x in reversed(list(enumerate(leaves))) if isinstance(x, Tensor)}
    for where, x, told in pairs:
        yield from _of(where, x, told, number)


def _of(where: str, x: object, told: object, number: Mapping[int, int]) -> Iterator[Constraint]:
    if told is None:
        return
    if isinstance(x, Tensor):
        yield from _of_tensor(where, x, told, number[id(x)])
    elif isinstance(x, Mapping) and isinstance(told, Mapping):
        if set(x) != set(told):
            raise _invalid(f"`dynamic_shapes` for {where} has the keys {list(told)}, the input has {list(x)}")
        for key, part in x.items():
            yield from _of(f"{where}['{key}']", part, told[key], number)
    elif type(x) in SUPPORTED_NODES and isinstance(told, tuple | list):
        parts, _ = SUPPORTED_NODES[type(x)].flatten_fn(x)
        if len(parts) != len(told):
            raise _invalid(f"`dynamic_shapes` for {where} has {len(told)} entries, the input has {len(parts)}")
        for i, (part, of_part) in enumerate(zip(parts, told, strict=True)):
            yield from _of(f"{where}[{i}]", part, of_part, number)
    else:
        raise _invalid(f"Cannot associate shape {told} specified at `dynamic_shapes` for {where}: it is not a tensor")


def _of_tensor(where: str, x: Tensor, told: object, leaf: int) -> Iterator[Constraint]:
    if isinstance(told, Mapping):
        axes = {}
        for axis, dim in told.items():
            if not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
                raise _invalid(f"Unexpected dimension {axis!r} in `dynamic_shapes` for {where} of {x.ndim} dimensions")
            axes[axis % x.ndim] = dim
    elif isinstance(told, tuple | list):
        if len(told) != x.ndim:
            raise _invalid(
                f"Expected dynamic shape spec {told} for {where} to have the same length as the actual tensor shape "
                f"{x.shape} (expected {x.ndim}, but got {len(told)} instead)"
            )
        axes = dict(enumerate(told))
    else:
        raise _invalid(f"Unexpected input {told!r} in `dynamic_shapes` for {where}: a dict, list or tuple is expected")
    for axis, dim in axes.items():
        if isinstance(dim, int) and dim != x.shape[axis]:
            raise _violated(f"Static shape constraint of {dim} does not match input size of {x.shape[axis]} at {where}")
        if isinstance(dim, Dim) or (isinstance(dim, _DimHint) and dim.kind != "static"):
            yield Constraint(leaf, axis, dim)
        elif dim is not None and not isinstance(dim, int | _DimHint):
            raise _invalid(f"Unexpected dimension {dim!r} in `dynamic_shapes` for {where}: a Dim or int is expected")


def _invalid(text: str) -> UserError:
    return UserError(UserErrorType.INVALID_INPUT, text)


def _violated(text: str) -> UserError:
    return UserError(UserErrorType.CONSTRAINT_VIOLATION, text)
