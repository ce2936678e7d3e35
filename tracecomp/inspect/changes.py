"""Calls that differ in one thing from a given one, which must be recorded again or share its recording.

For each argument, number, tensor, mode and hook that a program can read, this module builds a plausible change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import CellType, ModuleType
from typing import Any

import numpy as np

from tracecomp.base.code_origin import is_own
from tracecomp.compiled.dynamic_shapes import last_of_program
from tracecomp.compiled.eager_vs_compiled import Call
from tracecomp.compiled.program_state import ProgramState
from tracecomp.eager.modes import inference_mode, no_grad
from tracecomp.eager.rng import manual_seed
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.default_dtype import default_dtype, set_default_dtype
from tracecomp.inspect.paths import Limits
from tracecomp.ir.types import DType, float32, float64
from tracecomp.record.guards.memory import shows_elements_twice
from tracecomp.record.guards.ownership import is_module
from tracecomp.record.pytree import flatten, paths, unflatten

Array = np.ndarray[Any, Any]
_NUMBERS = (bool, int, float, str)
_MOST_TENSORS = 6
"""Most tensors of the state that are changed, each in a separate call."""
_MOST_LAST = 2
"""Most sizes of last axes that are changed."""
_MOST_NUMBERS = 40
"""Most numbers of the state that are changed, each in a separate call."""


@dataclass(frozen=True)
class Change:
    """One change: ``make`` changes a call or its environment, and returns the call; ``around`` is its context.

    ``undo`` reverts changes other than to tensors, containers and attributes. ``again``: if the call is recorded again,
    it is also worth compiling.
    """

    what: str
    make: Callable[[Call], Call]
    around: Callable[[], Any] | None = None
    undo: Callable[[], object] = lambda: None
    again: bool = False


def changes(call: Call, state: ProgramState, limits: Limits) -> Iterator[Change]:
    """All changes of ``call`` for a program whose state is ``state`` and whose paths change at ``limits``."""
    yield from _arguments(call, limits)
    yield from _numbers(state)
    yield from _tensors(state, call)
    yield from _modules(state)
    yield from _modes()


# ---- arguments


def _arguments(call: Call, limits: Limits) -> Iterator[Change]:
    leaves: list[Any] = []
    flatten(call, leaves)
    where = [p[3:] for p in paths(call)]
    rng = np.random.default_rng(0)
    for n, x in enumerate(leaves):
        if isinstance(x, Tensor):
            yield from _tensor_argument(n, where[n], x, rng)
            for other in limits.values(n, x._data, partial(_holding, n, x)):
                yield Change(f"values in {where[n]} that lead elsewhere", partial(_with, n, _like(x, other)))
        elif isinstance(x, np.ndarray) and x.dtype.kind in "biufc" and x.size:
            yield Change(f"other values in {where[n]}", partial(_with, n, _other_values(x, rng)))
        elif isinstance(x, _NUMBERS):
            yield from _number_argument(n, where[n], x)
    tensors = [n for n, x in enumerate(leaves) if isinstance(x, Tensor)]
    for a, b in pairwise(tensors):
        one, two = leaves[a], leaves[b]
        if one._data.shape == two._data.shape and one._data.dtype == two._data.dtype:
            yield Change(f"{where[b]} is {where[a]}", partial(_with, b, one))
            yield Change(f"{where[b]} is a view of {where[a]}", partial(_with, b, one.detach()))
    # Sizes last: a recording for all sizes does not reuse the memory of results.
    yield from _sizes(leaves, where, limits)


def _number_argument(n: int, name: str, x: object) -> Iterator[Change]:
    """Another value, and then, if numbers are dynamic by now, one of another type."""
    others = [_other(x)]
    if isinstance(x, float):
        others = [-x, *others] if x == 0.0 else others  # before the number becomes dynamic
        others += [int(x) + 2] if np.isfinite(x) else []
    elif isinstance(x, int) and not isinstance(x, bool):
        others += [float(x + 1), True]
    for other in others:
        yield Change(f"argument {name} is {other!r}", partial(_with, n, other), again=True)


def _sizes(leaves: Sequence[object], where: Sequence[str], limits: Limits) -> Iterator[Change]:
    """Other numbers of rows of all arguments that share one, other last axes, and then of single arguments.

    The usual sizes come first, then sizes on both sides of the program's limits. The last size of a compiled program
    for several sizes and its successor follow.
    """
    tensors = {n: x._data.shape for n, x in enumerate(leaves) if isinstance(x, Tensor) and x._data.ndim}
    counts = Counter(shape[0] for shape in tensors.values() if shape[0] > 1)
    for size in sorted(counts):
        beside = max(x._data[0].size for x in leaves if isinstance(x, Tensor) and x._data.shape[:1] == (size,))
        beyond = limits.sizes(size, 0, beside, partial(_rows, size))
        usual = sorted({size - 1, 1, size + 2})
        end = last_of_program(size + 2)
        for new in dict.fromkeys((*usual, *(n for n in (*beyond, end, end + 1) if n != size))):
            yield Change(f"arguments of size {size} have {new} rows", partial(_rows, size, new), again=True)
        # Padding of a program for several sizes must not meet numbers of one sign either.
        for sign, word in ((-1.0, "negative"), (1.0, "positive")):
            make = partial(_rows, size, size + 2, sign=sign)
            yield Change(f"arguments of size {size} have {size + 2} rows of {word} numbers", make)
    wide = sorted({shape[-1] for shape in tensors.values() if len(shape) > 1 and shape[-1] > 1})
    for size in wide[:_MOST_LAST]:
        beyond = limits.sizes(size, -1, 1, partial(_rows, size, axis=-1))
        for new in dict.fromkeys((size + 1, *(n for n in beyond if n != size))):
            what = f"arguments whose last axis is {size} have {new} there"
            yield Change(what, partial(_rows, size, new, axis=-1), again=True)
    for n, shape in tensors.items():
        if counts[shape[0]] > 1:
            for new in (1, shape[0] + 2):
                yield Change(f"{where[n]} alone has {new} rows", partial(_rows, shape[0], new, only=n), again=True)


def _tensor_argument(n: int, name: str, t: Tensor, rng: np.random.Generator) -> Iterator[Change]:
    array = t._data
    new = _other_values(array, rng)
    yield Change(f"other values in {name}", partial(_with, n, _like(t, new)))
    if array.dtype.kind == "f":
        yield Change(f"{name} is negative", partial(_with, n, _like(t, -array)))
    if array.ndim > 1:
        order = np.array(array, order="F")
        yield Change(f"{name} has a different memory order", partial(_with, n, _like(t, order)))
    if array.dtype.kind == "f":
        wide = np.float32 if array.dtype == np.float64 else np.float64
        yield Change(f"{name} is {np.dtype(wide).name}", partial(_with, n, _like(t, array.astype(wide))))
        if t.is_leaf:
            yield Change(f"requires_grad of {name}", partial(_with, n, _flagged(t)))


def _with(number: int, value: object, call: Call) -> Call:
    leaves: list[Any] = []
    structure = flatten(call, leaves)
    leaves[number] = value
    changed: Call = unflatten(structure, leaves)
    return changed


def _holding(number: int, like: Tensor, array: Array, call: Call) -> Call:
    """The call whose argument ``number`` is a tensor like ``like`` with the elements of ``array``."""
    return _with(number, _like(like, array), call)


def _rows(
    size: int, count: int, call: Call, axis: int = 0, only: int | None = None, sign: float | None = None
) -> Call:  # fmt: skip
    """The call with ``count`` instead of ``size`` along an axis, in every argument with that size, or in one.

    With ``sign``, floats have that sign and are not small.
    """
    leaves: list[Any] = []
    structure = flatten(call, leaves)
    for n, x in enumerate(leaves):
        if isinstance(x, Tensor) and only in (None, n) and x._data.ndim > abs(axis) and x._data.shape[axis] == size:
            shape = list(x._data.shape)
            shape[axis] = count
            array = np.resize(x._data, shape)
            if sign is not None and array.dtype.kind == "f":
                array = np.asarray(sign * (np.abs(array) + 1)).astype(array.dtype)
            leaves[n] = _like(x, array)
    changed: Call = unflatten(structure, leaves)
    return changed


def _like(t: Tensor, array: Array) -> Tensor:
    found = Tensor._wrap(np.asarray(array))
    found._requires_grad = t._requires_grad
    return found


def _flagged(t: Tensor) -> Tensor:
    found = Tensor._wrap(t._data.copy())
    found._requires_grad = not t.requires_grad
    return found


def _other_values(array: Array, rng: np.random.Generator) -> Array:
    """The elements in another order, and numbers smaller; integers stay in their range."""
    mixed = rng.permutation(array.reshape(-1)).reshape(array.shape)
    if array.dtype.kind in "iu" and array.size and np.array_equal(mixed, array):
        return np.where(array > 0, array - 1, array + 1).astype(array.dtype)
    return np.asarray(mixed * 0.75 if array.dtype.kind in "fc" else mixed, array.dtype)


def _other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "_"
    return value * 0.5 if value else 1.0


# ---- numbers and texts of the program's state


def _numbers(state: ProgramState) -> Iterator[Change]:
    found = 0
    kinds: set[tuple[type, str]] = set()
    for place, held in state.objects.items():
        for name, value, put in _entries(held):
            library = is_own(type(held))
            if (library and ((type(held), name) in kinds or name.startswith("_"))) or not isinstance(value, _NUMBERS):
                continue
            if name == "training" or found >= _MOST_NUMBERS:
                continue
            kinds.add((type(held), name))
            found += 1
            what = f"{place} is {_other(value)!r}" if name == "" else f"{place}.{name} is {_other(value)!r}"
            yield _doing(what, partial(put, _other(value)), again=True)
    for name, space in state.variables.items():
        if isinstance(space[name], _NUMBERS):
            new = _other(space[name])
            yield _doing(f"{name} is {new!r}", partial(_setter(space, name), new), again=True)


def _doing(what: str, act: Callable[[], object], again: bool = False) -> Change:
    """The change that ``act`` makes to the call's environment."""

    def make(call: Call) -> Call:
        act()
        return call

    return Change(what, make, again=again)


