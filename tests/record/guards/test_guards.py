"""When recordings are reused or not, and the reasons given."""

from __future__ import annotations

import argparse
import copy
import functools
import io
import multiprocessing
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn, optim
from tracecomp.base.errors import CaptureError

FACTOR = 2.0
OPTIONS = {"scale": 1.0}
TABLE = np.ones(3, np.float32)


def helper(x: Any) -> Any:
    return x * FACTOR


def compiled(fn: Any, **options: Any) -> Any:
    return torch.compile(fn, backend="interpret", **options)


def test_shape_miss_is_explained() -> None:
    c = compiled(lambda x: x + 1)
    c(torch.zeros(3))
    c(torch.zeros(4))
    assert c.misses == ["shape of argument [0] went from (3,) to (4,)"]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((torch.zeros(3),), (torch.zeros(3).double(),), "dtype of argument [0] went from float32 to float64"),
        ((torch.zeros(3),), (torch.zeros(3, requires_grad=True),), "requires_grad of argument [0] became True"),
        ((torch.zeros(3), 2), (torch.zeros(3), 3), "argument [1] went from 2 to 3"),
        ((torch.zeros(3), 1), (torch.zeros(3), True), "argument [1] went from 1 to True"),
        ((torch.zeros(3),), (torch.zeros(3), 3), "the structure of the arguments changed"),
        ((torch.zeros(3),), (3,), "argument [0] was a tensor and is 3"),
    ],
    ids=lambda v: None if isinstance(v, tuple) else v.split()[0],
)
def test_misses_are_explained(first: Any, second: Any, words: str) -> None:
    c = compiled(lambda x, k=1: x * k)
    c(*first)
    c(*second)
    assert c.misses == [words]


