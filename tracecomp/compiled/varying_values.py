"""Values that calls of a compiled function have shown to vary, which further recordings make dynamic.

Numbers that Python reads, sizes, and state that the program replaces are constants of a recording until a call shows
that they change. Then they become inputs, so that one recording serves later calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import Source
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled.entry import Entry
from tracecomp.record.binding import Binding
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.guards.varying_numbers import VaryingNumbers
from tracecomp.record.guards.varying_objects import note_ended, note_held_by_calls
from tracecomp.record.pytree import Leaves, flatten_call
from tracecomp.record.recording import Recording, SeenValue
from tracecomp.record.symbolic.sizes import Varying
from tracecomp.record.symbolic.sym_scalar import followed

MAX_PLACES = 256
"""Places outside whose changes are followed."""
MAX_VALUES = 8
"""Recordings for the values of one number, before it is said what needs them."""
MAX_NEEDED = 3
"""Recordings that serve no call, where Python has needed as many values of one number: each call may have another."""


def needed(cause: str) -> BreakReason:
    """Return ``cause``, which Python's need of a number has, as a reason for a graph break."""
    what = "`if`, float(), round(), an index, print() or an f-string needs a concrete value there"
    remedy = "Return the tensor and do this outside, or use tensor operators (isnan, where, cond, while_loop)"
    return BreakReason(f"{cause}: {what}", Section.NUMBERS, remedy)


class Learned:
    """Known variation. ``follow``: numbers that Python reads are inputs where possible; ``unsettled``: consecutive
    recordings whose state was not settled; ``shared``: inputs that are one memory."""

    def __init__(self, dynamic: bool | None) -> None:
        self.follow = False
        self.unsettled = 0
        self.numbers = VaryingNumbers(sizes=dynamic is not False)
        self.sizes = Varying(every=bool(dynamic))
        self.shared: list[Binding] = []
        self.ended: dict[int, type] = {}  # the classes of arguments of a recording that has ended, by leaves
        self._sizes_vary = dynamic is not False
        self._places: dict[tuple[int, str], StateSlot] = {}
        self._values: Counter[Source | None] = Counter()
        self._lines: Counter[int] = Counter()

    def places(self) -> list[StateSlot]:
        """The state outside that is read from its place at every call."""
        return list(self._places.values())

    def missed(self, recording: Recording, leaves: Leaves) -> None:
        """A call did not fit ``recording``."""
        self._lines.update(recording.guards.lines(leaves))
        recording.guards.note_other_objects(leaves)

    def note_objects(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """A call is recorded: take classes of objects apart that differ between calls."""
        self._note_ended(args, kwargs)
        note_held_by_calls(flatten_call(args, kwargs)[1])

    def _note_ended(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Take classes of objects apart, of which an ended recording was given others."""
        ended, self.ended = self.ended, {}
        leaves = flatten_call(args, kwargs)[1] if ended else ()
        for n, kind in ended.items():
            if n < len(leaves) and type(leaves[n]) is kind:
                note_ended(kind)

    def another_path(self, predicate: SeenValue, value: object) -> None:
        """A call had another value at ``predicate`` than was recorded."""
        self.follow = self.follow or followed(value)
        self._lines[predicate.line] += 1

    def lines(self, most: int) -> Set[int]:
        """The lines of the function whose reads differ from call to call, of ``most`` recordings."""
        return {line for line, count in self._lines.items() if line and 2 * count >= most}

    def cause(self, name: str, entries: Sequence[Entry], reason: str) -> tuple[str, str]:
        """Why calls do not fit ``entries``, and what to change. ``reason`` is why the last call did not."""
        seen: dict[Source, set[str]] = {}
        for p in (p for e in entries for p in e.recording.predicates):
            if p.source is not None:
                seen.setdefault(p.source, set()).add(repr(p.seen))
        source = max(seen, key=lambda s: len(seen[s]), default=None)
        if source is not None and len(seen[source]) > 1:
            remedy = f"Compute with tensors at that line, or move it out of {name}"
            return f"the value at {source} differs from call to call", remedy
        if self.sizes.axes:
            return reason, "Pad the arguments to a few fixed sizes"
        return reason, "Pass numbers that differ as tensors, or compile one function for each kind of call"

    def line_in_need(self, name: str, predicate: SeenValue, value: object, fullgraph: bool, fn: object) -> int | None:
        """The line to cut at if it asks for ever new numbers, each of which takes a recording; warns once."""
        if not followed(value):
            return None
        source = predicate.source
        self._values[source] += 1
        if self._values[source] == MAX_VALUES:
            reason = needed(f"{name} was recorded {MAX_VALUES} times for the number at {source}, now {value}")
            cost = "Each new value compiles another program"
            warn_user(reason.cause, cost, reason.advice, about=(name, source), fn=fn)
        return predicate.line if self._values[source] >= MAX_NEEDED and not fullgraph else None

    def varying_sizes(
        self, entries: Sequence[Entry], args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> Varying | None:
        """The axes whose sizes the recording of this call is to follow: those that have differed between calls."""
        if not self._sizes_vary:
            return None
        structure, leaves = flatten_call(args, kwargs)
        self.sizes.read_marks(leaves)
        numbers = self.numbers.as_sizes(structure)
        self.sizes.numbers({i for i in numbers if type(leaves[i]) is int and followed(leaves[i])})
        alike = [e.recording.guards for e in entries if e.recording.guards.structure == structure and not e.is_sized()]
        if any(guards.reads.asks_types for guards in alike):
            return None
        self.sizes.earlier = [guards.shapes() for guards in alike]
        for guards, shapes in zip(alike, self.sizes.earlier, strict=True):
            now = guards.shapes_now(leaves)
            for holder, shape in shapes.items():
                if holder[0] != "number":
                    self.sizes.learn(holder, shape, now[holder])
        return self.sizes if self.sizes.every or self.sizes.axes else None

    def moved(self, recording: Recording) -> bool:
        """Add places that have changed since ``recording``: later recordings read them. Return whether there are
        any."""
        moved = [p for p in recording.guards.moved() if p.id not in self._places]
        self._places.update({p.id: p for p in moved[: MAX_PLACES - len(self._places)]})
        if recording.reads_floats() or any(followed(x) for p in moved for x in p.leaves()):
            self.follow = True
        return bool(moved) and len(self._places) < MAX_PLACES

    def shares(self, recording: Recording) -> bool:
        """Take over which inputs share memory: later recordings make one input of it. Whether there was any."""
        known = {(b.kind, id(b.ref) if b.kind == "state" else b.ref) for b in self.shared}
        new = [b for b in recording.shared if b.kind in ("argument", "state")]
        new = [b for b in new if (b.kind, id(b.ref) if b.kind == "state" else b.ref) not in known]
        self.shared += new
        return bool(new)

    def still_useful(self, entries: list[Entry], new: Recording) -> list[Entry]:
        """The entries without those that depend on numbers which ``new`` follows."""
        if not self.follow:
            return entries
        observed = new.observed_at()
        return [e for e in entries if e.follows or e.recording.observed_at() <= observed]
