"""Unpickling without running code: an interpreter of pickle's operations that checks every call and change.

``pickle.Unpickler`` can restrict the names in a file, but not their use: a file may set attributes on a class, call it
with anything, or change existing objects. Here every operation checks its operands. Work and memory stay proportional
to the file's size: operations that cost more than reading the file are counted.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracecomp.eager.size import Size

MAX_DEPTH = 256
"""Levels of containers in containers. Deeper ones end in a crash of the interpreter when hashed or compared."""

_FREE_WORK = 1 << 16
"""Elements that any file may process: milliseconds."""
_WORK_PER_BYTE = 4
"""Allowed work per byte, in elements beyond those in the file, each of which takes at least a byte."""

_CHOSEN_FROM = 1 << 61
"""Ints from here on share hashes with others (Python's hash of an int is a remainder by 2**61 - 1)."""

_MAX_EQUAL_HASHES = 64
"""Keys of one hash: chance gives a handful, and each costs a comparison with all others."""

_REFUSED = "an operation that files of tensors do not need"


class Refused(pickle.UnpicklingError):
    """Raised if the file requests a forbidden object."""


@dataclass(frozen=True)
class Allowed:
    """Permissions of a file: ``find`` returns the meaning of a name, ``call`` the function that runs when it is called.

    ``set_state`` returns the function that sets the state of a class's instances, None if it is not allowed. Instances
    of classes that the user has allowed (``is_users``) may be changed in pickle's ways. ``storage`` returns the memory
    of a persistent reference.
    """

    find: Callable[[str, str], Any]
    call: Callable[[Any], Callable[..., Any] | None]
    set_state: Callable[[type], Callable[[Any, Any], None] | None]
    is_users: Callable[[type], bool]
    storage: Callable[[Any], Any]


@dataclass
class _Marks:
    """A stack of stacks: a mark puts the current one aside."""

    current: list[Any] = field(default_factory=list)
    aside: list[list[Any]] = field(default_factory=list)

    def take(self) -> list[Any]:
        """Pop the values since the last mark."""
        taken, self.current = self.current, self.aside.pop()
        return taken


class SafeUnpickler:
    """Reads one pickle. ``encoding`` is that of Python 2's strings, "bytes" to keep them as they are."""

    def __init__(self, data: bytes, allowed: Allowed, encoding: str) -> None:
        self._data = data
        self._allowed = allowed
        self._encoding = encoding
        self._stack = _Marks()
        self._memo: dict[int, Any] = {}
        self._hashes: defaultdict[int, list[Any]] = defaultdict(list)
        self._work = _FREE_WORK + _WORK_PER_BYTE * len(data)

    def load(self) -> Any:
        """The object; UnpicklingError, which tells the operation and its place, for whatever is wrong with the file."""
        name, at = "the first operation", 0
        try:
            for code, argument, position in pickletools.genops(io.BytesIO(self._data)):
                name, at = code.name, position or 0
                if name == "STOP":
                    break
                _OPERATIONS.get(name, SafeUnpickler._refuse)(self, argument)
            result = self._pop()
            _check_depth(result)
        except MemoryError:
            raise
        except Refused as error:
            raise pickle.UnpicklingError(str(error)) from error.__cause__
        except Exception as error:  # any operation may fail on a damaged file
            reason = str(error) or type(error).__name__
            raise pickle.UnpicklingError(f"damaged pickle: {name} at byte {at}: {reason}") from error
        return result

    # ---- the stack

    def _push(self, value: object) -> None:
        self._stack.current.append(value)

    def _pop(self) -> Any:
        return self._stack.current.pop()

    def _mark(self, _: object) -> None:
        self._stack.aside.append(self._stack.current)
        self._stack.current = []

    def _drop(self, _: object) -> None:
        if self._stack.current:
            self._pop()
        else:
            self._stack.take()

    def _drop_to_mark(self, _: object) -> None:
        self._stack.take()

    def _duplicate(self, _: object) -> None:
        self._push(self._stack.current[-1])

    def _put(self, number: int) -> None:
        self._memo[number] = self._stack.current[-1]

    def _memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack.current[-1]

    def _get(self, number: int) -> None:
        self._push(self._memo[number])

    def _refuse(self, _: object) -> None:
        raise ValueError(_REFUSED)

    def _spend(self, work: int) -> None:
        self._work -= work
        if self._work < 0:
            raise Refused("the file needs too much work or memory for its size")

    # ---- values

    def _string(self, text: str) -> None:
        raw = text.encode("latin-1")
        self._push(raw if self._encoding == "bytes" else raw.decode(self._encoding))

    def _list(self, _: object) -> None:
        self._push(self._stack.take())

    def _tuple(self, _: object) -> None:
        self._push(tuple(self._stack.take()))

    def _short_tuple(self, size: int) -> None:
        current = self._stack.current
        if len(current) < size:
            raise IndexError("the stack is empty")
        current[len(current) - size :] = [tuple(current[len(current) - size :])]

    def _dict(self, _: object) -> None:
        found: dict[Any, Any] = {}
        self._set(found, self._stack.take())
        self._push(found)

    def _frozenset(self, _: object) -> None:
        self._push(frozenset(self._keys(self._stack.take())))

    # ---- changes of objects that the file has made

    def _append(self, _: object) -> None:
        value = self._pop()
        self._extend(self._stack.current[-1], [value])

    def _appends(self, _: object) -> None:
        values = self._stack.take()
        self._extend(self._stack.current[-1], values)

    def _extend(self, target: Any, values: list[object]) -> None:
        if type(target) is not list and not self._allowed.is_users(type(target)):
            raise Refused(f"items may not be appended to an object of type {type(target).__name__}")
        target.extend(values)

    def _set_item(self, _: object) -> None:
        value, key = self._pop(), self._pop()
        self._set(self._stack.current[-1], [key, value])

    def _set_items(self, _: object) -> None:
        pairs = self._stack.take()
        self._set(self._stack.current[-1], pairs)

    def _set(self, target: Any, pairs: Sequence[object]) -> None:
        if type(target) not in (dict, OrderedDict, Counter) and not self._allowed.is_users(type(target)):
            raise Refused(f"items may not be set on an object of type {type(target).__name__}")
        for key, value in zip(self._keys(pairs[::2]), pairs[1::2], strict=True):
            target[key] = value

    def _add_items(self, _: object) -> None:
        values = self._stack.take()
        target = self._stack.current[-1]
        if type(target) is not set:
            raise Refused(f"members may not be added to an object of type {type(target).__name__}")
        target.update(self._keys(values))

    def _build(self, _: object) -> None:
        state = self._pop()
        target = self._stack.current[-1]
        set_state = self._allowed.set_state(type(target))
        if set_state is None:
            raise Refused(f"the state of an object of type {type(target).__name__} may not be set")
        set_state(target, state)

    # ---- names and calls

    def _global(self, names: str) -> None:
        module, _, name = names.partition(" ")
        self._push(self._allowed.find(module, name))

    def _stack_global(self, _: object) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise TypeError("names must be strings")
        self._push(self._allowed.find(module, name))

    def _reduce(self, _: object) -> None:
        arguments, called = self._pop(), self._pop()
        self._push(self._called(called, arguments, {}))

    def _new_object(self, _: object) -> None:
        arguments, made = self._pop(), self._pop()
        self._push(self._made(made, arguments, {}))

    def _new_object_ex(self, _: object) -> None:
        named, arguments, made = self._pop(), self._pop(), self._pop()
        self._push(self._made(made, arguments, named))

    def _called(self, called: object, arguments: object, named: object) -> Any:
        call = self._allowed.call(called)
        if call is None:
            raise Refused(f"{_described(called)} may not be called")
        if type(arguments) is not tuple or type(named) is not dict:
            raise TypeError("arguments must be a tuple")
        for given in arguments:  # the call may copy them, and they may be the same ones again and again
            self._spend(len(given) if isinstance(given, str | bytes | bytearray | tuple | list | dict | set) else 1)
        if called in (set, OrderedDict, Counter):
            self._check_contents(called, arguments)
        return call(*arguments, **named)

    def _check_contents(self, made: type, arguments: tuple[Any, ...]) -> None:
        """Check the keys with which a container will be filled."""
        for given in arguments:
            if type(given) not in (list, tuple, set, dict, OrderedDict, Counter):
                raise Refused(f"{made.__name__} cannot be made from an object of type {type(given).__name__}")
            pairs = made is OrderedDict and not isinstance(given, dict)
            self._keys([pair[0] for pair in given] if pairs else given)

    def _made(self, made: Any, arguments: Any, named: Any) -> Any:
        if isinstance(made, type) and self._allowed.is_users(made) and type(arguments) is tuple:
            return made.__new__(made, *arguments, **named)
        return self._called(made, arguments, named)

    def _persistent(self, reference: object) -> None:
        self._push(self._allowed.storage(reference))

    def _persistent_on_stack(self, _: object) -> None:
        self._persistent(self._pop())

    # ---- keys

    def _keys(self, keys: Iterable[object]) -> Iterable[Any]:
        """``keys``, each of which can be hashed and compared in a time that the file's size explains."""
        for key in keys:
            # Hashes of text differ from process to process, and ints up to here have one each: no file can choose them.
            if type(key) not in (str, bytes, bool, float, type(None)) and not (
                type(key) is int and -_CHOSEN_FROM < key < _CHOSEN_FROM
            ):
                self._check_key(key)
        return keys

    def _check_key(self, key: Any) -> None:
        self._spend(key.bit_length() >> 6 if type(key) is int else 1)
        level = [key]
        for _ in range(MAX_DEPTH):
            level = [k for k in level if type(k) in (tuple, frozenset, Size)]
            if not level:
                break
            self._spend(sum(map(len, level)))
            level = [part for k in level for part in k]
        else:
            raise Refused(f"a key is nested more than {MAX_DEPTH} levels deep")
        others = self._hashes[hash(key)]
        if key not in others:
            others.append(key)
        if len(others) > _MAX_EQUAL_HASHES:
            raise Refused("too many keys of the file have the same hash")


def globals_of(data: bytes) -> Iterator[str]:
    """The full names of functions and classes in a pickle, without running it."""
    texts: list[str] = []
    memo: dict[int, str] = {}
    argument: Any
    for code, argument, _ in pickletools.genops(io.BytesIO(data)):
        if code.name == "GLOBAL":
            yield argument.replace(" ", ".")
        elif code.name == "STACK_GLOBAL":
            yield ".".join(texts[-2:])
        elif "UNICODE" in code.name:
            texts.append(argument)
        elif code.name == "MEMOIZE":
            memo[len(memo)] = texts[-1] if texts else ""
        elif code.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo.get(argument, ""))


