"""Objects that hold growing tensors and count their rows: caches with a window, and counters of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch


def window_class() -> type[Any]:
    """A cache of rows up to a window. The class is new, so no other test has given it to a compiled function."""

    class Window:
        def __init__(self, most: int) -> None:
            self.rows: Any = None
            self.most = most
            self.count = 0

        def update(self, x: Any) -> tuple[Any, int]:
            """All rows that ``x`` may see, and the position of the first of them."""
            before = torch.zeros(0, x.shape[1]) if self.rows is None else self.rows
            first = max(self.count - self.most + 1, 0)
            self.count += x.shape[0]
            full = torch.cat([before, x])
            self.rows = full[-self.most + 1 :]
            return full, first

    return Window


def attended(x: Any, window: Any) -> Any:
    """Attention of the rows of ``x`` to those of a window, with a mask by positions."""
    at = torch.arange(x.shape[0]) + window.count
    keys, first = window.update(x)
    of = torch.arange(keys.shape[0]) + first
    seen = (of[None] <= at[:, None]) & (of[None] > at[:, None] - window.most)
    return (x @ keys.T).masked_fill(~seen, float("-inf")).softmax(-1) @ keys


def both(x: Any, windows: list[Any]) -> Any:
    """Two windows of different lengths after each other, as in models that mix kinds of layers."""
    for window in windows:
        x = attended(x, window) * 0.5
    return x


def state(value: Any) -> Any:
    """The attributes of caches, as plain values with their types."""
    if isinstance(value, list):
        return [*map(state, value)]
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    return {name: state(x) for name, x in vars(value).items()} if hasattr(value, "__dict__") else (type(value), value)


def requests(program: Callable[..., Any], made: Callable[[], Any], prompts: list[int], tokens: int) -> list[int]:
    """Compare the requests of a compiled program with eager ones; return the recordings after each."""
    compiled = torch.compile(program)
    numbers = torch.Generator().manual_seed(3)
    counts = []
    for prompt in prompts:
        ours, eager = made(), made()
        for length in (prompt, *[1] * tokens):
            x = torch.randn(length, 4, generator=numbers)
            assert compiled(x, ours).numpy().tobytes() == program(x, eager).numpy().tobytes(), (prompt, length)
            assert state(ours) == state(eager)
        counts.append(compiled.recordings)
    assert compiled.parts is None and compiled.eager_because is None
    return counts


def test_a_window_that_is_not_full_takes_three_recordings() -> None:
    """The prompt, the first token and the other tokens: the count is a size in the third."""
    kind = window_class()
    assert requests(attended, lambda: kind(64), [5, 5, 5], 20) == [3, 3, 3]


def test_windows_of_a_model_are_followed_together() -> None:
    kind = window_class()
    assert requests(both, lambda: [kind(64), kind(128), kind(64)], [5, 5, 5], 20) == [3, 3, 3]


@pytest.mark.parametrize("prompts", [[4, 4, 4], [3, 6, 4, 6, 3], [11, 3, 11, 3], [2, 12, 2, 9]])
def test_windows_fill_and_slide(prompts: list[int]) -> None:
    kind = window_class()
    counts = requests(attended, lambda: kind(8), prompts * 2, 12)
    assert counts[-1] == counts[len(prompts) - 1]  # requests like earlier ones add none


COUNTERS: dict[str, Callable[[Any, Any], None]] = {
    "rows": lambda o, x: setattr(o, "count", o.count + x.shape[0]),
    "rows from the size": lambda o, x: setattr(o, "count", o.rows.shape[0]),
    "twice": lambda o, x: setattr(o, "count", 2 * (o.count + x.shape[0]) - o.count),
    "in a tuple": lambda o, x: setattr(o, "count", (o.rows.shape[0], "rows")[0]),
    "a share": lambda o, x: setattr(o, "share", o.rows.shape[0] / 4),
    "calls": lambda o, x: setattr(o, "calls", o.calls + 1),
    "a flag": lambda o, x: setattr(o, "full", o.rows.shape[0] >= 9),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_counters_become_followed(name: str) -> None:
    """A constant of one recording is a function of sizes in the next: types and numbers are eager ones."""

    class Rows:
        def __init__(self) -> None:
            self.rows = torch.zeros(0, 4)
            self.count, self.calls, self.share, self.full = 0, 0, 0.0, False

    def program(x: Any, o: Any) -> Any:
        o.rows = torch.cat([o.rows, x])
        COUNTERS[name](o, x)
        return o.rows.sum(0) + o.count

    counts = requests(program, Rows, [5, 5, 5, 3], 12)
    assert counts[2] == counts[1] and counts[3] <= counts[2] + 2


@pytest.mark.parametrize(
    "result", [lambda n: n, lambda n: (n, [2 * n + 1, -n]), lambda n: {"n": n // 2, "last": n - 1}]
)
def test_sizes_among_results(result: Callable[[int], Any]) -> None:
    def program(x: Any) -> Any:
        return x * 2, result(x.shape[0])

    compiled = torch.compile(program, fullgraph=True)
    for n in (5, 6, 7, 31, 200, 5):
        x = torch.arange(n * 3.0).reshape(n, 3)
        (ours, number), (eager, other) = compiled(x), program(x)
        assert torch.equal(ours, eager) and number == other
        assert repr(number) == repr(other)
    assert compiled.recordings == 2


@pytest.mark.parametrize("kind", [float, bool, lambda n: n + 2**70])
def test_a_count_may_be_a_number_of_another_kind(kind: Callable[[int], Any]) -> None:
    """Only integers can be sizes, also where earlier calls have had some."""

    class Rows:
        def __init__(self, count: Any) -> None:
            self.rows, self.count = torch.ones(5, 4), count

    def program(x: Any, o: Any) -> Any:
        o.rows = torch.cat([o.rows, x])
        o.count = o.count + x.shape[0]
        return o.rows.sum(0) * (o.count if o.count < 100 else 0.5)

    compiled = torch.compile(program)
    for count in (5, 5, kind(5), kind(5), 5):
        ours, eager = Rows(count), Rows(count)
        for _ in range(4):
            x = torch.ones(1, 4)
            assert torch.equal(compiled(x, ours), program(x, eager))
            assert state(ours) == state(eager)
