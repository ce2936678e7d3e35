"""The stack depth before each instruction of a function, computed from its code."""

from __future__ import annotations

import dis
from types import CodeType

_JUMPS = frozenset({*dis.hasjrel, *dis.hasjabs} - {dis.opmap["END_ASYNC_FOR"]})
"""The last one names, from Python 3.14 on, a place that it does not jump to."""
_NOWHERE = frozenset({
    "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
    "JUMP_BACKWARD_NO_INTERRUPT",
})  # fmt: skip
"""Instructions after which the next one does not run."""


def stack_depths(code: CodeType) -> dict[int, int]:
    """Return the depth of every reachable instruction, by its offset.

    CPython's compiler gives every instruction one depth on all paths to it. Exception handlers have theirs in the
    exception table, which truncates the stack before they run.
    """
    instructions = list(dis.get_instructions(code))
    place = {i.offset: n for n, i in enumerate(instructions)}
    found: dict[int, int] = {}
    todo = [(0, 0)]
    for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]  # not in typeshed
        todo.append((entry.target, entry.depth + entry.lasti + 1))
    while todo:
        offset, depth = todo.pop()
        for i in instructions[place[offset] :]:
            if i.offset in found:
                break
            found[i.offset] = depth
            if i.opcode in _JUMPS:
                todo.append((i.argval, depth + dis.stack_effect(i.opcode, i.arg, jump=True)))
            if i.opname in _NOWHERE:
                break
            depth += _effect(i)
    return found


def _effect(i: dis.Instruction) -> int:
    """An instruction's effect on the stack if it does not jump, by ``dis``, with two exceptions in Python 3.11."""
    if i.opname == "PRECALL":  # said to take the arguments, which CALL takes
        return 0
    if i.opname == "CALL":
        return -1 - (i.arg or 0)
    if i.opname == "RETURN_GENERATOR":  # said to add nothing: the value that is sent first is taken as there before
        return 1
    return dis.stack_effect(i.opcode, i.arg, jump=False)


def variables_of(code: CodeType) -> int:
    """How many places for variables a frame has below its stack: own ones, those shared with functions, outer ones."""
    return len({*code.co_varnames, *code.co_cellvars}) + len(code.co_freevars)
