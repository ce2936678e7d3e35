"""Errors that a recorded program catches: what later calls must have in common with this one to raise them too.

An error of this package may depend on sizes and numbers, which the recording then fixes. It may also depend on elements
of tensors, which no guard compares. A program that catches one of the second kind is not recorded.
"""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Iterator
from opcode import opname
from pathlib import Path
from types import CodeType, FrameType

from tracecomp.base.code_origin import is_user_file
from tracecomp.ir.graph import Graph, Node

_STRUCTURE = tuple(str(Path(__file__).parents[1] / name) for name in (
    "ops/define.py", "ir", "functional/shape", "functional/dims.py", "functional/dtype_support.py",
    "functional/promotion.py", "functional/linalg/matmul.py", "nn/functional/conv.py",
))  # fmt: skip
"""Files whose errors are about shapes, dtypes and options alone, except those of ``require``, which anyone may call."""
_NAMES = {"_integer", "entries", "linear"}
"""Functions elsewhere of which the same is true."""


_NEVER_RAISE = frozenset((
    "elementwise", "reduction", "view", "pad", "concat", "contraction", "convolution", "window", "cumulative", "sort",
    "creation", "random", "transform",
))  # fmt: skip
"""Kinds of operators that compute a result for all elements of their operands, apart from integer arithmetic."""
_INTEGERS_RAISE = ("floor_divide", "remainder", "fmod", "pow")


def may_raise(graph: Graph) -> bool:
    """Whether elements of the inputs can make a call of ``graph`` raise an error, which the program may catch."""
    return any(map(node_may_raise, graph.live_nodes()))


def node_may_raise(node: Node) -> bool:
    """Whether elements of the operands of ``node`` can make it raise an error."""
    integer = not node.outputs[0].dtype.is_floating_point
    return node.op.kind not in _NEVER_RAISE or (integer and node.op.name in _INTEGERS_RAISE)


def catches(code: CodeType) -> bool:
    """Whether a function has an ``except`` clause."""
    return any(opname[op] == "CHECK_EXC_MATCH" for op in code.co_code[::2])


def ends_handling(frame: FrameType) -> bool:
    """Whether the instruction at hand ends a handler that does not raise the error again."""
    return opname[frame.f_code.co_code[frame.f_lasti + 2]] != "RERAISE"


def may_suppress(manager: object) -> bool:
    """Whether the end of a ``with`` block may handle an error."""
    return not isinstance(manager, contextlib.nullcontext) and is_user_file(
        _file_of(getattr(type(manager), "__exit__", None))
    )


def _file_of(function: object) -> str:
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    return "" if code is None else code.co_filename


def own_errors(error: BaseException | None) -> Iterator[tuple[BaseException, bool]]:
    """The errors of this package that led to ``error``, each with whether it may depend on elements of tensors.

    Those that this package has caught itself are left out.
    """
    for _ in range(8):
        if error is None:
            return
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames and is_user_file(frames[0].co_filename) and not is_user_file(frames[-1].co_filename):
            code = frames[-1]
            structure = code.co_name in _NAMES or (
                code.co_filename.startswith(_STRUCTURE) and code.co_name != "require"
            )
            yield error, not (structure or isinstance(error, TypeError | AttributeError | StopIteration))
        error = error.__cause__ or error.__context__
