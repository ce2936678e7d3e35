"""Schedules as data: a record describes a kernel's loops, prints as text, and can be replaced by the user's text.

``explain`` prints the records of a program's kernels. A line is a field and its value. Fields that a hand-written
record leaves out are chosen as usual:

    register tiles
      vector   n
      width    64
      tile     m
      height   6
      k_blocks k/392

Variables have their names in the printed loops, ``-`` is none. No field may change a bit of a result: one that would
raises ScheduleError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from tracecomp.base.errors import TracecompError
from tracecomp.ir.index import Var
from tracecomp.ir.program import Kernel
from tracecomp.passes.cost.machine import Machine

NONE = "-"
KINDS = ("parallel", "opportunistic", "serial")
"""How threads share a loop; ``opportunistic``: only awake ones."""
Variables = Mapping[str, Var]
Reader = Callable[[str, Variables], object]


class ScheduleError(TracecompError):
    """A schedule that cannot be read, that does not fit a kernel, or that would change results."""


class Record(Protocol):
    """A frozen dataclass whose fields come from ``setting``."""

    TITLE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Written:
    """A record as text: its title, and fields that are not interpreted yet."""

    title: str
    fields: Mapping[str, str]


Given = Mapping[Kernel, Sequence[Written]]
"""The user's schedules, keyed by the kernel without its name, in the form with all fields chosen."""


class Chooser:
    """Choose the schedules of one kernel for a machine, or take the ``given`` ones in the order of its loop nests.

    ``made`` are the schedules in use.
    """

    def __init__(self, machine: Machine, given: Sequence[Written] = ()) -> None:
        self.machine = machine
        self.made: list[Record] = []
        # A kernel may have several nests (in a row fusion); records apply in the order in which nests are scheduled.
        self._given = deque(given)

    def peek(self) -> Written | None:
        """Return the user's record for the next loop nest, if any."""
        return self._given[0] if self._given else None

    def next_given(self) -> Written | None:
        """The same, and advance to the next one."""
        return self._given.popleft() if self._given else None

    def finish(self) -> None:
        """ScheduleError if there were more records than loop nests."""
        # An extra record is a mistake in the text, such as a nest that does not exist. Ignoring it would suggest that
        # it was used.
        left = self.peek()
        if left is not None:
            raise ScheduleError(f"this kernel has {len(self.made)} schedules; remove the extra record '{left.title}'")


def setting(read: Reader, doc: str, default: object = ...) -> Any:
    """A field of a record."""
    metadata = {"read": read, "doc": doc}
    # ``...`` and not None means "no default", as None is a valid value.
    return field(metadata=metadata) if default is ... else field(default=default, metadata=metadata)


def print_record(record: Record) -> str:
    """The record as text, one field a line."""
    names = [f.name for f in fields(record)]
    # Aligned, since the text is read by people; the parser takes any spacing.
    width = max(map(len, names))
    lines = (f"  {name:<{width}} {_shown(getattr(record, name))}" for name in names)
    return "\n".join((record.TITLE, *lines))


def _shown(value: object) -> str:
    # bool first, because it prints as a word and not like Python's.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == ():
        return NONE
    if isinstance(value, Var):
        return value.name
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    return str(value)


def parse_records(text: str) -> list[Written]:
    """Parse the records of a text; the rest of a line after ``#`` is a comment. ScheduleError for an invalid line."""
    found: list[tuple[str, dict[str, str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].rstrip()
        if not plain:
            continue
        # A title begins at the margin, a field is indented: no other
        # punctuation is needed, and a printed record reads back.
        if not plain[0].isspace():
            found.append((plain, {}))
            continue
        name, _, value = plain.strip().partition(" ")
        if not found or not value.strip():
            raise ScheduleError(f"schedule, line {number}: expected a title, or a field and its value, got {line!r}")
        # The later one would silently win.
        if name in found[-1][1]:
            raise ScheduleError(f"schedule, line {number}: {name} is set twice")
        found[-1][1][name] = value.strip()
    return [Written(title, values) for title, values in found]


def with_fields(record: R, written: Written | None, variables: Variables, names: Sequence[str] = ()) -> R:
    """Return the record with the user's fields; only those in ``names``, if it lists any."""
    if written is None:
        return record
    known = {f.name: f.metadata["read"] for f in fields(record)}
    # Another title is another form of loops, whose fields have other meanings.
    if written.title != record.TITLE:
        raise ScheduleError(f"this loop nest has a schedule '{record.TITLE}', not '{written.title}'")
    unknown = set(written.fields) - set(known)
    # The caller determines whether the nest could have that form.
    if unknown:
        raise ScheduleError(f"'{record.TITLE}' has no field {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    # Tiles are read before blocks, as the choice of blocks depends on the tiles.
    chosen = {name: text for name, text in written.fields.items() if not names or name in names}
    return replace(record, **dict(_read(known, chosen, variables)))


def _read(known: Mapping[str, Reader], written: Mapping[str, str], variables: Variables) -> Iterator[tuple[str, Any]]:
    for name, text in written.items():
        try:
            yield name, known[name](text, variables)
        except ValueError as error:
            raise ScheduleError(f"{name} {text}: {error}") from None


# ---- parsers of values


def number(text: str, variables: Variables) -> int:
    """Parse a non-negative integer."""
    if not text.isdecimal():
        raise ValueError("expected a number")
    return int(text)


def numbers(text: str, variables: Variables) -> tuple[int, ...]:
    """Parse several non-negative integers."""
    return tuple(number(word, variables) for word in _words(text))


def yes_or_no(text: str, variables: Variables) -> bool:
    """Parse ``yes`` or ``no``."""
    if text not in ("yes", "no"):
        raise ValueError("expected yes or no")
    return text == "yes"


def words(*allowed: str) -> Reader:
    """Parse several words; only the ``allowed`` ones, if any are listed."""

    def read(text: str, variables: Variables) -> tuple[str, ...]:
        for word in _words(text):
            if allowed and word not in allowed:
                raise ValueError(f"expected {', '.join(allowed)}")
        return _words(text)

    return read


def word(*allowed: str) -> Reader:
    """Parse one of these words."""

    def read(text: str, variables: Variables) -> str:
        if text not in allowed:
            raise ValueError(f"expected {', '.join(allowed[:-1])} or {allowed[-1]}")
        return text

    return read


def variable(text: str, variables: Variables) -> Var:
    """Parse a variable of the loop nest."""
    if text not in variables:
        raise ValueError(f"the variables of this loop nest are {', '.join(variables)}")
    return variables[text]


def variable_or_none(text: str, variables: Variables) -> Var | None:
    """Parse a variable, or none."""
    return None if text == NONE else variable(text, variables)


def variables_of(text: str, variables: Variables) -> tuple[Var, ...]:
    """Parse several variables."""
    return tuple(variable(word, variables) for word in _words(text))


def _words(text: str) -> tuple[str, ...]:
    return () if text == NONE else tuple(text.split())
