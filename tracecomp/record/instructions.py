"""Which instructions of CPython read or change what a program did not make itself, and what each means for that."""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FrameType
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.record import calls
from tracecomp.record.frames import peek, stack_is_known, variable
from tracecomp.record.guards.reads import Element, Entry
from tracecomp.record.guards.snapshots import PLAIN, plain_value
from tracecomp.record.watching import Watching

Handler = Callable[[Any, FrameType, Any], None]

PROGRAM: dict[str, Handler] = {}
LIBRARY: dict[str, Handler] = {}


class Handlers:
    """What to do before the instructions of one function, by their place; ``of_program`` tells whose it is."""

    def __init__(self, code: CodeType, table: Mapping[str, Handler]) -> None:
        self.of_program = table is PROGRAM
        self.at: dict[int, tuple[tuple[Handler, Any], ...]] = {}
        keywords: tuple[str, ...] = ()
        after: Handler | None = None
        for i in dis.get_instructions(code) if stack_is_known() else ():
            found = []
            if after is not None:
                found.append((after, None))
            after = _AFTER.get(i.opname) if self.of_program else None
            if i.opname == "KW_NAMES":
                keywords = code.co_consts[i.arg or 0]
            handler = table.get(i.opname)
            if handler is not None:
                found.append((handler, _argument(i, keywords)))
            if i.opname == "CALL":
                keywords = ()
            if found:
                self.at[i.offset] = tuple(found)

    @staticmethod
    @cache
    def _known(code: CodeType, of_program: bool) -> Handlers:
        return Handlers(code, PROGRAM if of_program else LIBRARY)

    @staticmethod
    def of(code: CodeType, table: Mapping[str, Handler]) -> Handlers:
        """The handlers of a function, made once."""
        return Handlers._known(code, table is PROGRAM)


def _argument(i: dis.Instruction, keywords: tuple[str, ...]) -> Any:
    if i.opname == "CALL":
        return (i.arg, keywords)
    if i.opname in ("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF"):
        return (i.arg, i.argval)
    if i.opname in ("CALL_FUNCTION_EX", "DICT_MERGE", "DICT_UPDATE", "LIST_EXTEND", "SET_UPDATE", "BINARY_OP"):
        return i.arg
    return i.argval


