"""A recorded program's changes of outside Python objects: effects, which every call repeats, or a refusal."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CellType, FrameType, FunctionType
from typing import Any

from tracecomp.base import switches
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.code_origin import is_installed
from tracecomp.base.errors import user_source
from tracecomp.base.user_warnings import WarningPlace, place_of, silenced
from tracecomp.eager.device import Device
from tracecomp.eager.tensor import Tensor
from tracecomp.record.effects import Effect, warning
from tracecomp.record.guards.lookup import attributes_of, inherited
from tracecomp.record.guards.read_steps import Attribute, Held, SomeStep, everything
from tracecomp.record.guards.reads import Read, Reads
from tracecomp.record.guards.snapshots import MISSING, plain_value
from tracecomp.record.guards.varying_objects import rebuilds
from tracecomp.record.guards.visibility import is_container
from tracecomp.record.pytree import is_collection, parts_within
from tracecomp.record.recorder import Recorder
from tracecomp.record.same_values import PLAIN


class ObjectChanges:
    """Changes to objects that are ``known``. ``later``: what runs now will run outside of calls."""

    def __init__(
        self, recorder: Recorder, reads: Reads, known: dict[int, Read], cells: Mapping[int, Read],
        changed: dict[int, Any],
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._reads = reads
        self._known = known
        self._cells = cells
        self._changed = changed
        self._written = recorder.python.set_by_call
        self._filters = warnings.filters
        self._settings = switches.Snapshot()
        self._given: list[tuple[Read, Mapping[object, object]]] = []
        self._handed: list[tuple[object, str, Mapping[object, object]]] = []  # since the last effect
        self._changed_unseen: str | None = None  # a container that no effect changes as the call did
        self.later = False
        self._shown = False  # code that is not recorded has shown a warning
        self._sorted: tuple[list[Any], list[Any]] | None = None  # the list that is being sorted, and its items
        self._warns = False  # the warning that the running call shows is an effect already

    def release(self) -> None:
        """Release the objects of later comparisons."""
        self._reads = Reads()
        self._given.clear()
        self._handed.clear()

    def give(self, read: Read) -> None:
        """Remember the parts of a container among the arguments, in which unseen code may put others."""
        self._given.append((read, _parts_of(read.value)))

    def change(self, owner: object, written: SomeStep | None, apply: Callable[..., object], *args: Any) -> None:
        """Record an effect on an outside object: every call runs ``apply(owner, *args)``.

        ``written`` is the step to the changed value; without one the whole contents change.
        """
        read = self._known.get(id(owner))
        if read is None:
            return
        self._repeat_handed()
        self._refuse_later(f"changes an object of class {type(owner).__name__}")
        if written is not None:
            place = written.place(owner, "")
            if place is not None and place.id in self._reads.places:
                if apply is delattr or apply is operator.delitem or any(x is MISSING for x in args):
                    self._recorder.refuse_here(f"deletes {written.key}, which holds other values", Section.STATE)
                return
            self._written.add((id(owner), written.same()))
        if not read.is_given:
            self._recorder.memory.note(owner, changes=True)
        if is_container(owner):
            self._note_changed(read, owner)
        for value in args:
            self._check_repeatable(value)
        if self._recorder.refusals.reason is None:
            self._recorder.python.effects.append(Effect(apply, read, args))

    def _note_changed(self, read: Read, owner: object) -> None:
        """An effect changes a container. Code that is not recorded must not have changed it before."""
        if id(owner) in self._changed:
            return
        self._changed[id(owner)] = everything(owner)
        for given, before in self._given if read.is_given else ():
            if given is read and _different(owner, before):
                self._changed_unseen = read.where

    def _refuse_later(self, what: str) -> None:
        """Refuse an effect of a hook that runs outside of calls, before it happens: no call would repeat it."""
        if self.later:
            self._recorder.refuse_here(f"{what} in a backward pass outside of the call", Section.STEP)

    def set_on_tensor(self, t: Tensor, name: str, value: object) -> None:
        """The program puts something on a tensor, the call's own or another, or takes it away (``MISSING``)."""
        if hasattr(type(inherited(type(t), name)), "__set__"):
            return  # such as ``grad`` and ``data``
        self._refuse_later("sets an attribute of a tensor")
        self._check_repeatable(value)
        self._written.add((id(t), Attribute(name).same()))
        if self._recorder.refusals.reason is None:
            args = (t, name) if value is MISSING else (t, name, value)
            self._recorder.python.effects.append(Effect(delattr if value is MISSING else setattr, None, args))

    def set_cell(self, cell: CellType, name: str, value: object) -> None:
        """The program sets a variable that functions share."""
        read = self._cells.get(id(cell))
        if read is not None:
            self._known.setdefault(id(cell), read)
            self.change(cell, Held(name), _set_cell, value)

    def printed(
        self, consume: Callable[[object], object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        """The program prints; so does every call. ``consume`` notes that all of a value is read."""
        self._refuse_later("prints")
        if not self._settings.is_current():  # effects set them after the others
            self._recorder.refuse_here("prints after it changed a setting", Section.IMPURE, "Print outside")
        for value in (*args, *kwargs.values()):
            consume(value)
            if value is not kwargs.get("file"):
                self._check_repeatable(value)
        if self._recorder.refusals.reason is None:
            self._recorder.python.effects.append(Effect(partial(print, **kwargs), None, tuple(args)))
            self._recorder.quiet = True

    def warned(self, message: object, category: type[Warning], level: int) -> None:
        """The program warns; so does every call."""
        self._refuse_later("warns")
        if warnings.filters is not self._filters:
            self._recorder.refuse_here(
                "warns while it has changed the warning filters", Section.IMPURE, "Set filters outside"
            )
        elif isinstance(message, str):
            self._recorder.python.effects.append(warning(message, category, level))
            self._warns = True
        else:
            self._recorder.refuse_here("warns with an object made in the call", Section.IMPURE, "Warn with a text")

    def shown(self, frame: FrameType) -> None:
        """Python shows a warning in ``frame``: one of code that is not recorded is an effect, too."""
        if self._warns:
            return
        told = frame.f_locals["msg"]
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename != told.filename:
            caller = caller.f_back
        if caller is None or type(told.message) is not told.category or told.message.args != (str(told.message),):
            self._recorder.refuse_here(f"calls code that shows a {told.category.__name__}", Section.IMPURE)
            return
        self._refuse_later("calls code that shows a warning")
        show = place_of(caller)._replace(line=told.lineno).show
        self._recorder.python.effects.append(Effect(show, None, (str(told.message), told.category)))
        self._shown = True

    def looked_up(self, count: Callable[[], object]) -> None:
        """The program looked up an entry of a cache, which ``count`` does again in every call."""
        self._refuse_later("looks up a cached result")
        if self._recorder.refusals.reason is None:
            self._recorder.python.effects.append(Effect(count, None, ()))

    def sorts(self, owner: list[Any]) -> None:
        """The program sorts a list by a function that is recorded itself: calls repeat the order."""
        self._repeat_handed()
        self._refuse_later("sorts a list")
        if owner:
            self._note_changed(self._known[id(owner)], owner)
            self._sorted = owner, list(owner)

    def after_call(self) -> None:
        """A call has returned."""
        self._recorder.quiet = self._warns = False
        if self._sorted is not None and self._sorted[0]:  # it is empty while it is sorted
            (owner, before), self._sorted = self._sorted, None
            places: dict[int, list[int]] = {}
            for n, item in enumerate(before):
                places.setdefault(id(item), []).append(n)
            order = tuple(places[id(item)].pop(0) for item in owner)
            self._recorder.python.effects.append(Effect(_put_in_order, self._known[id(owner)], (order,)))

    def unrepeated(self) -> str | None:
        """The value that the program read and changed other than by effects, or to another tensor or number."""
        if self._sorted is not None:
            return "a list was sorted by a function that failed"
        if self._changed_unseen is not None:
            return f"{self._changed_unseen} was changed by code that is not recorded"
        for root in self._reads.roots():
            for child in root.children.values():
                found = self._unrepeated(child, root.value)
                if found is not None:
                    return found
        return None

    def hand(self, read: Read, value: object) -> None:
        """Code that is not recorded gets a container or an object, which it may change.

        The next effect takes place after these changes, so they are looked for before it, or at the end.
        """
        self._handed.append((value, read.where, _parts_of(value)))

    def _repeat_handed(self) -> None:
        handed, self._handed = self._handed, []
        for value, where, before in handed:
            self._repeat_unseen(value, where, _different(value, before))

    def repeat_unseen(self) -> None:
        """Make effects of what code that is not recorded has set on objects; note containers that it has changed."""
        self._repeat_handed()
        for e in self._recorder.python.effects if self._shown else ():
            if getattr(e.apply, "__func__", None) is not WarningPlace.show:  # the warnings of effects are effects, too
                e.apply = partial(_silently, e.apply)
        for read, before in self._given:  # also by code that found them elsewhere
            if id(read.value) not in self._changed:
                names = _different(read.value, before)
                names = [k for k in names if (id(read.value), Attribute(str(k)).same()) not in self._written]
                self._repeat_unseen(read.value, read.where, names)
        self._given.clear()

    def _repeat_unseen(self, owner: object, where: str, names: Sequence[object]) -> None:
        if names and isinstance(owner, list | dict | tuple):
            self._changed_unseen = where
            return
        now = _parts_of(owner)
        for name in names:
            args = (setattr, name, now[name]) if name in now else (delattr, name)
            self.change(owner, Attribute(str(name)), *args)

    def _unrepeated(self, read: Read, owner: object) -> str | None:
        now = read.fetch(owner)
        if read.moved_place(owner, now) is not None:
            return read.difference(now)
        if read.step is not None and (id(owner), read.step.same()) in self._written:
            return None
        if not read.fits(now):
            return read.difference(now)
        if id(now) in self._changed:
            return None
        return next((c for r in read.children.values() if (c := self._unrepeated(r, now)) is not None), None)

    def _check_repeatable(self, value: object, above: tuple[object, ...] = ()) -> None:
        """Refuse to keep objects made in the call: every call would have to make its own. ``above`` hold ``value``."""
        if isinstance(value, (Tensor, Device, *PLAIN, type, FunctionType)) or type(plain_value(value)) in (int, float):
            return
        if value is MISSING:  # a variable is deleted
            return
        if id(value) in self._known or any(value is x for x in above):
            return
        if isinstance(value, list | tuple | dict):
            for item in value.values() if isinstance(value, dict) else value:
                self._check_repeatable(item, (*above, value))
            return
        if is_collection(value):
            for item in parts_within(value):
                self._check_repeatable(item, (*above, value))
            return
        if rebuilds(type(value)):
            return  # its contents are checked at the end of the call
        what = f"keeps an object of class {type(value).__name__} that is made in the call"
        source = user_source()
        if source is not None and is_installed(source.file):  # most often a cache, which the next call finds filled
            kept = BreakReason(f"{what}, at {source}", Section.STATE)
            self._recorder.python.kept = self._recorder.python.kept or kept
            self._recorder.refusals.blame(self._recorder.refusals.line())
        else:
            self._recorder.refuse_here(what, Section.STATE)


def _different(value: object, before: Mapping[object, object]) -> list[object]:
    """The places in a container or object that no longer have the parts of ``before``."""
    now = _parts_of(value)
    if isinstance(value, dict) and [*map(id, now)] != [*map(id, before)]:
        return [*now, *before]  # also in another order
    return [k for k in {**before, **now} if before.get(k, MISSING) is not now.get(k, MISSING)]


def _parts_of(value: object) -> dict[object, object]:
    """The parts of a container by their places: elements, entries, or attributes."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    parts: dict[Any, object] = value if isinstance(value, dict) else attributes_of(value)
    return dict(parts)


def _silently(apply: Callable[..., object], *args: Any) -> None:
    with silenced():
        apply(*args)


def _put_in_order(owner: list[Any], order: Sequence[int]) -> None:
    owner[:] = [owner[n] for n in order]


def _set_cell(cell: CellType, value: object) -> None:
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value
