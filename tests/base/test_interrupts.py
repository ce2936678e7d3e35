"""Ctrl-C at random moments: modes are restored, state is as before a step or as after it, and programs stop."""

from __future__ import annotations

import copy
import gc
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any

import pytest

import tracecomp as tc
from tracecomp import nn, optim
from tracecomp.amp import autocast
from tracecomp.autograd.anomaly import detect_anomaly
from tracecomp.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from tracecomp.base import config
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.locks import Lock
from tracecomp.eager.modes import Modes, enable_grad, inference_mode, modes, no_grad, unrecorded

pytestmark = [
    pytest.mark.slow,  # interrupts come at random moments
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers"),
    # Python itself has functions in which an interrupt gets lost, such as those that tidy weak sets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """The timer stands for the user: its handler does what that of Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(work: Callable[[], Any], after: float) -> None:
    """Repeat ``work`` until the interrupt, which comes after so many seconds.

    It comes again should it be lost, as in Python's own callbacks of weak references.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, after, 0.5)
        while True:
            work()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


def in_a_stack() -> None:
    with ExitStack() as stack:
        stack.enter_context(no_grad())
        stack.enter_context(autocast("cpu"))


@no_grad()
def decorated() -> None:
    pass


def in_each_other() -> None:
    hooks = saved_tensors_hooks(lambda x: x, lambda x: x)
    without = disable_saved_tensors_hooks()
    with no_grad(), enable_grad(), inference_mode(), unrecorded(), autocast("cpu"), detect_anomaly(), hooks, without:
        pass


def one_by_one() -> None:
    with no_grad():
        pass
    with enable_grad():
        pass
    with inference_mode():
        pass
    with autocast("cpu"):
        pass
    with unrecorded():
        pass


NAMES = ("grad", "inference", "anomaly", "recorder", "autocast", "save_hooks")


@pytest.mark.parametrize("work", [one_by_one, in_each_other, decorated])
def test_interrupted_blocks_restore_their_modes(work: Callable[[], None]) -> None:
    dice = random.Random(1)
    for _ in range(1500):
        interrupted(work, dice.uniform(2e-5, 3e-4))
        assert {n: getattr(modes, n) for n in NAMES} == {n: getattr(Modes, n) for n in NAMES}


def test_blocks_work_in_stacks_and_by_hand() -> None:
    in_a_stack()
    assert modes.grad and modes.autocast is None
    block, seen = no_grad(), []
    block.__enter__()
    seen.append(modes.grad)
    block.__exit__(None, None, None)
    assert [*seen, modes.grad] == [False, True]


def test_interrupted_locks_are_free() -> None:
    lock, dice = Lock(), random.Random(2)

    def work() -> None:
        with lock:
            pass

    for _ in range(500):
        interrupted(work, dice.uniform(2e-5, 3e-4))
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(lock._lock.acquire(timeout=5)))
    thread.start()
    thread.join()
    assert got == [True]


LOADS = """
import random, signal, sys, threading
from tracecomp.codegen.text import native

def interrupt(number, frame):
    raise KeyboardInterrupt

host = native.host_target()
text = "define i32 @f() {{\\n ret i32 1\\n}}\\n"
code, dice = native.compile_object(text, host), random.Random(4)
signal.signal(signal.SIGALRM, interrupt)
for _ in range({moments}):
    try:
        signal.setitimer(signal.ITIMER_REAL, dice.uniform(2e-5, 2e-3), 0.02)
        while True:
            {work}
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
    thread = threading.Thread(target=native.compile_object, args=(text, host), daemon=True)
    thread.start()
    thread.join(20)
    if thread.is_alive():
        sys.exit("another thread waits for LLVM for ever")
print("done")
"""


@pytest.mark.parametrize("work", ["native.compile_object(text, host)", "native.Library([code], host).address('f')"])
def test_llvm_interrupted_at_any_moment_serves_other_threads(work: str) -> None:
    """In a process of its own: LLVM's objects can be freed twice when a call of llvmlite is left half-way."""
    script = LOADS.format(work=work, moments=600)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0 and ended.stdout == "done\n", ended.stderr[-2000:]


def test_interrupted_compilations_leave_nothing_on(tmp_path: Any) -> None:
    dice = random.Random(3)
    settings = config.current()
    traced = sys.gettrace()

    def work() -> None:
        number = dice.random()
        with config.override(cache_dir=str(tmp_path / str(number))):
            compiled = tc.compile(lambda x: (x @ x).relu().sum() * number, fast_math=True)
            for _ in range(3):
                compiled(tc.ones(4, 4))

    work()  # what a first compilation imports is not tried here
    for _ in range(25):
        interrupted(work, dice.uniform(0.001, 0.12))
        assert {n: getattr(modes, n) for n in NAMES} == {n: getattr(Modes, n) for n in NAMES}
        assert gc.isenabled() and sys.gettrace() is traced and config.current().fast_math == settings.fast_math


def test_signals_in_a_short_block_wait_for_its_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        with uninterrupted:
            signal.raise_signal(signal.SIGALRM)
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside", "behind"] and signal.getsignal(signal.SIGALRM) is interrupt
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGALRM)