def _described(value: object) -> str:
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
    return f"an object of type {type(value).__name__}"


def _check_depth(result: object) -> None:
    """Raise where containers are nested more than ``MAX_DEPTH`` levels deep, by the longest way down."""
    heights: dict[int, int] = {}
    open_: list[tuple[Any, list[Any] | None]] = [(result, None)]
    while open_:
        value, parts = open_.pop()
        if parts is not None:
            heights[id(value)] = 1 + max((heights.get(id(p), 0) for p in parts), default=0)
            if heights[id(value)] > MAX_DEPTH:
                raise Refused(f"containers are nested more than {MAX_DEPTH} levels deep")
        elif id(value) not in heights and (parts := _parts(value)):
            heights[id(value)] = 0  # a container that contains itself adds no depth
            open_.append((value, parts))
            open_.extend((part, None) for part in parts)


def _parts(value: object) -> list[Any]:
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts += value
    if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
        parts += value.__dict__.values()
    return [p for p in parts if type(p) not in (str, int, float, bool, bytes, type(None))]


def _constant(value: object) -> Callable[[SafeUnpickler, Any], None]:
    return lambda self, _: self._push(value)


def _empty(kind: Callable[[], object]) -> Callable[[SafeUnpickler, Any], None]:
    return lambda self, _: self._push(kind())


