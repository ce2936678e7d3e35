"""Errors of scripts, as ``torch.jit`` raises them: one kind for what programs raise, one for what goes wrong."""

from __future__ import annotations

import linecache
import opcode
import traceback
from types import FrameType

from tracecomp.base.code_origin import is_own_file
from tracecomp.base.errors import LinAlgError

_RAISE = opcode.opmap["RAISE_VARARGS"]
_WRONG = (
    ArithmeticError, AttributeError, BufferError, IndexError, KeyError, LookupError, NotImplementedError, OverflowError,
    TypeError, UnicodeError, ValueError, ZeroDivisionError, LinAlgError,
)  # fmt: skip


class Error(Exception):
    """Raised by ``raise`` or ``assert`` in a script; as in PyTorch, its text has the kind of error."""


def of_script(error: Exception) -> Exception:
    """Convert ``error``, raised by Python in a script, to the script's error; other errors are returned unchanged.

    ``raise`` and ``assert`` in a script give :class:`Error`, other failures a RuntimeError. Errors of other kinds, such
    as those of a recording, are unchanged.
    """
    steps = [(f, line) for f, line in traceback.walk_tb(error.__traceback__) if not _is_own(f)]
    if type(error) is AssertionError:
        return Error(_text(steps, f"RuntimeError: AssertionError: {error}"))
    if _was_raised(error):
        return Error(_text(steps, f"{type(error).__module__}.{type(error).__qualname__}: {error}"))
    if type(error) in _WRONG:
        said = f"KeyError: {error.args[0]}" if type(error) is KeyError and error.args else str(error)
        return RuntimeError(_text(steps, f"RuntimeError: {said}"))
    return error


def _is_own(frame: FrameType) -> bool:
    return is_own_file(frame.f_code.co_filename)


def _was_raised(error: Exception) -> bool:
    """Whether a statement of the program raised it, and no function that the program called."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not _is_own(at.tb_frame) and at.tb_frame.f_code.co_code[at.tb_lasti] == _RAISE


def _text(steps: list[tuple[FrameType, int]], said: str) -> str:
    """PyTorch's format: the position in the script, with the line itself, and the error."""
    lines = [
        "The following operation failed in the TorchScript interpreter.",
        "Traceback of TorchScript (most recent call last):",
    ]
    for frame, number in steps:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_name}')
        line = linecache.getline(code.co_filename, number).strip()
        lines += [f"    {line}", f"    {'~' * len(line)} <--- HERE"] if line else []
    return "\n".join([*lines, said]) + "\n"
