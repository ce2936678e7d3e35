"""``share_memory_``: what one process writes, all processes read, and the memory goes with its last user."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="memory is shared by descriptors of files")


def add_one(*tensors: Any) -> None:
    with torch.no_grad():
        for t in tensors:
            t += 1


def step(model: Any, optimizer: Any) -> None:
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()


def echo(received: Any, back: Any) -> None:
    t = received.get()
    t += 1
    back.put(float(t.sum()))


def in_child(start: str, target: Callable[..., None], *args: Any) -> None:
    child: Any = get_context(start).Process(target=target, args=args)  # type: ignore[attr-defined]
    child.start()
    child.join(120)
    assert child.exitcode == 0


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_writes_of_another_process_are_seen(start: str) -> None:
    made = [
        torch.zeros(2), torch.zeros(3, 4, dtype=torch.int16).t(), torch.zeros((), dtype=torch.bfloat16),
        torch.zeros(0), torch.zeros(1 << 16), nn.Parameter(torch.zeros(5)),
    ]  # fmt: skip
    for t in made:
        assert not t.is_shared() and t.share_memory_() is t and t.is_shared()
    in_child(start, add_one, *made)
    for t in made:
        assert bool((t == 1).all()) and t.is_shared()
    assert made[1].stride() == (1, 4)


@pytest.mark.parametrize("kept", ["base", "view", "reshaped in place", "both arrays"])
def test_all_that_looks_at_the_memory_moves_along(kept: str) -> None:
    base = torch.arange(12.0)
    view = base.view(3, 4)[1:, ::2]
    turned = base.view(3, 4).t()
    if kept == "reshaped in place":
        base.unsqueeze_(0)
    (base if kept == "base" else view).share_memory_()
    assert base.is_shared() and view.is_shared() and turned.is_shared()
    in_child("fork", add_one, view)
    want = np.arange(12.0).reshape(3, 4)
    want[1:, ::2] += 1
    assert np.array_equal(base.reshape(3, 4).numpy(), want) and np.array_equal(turned.numpy(), want.T)
    base.mul_(2)
    assert np.array_equal(view.numpy(), 2 * want[1:, ::2])


def test_copies_are_private_and_memory_is_shared_once() -> None:
    t = torch.ones(3).share_memory_()
    where = t.data_ptr()
    assert t.share_memory_().data_ptr() == where
    for copy in (t.clone(), t + 0, deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert not copy.is_shared() and torch.equal(copy, t)
    assert t.detach().is_shared() and t.data.is_shared() and t[1:].is_shared()
    assert t.untyped_storage().is_shared() and t.storage().is_shared()
    storage = torch.zeros(3).untyped_storage()
    assert storage.share_memory_().is_shared()


def test_a_module_is_shared_with_its_gradients_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model(torch.ones(3, 4)).sum().backward()
    assert model.share_memory() is model
    for p in model.parameters():
        assert p.is_shared() and p.grad is not None and p.grad.is_shared()
    assert all(b.is_shared() for b in model.buffers())
    with pytest.raises(RuntimeError, match="uninitialized"):
        nn.LazyLinear(3).share_memory()


def test_hogwild_training_keeps_every_write() -> None:
    model = nn.Linear(4, 2).share_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.0)
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(3):
        child = get_context("fork").Process(target=step, args=(model, optimizer))
        child.start()
        child.join(120)
        assert child.exitcode == 0
    for p, old, gradient in zip(model.parameters(), before, (3.0, 3.0), strict=True):
        assert torch.allclose(p.detach(), old - 3 * 0.5 * gradient)


def test_optimizer_state_is_shared() -> None:
    model = nn.Linear(2, 2).share_memory()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    optimizer.share_memory()
    sums = [s["sum"] for s in optimizer.state.values()]
    assert sums and all(s.is_shared() for s in sums)
    model.weight.grad = torch.ones(2, 2)
    child = get_context("fork").Process(target=optimizer.step)
    child.start()
    child.join(120)
    assert child.exitcode == 0 and bool((sums[0] == 1).all())


def test_a_compiled_function_reads_what_another_process_wrote() -> None:
    weight = torch.ones(64, 64).share_memory_()
    f = torch.compile(lambda x: x @ weight)
    x = torch.ones(4, 64)
    for _ in range(3):
        assert float(f(x)[0, 0]) == 64.0
    in_child("fork", add_one, weight)
    assert float(f(x)[0, 0]) == 128.0
    private = torch.ones(64, 64)
    g = torch.compile(lambda x: x @ private)
    assert float([g(x) for _ in range(3)][-1][0, 0]) == 64.0
    private.share_memory_()
    in_child("fork", add_one, private)
    assert float(g(x)[0, 0]) == 128.0


def test_gradients_flow_through_tensors_that_move() -> None:
    w = torch.ones(3, requires_grad=True)
    y = (w * 2).sum()
    w.share_memory_()
    y.backward()
    assert w.is_leaf and bool((w.grad == 2).all())


@pytest.mark.slow
def test_a_queue_sends_the_memory() -> None:
    context = get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=echo, args=(there, back))
    child.start()
    t = torch.ones(4).share_memory_()
    there.put(t)
    assert back.get(timeout=120) == 8.0
    child.join(120)
    assert bool((t == 2).all())


def test_forked_processes_do_not_share_what_they_share_later() -> None:
    parent = torch.ones(2).share_memory_()
    context = get_context("fork")
    there, back = context.Pipe()

    def child() -> None:
        mine = torch.full((2,), 5.0).share_memory_()
        back.send("made")
        back.recv()
        back.send(float(mine.sum()))

    process = context.Process(target=child)
    process.start()
    there.recv()
    others = [torch.full((2,), 7.0).share_memory_() for _ in range(3)]
    there.send("go")
    assert there.recv() == 10.0 and all(float(t.sum()) == 14.0 for t in others) and float(parent.sum()) == 2.0
    process.join(120)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed there")
def test_memory_and_descriptors_are_freed() -> None:
    def count() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    torch.zeros(1).share_memory_()
    before = count()
    for _ in range(3):
        several = [torch.zeros(1 << 18).share_memory_() for _ in range(4)]
        small = [torch.zeros(3).share_memory_() for _ in range(20)]
        assert count() <= before + 2 * (len(several) + 1)
        del several, small
    assert count() == before


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="shared memory is listed there")
@pytest.mark.parametrize("end", ["", "os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_nothing_is_left_however_the_process_ends(end: str) -> None:
    code = f"import os, tracecomp as t; x = t.zeros(1 << 18).share_memory_(); print(os.listdir('/dev/shm')); {end}"
    before = set(os.listdir("/dev/shm"))
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    made = {name for name in set(os.listdir("/dev/shm")) - before if "tracecomp" in name}
    assert not made


@pytest.mark.parametrize("shared", [False, True])
def test_storages_are_pickled_without_the_tensor_that_they_are_of(shared: bool) -> None:
    class Reducing(torch.Tensor):
        """A tensor whose pickle is its storage, as in libraries that carry metadata."""

        def __reduce_ex__(self, protocol: Any) -> Any:
            return rebuilt, (self.untyped_storage(), self.dtype, self.shape, self.stride())

    values = torch.arange(6.0).reshape(2, 3)
    x = (values.share_memory_() if shared else values).as_subclass(Reducing)
    assert pickle.loads(pickle.dumps(x)).tolist() == values.tolist()
    y = pickle.loads(ForkingPickler.dumps(x))
    assert y.tolist() == values.tolist()
    y[0, 0] = 7
    assert float(values[0, 0]) == (7.0 if shared else 0.0)
    for dtype in (torch.float64, torch.bfloat16, torch.int8):
        storage = torch.arange(3, dtype=dtype).storage()
        for copy in (pickle.loads(pickle.dumps(storage)), deepcopy(storage)):
            assert copy.tolist() == [0, 1, 2] and copy.dtype is dtype
            copy[0] = 5
            assert storage[0] == 0


def rebuilt(storage: Any, dtype: Any, size: Any, stride: Any) -> Any:
    return torch.empty(0, dtype=dtype).set_(storage, 0, size, stride)
