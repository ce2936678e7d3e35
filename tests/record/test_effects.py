"""Every call repeats the recorded call's side effects."""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tracecomp as torch


def loud(x: Any) -> Any:
    warnings.warn(f"rows: {x.shape[0]}", DeprecationWarning)  # noqa: B028
    if x.sum() > 5:
        warnings.warn("large", stacklevel=1)
    return x * 2


def quiet(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("quiet", stacklevel=1)
    return x * 2


def said(run: Any, action: str) -> list[Any]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("ignore")
        for n in range(6):
            warnings.filterwarnings(action, "rows|large|quiet$")  # type: ignore[arg-type]
            run(torch.ones(2 + n % 2) * n)
    return [(str(w.message), w.category, w.filename, w.lineno) for w in found]


def test_warnings_are_given_at_every_call_as_without() -> None:
    assert len(said(loud, "always")) > 6
    for action in ("always", "ignore"):
        assert said(torch.compile(loud), action) == said(loud, action)


def test_a_program_that_hides_its_warnings_goes_on_doing_so() -> None:
    compiled = torch.compile(quiet)
    assert said(quiet, "always") == said(compiled, "always") == []
    assert compiled(torch.ones(2)).tolist() == [2, 2]


class Doubling:
    log: list[Any]

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(name)
        object.__setattr__(self, name, value * 2)


class Slotted:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Noting(list[Any]):
    def append(self, value: Any) -> None:
        super().append((value, len(self)))


class Tripling(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value * 3)


class Descriptor:
    def __set__(self, owner: Any, value: Any) -> None:
        owner.log.append(value)


class Described:
    level = Descriptor()

    def __init__(self, log: list[Any]) -> None:
        self.log = log


class Asked:
    """Python looks up a missing attribute: the lookup does not belong to the program."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        if name == "log":
            raise AttributeError(name)
        self.log.append(name)
        raise AttributeError(name)

    def __call__(self, n: int) -> None:
        self.log.append(n)


class World:
    """State that the programs below change; ``now`` returns it with its types."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.noting, self.tripling, self.queue, self.seen = Noting(), Tripling(), deque[Any](), set[Any]()
        self.counts, self.groups, self.order = (
            Counter[Any](),
            defaultdict[Any, list[Any]](list),
            OrderedDict[Any, Any](),
        )
        self.slotted = Slotted()
        self.doubling, self.described, self.asked = Doubling(self.log), Described(self.log), Asked(self.log)
        self.callbacks, self.table = [self.log.append], {"a": 1, "b": 2}
        self.partial = functools.partial(self.log.append, 3)

    def now(self) -> str:
        held = [self.log, self.noting, self.tripling, self.queue, sorted(self.seen), dict(self.counts)]
        return repr(
            [*held, dict(self.groups), list(self.order.items()), vars(self.doubling), self.table, self.slotted.count]
        )


def kinds(value: Any) -> Any:
    """The types of all that ``value`` holds."""
    if isinstance(value, dict):
        return [(kinds(k), kinds(v)) for k, v in value.items()]
    return list(map(kinds, value)) if isinstance(value, list | tuple | set | deque) else type(value)


def by_own_append(n: int) -> list[int]:
    own: list[int] = []
    list(map(own.append, [n, 1]))
    return own


def in_a_stack(w: World, n: int) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(w.log.append, n)


def moved_to_the_end(w: World, n: int) -> Any:
    w.order[n] = n
    w.order.move_to_end(n)
    return list(w.order)


def counted(w: World, n: int) -> Any:
    w.counts[n] += 1
    return w.counts.most_common(1)


EFFECTS: dict[str, Callable[[World, int], Any]] = {
    "a method handed to map": lambda w, n: list(map(w.log.append, [n, 1])),
    "a kept method handed to map": lambda w, n: list(map(w.callbacks[0], [n, 1])),
    "a method of a list of the call's own": lambda w, n: w.log.extend(by_own_append(n)),
    "to filter": lambda w, n: list(filter(w.log.append, [n])),
    "to takewhile": lambda w, n: list(itertools.takewhile(w.log.append, [n, 2])),
    "to zip by map": lambda w, n: list(zip(map(w.log.append, [n]), [2], strict=True)),
    "to a partial": lambda w, n: functools.partial(w.log.append, n)(),
    "of a partial from outside": lambda w, n: w.partial(),
    "from outside": lambda w, n: w.callbacks[0](n),
    "to a stack of exits": in_a_stack,
    "that only reads": lambda w, n: (max(w.table, key=w.table.get), sorted("ba", key=w.table.__getitem__)),  # type: ignore
    "an own setter of attributes": lambda w, n: setattr(w.doubling, "q", n),
    "a list's own append": lambda w, n: w.noting.append(n),
    "a dictionary's own setter": lambda w, n: w.tripling.__setitem__(n, n),
    "a descriptor": lambda w, n: setattr(w.described, "level", n),
    "an object that is asked": lambda w, n: w.asked(n),
    "keys of a counter": counted,
    "keys that are made": lambda w, n: w.groups[n].append(n),
    "keys in order": moved_to_the_end,
    "members of a set": lambda w, n: w.seen.add(n),
    "slots": lambda w, n: setattr(w.slotted, "count", w.slotted.count + n),
    "a list in itself": lambda w, n: (w.log.append(n), w.log.append(w.log), w.log.pop())[0],
    "ends of a queue": lambda w, n: (w.queue.append(n), w.queue.appendleft(n + 1)),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", EFFECTS)
def test_what_is_changed_in_any_way_is_changed_by_every_call(name: str) -> None:
    effect = EFFECTS[name]
    shown = []
    for compiles in (False, True):
        w = World()

        def program(x: Any, n: int, w: World = w) -> Any:
            return x[:n] * 2, effect(w, n)

        run = torch.compile(program, backend="interpret") if compiles else program
        found = []
        for k, n in enumerate((3, 3, 5, 4, 7, 6, 3, 9)):
            if k == 4:
                w.table["a"] = 9
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x, result = run(torch.ones(12) * k, n)
            found.append(
                (x.tolist(), result, w.now(), kinds([result, vars(w)["log"], w.counts, w.groups, w.queue, w.seen]))
            )
        shown.append(found)
    assert shown[1] == shown[0]


def counted_up(w: World, n: int) -> None:
    w.table["a"] += n


def negated(w: World, n: int) -> None:
    w.table["a"] = n - w.table["a"]


def set_again(w: World, n: int) -> None:
    w.table["a"] = 4


def scaled(w: World, n: int) -> None:
    w.table["a"] *= n


@pytest.mark.parametrize("change", [counted_up, negated, set_again, scaled])
@pytest.mark.parametrize("numbers", [(1, 3, 0, 2, 4, 0, 1), (4, 4, 0, 4, 1, 3), (1, 1, 1, 2, 1, 3)])
@pytest.mark.parametrize("poked", [False, True])
def test_a_number_that_stays_by_chance_is_written_by_later_calls(change: Any, numbers: Any, poked: bool) -> None:
    shown = []
    for compiles in (False, True):
        w = World()

        def program(x: Any, n: int, w: World = w) -> Any:
            change(w, n)
            return x * w.table["a"]

        run = torch.compile(program, backend="interpret") if compiles else program
        found = []
        for k, n in enumerate(numbers):
            if poked and k == 3:
                w.table["a"] = 7
            found.append((run(torch.ones(1), n).tolist(), dict(w.table)))
        shown.append(found)
    assert shown[1] == shown[0]


def test_a_list_of_numbers_that_gets_shorter_is_no_error() -> None:
    seen: list[list[Any]] = []
    for compiles in (False, True):
        log: list[Any] = []

        def program(x: Any, n: int, log: list[Any] = log) -> Any:
            with contextlib.ExitStack() as stack:
                stack.callback(log.append, n)
            log.append((n, True))
            log[:] = log[-5:]
            return x + 1

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = torch.compile(program, backend="interpret") if compiles else program
            for n in (4, 2, 1, 1, 2, 3, 4):
                run(torch.ones(3), n)
        seen.append(log)
    assert seen[1] == seen[0]


class WithItems:
    """A class whose objects have the attribute in a slot."""

    __slots__ = ("items", "other", "t")

    def __init__(self, items: Any, t: Any) -> None:
        self.items, self.t = items, t


@pytest.mark.parametrize("made", [SimpleNamespace, WithItems])
def test_a_call_that_deletes_a_missing_attribute_changes_nothing_after_it(made: Any) -> None:
    def step(x: Any, s: Any) -> Any:
        del s.items
        s.t.mul_(2)
        return s.t * x

    found = []
    for fn in (step, torch.compile(step)):
        s, results = made(items=[1], t=torch.ones(2)), []
        for _ in range(3):
            try:
                results.append(fn(torch.ones(2), s).tolist())
            except AttributeError as error:
                results.append(str(error))
            s.other = 1  # as many attributes as before
        found.append((results, s.t.tolist()))
    assert found[0] == found[1]


def test_followed_numbers_on_tensors_are_plain() -> None:
    def step(x: Any, n: int) -> Any:
        x.mark = n
        return torch.zeros(n), x * x.mark

    compiled = torch.compile(step)
    for n in (1, 2, 2, 3, 4, 3):
        x: Any = torch.ones(3)
        compiled(x, n)
        assert type(x.mark) is int and x.mark == n
