"""Publication of functions: one decorator declares the namespaces, element types and forms of a function.

``NAMESPACES["torch"]`` has the exports of ``tracecomp``, ``NAMESPACES["linalg"]`` those of ``tracecomp.linalg``, and so
on. The methods in ``NAMESPACES["Tensor"]`` are set on ``Tensor`` at once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Any, TypeAlias, TypeVar, cast, get_overloads

import numpy as np

from tracecomp.base.errors import refuse_too_large
from tracecomp.base.reference import examples, reference
from tracecomp.eager import rng
from tracecomp.eager.device import device, memory_format, strided, use
from tracecomp.eager.meta import place_of_call, placed
from tracecomp.eager.modes import modes, scope
from tracecomp.eager.overrides import NOT_OVERRIDDEN, PLAIN, override
from tracecomp.eager.room import settle
from tracecomp.eager.tensor import Tensor, assign_, before_write
from tracecomp.eager.tensor_base import end_view, owner
from tracecomp.functional.autocast import casts
from tracecomp.functional.dtype_support import REAL, Kinds, accepting, refuse_complex
from tracecomp.functional.made import Made, may_be_kept
from tracecomp.functional.out import Out, check_castable
from tracecomp.functional.plain_arguments import PlainArguments, need_tensor
from tracecomp.functional.promotion import dtype_argument
from tracecomp.functional.viewed import Viewed
from tracecomp.functional.warm import Warm
from tracecomp.ir.op import OPS
from tracecomp.ir.types import DType

NAMESPACES: dict[str, dict[str, Any]] = {"torch": {}, "Tensor": {}}

Prepare: TypeAlias = Callable[[tuple[Any, ...]], tuple[Any, ...]]

_RENAMED = {"axis": "dim", "keepdims": "keepdim"}

Function = TypeVar("Function", bound=Callable[..., Any])
Bound: TypeAlias = tuple[tuple[str, object], ...]
Split: TypeAlias = Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...] | None, Bound]]


def function(
    *aliases: str,
    to: str = "torch Tensor",
    takes: Kinds = REAL,
    inplace: bool = False,
    composite: bool = False,
    primitive: str = "",
    prepare: Prepare | None = None,
    views: bool = False,
    makes: bool = False,
    draws: bool = False,
) -> Callable[[Function], Function]:
    """Publish a function under its name (one trailing underscore is dropped) and ``aliases``.

    ``to`` lists the namespaces; an alias with a dot ("special.expit") includes its namespace. ``takes`` are the
    supported kinds of elements. ``inplace`` adds ``name_`` to names without a dot. ``composite`` adds the name as a
    scope to recorded nodes. Keyword arguments ``axis`` and ``keepdims`` are accepted for ``dim`` and ``keepdim``, and
    ``out`` receives the result. ``primitive`` names the equivalent operator for floating tensors of one type, and for
    such a tensor and a Python float. ``prepare`` normalizes positional arguments before ``__torch_function__`` is
    called. ``views`` declares that results are views of the only tensor, or the tensor itself, if memory permits. Such
    views follow from its shape, its strides and the other arguments. ``makes`` declares that the result is a new tensor
    determined by the arguments and the default dtype. ``draws`` declares that it draws random numbers.
    """

    spaces = to.split()

    def decorate(fn: Function) -> Function:
        name = fn.__name__.removesuffix("_")
        call = _callable(fn, Out(name, spaces[0]), takes, composite, Known(primitive, views, makes, draws), prepare)
        call.__doc__ = _documented(fn, name, spaces, takes)
        for alias in (name, *aliases):
            if "." in alias:
                space, _, alias = alias.rpartition(".")
                _put(call, alias, (space,))
            else:
                _put(call, alias, spaces)
                if inplace:
                    _put(in_place(call, f"{alias}_"), f"{alias}_", spaces)
        if spaces[0] != "Tensor":  # the module where users, and pickles, find it
            call.__module__ = "tracecomp" if spaces[0] == "torch" else f"tracecomp.{spaces[0]}"
        return cast("Function", call)

    return decorate


def often(fn: Function) -> Function:
    """Let machine code serve an internal function that is called often, like public ones."""
    return cast("Function", _callable(fn, Out(fn.__name__, "torch"), REAL, False, Known(), None))


def often_drawn(fn: Function, like: Callable[..., object]) -> Function:
    """Let machine code serve ``fn``, which draws random numbers and takes the arguments of ``like``."""
    code = like.__code__
    split = _splitting(like, code.co_varnames[: code.co_argcount], rest=False)
    arguments = PlainArguments(like, fn.__name__, "Tensor")
    call = _remembering(lambda args, kwargs: fn(*args, **kwargs), fn, split, arguments, Known(draws=True))
    return cast("Function", functools.wraps(fn)(call))


def _put(value: object, name: str, spaces: Iterable[str]) -> None:
    for space in spaces:
        NAMESPACES.setdefault(space, {})[name] = value
        if space == "Tensor":
            setattr(Tensor, name, value)


def _documented(fn: Callable[..., object], name: str, spaces: list[str], takes: Kinds) -> str:
    kinds = fn.__annotations__
    raised = _errors("Tensor" in kinds.values(), "dim" in kinds, takes)
    forms = get_overloads(fn) if "overload" in fn.__globals__ else ()
    example = next((text for space in spaces if (text := examples(space).get(name))), "")
    sections = (("Shape", _shape_rule(fn, kinds)), ("Raises", raised))
    return reference(fn.__doc__, forms or (fn,), sections, example)


@functools.cache
def _errors(tensors: bool, dim: bool, takes: Kinds) -> str:
    refused = " or ".join(kind for kind in REAL if kind not in takes)
    errors = [
        ("TypeError", "an argument is not of the kind listed above.", tensors),
        ("IndexError", "``dim`` is out of range.", dim),
        ("NotImplementedError", f"all tensors are of {refused} type.", refused),
        ("NotImplementedError", "a tensor is complex.", "complex" not in takes and tensors),
    ]
    return "\n".join(f"        {error}: {why}" for error, why, holds in errors if holds)


def _shape_rule(fn: Callable[..., object], kinds: Mapping[str, object]) -> str:
    """The dependence of the result's shape, if the kind of function determines it."""
    if "keepdim" in kinds:
        return "        The shape of ``input`` without ``dim``, which stays with size 1 if ``keepdim`` is set."
    if ".elementwise." not in fn.__module__ and ".special." not in fn.__module__:
        return ""
    operands = [f"``{name}``" for name, kind in kinds.items() if kind in ("Tensor", "Operand") and name != "return"]
    if len(operands) > 1:
        return f"        The shape that {', '.join(operands[:-1])} and {operands[-1]} broadcast to."
    return f"        The shape of {operands[0]}." if operands else ""