def _short_tuple(size: int) -> Callable[[SafeUnpickler, Any], None]:
    return lambda self, _: self._short_tuple(size)


_PLAIN = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
)  # fmt: skip
"""Operations that push literals from the file."""

_OPERATIONS: Mapping[str, Callable[[SafeUnpickler, Any], None]] = {
    **dict.fromkeys(_PLAIN, SafeUnpickler._push),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), SafeUnpickler._string),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), SafeUnpickler._put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), SafeUnpickler._get),
    "TUPLE1": _short_tuple(1), "TUPLE2": _short_tuple(2), "TUPLE3": _short_tuple(3),
    **dict.fromkeys(("PROTO", "FRAME"), lambda self, _: None),
    "NONE": _constant(None), "NEWTRUE": _constant(True), "NEWFALSE": _constant(False), "EMPTY_TUPLE": _constant(()),
    "EMPTY_LIST": _empty(list), "EMPTY_DICT": _empty(dict), "EMPTY_SET": _empty(set),
    "MARK": SafeUnpickler._mark, "POP": SafeUnpickler._drop, "POP_MARK": SafeUnpickler._drop_to_mark,
    "DUP": SafeUnpickler._duplicate, "MEMOIZE": SafeUnpickler._memoize, "LIST": SafeUnpickler._list,
    "TUPLE": SafeUnpickler._tuple, "DICT": SafeUnpickler._dict, "FROZENSET": SafeUnpickler._frozenset,
    "APPEND": SafeUnpickler._append, "APPENDS": SafeUnpickler._appends, "SETITEM": SafeUnpickler._set_item,
    "SETITEMS": SafeUnpickler._set_items, "ADDITEMS": SafeUnpickler._add_items, "BUILD": SafeUnpickler._build,
    "GLOBAL": SafeUnpickler._global, "STACK_GLOBAL": SafeUnpickler._stack_global, "REDUCE": SafeUnpickler._reduce,
    "NEWOBJ": SafeUnpickler._new_object, "NEWOBJ_EX": SafeUnpickler._new_object_ex,
    "PERSID": SafeUnpickler._persistent, "BINPERSID": SafeUnpickler._persistent_on_stack,
}  # fmt: skip
