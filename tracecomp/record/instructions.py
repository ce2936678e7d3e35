"""Instructions of CPython that read or change outside objects, with handlers for each.

The tables hold the names of instructions of all versions that ``base/interpreter.py`` lists; handlers account for
versions with other operands.
"""

from __future__ import annotations

import dis
import math
import operator
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.eager.tensor import Tensor
from tracecomp.record.builtin_calls import arithmetic, text
from tracecomp.record.calls import called
from tracecomp.record.caught_errors import catches, ends_handling
from tracecomp.record.container_calls import changes_in_place
from tracecomp.record.container_reads import iterated, member, size
from tracecomp.record.frames import LAYOUT, Stack
from tracecomp.record.guards.lookup import is_key
from tracecomp.record.guards.read_steps import Element, Entry
from tracecomp.record.guards.snapshots import MISSING, plain_value
from tracecomp.record.new_objects import has_made, will_make
from tracecomp.record.numpy_errors import try_operator
from tracecomp.record.object_writes import delete_attribute, set_attribute, set_item
from tracecomp.record.opaque_calls import called_by_library
from tracecomp.record.plain_numbers import plain_numbers, wants_plain
from tracecomp.record.registries import imported
from tracecomp.record.stack_depths import stack_depths
from tracecomp.record.symbolic.sym_int import SymInt, shown
from tracecomp.record.symbolic.sym_scalar import SymScalar
from tracecomp.record.watching import Watching

Handler = Callable[[Any, Stack, Any], None]

PROGRAM: dict[str, Handler] = {}
LIBRARY: dict[str, Handler] = {}


