"""Exceptions and the user's line.

User mistakes raise the exception type that PyTorch raises (``TypeError``, ``ValueError``, ``IndexError``,
``RuntimeError``); the classes here are for faults of the compiler itself and for refusals to capture.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's program: file, line and the function around it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class TracecompError(RuntimeError):
    """Base of every error that is not the user's mistake in a tensor operation."""


class VerifyError(TracecompError):
    """An IR breaks one of its rules; names the pass after which it was found."""


class CaptureError(TracecompError):
    """A program cannot be captured; says which line, why, and what to write instead."""


class CompileError(TracecompError):
    """A pass or codegen failed on a valid graph: a fault of the compiler. ``step`` is the pass or lowering step."""

    def __init__(self, message: str, step: str = "") -> None:
        super().__init__(message)
        self.step = step


class WrongResult(TracecompError):
    """A compiled call has another result than the eager one, by more than rounding."""


class CheckError(TracecompError):
    """Checked mode has found a fault of the compiler: an access outside its buffer, stale memory, a wrong result."""


class OutOfRange(IndexError, RuntimeError):
    """An index at run time is out of range: PyTorch raises the one for ``x[i]``, the other for ``x.gather(0, i)``."""


class LinAlgError(RuntimeError):
    """A matrix has no such decomposition: singular, or not positive-definite."""


FAILURES: dict[str, tuple[type[Exception], str]] = {
    "index": (OutOfRange, "index out of range in {step}"),
    "definite": (
        LinAlgError,
        "linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the "
        "leading minor of order {detail} is not positive-definite).",
    ),
    "singular": (LinAlgError, "torch.linalg.solve: The solver failed because the input matrix is singular."),
    "inverse": (
        LinAlgError,
        "linalg.inv: The diagonal element {detail} is zero, the inversion could not be completed because the input "
        "matrix is singular.",
    ),
    "pivot": (
        RuntimeError,
        "torch.linalg.lu_factor: U[{detail},{detail}] is zero and using it on lu_solve would result in a division by "
        "zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
        "linalg.lu_factor_ex(A, pivot)",
    ),
    "division": (RuntimeError, "ZeroDivisionError in {step}"),
    "outside": (CheckError, "access out of bounds, buffer {detail} of {step}"),
    "stale": (CheckError, "read of stale memory, buffer {detail} of {step}"),
}
"""What a check of native code can find, and the exception for it."""

_ELEMENT_BITS, _DETAIL_BITS = 10, 23
"""Of the detail of a matrix in a batch: below the number of the matrix, from 0, that of an element, from 1. Files of
programs are read by ``tracecomp_runtime/bound_code.py``, which knows the first one too."""

for _kind in ("definite", "singular", "inverse", "pivot"):
    _error, _text = FAILURES[_kind]
    _text = _text.replace(": ", ": (Batch element {batch}): ", 1).replace("{detail}", "{element}")
    FAILURES[f"{_kind} in batch"] = _error, _text


def in_batch(kind: str, lead: tuple[int, ...], size: int) -> str:
    """The failure of a matrix of so many elements on its diagonal: of one in a batch where both numbers can be told."""
    told = lead and math.prod(lead) <= 1 << _DETAIL_BITS - _ELEMENT_BITS and size < 1 << _ELEMENT_BITS
    return f"{kind} in batch" if told else kind


def matrix_weight(kind: str) -> int:
    """What the number of a matrix counts in a detail."""
    return 1 << _ELEMENT_BITS if kind.endswith(" in batch") else 0


def failure(kind: str, step: str = "", detail: int = 0) -> Exception:
    error, text = FAILURES[kind]
    return error(failure_text(text, step, detail))


def failure_text(text: str, step: str, detail: int) -> str:
    """With what was found in it."""
    element, batch = detail & (1 << _ELEMENT_BITS) - 1, detail >> _ELEMENT_BITS
    return text.format(step=step, detail=detail, element=element, batch=batch)


def failure_word(kind: str) -> int:
    """What is added to the number of a failed step, below 2**32; a detail is added times 2**40."""
    return [*FAILURES].index(kind) << 32


def native_failure(word: int, labels: Sequence[str]) -> Exception:
    """The exception for what native code has reported."""
    kind = [*FAILURES][word >> 32 & 0xFF]
    return failure(kind, labels[(word & 0xFFFFFFFF) - 1], word >> 40)


def type_name(value: object) -> str:
    """The name of a value's type in messages, which tells PyTorch's types from those of the same name here."""
    kind = type(value)
    return f"PyTorch's {kind.__qualname__}" if kind.__module__.partition(".")[0] == "torch" else kind.__name__


@cache
def is_user_file(name: str) -> bool:
    """Whether code from the file ``name`` is neither this package's nor frozen into Python."""
    return not name.startswith((_PACKAGE, "<frozen"))


def user_source() -> Source | None:
    """File, line and function of the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    return Source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn about the innermost line outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and not is_user_file(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def note_place(error: Exception, what: str, sources: Iterable[Source | None]) -> None:
    """Note on ``error``, once, what failed, and the user's lines that it stands for."""
    if not getattr(error, "__notes__", None):
        lines = ", ".join(dict.fromkeys(str(s) for s in sources if s is not None))
        error.add_note(f"{what} (at {lines})" if lines else what)


def at_user_line(message: str) -> str:
    """``message`` with the user's file and line appended, when there is one."""
    source = user_source()
    return f"{message} (at {source})" if source else message
