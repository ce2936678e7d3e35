"""Exceptions and the user's line.

User mistakes raise PyTorch's exception types (``TypeError``, ``ValueError``, ``IndexError``, ``RuntimeError``). The
classes here are for errors of the compiler and for programs that cannot be captured.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType

from tracecomp.base.code_origin import file_of, is_program_file, is_pytorchs, is_user_file

_DIGITS = 128
"""Integers of more bits are not printed in messages."""


def integer_text(n: int) -> str:
    """An integer in a message: digits, or its bits if those are many."""
    return str(n) if n.bit_length() <= _DIGITS else f"an integer of {n.bit_length()} bits"


def fits_64_bits(n: int) -> bool:
    """Whether an integer can be one of 64 bits with a sign."""
    return -(1 << 63) <= n < 1 << 63


def refuse_long(n: int) -> None:
    """ValueError for an integer that does not fit 64 bits, as in PyTorch."""
    if not fits_64_bits(n):
        raise ValueError(f"an integer must fit 64 bits, but got {integer_text(n)}")


def refuse_too_large(name: str, error: Exception) -> None:
    """Raise PyTorch's error if ``error`` says that a number or the result of the function ``name`` is too large."""
    text = str(error)
    if isinstance(error, OverflowError) and "C long" in text:
        raise ValueError(f"{name}(): an integer does not fit 64 bits") from None
    if isinstance(error, OverflowError) and "convert to float" in text:
        raise OverflowError(f"{name}(): an integer must fit a double") from None
    if "convert float infinity to integer" in text or "convert float NaN to integer" in text:
        raise RuntimeError(f"{name}(): a number is infinite or NaN, where an integer is expected") from None
    if isinstance(error, MemoryError) or "array is too big" in text or "Maximum allowed" in text:
        raise RuntimeError(f"{name}(): can't allocate memory for the result: {text or 'out of memory'}") from error


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the user's program: file, line and the function around it."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class TracecompError(RuntimeError):
    """Base of every error other than a user's mistake in a tensor operation."""


class VerifyError(TracecompError):
    """An IR breaks one of its rules; names the pass after which verification failed."""


class CaptureError(TracecompError):
    """Raised if a program cannot be captured; gives the line, the reason, and an alternative."""


class CompileError(TracecompError):
    """Raised if a pass or codegen fails on a valid graph: an error of the compiler. ``step`` is the pass or lowering
    step."""

    def __init__(self, message: str, step: str = "") -> None:
        super().__init__(message)
        self.step = step


class WrongResult(TracecompError):
    """Raised if a compiled result differs from the eager one. ``source`` is the first line that differs, if known."""

    source: Source | None = None


class CheckError(TracecompError):
    """Raised if checked mode detects an error of the compiler: an access outside its buffer, stale memory, a wrong
    result."""


class OutOfRange(IndexError, RuntimeError):
    """Raised for a run-time index out of range: PyTorch raises the former for ``x[i]``, the latter for ``x.gather(0,
    i)``."""


class LinAlgError(RuntimeError):
    """Raised if a matrix has no such decomposition: singular, or not positive-definite."""


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
"""Failures that native code can report, with their exceptions."""

_ELEMENT_BITS, _DETAIL_BITS = 10, 23
"""Bits of the detail of a matrix in a batch: the lower ones number the element, from 1, the higher ones the matrix,
from 0. ``tracecomp_runtime/bound_code.py``, which reads program files, also defines the first one."""

for _kind in ("definite", "singular", "inverse", "pivot"):
    _error, _text = FAILURES[_kind]
    _text = _text.replace(": ", ": (Batch element {batch}): ", 1).replace("{detail}", "{element}")
    FAILURES[f"{_kind} in batch"] = _error, _text


def in_batch(kind: str, lead: tuple[int, ...], size: int) -> str:
    """The failure of a matrix with that many diagonal elements: one in a batch if both numbers fit."""
    told = lead and math.prod(lead) <= 1 << _DETAIL_BITS - _ELEMENT_BITS and size < 1 << _ELEMENT_BITS
    return f"{kind} in batch" if told else kind


def matrix_weight(kind: str) -> int:
    """The unit of the matrix's number in a detail."""
    return 1 << _ELEMENT_BITS if kind.endswith(" in batch") else 0


def failure(kind: str, step: str = "", detail: int = 0) -> Exception:
    error, text = FAILURES[kind]
    return error(failure_text(text, step, detail))


def failure_text(text: str, step: str, detail: int) -> str:
    """Return the failure's text with its detail."""
    element, batch = detail & (1 << _ELEMENT_BITS) - 1, detail >> _ELEMENT_BITS
    return text.format(step=step, detail=detail, element=element, batch=batch)


def failure_word(kind: str) -> int:
    """The number added to that of a failed step, which is below 2**32; a detail is added times 2**40."""
    return [*FAILURES].index(kind) << 32


def native_failure(word: int, labels: Sequence[str]) -> Exception:
    """The exception for a failure word of native code."""
    kind = [*FAILURES][word >> 32 & 0xFF]
    return failure(kind, labels[(word & 0xFFFFFFFF) - 1], word >> 40)


def type_name(value: object) -> str:
    """The name of a value's type in messages, which tells PyTorch's types from those of the same name here.

    The name of PyTorch's tensors comes with the way to convert them.
    """
    kind = type(value)
    if not is_pytorchs(kind):
        return kind.__name__
    hint = " (convert it with tracecomp.from_dlpack(x))" if hasattr(kind, "__dlpack__") else ""
    return f"PyTorch's {kind.__qualname__}{hint}"


def user_frame() -> FrameType | None:
    """Return the innermost frame of the program on this thread; None if all frames are of libraries around it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # every recorded operator asks, so there are no calls but of cached functions
        name = frame.f_code.co_filename
        if name[0] == "<":  # such as methods of dataclasses, which belong to the module of their class
            name = file_of(frame.f_code, frame.f_globals)
        if is_program_file(name):
            return frame
        frame = frame.f_back
    return None


def outside_frame() -> FrameType | None:
    """Return the innermost frame outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_source() -> Source | None:
    """Return the innermost line of the program, or else of a library outside this package."""
    frame = user_frame() or outside_frame()
    return None if frame is None else _source(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


_source = lru_cache(4096)(Source)
"""One object for each line: a recording has thousands of references to few lines."""


def note_place(error: Exception, what: str, sources: Iterable[Source | None]) -> None:
    """Add a note to ``error``, once, with the failed part and its user lines."""
    if not getattr(error, "__notes__", None):
        lines = ", ".join(dict.fromkeys(str(s) for s in sources if s is not None))
        error.add_note(f"{what} (at {lines})" if lines else what)


def at_user_line(message: str) -> str:
    """``message`` with the user's file and line appended, if there is one."""
    source = user_source()
    return f"{message} (at {source})" if source else message