class Handlers:
    """Handlers of the instructions of one function, by offset; ``of_program`` says whether it belongs to the program.

    ``at`` has, with the handlers of an instruction, the number of values on the stack before it.
    """

    def __init__(self, code: CodeType, table: Mapping[str, Handler]) -> None:
        self.of_program = table is PROGRAM
        self.catches = self.of_program and catches(code)
        self.at: dict[int, tuple[int, list[tuple[Handler, Any]]]] = {}
        depths = stack_depths(code)
        keywords: tuple[str, ...] = ()
        after: Handler | None = None
        for i in dis.get_instructions(code):
            found = []
            if after is not None:
                found.append((after, None))
            after = (_AFTER if self.of_program else _AFTER_OF_LIBRARY).get(i.opname)
            if i.opname == "KW_NAMES":
                keywords = code.co_consts[i.arg or 0]
            handler = table.get(i.opname)
            if handler is not None:
                found.append((handler, _argument(i, keywords)))
            if i.opname == "CALL":
                keywords = ()
            if found and i.offset in depths:
                self.at[i.offset] = (depths[i.offset], found)

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
    if i.opname in ("LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
        return (i.arg, i.argval)
    if i.opname in ("CALL_FUNCTION_EX", "DICT_MERGE", "DICT_UPDATE", "LIST_EXTEND", "SET_UPDATE", "CALL_KW"):
        return i.arg
    return i.argrepr if i.opname == "BINARY_OP" else i.argval


def _program(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        PROGRAM.update(dict.fromkeys(names, handler))
        return handler

    return add


def _made(observer: Watching, stack: Stack, _: object) -> None:
    """A function was made by the instruction before, or has got a part."""
    fn = stack.peek(1)
    observer.made.update(map(id, (fn, *(fn.__closure__ or ()))))


def _library_returned(observer: Watching, stack: Stack, _: object) -> None:
    has_made(observer, stack.frame, stack.peek(1))


def _returned(observer: Watching, stack: Stack, _: object) -> None:
    observer.changes.after_call()
    _library_returned(observer, stack, None)


def _imported(observer: Watching, stack: Stack, _: object) -> None:
    """An import in a function gave a module, or a package."""
    observer.module_imported(stack.peek(1))


_AFTER: dict[str, Handler] = {
    "MAKE_FUNCTION": _made, "SET_FUNCTION_ATTRIBUTE": _made, "CALL": _returned, "CALL_KW": _returned,
    "CALL_FUNCTION_EX": _returned, "IMPORT_NAME": _imported,
}  # fmt: skip
_AFTER_OF_LIBRARY: dict[str, Handler] = dict.fromkeys(("CALL", "CALL_KW", "CALL_FUNCTION_EX"), _library_returned)


@_program("LOAD_GLOBAL")
def _load_global(observer: Watching, stack: Stack, name: str) -> None:
    observer.global_name(stack.frame, name)


@_program("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
def _load_name(observer: Watching, stack: Stack, name: str) -> None:
    held = stack.frame.f_locals  # of the body of a class, or of a text that is evaluated
    if name not in held or held is stack.frame.f_globals:
        observer.global_name(stack.frame, name)
    else:
        observer.item(held, name)


@_program("STORE_NAME")
def _store_name(observer: Watching, stack: Stack, name: str) -> None:
    held = stack.frame.f_locals
    if held is stack.frame.f_globals:
        _store_global(observer, stack, name)
    else:
        observer.changes.change(held, Entry(name), operator.setitem, name, stack.peek(1))


@_program("IMPORT_NAME")
def _import(observer: Watching, stack: Stack, name: str) -> None:
    imported(observer, stack.frame.f_globals, name, stack.peek(2))


@_program("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
def _load_deref(observer: Watching, stack: Stack, where: tuple[int, str]) -> None:
    observer.cell(stack.variable(where[0]), where[1])


@_program("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
def _load_attribute(observer: Watching, stack: Stack, name: str) -> None:
    observer.attribute(stack.peek(1), name)


@_program("LOAD_SUPER_ATTR")
def _load_super(observer: Watching, stack: Stack, name: str) -> None:
    """``super().name`` in one go; the class whose method this is, and the object."""
    observer.attribute_of_base(stack.peek(2), stack.peek(1), name)


@_program("BINARY_SUBSCR")
def _subscript(observer: Watching, stack: Stack, _: object) -> None:
    if isinstance(stack.peek(2), dict):
        stack.put(1, plain_numbers(stack.peek(1)))  # a dictionary that creates missing values keeps the key
    observer.item(stack.peek(2), stack.peek(1))


@_program("BINARY_SLICE")
def _slice(observer: Watching, stack: Stack, _: object) -> None:
    observer.item(stack.peek(3), slice(stack.peek(2), stack.peek(1)))


@_program("CONTAINS_OP")
def _contains(observer: Watching, stack: Stack, _: object) -> None:
    owner, key = stack.peek(1), plain_value(stack.peek(2))
    member(observer, owner, key)


def _handled(observer: Watching, stack: Stack, _: object) -> None:
    if ends_handling(stack.frame):
        observer.error_caught(sys.exc_info()[1])


PROGRAM["POP_EXCEPT"] = LIBRARY["POP_EXCEPT"] = _handled


@_program("BEFORE_WITH")
def _with(observer: Watching, stack: Stack, _: object) -> None:
    observer.block_entered(stack.peek(1))


@_program("IS_OP")
def _is(observer: Watching, stack: Stack, _: object) -> None:
    observer.same(stack.peek(1), stack.peek(2))


@_program("COMPARE_OP", "BINARY_OP")
def _operands(observer: Watching, stack: Stack, sign: str) -> None:
    if sign == "[]":  # from Python 3.14 on a binary operator like others
        _subscript(observer, stack, None)
        return
    if changes_in_place(observer, sign, stack.peek(2), stack.peek(1)):
        return
    for depth in (2, 1):
        observer.consume(stack.peek(depth))
        arithmetic(observer, stack.peek(depth))
    try_operator(observer, sign.removesuffix("="), stack.peek(2), stack.peek(1))
    if sign in ("%", "%=") and type(stack.peek(2)) in (str, bytes, bytearray):
        stack.put(1, plain_numbers(stack.peek(1)))  # `%*d` asks for the very type


@_program(
    "GET_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE",
    "GET_YIELD_FROM_ITER", "LIST_TO_TUPLE", "MATCH_MAPPING", "MATCH_SEQUENCE", "GET_LEN",
)  # fmt: skip
def _iterated(observer: Watching, stack: Stack, _: object) -> None:
    iterated(observer, stack.peek(1))


@_program(
    "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_TRUE",
    "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "TO_BOOL", "UNARY_NOT",
)  # fmt: skip
def _truth(observer: Watching, stack: Stack, _: object) -> None:
    size(observer, stack.peek(1))


@_program("FORMAT_SIMPLE", "CONVERT_VALUE")
def _shown(observer: Watching, stack: Stack, _: object) -> None:
    observer.consume(stack.peek(1))
    text(observer, stack.peek(1))


@_program("FORMAT_WITH_SPEC", "MATCH_KEYS")
def _shown_by(observer: Watching, stack: Stack, _: object) -> None:
    observer.consume(stack.peek(2))


@_program("FORMAT_VALUE")
def _format(observer: Watching, stack: Stack, how: tuple[object, bool]) -> None:
    observer.consume(stack.peek(1 + how[1]))  # the format is above it on the stack
    text(observer, stack.peek(1 + how[1]))


@_program("MATCH_CLASS")
def _match_class(observer: Watching, stack: Stack, _: object) -> None:
    observer.attribute(stack.peek(2), "__match_args__")
    observer.consume(stack.peek(3))


@_program("STORE_ATTR")
def _store_attribute(observer: Watching, stack: Stack, name: str) -> None:
    set_attribute(observer, stack.peek(1), name, stack.peek(2))


@_program("DELETE_ATTR")
def _delete_attribute(observer: Watching, stack: Stack, name: str) -> None:
    delete_attribute(observer, stack.peek(1), name)


@_program("STORE_SUBSCR")
def _store_item(observer: Watching, stack: Stack, _: object) -> None:
    if isinstance(stack.peek(2), dict):
        stack.put(1, plain_numbers(stack.peek(1)))  # a dictionary keeps its keys
    set_item(observer, stack.peek(2), stack.peek(1), stack.peek(3))


@_program("STORE_SLICE")
def _store_slice(observer: Watching, stack: Stack, _: object) -> None:
    set_item(observer, stack.peek(3), slice(stack.peek(2), stack.peek(1)), stack.peek(4))


@_program("DELETE_SUBSCR")
def _delete_item(observer: Watching, stack: Stack, _: object) -> None:
    owner, key = stack.peek(2), plain_value(stack.peek(1))
    if not isinstance(owner, Tensor):
        observer.looked_up(owner, key)
        observer.changes.change(owner, _entry(owner, key), operator.delitem, key)


@_program("STORE_GLOBAL")
def _store_global(observer: Watching, stack: Stack, name: str) -> None:
    observer.changes.change(_namespace(observer, stack), Entry(name), operator.setitem, name, stack.peek(1))


@_program("DELETE_GLOBAL")
def _delete_global(observer: Watching, stack: Stack, name: str) -> None:
    observer.changes.change(_namespace(observer, stack), Entry(name), operator.delitem, name)


@_program("DELETE_NAME")
def _delete_name(observer: Watching, stack: Stack, name: str) -> None:
    held = stack.frame.f_locals
    if held is stack.frame.f_globals:
        _delete_global(observer, stack, name)
    else:
        observer.changes.change(held, Entry(name), operator.delitem, name)


@_program("STORE_DEREF")
def _store_deref(observer: Watching, stack: Stack, where: tuple[int, str]) -> None:
    observer.changes.set_cell(stack.variable(where[0]), where[1], stack.peek(1))


@_program("DELETE_DEREF")
def _delete_deref(observer: Watching, stack: Stack, where: tuple[int, str]) -> None:
    observer.changes.set_cell(stack.variable(where[0]), where[1], MISSING)


@_program("RETURN_VALUE")
def _return(observer: Watching, stack: Stack, _: object) -> None:
    """Code in C reads the results of some methods of the program: in full, or their exact type."""
    name = stack.frame.f_code.co_name
    if name in _NUMBERS:
        stack.put(1, plain_numbers(stack.peek(1)))
    elif name in _READ:
        observer.consume(stack.peek(1))


_NUMBERS = frozenset({"__int__", "__float__", "__complex__", "__index__", "__len__", "__length_hint__", "__hash__"})
_READ = frozenset({"__dir__", "__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__fspath__"})


@_program("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_INVERT", "CALL_INTRINSIC_1")
def _unary(observer: Watching, stack: Stack, kind: object) -> None:
    if kind == _ALL_NAMES:
        _import_all(observer, stack, None)
    arithmetic(observer, stack.peek(1))


@_program("IMPORT_STAR")
def _import_all(observer: Watching, stack: Stack, _: object) -> None:
    observer.recorder.refuse_here("imports all names of a module", Section.STATE, "Import single names")


def _entry(owner: object, key: object) -> Entry | Element | None:
    return Entry(key) if isinstance(owner, dict) and is_key(key) else None


_ALL_NAMES = 2
"""The argument of ``CALL_INTRINSIC_1`` that imports all names, from CPython 3.12 on."""


def _callee(stack: Stack, count: int) -> tuple[Any, Any]:
    """The callee with ``count`` operands above it, and its object if it is a method of one."""
    depth = _callee_depth(stack, count)
    return stack.peek(depth), stack.peek(count + 1) if depth == count + 2 else None


def _callee_depth(stack: Stack, count: int) -> int:
    """The depth on the stack of the callee with ``count`` operands above it."""
    return count + 2 if LAYOUT.callee_first or stack.peek(count + 2) is not None else count + 1


def _call_with(observer: Watching, stack: Stack, count: int, above: int, keywords: tuple[str, ...]) -> None:
    """A call with ``count`` arguments, the last ones by ``keywords``; ``above`` other values above them."""
    given = [stack.peek(depth) for depth in range(count + above, above, -1)]
    callee, owner = _callee(stack, count + above)
    if owner is not None:
        given.insert(0, owner)
    if callee is type and len(given) == 1:
        given = [shown(given[0])]  # the type is that of the number shown to Python
        stack.put(1 + above, given[0])
    elif callee is int and len(given) == 1 and type(given[0]) in (SymInt, SymScalar):
        callee = math.trunc  # the same, but the result may follow sizes too
        stack.put(_callee_depth(stack, count + above), callee)
    elif wants_plain(callee) or (callee is pow and len(given) == 3):
        given = list(map(plain_numbers, given))
        for depth in range(count, 0, -1):
            stack.put(depth + above, given[-depth])
    observer.reads.asks_types |= any(x is type for x in given)  # who calls it then is not seen
    if callee is globals:
        _namespace(observer, stack)
    will_make(observer, stack.frame, callee, given)
    first = len(given) - len(keywords)
    stand_in = called(observer, callee, given[:first], dict(zip(keywords, given[first:], strict=True)))
    if stand_in is not None:
        stack.put(_callee_depth(stack, count + above), stand_in)


def _namespace(observer: Watching, stack: Stack) -> dict[str, Any]:
    """The program asks for the dictionary of its globals, or changes it."""
    space = stack.frame.f_globals
    observer.known.setdefault(id(space), observer.reads.root(space, "globals"))
    return space


def _call_spread(observer: Watching, stack: Stack, flags: int) -> None:
    above = int(LAYOUT.keywords_always or flags & 1)
    kwargs = (stack.peek(1) if above else None) or {}
    args = stack.peek(1 + above)
    iterated(observer, args)
    iterated(observer, kwargs)
    callee = _spread_callee(stack, above)
    if isinstance(args, list | tuple) and isinstance(kwargs, dict):
        observer.reads.asks_types |= callee is type or any(x is type for x in (*args, *kwargs.values()))
    if callee is globals:
        _namespace(observer, stack)
    if wants_plain(callee):
        args, kwargs = plain_numbers(args), plain_numbers(kwargs)
        stack.put(1 + above, args)
    if isinstance(args, list | tuple) and isinstance(kwargs, dict):
        will_make(observer, stack.frame, callee, args)
        stand_in = called(observer, callee, list(args), kwargs)
        if stand_in is not None:
            stack.put(2 + above + LAYOUT.callee_first, stand_in)


def _call_in_library(observer: Watching, stack: Stack, count: int, above: int) -> None:
    callee, owner = _callee(stack, count + above)
    called_by_library(observer, callee, owner)
    will_make(observer, stack.frame, callee, [stack.peek(count + above)] if count else [])


def _spread_in_library(observer: Watching, stack: Stack, flags: int) -> None:
    above = int(LAYOUT.keywords_always or flags & 1)
    callee, args = _spread_callee(stack, above), stack.peek(1 + above)
    called_by_library(observer, callee, None)
    will_make(observer, stack.frame, callee, args if isinstance(args, list | tuple) else ())


def _spread_callee(stack: Stack, above: int) -> Any:
    return stack.peek(2 + above + LAYOUT.callee_first)  # with an empty place between it and the arguments


PROGRAM["CALL"] = lambda observer, stack, shape: _call_with(observer, stack, shape[0], 0, shape[1])
PROGRAM["CALL_KW"] = lambda observer, stack, count: _call_with(observer, stack, count, 1, stack.peek(1))
PROGRAM["CALL_FUNCTION_EX"] = _call_spread
LIBRARY["LOAD_GLOBAL"] = lambda observer, stack, name: observer.library_global(stack.frame.f_globals, name)
LIBRARY["CALL"] = lambda observer, stack, shape: _call_in_library(observer, stack, shape[0], 0)
LIBRARY["CALL_KW"] = lambda observer, stack, count: _call_in_library(observer, stack, count, 1)
LIBRARY["CALL_FUNCTION_EX"] = _spread_in_library