def publish(value: object, *places: str) -> None:
    """Export ``value`` under dotted names: "torch.finfo", "linalg.inv", "Tensor.T" (for a method or property)."""
    complete(value, places[0])
    for place in places:
        space, _, name = place.rpartition(".")
        _put(value, name, (space,))


def complete(value: object, place: str) -> None:
    """Add arguments and example to the documentation of objects without a decorator."""
    space, _, name = place.rpartition(".")
    example = examples(space).get(name)
    if example is not None:
        value.__doc__ = reference(value.__doc__, [value] if inspect.isfunction(value) else (), (), example)


PLAIN_TENSORS = {Tensor}
"""Tensor classes without ``__torch_function__``, such as parameters."""
_MANY_KINDS = 256
"""Most combinations of types that a function accepts without checks."""
_LISTS = (list, tuple)
_FEW = 16
"""Most tensors of a list that are checked individually."""


def _as_primitive(name: str, signature: tuple[object, ...]) -> Callable[..., Any] | None:
    """The operator ``name`` as a function of arguments of these types, if it supports them."""
    if not name:
        return None
    first, numbers = signature[0], signature[1:]
    if not isinstance(first, np.dtype) or first.kind != "f":
        return None
    if not all(x is first or (x is float and first.itemsize > 2) for x in numbers):  # half types use numbers unrounded
        return None
    op = OPS[name]
    return lambda *operands: Tensor.__tracecomp_apply__(op, operands, {})


_STATE = np.dtype(np.int64)
"""The element type of a generator's state."""