def test_a_handler_set_in_a_short_block_stays() -> None:
    with uninterrupted:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN


def test_short_blocks_interrupted_at_any_moment_restore_handlers() -> None:
    dice, counts = random.Random(4), [0, 0]

    def work() -> None:
        with uninterrupted:
            counts[0] += 1
            counts[1] += 1

    for _ in range(1000):
        interrupted(work, dice.uniform(2e-5, 3e-4))
        assert counts[0] == counts[1]
        with uninterrupted:
            pass
        assert signal.getsignal(signal.SIGALRM) is interrupt and uninterrupted._depth == 0


class Twins:
    """Two equal networks that one optimizer trains on the same data: equal for as long as every step is whole."""

    def __init__(self, kind: str, compiled: bool) -> None:
        tc.manual_seed(0)
        first = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        self.nets = nn.ModuleList([first, copy.deepcopy(first)])
        self.optimizer = getattr(optim, kind)(self.nets.parameters(), lr=0.01)
        self.x, self.y = tc.randn(16, 6), tc.randint(0, 3, (16,))
        self.run = tc.compile(self.step) if compiled else self.step

    def step(self) -> Any:
        self.optimizer.zero_grad()
        loss = sum(nn.functional.cross_entropy(net(self.x), self.y) for net in self.nets)
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self, number: int) -> bytes:
        """Parameters of a network and what the optimizer keeps of them."""
        kept = []
        for p in self.nets[number].parameters():
            kept += [p.detach().numpy(), *(v.numpy() for _, v in sorted(self.optimizer.state.get(p, {}).items()))]
        return b"".join(a.tobytes() for a in kept)


def interrupt_training(kind: str, compiled: bool, moments: int, seed: int) -> int:
    """Interrupt a training so often; how many of the moments found a state that none before had found."""
    twins, dice, seen = Twins(kind, compiled), random.Random(seed), set()
    for n in range(moments):
        for _ in range(4 if n == moments // 3 else 0):  # from here on compiled code runs, if it did not yet
            twins.run()
        interrupted(twins.run, dice.choice((0.001, 0.05)) * dice.uniform(0.05, 2))
        assert twins.state(0) == twins.state(1), "a step is half done"
        assert modes.grad and modes.recorder is None
        seen.add(twins.state(0))
    return len(seen)


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_is_whole_or_not_done_whenever_ctrl_c_comes(kind: str, compiled: bool) -> None:
    tc.compile(lambda x: x + 1)(tc.ones(1))  # what a first compilation imports is not tried here
    assert interrupt_training(kind, compiled, 60, 5) > 10


STOPS = """
import sys
from collections import deque
from itertools import repeat
import tracecomp as tc
w = tc.zeros(int(sys.argv[1]))
@tc.compile
def step(x):
    w.add_(x)
x = tc.ones(int(sys.argv[1]))
for _ in range(4):
    step(x)
print(flush=True)
{loop}
"""


@pytest.mark.parametrize("size", [10, 3_000_000])
@pytest.mark.parametrize("loop", ["deque(map(step, repeat(x)), maxlen=0)", "while True: step(x)"])
def test_a_program_stops_within_a_second(size: int, loop: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPS.format(loop=loop), str(size)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, errors = process.communicate(timeout=20)
        took = time.monotonic() - start
    assert errors.rstrip().endswith("KeyboardInterrupt") and took < 5  # a second, on a machine that does nothing else
