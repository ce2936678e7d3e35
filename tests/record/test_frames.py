"""The stack of a function that is traced: its values before each instruction, on this Python."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from tracecomp.record.frames import STACK_IS_KNOWN, Stack, function_of, watch_instructions
from tracecomp.record.stack_depths import stack_depths

Traced = Callable[[FrameType, dis.Instruction, Stack], None]


def watched(run: Callable[[], object], see: Traced) -> None:
    """Run, and show every instruction of functions of this file before it runs."""
    known: dict[int, tuple[object, dict[int, dis.Instruction], dict[int, int]]] = {}

    def traced(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_filename != __file__ or code is watched.__code__:
            return None
        watch_instructions(frame, traced)
        if id(code) not in known:
            known[id(code)] = (code, {i.offset: i for i in dis.get_instructions(code)}, stack_depths(code))
        if event == "opcode":
            _, at, depths = known[id(code)]
            see(frame, at[frame.f_lasti], Stack(frame, depths[frame.f_lasti]))
        return traced

    before = sys.gettrace()
    try:
        sys.settrace(traced)
        run()
    finally:
        sys.settrace(before)


class Marked:
    """A value that is known when it is seen again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.items = [self, 1]

    def method(self, *args: object, **kwargs: object) -> Marked:
        return self

    def __enter__(self) -> Marked:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


def everything(m: Marked, other: Marked) -> object:
    """Only attributes of ``m`` are read in here, whatever else the stack holds."""
    options = {"a": m.name}
    seen = [m.items[0], m.method(m.name, key=m.items), m.method(*m.items, **options)]
    for n in range(3):
        try:
            with m.method() as inner, contextlib.suppress(ValueError):
                if n == 1:
                    raise KeyError(n)
                if n == 2:
                    raise ValueError(m.items)
                seen.append(inner)
        except KeyError as error:
            seen.append(m.method(error, m.items))
        finally:
            seen.append(f"{m.name!r:>10} {m.items[1]}")
    match seen[0]:
        case {"a": 1}:
            pass
        case Marked(name="m"):
            seen += [m.name, *m.items]
    a, *rest = m.items
    late = (lambda *x, k=m.items: (x, k, m.name))(1, m.items)
    return [*(m.items[i] for i in range(2)), {k: k + m.name for k in "ab"}, [m.items for _ in rest if m.name], late, a]


def produced(m: Marked) -> Iterator[object]:
    for n in range(3):
        got = yield m.items
        assert got is None, m.name
        yield from [m.items, n]


async def awaited(m: Marked) -> object:
    async def items() -> AsyncIterator[object]:
        for n in range(3):
            await asyncio.sleep(0)
            yield m.items, n

    async with asyncio.Lock():
        return [m.name async for _ in items() if m.items]


RUNS: dict[str, Callable[[], object]] = {
    "statements": lambda: everything(Marked("m"), Marked("other")),
    "generator": lambda: list(produced(Marked("m"))),
    "coroutine": lambda: asyncio.run(awaited(Marked("m"))),
}


@pytest.mark.parametrize("run", RUNS)
def test_who_is_asked_for_an_attribute_is_on_top(run: str) -> None:
    """Whatever has been put on the stack before by loops, handlers and calls."""
    assert STACK_IS_KNOWN
    count = 0

    def see(frame: FrameType, i: dis.Instruction, stack: Stack) -> None:
        nonlocal count
        if i.opname in ("LOAD_ATTR", "LOAD_METHOD") and i.argval in ("name", "items", "method"):
            assert isinstance(stack.peek(1), Marked), (frame.f_code.co_name, i)
            count += 1

    watched(RUNS[run], see)
    assert count > 3


def test_operands_of_the_instructions_that_matter() -> None:
    items, table, other = [1, 2, 3], {"a": 1}, [4]
    seen: list[tuple[str, bool]] = []
    owner_at = {
        "BINARY_SUBSCR": 2, "BINARY_SLICE": 3, "STORE_SUBSCR": 2, "STORE_SLICE": 3, "DELETE_SUBSCR": 2,
        "CONTAINS_OP": 1, "GET_ITER": 1, "UNPACK_SEQUENCE": 1, "LIST_EXTEND": 1, "IS_OP": 2, "COMPARE_OP": 2,
    }  # fmt: skip

    def program() -> object:
        a, b, c = items
        items[1:2] = other
        table["b"] = items[0]
        del table["b"]
        for _ in items:
            pass
        return [items[1:2], 3 in items, items is other, items == other, [0, *items], a, b, c]

    def see(frame: FrameType, i: dis.Instruction, stack: Stack) -> None:
        if frame.f_code is program.__code__ and i.opname in owner_at:
            seen.append((i.opname, any(stack.peek(owner_at[i.opname]) is x for x in (items, table))))

    watched(program, see)
    assert len(seen) > 8 and all(right for _, right in seen), seen


def test_the_function_of_a_frame() -> None:
    def make(n: int) -> Callable[[], object]:
        def inner() -> object:
            return function_of(sys._getframe()), n

        return inner

    one, two = make(1), make(2)
    assert one() == (one, 1) and two() == (two, 2)