def _entries(held: object) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """Yield the mutable entries of an object: name, value, and setter. Python modules are skipped, as other programs
    use them."""
    if isinstance(held, CellType):
        yield "", _contents(held), partial(setattr, held, "cell_contents")
    elif isinstance(held, dict | list):
        for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            yield str(key), value, _setter(held, key)
    elif isinstance(getattr(held, "__dict__", None), dict) and not isinstance(held, type | Tensor | ModuleType):
        for name, value in list(vars(held).items()):
            yield name, value, partial(setattr, held, name)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _setter(held: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        held[key] = value

    return put


# ---- tensors of the program's state


def _tensors(state: ProgramState, call: Call) -> Iterator[Change]:
    rng = np.random.default_rng(1)
    given = {id(t) for t in ProgramState({"call": call}).tensors.values()}
    held = {p: t for p, t in state.tensors.items() if id(t) not in given and p != "the random state"}
    floats = [p for p, t in held.items() if _is_written(t) and not p.endswith(".grad")]
    step = max(1, len(floats) // _MOST_TENSORS)
    for place in floats[::step][:_MOST_TENSORS]:
        t = held[place]
        new = _other_values(t._data, rng)
        yield _doing(f"values written to {place}", partial(_write, t, new))
        yield _doing(f"{place}.data is replaced", partial(_exchange, t, new))
        yield _doing(f"{place} written through numpy", partial(_through_numpy, t, new))
        if t.is_leaf:
            yield _doing(f"requires_grad of {place}", partial(t.requires_grad_, not t._requires_grad))
        if t._requires_grad:
            yield _doing(f"{place}.grad is set", partial(_give_grad, t))
            yield _doing(f"{place}.grad is None", partial(setattr, t, "grad", None))
    yield _doing("another seed", partial(manual_seed, 7))


def _is_written(t: Tensor) -> bool:
    """Whether a program might write to ``t`` directly: it owns its memory, without overlaps."""
    return t._data.dtype.kind == "f" and t._base is None and not shows_elements_twice(t._data)


def _through_numpy(t: Tensor, array: Array) -> None:
    np.copyto(t.detach().numpy(), array)


def _give_grad(t: Tensor) -> None:
    t.grad = Tensor._wrap(np.ones_like(t._data))


def _write(t: Tensor, array: Array) -> None:
    with no_grad():
        t.copy_(Tensor._wrap(array))


def _exchange(t: Tensor, array: Array) -> None:
    t.data = Tensor._wrap(array.copy())


# ---- modules, optimizers, modes


def _modules(state: ProgramState) -> Iterator[Change]:
    modules = {p: m for p, m in state.objects.items() if is_module(m)}
    inner = {id(c) for m in modules.values() for c in m.modules() if c is not m}
    for place, module in modules.items():
        if id(module) not in inner:
            yield _doing(f"{place}.train({not module.training})", partial(module.train, not module.training))
            yield _doing(f"a forward hook of {place}", partial(_hook, module))
    for place, module in modules.items():
        for name, p in module._parameters.items():
            if p is not None and id(module) in inner:
                yield _doing(f"{place}.{name} is replaced by a new parameter", partial(_replace, module, name))
                return


def _hook(module: Any) -> None:
    module.register_forward_hook(lambda m, args, result: result * 2 if isinstance(result, Tensor) else None)


def _replace(module: object, name: str) -> None:
    old = getattr(module, name)
    setattr(module, name, type(old)(Tensor._wrap(old._data * 0.5)))


def _modes() -> Iterator[Change]:
    yield Change("under no_grad", _same, no_grad)
    yield Change("under inference_mode", _same, inference_mode)
    before: DType = default_dtype()
    other = float32 if before is float64 else float64
    change = _doing(f"the default type is {other!r}", partial(set_default_dtype, other))
    yield replace(change, undo=partial(set_default_dtype, before))


def _same(call: Call) -> Call:
    return call