def test_grad_mode_and_default_dtype_are_guarded() -> None:
    w = torch.ones(3, requires_grad=True)
    c = compiled(lambda x: x * w + torch.zeros(3))
    x = torch.ones(3)
    assert c(x).requires_grad
    with torch.no_grad():
        assert not c(x).requires_grad
        assert not c(x).requires_grad
    assert c(x).requires_grad
    assert c.recordings == 2
    torch.set_default_dtype(torch.float64)
    try:
        assert c(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert "default dtype" in c.misses[-1]


def test_globals_read_by_called_functions_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    c = compiled(lambda x: helper(x) * OPTIONS["scale"])
    x = torch.ones(2)
    assert c(x).tolist() == [2, 2]
    assert c(x).tolist() == [2, 2]
    monkeypatch.setattr("tests.record.guards.test_guards.FACTOR", 5.0)
    assert c(x).tolist() == [5, 5]
    assert "global FACTOR changed from 2.0 to 5.0" in c.misses
    monkeypatch.setitem(OPTIONS, "scale", 10.0)
    assert c(x).tolist() == [50, 50]


def test_rebound_global_tensor_is_seen() -> None:
    space: dict[str, Any] = {"torch": torch, "w": torch.ones(2)}
    exec("def f(x):\n    return x * w", space)
    c = compiled(space["f"])
    assert c(torch.ones(2)).tolist() == [1, 1]
    space["w"] = torch.ones(2) * 7
    assert c(torch.ones(2)).tolist() == [7, 7]


def test_numpy_data_of_a_global_is_guarded() -> None:
    c = compiled(lambda x: x + torch.from_numpy(TABLE))
    assert c(torch.zeros(3)).tolist() == [1, 1, 1]
    TABLE[:] = 4
    try:
        assert c(torch.zeros(3)).tolist() == [4, 4, 4]
    finally:
        TABLE[:] = 1


def test_attributes_of_plain_objects_are_guarded() -> None:
    class Settings:
        gain = 1.0

        def __init__(self) -> None:
            self.offset = 1.0

        def step(self, x: Any) -> Any:
            return x + self.offset

    s = Settings()
    c = compiled(s.step)
    assert c(torch.zeros(1)).item() == 1
    s.offset = 3.0
    assert c(torch.zeros(1)).item() == 3
    assert "offset" in c.misses[-1]


def test_counter_in_the_program_is_not_lost() -> None:
    class Counter:
        def __init__(self) -> None:
            self.n = 0

        def step(self, x: Any) -> Any:
            self.n += 1
            return x + self.n

    for options in ({}, {"fullgraph": False}):
        c = compiled(Counter().step, **options)
        assert [c(torch.zeros(1)).item() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
        assert c.recordings == 2


def test_a_list_that_grows_is_not_lost() -> None:
    seen: list[int] = []

    def step(x: Any) -> Any:
        seen.append(3)
        return x + len(seen)

    c = compiled(step)
    assert [c(torch.zeros(1)).item() for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert seen == [3] * 6


def test_module_attributes_and_mode_are_guarded() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = 2.0
            self.inner = nn.Dropout(0.0)

        def forward(self, x: Any) -> Any:
            return self.inner(x) * self.k

    m = Scaled()
    c = compiled(m)
    x = torch.ones(2)
    assert c(x).tolist() == [2, 2]
    m.k = 3.0
    assert c(x).tolist() == [3, 3]
    assert "attribute of Scaled: k changed from 2.0 to 3.0" in c.misses
    m.unrelated = "text"
    m.eval()
    assert c(x).tolist() == [3, 3]
    assert c.recordings == 3


def test_replaced_parameter_is_seen() -> None:
    m = nn.Linear(2, 1, bias=False)
    c = compiled(m)
    x = torch.ones(1, 2)
    c(x)
    m.weight = nn.Parameter(torch.full((1, 2), 5.0))
    assert c(x).item() == 10


def test_same_tensor_twice_is_another_call() -> None:
    def step(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 1

    c = compiled(step)
    x, y = torch.zeros(2), torch.zeros(2)
    assert c(x, y).tolist() == [0, 0]
    assert c(x, x).tolist() == [2, 2]
    assert c(x, x).tolist() == [3, 3]
    assert c(y, x).tolist() == [3, 3]


def test_host_values_need_no_new_recording() -> None:
    model = nn.Linear(2, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(opt, 1, gamma=0.5)

    def step(x: Any) -> Any:
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        return loss

    c = compiled(step)
    for _ in range(5):
        c(torch.ones(1, 2))
        scheduler.step()
    assert c.recordings == 1


def test_two_functions_share_state() -> None:
    w = torch.zeros(2)

    def write(x: Any) -> None:
        w.add_(x)

    write_c, read_c = compiled(write), compiled(lambda: w * 2)
    for i in range(1, 4):
        write_c(torch.ones(2))
        assert read_c().tolist() == [2.0 * i] * 2
    assert write_c.recordings == read_c.recordings == 1


def test_decorator_method_and_module_attributes() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(2, 2)

        @torch.compile(backend="interpret")
        def forward(self, x: Any) -> Any:
            return self.lin(x)

    m = Model()
    x = torch.ones(1, 2)
    want = m.lin(x)
    for _ in range(3):
        np.testing.assert_allclose(m(x).detach().numpy(), want.detach().numpy())
    c = compiled(m.lin)
    assert [p.shape for p in c.parameters()] == [(2, 2), (2,)]


def test_dataclass_and_keyword_arguments() -> None:
    @dataclass
    class Batch:
        x: Any
        name: str

    c = compiled(lambda b, *, k: Batch(b.x * k, b.name))
    for i in range(3):
        out = c(Batch(torch.full((2,), float(i)), "n"), k=2)
        assert isinstance(out, Batch) and out.x.tolist() == [2.0 * i] * 2
    assert c.recordings == 1


# ---- refusals


def test_numpy_is_refused_with_the_line() -> None:
    def step(x: Any) -> Any:
        return float(x.numpy().sum())

    with pytest.raises(CaptureError, match=r"calls numpy\(\), .*test_guards.py:\d+. Return the tensor"):
        compiled(step, fullgraph=True)(torch.ones(3))


@pytest.mark.parametrize("name", ["uint8", "int16", "float32", "int64", "complex64"])
def test_bytes_are_read_as_another_type(name: str) -> None:
    c = compiled(lambda x: (x * 2).view(getattr(torch, name)))
    for n in range(3):
        x = torch.arange(8.0).view(2, 4) + n
        np.testing.assert_array_equal(c(x).numpy(), (2 * x.numpy()).view(name))


def test_writing_through_a_view_of_the_bytes() -> None:
    def negate(x: Any) -> Any:
        y = x * 1
        y.view(torch.int32)[:, 1:] ^= -(2**31)
        return y

    c = compiled(negate)
    for n in range(3):
        x = torch.arange(1.0, 9.0).view(2, 4) + n
        np.testing.assert_array_equal(c(x).numpy(), x.numpy() * [1, -1, -1, -1])


def test_a_view_of_the_same_type_is_a_view() -> None:
    c = compiled(lambda x: torch.autograd.grad((x * x).view(torch.float32).sum(), x)[0])
    for n in range(3):
        x = (torch.arange(3.0) + n).requires_grad_()
        np.testing.assert_array_equal(c(x).numpy(), 2 * x.detach().numpy())


def test_numpy_runs_eagerly_without_fullgraph() -> None:
    c = compiled(lambda x: torch.from_numpy(x.numpy() * 2), fullgraph=False)
    with pytest.warns(UserWarning, match="graph break in"):
        assert c(torch.ones(2)).tolist() == [2, 2]
    assert c(torch.ones(2) * 3).tolist() == [6, 6]


@pytest.mark.parametrize("length", [0, 100])
def test_what_is_appended_is_appended_at_every_call(length: int) -> None:
    losses = [0.0] * length
    c = compiled(lambda x, losses=losses: losses.append(x.sum().item()))
    for n in range(10):
        c(torch.ones(2) * n)
    assert losses == [0.0] * length + [2.0 * n for n in range(10)]
    assert all(type(x) is float for x in losses)
    assert c.recordings <= 2


def test_history_that_crosses_the_border_is_refused() -> None:
    w, total = torch.ones(2, requires_grad=True), torch.zeros(2)

    def step(x: Any) -> None:
        total.add_(w * x)

    c = compiled(step, fullgraph=True)
    with pytest.raises(CaptureError, match="leaves gradient history in"):
        for _ in range(10):
            c(torch.ones(2))

    h = (w * 2).sum()
    c = compiled(lambda x: (h * x).sum().backward(retain_graph=True), fullgraph=True)
    with pytest.raises(CaptureError, match="through operations made before the call"):
        for _ in range(10):
            c(torch.ones(2))


def test_written_memory_that_inputs_share_is_recorded_by_itself() -> None:
    def step(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 1

    c = compiled(step, fullgraph=True)
    x = torch.zeros(4)
    c(torch.zeros(4), torch.zeros(2))
    assert c(torch.zeros(4), x[1:3]).tolist() == [0, 0]
    assert c.recordings == 1
    for k in range(5):
        assert c(x, x[1:3]).tolist() == [k + 1.0] * 2
    assert x.tolist() == [5] * 4
    assert c.recordings == 3  # the first one that shares finds out that it does
    y = torch.zeros(2)
    assert c(torch.zeros(4), y).tolist() == [0, 0]
    assert c(x, x[2:4]).tolist() == [6, 6] and c(x, x[2:4]).tolist() == [7, 7]


def test_growing_in_place_is_refused() -> None:
    def step(x: Any) -> Any:
        y = x * 1
        y.resize_(2, 4)
        return y[0] + 1

    with pytest.raises(CaptureError, match="resizes a tensor in place beyond its memory"):
        compiled(step, fullgraph=True)(torch.ones(4))
    c = compiled(step)
    with pytest.warns(UserWarning, match="graph break in"):
        assert c(torch.ones(4)).tolist() == [2] * 4
    assert c(torch.ones(4) * 2).tolist() == [3] * 4


def test_too_many_paths_are_refused() -> None:
    c = compiled(lambda x: x * round(x.sum().item(), 3), fullgraph=True)
    with (
        pytest.raises(
            CaptureError, match=r"64 consecutive recordings of .* matched no later call: .*needs a concrete value there"
        ),
        pytest.warns(UserWarning, match=r"recorded 8 times for the number at .*test_guards.py:\d+, now 18.0"),
    ):
        for i in range(100):
            c(torch.full((2,), float(i)))


def test_what_is_printed_is_printed_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    def step(x: Any) -> Any:
        total = x.sum()
        print("total", total, total.item(), "of", len(x), sep="|")
        seen.append("called")
        return x * 2

    c = compiled(step)
    for n in range(5):
        c(torch.ones(2) * n)
        assert capsys.readouterr().out == f"total|tensor({2 * n}.)|{2.0 * n}|of|2\n"
    assert c.recordings <= 2 and len(seen) == 5


def test_text_of_tensors_is_made_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    def step(x: Any) -> Any:
        y = x * 2
        print(f"{y.sum():.1f}")
        return y + 1

    with pytest.raises(CaptureError, match=r"formats a tensor as text, at .*test_guards.py:\d+"):
        compiled(step, fullgraph=True)(torch.ones(2))
    c = compiled(step)
    with pytest.warns(UserWarning, match="graph break in step: the program formats a tensor as text"):
        c(torch.ones(2))
    capsys.readouterr()
    for n in range(3):
        assert c(torch.ones(2) * n).tolist() == [2.0 * n + 1] * 2
        assert capsys.readouterr().out == f"{4.0 * n:.1f}\n"


def test_the_text_of_a_whole_number_is_one_path_for_each_value() -> None:
    def step(x: Any) -> Any:
        n = (x > 0).sum()
        text = f"{n} of {len(x)}, {n > 2}, {n:03d}"
        return x * len(text), text

    c = compiled(step, fullgraph=True)
    for values in ([1, 2, 3], [1, 2, 3], [1, -1, 3], [4, -1, 3], [-1, -1, -1], [1, 2, 4], [1, 2, -3]):
        x = torch.tensor(values, dtype=torch.float32)
        assert c(x)[1] == step(x)[1] and torch.equal(c(x)[0], step(x)[0])
    assert c.recordings == 3


def through_no_grad(scale: Callable[[], float]) -> Any:
    return torch.no_grad()(lambda x: x * scale())


def through_partial(scale: Callable[[], float]) -> Any:
    return functools.partial(lambda a, x: x * scale() * a, 1.0)


def through_a_list(scale: Callable[[], float]) -> Any:
    return lambda x, fs=(scale,): x * fs[0]()


def through_a_compiled_function(scale: Callable[[], float]) -> Any:
    inner = torch.compile(lambda x: x * scale())
    return lambda x: inner(x) + 0


def through_a_hook(scale: Callable[[], float]) -> Any:
    layer = torch.nn.Identity()
    layer.register_forward_hook(lambda module, given, out: out * scale())
    return lambda x: layer(x)


def through_a_property(scale: Callable[[], float]) -> Any:
    class Settings:
        scale = property(lambda self: scale())

    settings = Settings()
    return lambda x: x * settings.scale


WAYS = [
    through_no_grad, through_partial, through_a_list, through_a_compiled_function, through_a_hook, through_a_property,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_closure_variables_count_however_the_function_is_reached(way: Callable[..., Any]) -> None:
    def made(value: float) -> tuple[Callable[[], float], Callable[[float], None]]:
        def write(new: float) -> None:
            nonlocal value
            value = new

        return lambda: value, write

    first, write = made(2.0)
    second, _ = made(2.0)
    c = torch.compile(way(lambda: first() * second()))
    for _ in range(3):
        assert c(torch.ones(2)).tolist() == [4.0, 4.0]
    write(5.0)
    assert c(torch.ones(2)).tolist() == [10.0, 10.0]


def test_flags_that_are_set_before_they_are_read() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))

    def epoch(x: Any) -> Any:
        model.train()
        trained = model(x)
        model.eval()
        return trained.shape, model(x)

    c = compiled(epoch)
    for _ in range(5):
        x = torch.randn(4, 3)
        _, got = c(x)
        assert not model.training
        assert torch.allclose(got, model(x), atol=1e-6)
    assert len(c.graphs) == 1


def test_a_path_of_its_own_now_and_then_is_recorded_each_time() -> None:
    lines = io.StringIO()

    class Loop:
        calls = 0

        def step(self, x: Any) -> Any:
            self.calls += 1
            if self.calls % 5 == 0:
                print(f"{x.sum().item():.1f}", file=lines)
            return x * 2

    step = compiled(Loop().step)
    with pytest.warns(UserWarning, match="recorded 8 times for the number at"):
        for n in range(1, 401):
            assert step(torch.full((2,), float(n))).tolist() == [2 * n, 2 * n]
    assert lines.getvalue().split() == [f"{2.0 * n:.1f}" for n in range(5, 401, 5)]
    assert len(step.graphs) <= 64


def _raised_where_masked(x: Any, mask: Any) -> Any:
    x = x * 2
    x[mask] += 1
    return x.sum(0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "use",
    [
        lambda x, m: (x * 2)[m] * 3, lambda x, m: x[m].sum() + (x * 2).sum(), _raised_where_masked,
        lambda x, m: x * int(m.sum()), lambda x, m: torch.arange(int(m.sum())) + x.sum(),
        lambda x, m: m.nonzero() + 1, lambda x, m: x.flatten()[: m.sum().item()] * 2,
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:graph break in")
def test_a_number_of_the_graph_that_is_new_at_every_call_takes_few_recordings(use: Callable[..., Any]) -> None:
    c = torch.compile(use)
    x = torch.arange(24.0).reshape(4, 6)
    for n in (3, 17, 4, 23, 1, 9, 12, 2, 20, 3, 3, 7):
        assert torch.equal(c(x, x < n), use(x, x < n))
    assert c.recordings <= 5  # one and three more, and one for numbers that are followed


def test_error_in_the_program_leaves_the_eager_state() -> None:
    w = torch.zeros(2)

    def step(x: Any) -> Any:
        w.add_(1)
        if x.sum() > 10:
            raise ValueError("too large")
        return w * x

    c = compiled(step)
    c(torch.ones(2))
    c(torch.ones(2))
    assert w.tolist() == [2, 2]
    with pytest.raises(ValueError, match="too large"):
        c(torch.ones(2) * 100)
    assert w.tolist() == [3, 3]
    assert c(torch.ones(2)).tolist() == [4, 4]


def test_index_error_in_compiled_code_leaves_the_state() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(i: Any) -> None:
        opt.zero_grad()
        (model(i) ** 2).sum().backward()
        opt.step()

    for threads in (1, 2):
        c = torch.compile(step, threads=threads)
        for _ in range(3):
            c(torch.tensor([1, 2]))
        before = [p.detach().clone() for p in model.parameters()]
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            c(torch.tensor([1, 9]))
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        c(torch.tensor([3, 4]))


def test_backward_of_a_finished_step_is_an_error() -> None:
    w = torch.ones(2, requires_grad=True)

    def step() -> Any:
        w.grad = None
        loss = (w * w).sum()
        loss.backward()
        return loss

    c = compiled(step)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="second time"):
            c().backward()


def test_weights_changed_between_forward_and_backward_are_noticed() -> None:
    w = torch.ones(2, requires_grad=True)
    x = torch.ones(2, requires_grad=True)
    c = compiled(lambda x: (w * x).sum())
    c(x)
    y = c(x)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- threads and processes


def test_calls_from_several_threads() -> None:
    w = torch.ones(64)
    c = torch.compile(lambda x: (x * w).sum())
    failures = []

    def work(k: int) -> None:
        for i in range(50):
            got = c(torch.full((64,), float(k + i))).item()
            if got != 64.0 * (k + i):
                failures.append((k, i, got))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def _in_child(queue: Any, c: Any, x: Any) -> None:
    queue.put(c(x).tolist())


def test_use_after_fork() -> None:
    c = torch.compile(lambda x: x * 2)
    x = torch.ones(3)
    c(x)
    c(x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, c, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child.start()
    assert queue.get(timeout=600) == [2, 2, 2]
    child.join()


def test_module_can_be_copied_after_compiling() -> None:
    m = nn.Linear(2, 2)
    c = compiled(m)
    c(torch.ones(1, 2))
    twin = copy.deepcopy(c)
    assert twin._orig_mod is not m and twin(torch.ones(1, 2)).tolist() == c(torch.ones(1, 2)).tolist()
    other = copy.deepcopy(m)
    assert other(torch.ones(1, 2)).tolist() == c(torch.ones(1, 2)).tolist()


def test_nested_compiled_functions_are_one_graph() -> None:
    inner = compiled(lambda x: x * 2)
    outer = compiled(lambda x: inner(x) + 1)
    for _ in range(3):
        assert outer(torch.ones(2)).tolist() == [3, 3]
    assert inner.recordings == 0 and len(outer.graphs) == 1


def test_explain_names_everything() -> None:
    w = torch.zeros(2)

    def step(x: Any) -> Any:
        w.add_(x)
        return w.sum()

    c = compiled(step)
    c(torch.ones(2))
    c(torch.ones(2))
    assert "step: recordings 1, in use 1" in c.explain().text(everything=True)
    assert "state written" in c.explain().text(everything=True)


def test_backward_nodes_belong_to_the_line_of_the_forward_operation() -> None:
    w = torch.ones(3, requires_grad=True)

    def step(x: Any) -> None:
        y = (w * x).exp()  # the line of the multiplication
        y.sum().backward()

    graph = torch.trace(step, torch.ones(3))
    lines = {graph.origin[n].source.line for n in graph.live_nodes() if "backward" in graph.origin[n].scope}
    first = step.__code__.co_firstlineno
    assert first + 1 in lines


def test_trace_gives_the_graph() -> None:
    graph = torch.trace(lambda x: x.exp() + 1, torch.ones(3))
    assert [n.op.name for n in graph.live_nodes() if n.inputs] == ["exp", "add"]
    w = torch.ones(3, requires_grad=True)
    assert [o.role for o in torch.trace(lambda x: x * w, torch.ones(3)).outputs] == ["result"]


class AnswersForAnyName:
    """No ``__dict__``, but ``__getattr__`` gives something for every name, as wrappers of libraries do."""

    __slots__ = ("scale",)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None

    def times(self, x: Any) -> Any:
        return x * self.scale


def test_objects_that_answer_for_any_name_are_called() -> None:
    wrapper: Any = AnswersForAnyName()
    wrapper.scale = 3.0
    call = torch.compile(lambda x: wrapper.times(x))
    for _ in range(3):
        assert call(torch.ones(2)).tolist() == [3.0, 3.0]


class Configured(nn.Module):
    """Keeps options in separate containers."""

    def __init__(self) -> None:
        super().__init__()
        self.options = {"scale": 1.0}
        self.powers = [1.0, 2.0]

    def forward(self, x: Any) -> Any:
        return (x * self.options["scale"]) ** self.powers[0]


arguments = argparse.Namespace(shift=1.0)
settings = SimpleNamespace(factor=2.0)


@pytest.mark.parametrize("what", ["dict", "list", "namespace", "simple namespace"])
def test_contents_of_attributes_are_read_again(what: str) -> None:
    module = Configured()

    def fn(x: Any) -> Any:
        return module(x) * settings.factor + arguments.shift

    c = compiled(fn)
    x = torch.tensor([1.0, 2.0])
    for n in range(6):
        value = 1.0 + n // 3
        if what == "dict":
            module.options["scale"] = value
        elif what == "list":
            module.powers[0] = value
        elif what == "namespace":
            arguments.shift = value
        else:
            settings.factor = value
        assert c(x).tolist() == fn(x).tolist()
    assert c.recordings <= 3