@dataclass(frozen=True)
class Known:
    """Facts about a function in addition to its code: see ``function``."""

    primitive: str = ""
    views: bool = False
    makes: bool = False
    draws: bool = False

    def quick(self, run: Callable[..., Any], signature: tuple[object, ...], put: Callable[[Any], None]) -> Any:
        """The runner of calls with arguments of these types, which may replace itself by a faster one."""
        if (
            self.views
            and isinstance(signature[0], np.dtype)
            and not any(isinstance(x, np.dtype) for x in signature[1:])
        ):
            return Viewed(run)
        if self.makes and may_be_kept(signature):
            return Made(run)
        if self.draws:  # machine code takes the state of the generator as one more tensor, which it advances
            warm = Warm(rng.of_state(run), (_STATE, *signature), lambda faster: put(rng.with_state(faster)))
            return rng.with_state(warm)
        alone = _as_primitive(self.primitive, signature)
        return Warm(alone or run, signature, put, primitive=alone is not None)


def _elsewhere(args: tuple[object, ...]) -> bool:
    """Whether a call may involve tensors without memory."""
    if modes.place is not None or modes.default_places:
        return True
    return any(isinstance(x, Tensor) and type(x._data) is not np.ndarray for x in args)


def _settle_all(args: tuple[object, ...]) -> None:
    """Make arrays with room behind their elements dense."""
    for x in args:
        if isinstance(x, Tensor):
            settle(x._data)
        elif type(x) in _LISTS:
            _settle_all(tuple(cast("list[object]", x)))


def _is_shape(x: object) -> bool:
    """Whether ``x`` is a tuple of plain ints."""
    if type(x) is not tuple:
        return False
    for n in x:  # noqa: SIM110 - a generator takes twice the time
        if type(n) is not int:
            return False
    return True


def _is_plain(kind: object) -> bool:
    """Whether arguments of this kind cannot override functions (see ``overrides``), and need no conversion.

    A type of Python is converted to a dtype.
    """
    return isinstance(kind, np.dtype | tuple) or (kind in PLAIN and kind is not type)


Template: TypeAlias = tuple[list[tuple[bool, Any]], list[tuple[str, str]]]

_FEW_VALUES = (bool, NoneType, DType, memory_format)
_CHANGING = frozenset(("requires_grad", "pin_memory"))
"""Keywords that give a result more than a type, a place and elements."""


def _is_bound(name: str, value: object) -> bool:
    """Whether ``name=value`` occurs in many calls and needs no preparation."""
    kind = type(value)
    if kind is device:
        return cast("device", value).type == "cpu"
    if kind is str:
        return name == "device" and value == "cpu"
    return (kind in _FEW_VALUES and not (value is True and name in _CHANGING)) or value is strided or _is_shape(value)


