"""Calls that native code serves: the guards, the memory of results, references, threads."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.collecting import collect
from tests.references import by_numpy
from tracecomp import nn
from tracecomp.base import config
from tracecomp.compiled.backends import Native
from tracecomp.compiled.function import Compiled
from tracecomp.compiled.replay import Plan
from tracecomp.eager_kernels import background
from tracecomp.runtime import threads
from tracecomp.runtime.call import take_calls
from tracecomp.runtime.object_layout import objects_are_known

SCALE = 2.0


def served(compiled: Compiled) -> int:
    """Return how many calls native code has served since the last call of this function."""
    if not objects_are_known():
        pytest.skip("calls go through Python on this interpreter")
    return sum(take_calls(e.fast[0]) for e in compiled.entries if e.fast is not None)


def warm(fn: Callable[..., Any], *args: Any) -> Compiled:
    """``fn`` compiled and called until native code serves it."""
    compiled: Compiled = tc.compile(fn)
    for _ in range(3):
        compiled(*args)
    assert served(compiled) == 1
    return compiled


def add(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    return x + y


def test_results_are_right_and_do_not_depend_on_results_still_held() -> None:
    x = tc.zeros(4)
    c = warm(add, x, tc.ones(4))
    held = []
    for k in range(10):
        x.fill_(k)
        held.append(c(x, tc.ones(4)))
    assert served(c) == 10
    assert [h.tolist() for h in held] == [[k + 1.0] * 4 for k in range(10)]


CONTENTS: dict[str, tuple[Callable[[list[Any], dict[str, Any]], object], float]] = {
    "an element": (lambda sizes, options: sizes.__setitem__(1, 5.0), 1 + 5 + 4 + 7),
    "one more": (lambda sizes, options: sizes.append(10.0), 1 + 2 + 4 + 10 + 7),
    "one less": (lambda sizes, options: sizes.pop(), 1 + 2 + 7),
    "of an inner list": (lambda sizes, options: options["inner"][0].append(3.0), 1 + 2 + 4 + 7 + 3),
    "a value": (lambda sizes, options: options.update(add=0.0), 1 + 2 + 4),
    "another key": (lambda sizes, options: options.update(more=1.0), 1 + 2 + 4 + 7 + 1),
    "the order": (lambda sizes, options: options.update(add=options.pop("add")), 1 + 2 + 4 + 7 + 0.5),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_contents_of_lists_and_dictionaries_are_guarded(name: str) -> None:
    sizes: list[Any] = [1.0, 2.0, 4.0]
    options: dict[str, Any] = {"add": 7.0, "inner": ([],)}
    change, want = CONTENTS[name]

    def program(x: tc.Tensor) -> tc.Tensor:
        turned = 0.5 if next(iter(options)) == "inner" else 0.0
        return x * (sum(sizes) + options["add"] + options.get("more", 0.0) + sum(options["inner"][0]) + turned)

    c = warm(program, tc.ones(3))
    assert c(tc.ones(3)).tolist() == [14.0] * 3 and served(c) == 1
    change(sizes, options)
    assert c(tc.ones(3)).tolist() == [want] * 3 and served(c) == 0


@pytest.mark.parametrize("keep", ["view", "numpy", "row of numpy", "buffer"])
def test_memory_that_is_looked_at_is_not_used_again(keep: str) -> None:
    x, y = tc.ones(4), tc.ones(4)
    c = warm(add, x, y)
    result = c(x, y)
    looks: dict[str, Callable[[tc.Tensor], Any]] = {
        "view": lambda t: t[1:], "numpy": lambda t: t.numpy(), "row of numpy": lambda t: t.numpy()[::2],
        "buffer": lambda t: memoryview(t.numpy()),  # type: ignore[arg-type]
    }  # fmt: skip
    look = looks[keep](result)
    del result
    x.fill_(9.0)
    for _ in range(4):
        c(x, y)
    assert set(np.asarray(look.tolist()).ravel()) == {2.0}


def test_a_weak_reference_to_a_result_or_its_array_dies() -> None:
    c = warm(add, tc.ones(4), tc.ones(4))
    result = c(tc.ones(4), tc.ones(4))
    tensor, array = weakref.ref(result), weakref.ref(result.numpy())
    del result
    c(tc.ones(4), tc.ones(4))
    assert tensor() is None
    assert array() is None or array().tolist() == [2.0] * 4


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_a_result_changed_by_its_owner_is_not_used_again() -> None:
    x = tc.ones(4)
    c = warm(add, x, x)
    for change in (lambda a: setattr(a, "shape", (2, 2)), lambda a: a.setflags(write=False)):
        change(c(x, x).numpy())
        result = c(x, x)
        assert result.shape == (4,) and result.numpy().flags.writeable
        result.add_(1)


CHANGES: dict[str, tuple[Any, Any]] = {
    "shape": (lambda: tc.ones(5), lambda: tc.ones(5)),
    "broadcast": (lambda: tc.ones(1), lambda: tc.ones(4)),
    "0-d": (lambda: tc.tensor(3.0), lambda: tc.tensor(4.0)),
    "dtype": (lambda: tc.ones(4, dtype=tc.float64), lambda: tc.ones(4, dtype=tc.float64)),
    "mixed dtypes": (lambda: tc.ones(4, dtype=tc.int64), lambda: tc.ones(4)),
    "not contiguous": (lambda: tc.arange(8.0)[::2], lambda: tc.ones(4)),
    "requires grad": (lambda: tc.ones(4, requires_grad=True), lambda: tc.ones(4)),
    "history": (lambda: tc.ones(4, requires_grad=True) * 3, lambda: tc.ones(4)),
    "view": (lambda: tc.arange(9.0)[1:5], lambda: tc.ones(4)),
    "subclass": (lambda: nn.Parameter(tc.ones(4), requires_grad=False), lambda: tc.ones(4)),
    "number": (lambda: 2.5, lambda: tc.ones(4)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_kind_of_argument(change: str) -> None:
    c = warm(add, tc.ones(4), tc.ones(4))
    x, y = (make() for make in CHANGES[change])
    expected = add(x, y)
    for _ in range(4):
        result = c(x, y)
        assert result.tolist() == expected.tolist()
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert result.requires_grad == expected.requires_grad
    assert c(tc.ones(4), tc.ones(4)).tolist() == [2.0] * 4


def test_two_kinds_of_call_in_turn_are_both_served() -> None:
    c = tc.compile(add)
    kinds = [(tc.ones(4), tc.ones(4)), (tc.ones(2, 3), tc.ones(3))]
    for _ in range(4):
        for x, y in kinds:
            c(x, y)
    served(c)
    for x, y in kinds * 2:
        assert c(x, y).tolist() == add(x, y).tolist()
    assert served(c) == 4 and c.recordings == 2


def test_views_are_served_until_their_base_is_written() -> None:
    data, w = tc.arange(12.0).reshape(3, 4), tc.ones(4, requires_grad=True)
    c = warm(add, tc.ones(4), tc.ones(4))
    rows = [data[k] for k in range(3)]
    for row in rows:
        assert c(row, row.detach()).tolist() == (row * 2).tolist()
    assert served(c) == 3
    data.mul_(w)
    assert c(rows[1], tc.ones(4)).requires_grad and not c(tc.ones(4), tc.ones(4)).requires_grad


def test_the_same_tensor_twice() -> None:
    x, y = tc.ones(4), tc.full((4,), 5.0)

    def swap(a: tc.Tensor, b: tc.Tensor) -> tc.Tensor:
        a.add_(1)
        return a * b

    c = warm(swap, tc.ones(4), tc.ones(4))
    assert c(x, x).tolist() == [4.0] * 4
    assert c(x, y).tolist() == [15.0] * 4 and x.tolist() == [3.0] * 4


def test_an_argument_that_is_a_view_of_a_written_one() -> None:
    def write(a: tc.Tensor, b: tc.Tensor) -> tc.Tensor:
        a.mul_(2)
        return a + b

    warm_a = tc.ones(4)
    c = warm(write, warm_a, tc.ones(4))
    x, other = tc.ones(4), tc.ones(4)
    assert c(x, x.detach()).tolist() == write(other, other.detach()).tolist()


def test_wrong_arguments_raise_as_before() -> None:
    c = warm(add, tc.ones(4), tc.ones(4))
    for args, kwargs in (((tc.ones(4),), {}), ((tc.ones(4),) * 3, {}), ((tc.ones(4),), {"z": 1})):
        with pytest.raises(TypeError):
            c(*args, **kwargs)
    assert c(tc.ones(4), y=tc.ones(4)).tolist() == c(x=tc.ones(4), y=tc.ones(4)).tolist() == [2.0] * 4


def test_gradient_modes_are_those_of_the_thread() -> None:
    w = tc.ones(4, requires_grad=True)
    c = tc.compile(lambda x: x * w)
    with tc.no_grad():
        for _ in range(4):
            assert not c(tc.ones(4)).requires_grad
        assert served(c) == 2
    assert c(tc.ones(4)).requires_grad
    found = []

    def other() -> None:
        found.append(c(tc.ones(4)).requires_grad)
        with tc.no_grad():
            found.extend(c(tc.ones(4)).requires_grad for _ in range(3))

    with tc.no_grad():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == [True, False, False, False]


def test_requires_grad_of_captured_tensors() -> None:
    w = tc.ones(4)
    c = warm(lambda x: x * w, tc.ones(4))
    w.requires_grad_()
    assert c(tc.ones(4)).requires_grad


def test_attributes_of_objects() -> None:
    class Settings:
        factor = 1.0

        def __init__(self) -> None:
            self.factor = 2.0

    settings = Settings()
    c = tc.compile(lambda x: x * settings.factor)
    for _ in range(4):
        assert c(tc.ones(2)).tolist() == [2.0, 2.0]
    settings.factor = 3.0
    assert c(tc.ones(2)).tolist() == [3.0, 3.0]
    settings.factor = 2.0
    assert c(tc.ones(2)).tolist() == [2.0, 2.0]


def test_globals_closures_and_defaults() -> None:
    global SCALE
    shift = 1.0

    def program(x: tc.Tensor) -> tc.Tensor:
        return x * SCALE + shift

    c = warm(program, tc.ones(2))
    shift = 5.0
    assert c(tc.ones(2)).tolist() == [7.0, 7.0]
    SCALE = 3.0
    try:
        assert c(tc.ones(2)).tolist() == [8.0, 8.0]
    finally:
        SCALE = 2.0
    assert c(tc.ones(2)).tolist() == [7.0, 7.0]


def test_a_list_in_a_closure_that_changes() -> None:
    factors = [1.0, 2.0]
    c = tc.compile(lambda x: x * factors[0] * factors[1])
    for _ in range(4):
        assert c(tc.ones(2)).tolist() == [2.0, 2.0]
    factors[0] = 4.0
    assert c(tc.ones(2)).tolist() == [8.0, 8.0]


def test_default_dtype() -> None:
    c = warm(lambda x: x + tc.ones(2), tc.ones(2))
    tc.set_default_dtype(tc.float64)
    try:
        assert c(tc.ones(2, dtype=tc.float32)).dtype == tc.float64
    finally:
        tc.set_default_dtype(tc.float32)


def test_modules_training_flag_new_weights_and_replaced_data() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    model.eval()
    x = tc.ones(2, 3)
    with tc.no_grad():
        c = warm(model, x)
        model[0].weight.fill_(1.0)
        model[0].bias.zero_()
        assert c(x).tolist() == [[3.0] * 3] * 2
        state = {k: v * 2 for k, v in model.state_dict().items()}
        model.load_state_dict(state)
        assert c(x).tolist() == [[6.0] * 3] * 2
        model[0].weight.data = tc.full((3, 3), 4.0)
        assert c(x).tolist() == [[12.0] * 3] * 2
        model[0].weight.data = tc.arange(9.0).reshape(3, 3).t()
        assert c(x).tolist() == model(x).tolist()
        model.train()
        values = {v for row in c(tc.ones(50, 3)).tolist() for v in row}
        assert 0.0 in values and len(values) > 1
        model[0].weight = nn.Parameter(tc.zeros(3, 3))
        model.eval()
        assert c(x).tolist() == [[0.0] * 3] * 2


def test_out_is_written_in_place_and_counted() -> None:
    c = warm(lambda x, y, out: tc.add(x, y, out=out), tc.ones(4), tc.ones(4), tc.zeros(4))
    out = tc.zeros(4)
    out.add_(1)
    version, memory = out._version, out.numpy()
    served(c)
    assert c(tc.ones(4), tc.ones(4), out) is out
    assert served(c) == 1
    assert out._version == version + 1 and memory.tolist() == [2.0] * 4


@pytest.mark.parametrize("before", [0, 1000])
def test_writes_are_counted_by_tensor_and_by_memory(before: int) -> None:
    c = warm(lambda x, out: tc.add(x, 1, out=out), tc.ones(4), tc.zeros(4))
    out = tc.zeros(4)
    alias = out.data
    for _ in range(before):
        out.add_(1)
    start, memory = out._version, out._shared_storage().memory
    assert alias._shared_storage().memory is memory
    for written in (out, out, alias, out, alias):
        c(tc.ones(4), written)
        written.add_(1)
    assert (out._version - start, alias._version, memory.writes) == (6, 4, start + 10)


def test_out_that_overlaps_an_input_by_way_of_numpy() -> None:
    c = warm(lambda x, out: out.copy_(x + tc.flip(x, (0,))), tc.ones(4), tc.zeros(4).add_(1))
    memory = np.arange(5, dtype=np.float32)
    x, out = tc.from_numpy(memory[:4]), tc.from_numpy(memory[1:])
    expected = (x + tc.flip(x, (0,))).tolist()
    assert c(x, out).tolist() == expected


def test_structures_of_results() -> None:
    def program(x: tc.Tensor) -> Any:
        return {"sum": x + 1, "both": (x, [x * 2, 7])}, None

    x = tc.ones(2)
    found, nothing = warm(program, x)(x)
    assert nothing is None and found["both"][0] is x and found["both"][1][1] == 7
    assert found["sum"].tolist() == found["both"][1][0].tolist() == [2.0, 2.0]
    assert isinstance(warm(lambda x: (x + 1, x * 2), x)(x), tuple)


def test_a_training_step_with_a_scheduled_rate_and_shared_gradients() -> None:
    def run(compiled: bool) -> list[Any]:
        tc.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        optimizer = tc.optim.AdamW(model.parameters(), lr=0.1)
        schedule = tc.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

        def step(x: tc.Tensor) -> tc.Tensor:
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        call = tc.compile(step) if compiled else step
        x, found = tc.ones(2, 3), []
        for _ in range(12):
            loss = call(x)
            found.append((loss.item(), model[0].weight.grad.tolist()))
            schedule.step()
        if compiled:
            assert served(call) >= 5  # type: ignore[arg-type]
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()
        held = model[0].weight.grad
        before = held.tolist()
        call(x)
        assert held.tolist() == before and model[0].weight.grad is not held
        return found

    for (a, ga), (b, gb) in zip(run(True), by_numpy(run)(False), strict=True):
        assert a == pytest.approx(b, rel=1e-5)
        np.testing.assert_allclose(ga, gb, rtol=1e-4, atol=1e-6)


def test_numbers_of_any_kind_are_read_at_each_call() -> None:
    w = tc.zeros(1, requires_grad=True)
    optimizer = tc.optim.SGD([w], lr=1.0)

    def step() -> None:
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    c = warm(step)
    for rate in (2, -1.0, np.float64(0.5), True):
        w.data.zero_()
        optimizer.param_groups[0]["lr"] = rate
        c()
        assert w.item() == -float(rate)
    del optimizer.param_groups[0]["lr"]
    with pytest.raises(KeyError):
        c()


def test_an_index_out_of_range_is_reported() -> None:
    c = warm(lambda x, i: x[i], tc.ones(4), tc.tensor([1, 2]))
    for _ in range(3):
        with pytest.raises(IndexError):
            c(tc.ones(4), tc.tensor([1, 7]))
        assert c(tc.ones(4), tc.tensor([0, 3])).tolist() == [1.0, 1.0]


def test_an_index_out_of_range_is_reported_where_a_scatter_became_a_comparison() -> None:
    c = warm(lambda i: tc.zeros(2, 5).scatter(1, i, 1.0), tc.tensor([[1], [4]]))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="index 5 is out of bounds"):
            c(tc.tensor([[1], [5]]))
        assert c(tc.tensor([[0], [4]])).tolist() == [[1.0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]]


@pytest.mark.parametrize("name, shape", [("index_add", (4, 70)), ("scatter_add", (200,)), ("index_copy", (3,))])
def test_nothing_is_written_to_an_index_out_of_range(name: str, shape: tuple[int, ...]) -> None:
    x, count = tc.ones(*shape), shape[0] - 1
    good, new = tc.arange(count), tc.ones(count, *shape[1:])
    c = warm(lambda i: getattr(x, name)(0, i, new), good)
    for bad in (shape[0], 10**12):
        far = good.clone()
        far[-1] = bad
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            c(far)
    assert c(good).tolist() == getattr(x, name)(0, good, new).tolist()


@pytest.mark.slow  # other threads of the process make objects, too
def test_references_do_not_change() -> None:
    w, x, out, label = nn.Parameter(tc.ones(4)), tc.ones(4), tc.zeros(4).add_(1), "label"

    def program(x: tc.Tensor, out: tc.Tensor, label: str) -> Any:
        w.mul_(1.0)
        tc.add(x, x, out=out)
        return x + w, out, label

    with tc.no_grad():
        c = warm(program, x, out, label)
        watched = [w, x, out, label, w._data, x._data, out._data, None, True, False, tc.Tensor, np.ndarray, c, program]
        watched += [x._data.dtype, np.empty, tc.float32, c.entries[0], c.entries[0].fast]
        counts = []
        for _ in range(3):
            for _ in range(2000):
                c(x, out, label)
            background.finish()
            gc.collect()
            counts.append([len(gc.get_objects()), *(sys.getrefcount(o) for o in watched)])
    # A leak would grow in every round. Other threads, which end at some time, hold and create objects too.
    changes = [[abs(b - a) for a, b in zip(*pair, strict=True)] for pair in pairwise(counts)]
    assert max(map(min, zip(*changes, strict=True))) <= 500
    assert served(c) == 6000


def test_a_dropped_function_is_freed() -> None:
    w = tc.ones(4)
    c = warm(lambda x: x + w, tc.ones(4))
    gone = weakref.ref(c)
    call = c.__call__
    del c
    collect()
    assert call(tc.ones(4)).tolist() == [2.0] * 4
    del call
    collect()
    assert gone() is None


def test_several_python_threads() -> None:
    size = 300000
    small, large = warm(add, tc.ones(4), tc.ones(4)), warm(lambda x: x * 2 + 1, tc.ones(30, 1000))
    wrong = []

    def work(number: int) -> None:
        x, y, big = tc.full((4,), float(number)), tc.ones(4), tc.full((30, 1000), float(number))
        for k in range(300):
            if small(x, y).tolist() != [number + 1.0] * 4:
                wrong.append((number, k))
            if k % 10 == 0 and float(large(big).sum()) != (2 * number + 1.0) * size / 10:
                wrong.append((number, -k))

    callers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child() -> None:
    x, y = tc.ones(4), tc.ones(4)
    c = warm(add, x, y)
    child = os.fork()
    if child == 0:
        os._exit(0 if c(x, y).tolist() == [2.0] * 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def shared_among(count: int) -> tuple[Compiled, tc.Tensor]:
    """A compiled function worth several threads, that is called with ``count`` of them, and its argument."""
    x = tc.ones(2**20)
    threads.set_num_threads(count)
    return warm(lambda t: t.exp() * 2 + 1, x), x


@pytest.fixture
def number_of_threads() -> Iterator[None]:
    before = threads.chosen
    yield
    threads.chosen = before


@pytest.mark.usefixtures("number_of_threads")
def test_programs_for_several_threads() -> None:
    c, x = shared_among(2)
    assert [e.plan.forward.executable.image.parallel for e in c.entries] == [True]
    for n in range(5):
        np.testing.assert_allclose(c(x.fill_(n)).numpy(), np.exp(np.float32(n)) * 2 + 1, rtol=1e-6)
    assert served(c) == 5


@pytest.mark.usefixtures("number_of_threads")
def test_another_number_of_threads_needs_another_record() -> None:
    c, x = shared_among(2)
    threads.set_num_threads(1)
    for _ in range(4):
        c(x)
    assert 0 < served(c) < 4
    with config.override(num_threads=2):
        c(x)
        assert served(c) == 0
    c(x)
    assert served(c) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.usefixtures("number_of_threads")
def test_a_forked_child_starts_workers_of_its_own() -> None:
    c, x = shared_among(2)
    child = os.fork()
    if child == 0:
        good = all(np.ptp(c(x).numpy()) == 0 for _ in range(3)) and threads.workers == 1 and served(c) == 2
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_methods_attributes_and_reset() -> None:
    class Owner:
        @tc.compile
        def method(self, x: tc.Tensor) -> tc.Tensor:
            """Doubles."""
            return x * 2

    owner, x = Owner(), tc.ones(2)
    for _ in range(4):
        assert owner.method(x).tolist() == [2.0, 2.0]
    compiled = Owner.method
    assert isinstance(compiled, Compiled) and callable(compiled)
    assert compiled.__name__ == "method" and compiled.__doc__ == "Doubles." and served(compiled) == 2
    owner.method(x)
    assert f": {compiled.entries[0].recording.calls + 1} calls" in compiled.explain().text(everything=True)
    compiled.reset()
    assert owner.method(x).tolist() == [2.0, 2.0] and compiled.recordings == 2


def test_inside_another_recording_the_function_itself_runs() -> None:
    inner = warm(add, tc.ones(4), tc.ones(4))
    outer = tc.compile(lambda x: inner(x, x) * 2)
    for _ in range(3):
        assert outer(tc.ones(4)).tolist() == [4.0] * 4
    assert len(outer.graphs[0].nodes) >= 2


@pytest.mark.skipif(not objects_are_known(), reason="calls go through Python on this interpreter")
def test_a_native_call_does_not_double_the_memory_of_intermediate_values() -> None:
    x = tc.randn(500, 1000)
    c = tc.compile(lambda x: tc.softmax((x @ x.t()) @ x, 1).sum())
    background.finish()  # memory of work that other tests left to the background thread does not belong to this call
    tracemalloc.start()
    for _ in range(6):
        c(x)
    collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    entry = c.entries[0]
    assert entry.fast is not None and isinstance(entry.plan, Plan) and isinstance(entry.plan.forward, Native)
    arena = entry.plan.forward.executable.image.memory_bytes
    assert arena > 1_000_000
    assert held < 1.5 * arena


@pytest.mark.parametrize("clip", ["clip_grad_norm_", "clip_grad_value_"])
def test_gradients_that_the_call_writes_in_place(clip: str) -> None:
    """Native code serves a step that clips its gradients; each gradient counts the write of its call."""

    def losses(compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        tc.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = tc.optim.AdamW(model.parameters(), lr=0.1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            getattr(nn.utils, clip)(model.parameters(), 0.5)
            optimizer.step()
            return loss.detach()

        run, seen = compile(step), []
        for n in range(8):
            loss = run(tc.arange(8.0).reshape(2, 4) - n)
            grad = model.weight.grad
            seen.append((loss.item(), grad.tolist(), grad._version))
            del grad  # its memory may be used again
        return seen, run

    seen, compiled = losses(tc.compile)
    assert seen == losses(lambda fn: fn)[0]
    assert compiled.entries[0].fast is not None