def _program(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        PROGRAM.update(dict.fromkeys(names, handler))
        return handler

    return add


def _made(observer: Watching, frame: FrameType, _: object) -> None:
    """A function was made by the instruction before."""
    fn = peek(frame, 1)
    observer.made[id(fn)] = fn
    for cell in fn.__closure__ or ():
        observer.made.setdefault(id(cell), cell)


def _returned(observer: Watching, frame: FrameType, _: object) -> None:
    observer.after_call()


_AFTER: dict[str, Handler] = {"MAKE_FUNCTION": _made, "CALL": _returned, "CALL_FUNCTION_EX": _returned}


@_program("LOAD_GLOBAL", "LOAD_NAME")
def _load_global(observer: Watching, frame: FrameType, name: str) -> None:
    observer.global_name(frame, name)


@_program("LOAD_DEREF", "LOAD_CLASSDEREF")
def _load_deref(observer: Watching, frame: FrameType, where: tuple[int, str]) -> None:
    observer.cell(variable(frame, where[0]), where[1])


@_program("LOAD_ATTR", "LOAD_METHOD")
def _load_attribute(observer: Watching, frame: FrameType, name: str) -> None:
    observer.attribute(peek(frame, 1), name)


@_program("BINARY_SUBSCR")
def _subscript(observer: Watching, frame: FrameType, _: object) -> None:
    observer.item(peek(frame, 2), peek(frame, 1))


@_program("CONTAINS_OP")
def _contains(observer: Watching, frame: FrameType, _: object) -> None:
    owner, key = peek(frame, 1), plain_value(peek(frame, 2))
    calls.member(observer, owner, key)


@_program("IS_OP")
def _is(observer: Watching, frame: FrameType, _: object) -> None:
    sides = (peek(frame, 1), peek(frame, 2))
    if not any(isinstance(x, PLAIN) for x in sides):
        for x in sides:
            observer.pin(x)


@_program("COMPARE_OP", "BINARY_OP")
def _operands(observer: Watching, frame: FrameType, _: object) -> None:
    for depth in (2, 1):
        observer.consume(peek(frame, depth))


@_program(
    "GET_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE",
    "GET_YIELD_FROM_ITER", "LIST_TO_TUPLE", "MATCH_MAPPING", "MATCH_SEQUENCE", "GET_LEN",
)  # fmt: skip
def _iterated(observer: Watching, frame: FrameType, _: object) -> None:
    calls.iterated(observer, peek(frame, 1))


@_program(
    "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE",
    "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "UNARY_NOT",
)  # fmt: skip
def _truth(observer: Watching, frame: FrameType, _: object) -> None:
    calls.size(observer, peek(frame, 1))


@_program("FORMAT_VALUE", "MATCH_KEYS", "MATCH_CLASS")
def _shown(observer: Watching, frame: FrameType, _: object) -> None:
    observer.consume(peek(frame, 1))
    observer.consume(peek(frame, 2))


@_program("STORE_ATTR")
def _store_attribute(observer: Watching, frame: FrameType, name: str) -> None:
    calls.set_attribute(observer, peek(frame, 1), name, peek(frame, 2))


@_program("DELETE_ATTR")
def _delete_attribute(observer: Watching, frame: FrameType, name: str) -> None:
    calls.delete_attribute(observer, peek(frame, 1), name)


@_program("STORE_SUBSCR")
def _store_item(observer: Watching, frame: FrameType, _: object) -> None:
    calls.set_item(observer, peek(frame, 2), peek(frame, 1), peek(frame, 3))


@_program("DELETE_SUBSCR")
def _delete_item(observer: Watching, frame: FrameType, _: object) -> None:
    owner, key = peek(frame, 2), plain_value(peek(frame, 1))
    if not isinstance(owner, Tensor):
        observer.change(owner, _entry(owner, key), operator.delitem, key)


@_program("STORE_GLOBAL")
def _store_global(observer: Watching, frame: FrameType, name: str) -> None:
    observer.known.setdefault(id(frame.f_globals), observer.reads.root(frame.f_globals, "globals"))
    observer.change(frame.f_globals, Entry(name), operator.setitem, name, peek(frame, 1))


@_program("STORE_DEREF")
def _store_deref(observer: Watching, frame: FrameType, where: tuple[int, str]) -> None:
    observer.set_cell(variable(frame, where[0]), where[1], peek(frame, 1))


def _entry(owner: object, key: object) -> Entry | Element | None:
    return Entry(key) if isinstance(owner, dict) and calls.is_key(key) else None


def _call(observer: Watching, frame: FrameType, shape: tuple[int, tuple[str, ...]]) -> None:
    count, keywords = shape
    given = [peek(frame, depth) for depth in range(count, 0, -1)]
    callee, self_or_callee = peek(frame, count + 2), peek(frame, count + 1)
    if callee is None:
        callee = self_or_callee
    else:
        given.insert(0, self_or_callee)
    first = len(given) - len(keywords)
    calls.called(observer, callee, given[:first], dict(zip(keywords, given[first:], strict=True)))


def _call_spread(observer: Watching, frame: FrameType, flags: int) -> None:
    kwargs = peek(frame, 1) if flags & 1 else {}
    args = peek(frame, 1 + (flags & 1))
    calls.iterated(observer, args)
    calls.iterated(observer, kwargs)
    callee = peek(frame, 2 + (flags & 1))
    if isinstance(args, list | tuple) and isinstance(kwargs, dict):
        calls.called(observer, callee, list(args), kwargs)


PROGRAM["CALL"] = _call
PROGRAM["CALL_FUNCTION_EX"] = _call_spread
LIBRARY["CALL"] = lambda observer, frame, shape: calls.called_by_library(observer, *_callee(frame, shape))
LIBRARY["CALL_FUNCTION_EX"] = lambda observer, frame, flags: calls.called_by_library(
    observer, peek(frame, 2 + (flags & 1)), None
)


def _callee(frame: FrameType, shape: tuple[int, tuple[str, ...]]) -> tuple[Any, Any]:
    """What is called, and on which object."""
    callee, owner = peek(frame, shape[0] + 2), peek(frame, shape[0] + 1)
    return (owner, None) if callee is None else (callee, owner)