def _splitting(fn: Callable[..., object], positional: tuple[str, ...], rest: bool) -> Split:
    """A function that returns the arguments of a call of ``fn`` by position, and those that stay keywords.

    The first part is None for a call that needs preparation. Keywords stay if they have few values, such as a dtype: a
    runner is made for each.
    """
    defaults = dict(zip(reversed(positional), reversed(fn.__defaults__ or ()), strict=False))
    any_name = fn.__code__.co_flags & inspect.CO_VARKEYWORDS
    known = fn.__code__.co_varnames[: fn.__code__.co_argcount + fn.__code__.co_kwonlyargcount]
    templates: dict[tuple[Any, ...], Template | None] = {}

    def template(count: int, *given: str) -> Template | None:
        names = {key if key in known else _RENAMED.get(key, key): key for key in given}
        kept = [name for name in names if name in ("device", "dtype") or name not in positional]
        placed = [name for name in names if name not in kept]
        left = positional[count:]
        if len(names) < len(given):  # ``dim`` and ``axis``
            return None
        if "out" in kept or not (any_name or set(kept) <= set(known)) or not {*placed} <= {*left} or (rest and placed):
            return None
        needed = left[: 1 + max(map(left.index, placed), default=-1)]
        if {*kept} & {*positional[:count], *needed}:
            return None
        if not {*needed} <= {*names} | {*defaults}:
            return None
        by_position = [(name in names, names[name] if name in names else defaults[name]) for name in needed]
        return by_position, [(name, names[name]) for name in kept]

    def split(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[tuple[Any, ...] | None, Bound]:
        key = (len(args), *kwargs)
        if key not in templates:
            templates[key] = template(len(args), *kwargs)
        found = templates[key]
        if found is None:
            return None, ()
        placed, kept = found
        for name, x in kept:
            if not _is_bound(name, kwargs[x]):
                return None, ()
        bound = tuple([(name, kwargs[x]) for name, x in kept])
        return (*args, *[kwargs[x] if given else x for given, x in placed]), bound

    return split


def _with_bound(run: Callable[..., Any], bound: Bound) -> Callable[..., Any]:
    """``run`` with these keywords in every call."""
    if not bound:
        return run
    call = partial(run, **dict(bound))
    call.__name__ = run.__name__  # type: ignore[attr-defined]
    return call


class _Parameters:
    """A function's parameters, read from its annotations once, so that a call checks positions only."""

    def __init__(self, fn: Callable[..., object], name: str, space: str, takes: Kinds) -> None:
        code, self.kinds = fn.__code__, fn.__annotations__
        self.name = name
        self.positional = code.co_varnames[: code.co_argcount]
        self.real = "complex" not in takes
        kinds = [self.kinds.get(p, "") for p in self.positional]
        self.places = [i for i, kind in enumerate(kinds) if kind == "Tensor"]
        """Positions of arguments that must be tensors."""
        self.beside = self.real and any("Tensor" in k or "Operand" in k for k in kinds if k != "Tensor")
        """Whether other arguments may be tensors, which must not be complex."""
        has_rest = code.co_flags & inspect.CO_VARARGS
        self.rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if has_rest else ""
        """The name of the function's ``*args``: PyTorch accepts it as a keyword, too."""
        self.makes = "device" in self.kinds
        self.plain = PlainArguments(fn, name, space)

    def refuse(self, args: tuple[Any, ...], kwargs: Mapping[str, object]) -> None:
        """TypeError for an argument of another kind, NotImplementedError for unsupported complex numbers."""
        for place in self.places:
            if place < len(args):
                if not isinstance(args[place], Tensor):
                    need_tensor(self.name, args[place], self.positional[place], place + 1)
                if self.real and args[place]._data.dtype.kind == "c":
                    refuse_complex(self.name, args)
        if self.beside:
            refuse_complex(self.name, args)
        if kwargs and self.real:
            refuse_complex(self.name, [x for key, x in kwargs.items() if key != "out"])
        self.plain.refuse(args, kwargs)


def _asked(public: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """The result of an argument's own ``__torch_function__``. These are rare: one test of the type per argument."""
    for x in (*args, *kwargs.values()) if kwargs else args:
        if type(x) not in PLAIN:
            return override(public, args, kwargs)
    return NOT_OVERRIDDEN


def _callable(
    fn: Callable[..., object], out: Out, takes: Kinds, composite: bool, known: Known, prepare: Prepare | None
) -> Callable[..., Any]:
    """The public function of ``fn``: it checks arguments, calls overrides, and normalizes keywords."""
    name = out.name
    parameters = _Parameters(fn, name, out.space, takes)
    kinds, rest, makes = parameters.kinds, parameters.rest, parameters.makes
    positional = parameters.positional
    dtype_at = positional.index("dtype") if "dtype" in positional else -1
    run = accepting(_scoped(fn, name) if composite else fn, name, takes)
    run = run if known.views else _without_views(run, name)

    def check(args: tuple[object, ...], kwargs: dict[str, Any]) -> Any:
        """Check every argument, and run."""
        args = args if prepare is None else prepare(args)
        _settle_all((*args, *kwargs.values()))
        found = _asked(public, args, kwargs)
        if found is not NOT_OVERRIDDEN:
            return found
        parameters.refuse(args, kwargs)
        # Classes of tensors, as ``torch.FloatTensor``, have a dtype.
        if 0 <= dtype_at < len(args) and isinstance(args[dtype_at], type) and not hasattr(args[dtype_at], "dtype"):
            args = (*args[:dtype_at], dtype_argument(args[dtype_at], name), *args[dtype_at + 1 :])
        if rest in kwargs:
            args = (*args, kwargs.pop(rest))
        if use.begun or (makes and "device" in kwargs):
            with placed(place_of_call(name, makes, args, kwargs)):
                return _with_keywords(run, kinds, out, args, kwargs)
        return _with_keywords(run, kinds, out, args, kwargs) if kwargs else run(*args)

    split = _splitting(fn, positional, bool(rest))
    listed = bool(parameters.positional) and kinds.get(parameters.positional[0]) == "Sequence[Tensor]"
    plain = parameters.plain
    call = _remembering_lists(check, run, split, plain) if listed else _remembering(check, run, split, plain, known)
    call.__name__ = call.__qualname__ = name
    call.__annotations__, call.__module__ = kinds, fn.__module__
    call.__wrapped__, call.__takes__ = fn, takes  # type: ignore[attr-defined]
    call.__out__ = out.rule is not None  # type: ignore[attr-defined]
    public = casts(call)
    return public


def _remembering(
    check: Callable[[tuple[object, ...], dict[str, object]], object],
    run: Callable[..., object],
    split: Split,
    arguments: PlainArguments,
    known: Known,
) -> Callable[..., Any]:
    """A function that runs ``check``, and skips it for arguments of types that passed before.

    Types of arguments, sizes and bound keywords tell calls apart. Each kind has a runner, which may become machine
    code. ``check`` runs for all others: calls in a mode, with a tensor without memory or a keyword of many values.
    """
    accepted: dict[tuple[Any, ...], Callable[..., Any]] = {}
    lists, draws = arguments.lists, known.draws

    # It chooses the runner of a kind that passed before, or ``check``. A generator becomes the call's stream first, as
    # runners draw from the current one. Every call of every function passes here, so no step is a separate function.
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if draws and type(kwargs.get("generator")) is rng.Generator and _are_plain((*args, *kwargs.values())):
                return _from(kwargs.pop("generator"), call, args, kwargs)
            plain, bound = split(args, kwargs) if kwargs else (args, ())
            if plain is None or not PLAIN or (use.begun and _elsewhere(plain)):
                return check(args, kwargs)
            # First by types alone: shapes of arguments are part of the key only if types are not enough.
            signature = (*[x._data.dtype if type(x) in PLAIN_TENSORS else type(x) for x in plain], *bound)
            found = accepted.get(signature)
            if found is not None:
                return found(*plain)
            if list in signature:
                plain = tuple([tuple(x) if type(x) is list and i in lists else x for i, x in enumerate(plain)])
            given = zip((*plain, *bound), signature, strict=True)
            signature = tuple([x if _is_shape(x) else kind for x, kind in given])
            found = accepted.get(signature)
            if found is not None:
                return found(*plain)
            result = check(args, kwargs)
            PLAIN_TENSORS.update([type(x) for x in plain if isinstance(x, Tensor) and type(x) in PLAIN])
            if len(accepted) < _MANY_KINDS and all(map(_is_plain, signature)):
                put = partial(accepted.__setitem__, signature)
                accepted[signature] = known.quick(_with_bound(run, bound), signature, put)
            return result
        except Exception as error:  # every error may come from a number that is too large
            arguments.refuse_too_large(args, kwargs)
            refuse_too_large(call.__name__, error)
            raise

    return call


def _are_plain(given: tuple[object, ...]) -> bool:
    """Whether no argument, and no mode, handles or records the call."""
    if modes.recorder is not None or use.begun:
        return False
    return bool(PLAIN) and all(type(x) in PLAIN or _is_shape(x) for x in given)


def _from(
    generator: rng.Generator, call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    """A call that draws from ``generator``."""
    before, modes.stream = modes.stream, generator
    try:
        return call(*args, **kwargs)
    finally:
        modes.stream = before


def _remembering_lists(
    check: Callable[[tuple[object, ...], dict[str, object]], object],
    run: Callable[..., object],
    split: Split,
    arguments: PlainArguments,
) -> Callable[..., Any]:
    """``_remembering`` for a function of a list of tensors, which count as separate arguments."""
    accepted: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            plain, bound = split(args, kwargs) if kwargs else (args, ())
            if not plain or bound or use.begun or not PLAIN or type(plain[0]) not in _LISTS or len(plain[0]) > _FEW:
                return check(args, kwargs)
            given, rest = plain[0], plain[1:]
            kinds = tuple([x._data.dtype if type(x) in PLAIN_TENSORS else type(x) for x in (*given, *rest)])
            signature = (len(given), *kinds)
            found = accepted.get(signature)
            if found is not None:
                return found(*given, *rest)
            result = check(args, kwargs)
            if len(accepted) < _MANY_KINDS and all(map(_is_plain, kinds)):
                apart = partial(_together, run, len(given))
                accepted[signature] = Warm(apart, kinds, partial(accepted.__setitem__, signature))
            return result
        except Exception as error:  # every error may come from a number that is too large
            arguments.refuse_too_large(args, kwargs)
            refuse_too_large(call.__name__, error)
            raise

    return call


def _together(run: Callable[..., object], count: int, *args: object) -> object:
    """Call ``run`` with the list of the first ``count`` arguments, and the others."""
    return run(args[:count], *args[count:])


def _scoped(fn: Callable[..., object], name: str) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if modes.recorder is None:
            return fn(*args, **kwargs)
        with scope(name):
            return fn(*args, **kwargs)

    return run


def _without_views(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``run``; results that are views of memory that it made stop being views."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = run(*args, **kwargs)
        if type(result) is Tensor:
            if result._linked and not modes.levels:  # views have the tangents of their base
                _end_views([result], (*args, *kwargs.values()))
        elif isinstance(result, tuple) and not modes.levels:
            views = [t for t in result if type(t) is Tensor and t._linked]
            if views:
                _end_views(views, (*args, *kwargs.values()))
        return result

    call.__name__ = name
    return call


def _end_views(views: list[Tensor], args: tuple[object, ...]) -> None:
    """Let views of memory other than that of ``args`` stop being views."""
    given = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else (arg,))]
    if not all(type(x) in PLAIN or isinstance(x, tuple) for x in given):
        return  # objects may hold tensors
    owners = [id(owner(x)[0]) for x in (*views, *given) if isinstance(x, Tensor)]
    for t, base in zip(views, owners, strict=False):
        if owners.count(base) == 1:
            end_view(t)


def _with_keywords(
    run: Callable[..., object],
    kinds: Mapping[str, object],
    out: Out,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Any:
    for other, ours in _RENAMED.items():
        if other in kwargs and other not in kinds:
            kwargs[ours] = kwargs.pop(other)
    if kwargs.get("dtype") is not None:
        kwargs["dtype"] = dtype_argument(kwargs["dtype"], out.name)
    if "out" not in kwargs or "out" in kinds:
        return run(*args, **kwargs)
    target = kwargs.pop("out")
    if target is None:
        return run(*args, **kwargs)
    out.prepare(target, args, kwargs, kinds)
    return out.store(target, run(*args, **kwargs))


def store_inplace(target: Tensor, result: Tensor) -> Tensor:
    """Replace the elements of ``target`` by ``result``, which must have its shape and a dtype that fits."""
    if result._data.shape != target._data.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
        )
    if result._data.dtype is not target._data.dtype:
        check_castable(result, target)
    assign_(target, result)
    return target


def in_place(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make ``call``, a published function, the method ``name`` that writes its result into its first operand."""

    def write(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return store_inplace(input, call(before_write(input, args), *args, **kwargs))

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Call the written operand's override, if it has one, and write."""
        if args and type(args[0]) not in PLAIN:
            found = override(run, args, kwargs)
            if found is not NOT_OVERRIDDEN:
                return cast("Tensor", found)
        if args:
            need_tensor(name, args[0])
        return write(*args, **kwargs)

    write.__name__ = name
    fn = inspect.unwrap(call, stop=lambda f: not hasattr(f, "__takes__"))
    parameters = _Parameters(fn, name, "Tensor", REAL)
    split = _splitting(fn, parameters.positional, bool(parameters.rest))
    run = _remembering(check, write, split, parameters.plain, Known())
    run.__name__ = run.__qualname__ = name
    run.__annotations__, run.__module__ = call.__annotations__, call.__module__
    run.__wrapped__ = call  # type: ignore[attr-defined]
    if name[0] != "_":
        run.__doc__ = in_place_doc(call, name)
    return run


def in_place_doc(call: Callable[..., object], name: str) -> str:
    """The docstring of ``call``, with its example for the method if its first operand is ``x``."""
    base = call.__name__
    given = (call.__doc__ or "").partition("    Args:\n")[2].partition("\n\n")[0]
    example = examples("Tensor").get(name)
    if example is None:
        first, last, rest = examples("torch").get(base, "").partition(f">>> torch.{base}(x")
        shown = rest.partition("\n        >>>")[0]
        example = f"{first}>>> x.{name}({shown.removeprefix(', ')}" if last else ""
    doc = f"In-place form of :func:`{base}`: the result is written to ``input``, which is returned."
    return f"{doc}\n\n    Args:\n{given}\n\n    Raises:\n{_WRITE_ERRORS}\n\n    Example:\n{example}"


_WRITE_ERRORS = """        RuntimeError: the result differs in shape from ``input``, or is of a type it cannot hold;
            ``input`` is a leaf that requires grad, or an expanded tensor."""
