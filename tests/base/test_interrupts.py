"""Ctrl-C at every moment: modes are restored, state is as before a step or as after it, and programs stop.

The moments are enumerated: Python delivers signals where a function begins and where a C function has returned, and a
profile hook is called there. A timer also finds the ends of loops and moments within C functions; those tests are slow.
"""

from __future__ import annotations

import _thread
import copy
import gc
import logging
import random
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, count, repeat
from types import FrameType
from typing import Any

import pytest

import tracecomp as tc
from tracecomp import nn, optim
from tracecomp.amp import autocast
from tracecomp.autograd.anomaly import detect_anomaly
from tracecomp.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from tracecomp.base import config, logs
from tracecomp.base.interrupts import uninterrupted
from tracecomp.base.locks import Lock
from tracecomp.eager.modes import Modes, enable_grad, inference_mode, modes, no_grad, unrecorded
from tracecomp.eager_kernels import background

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers"),
    # Python itself has functions in which an interrupt gets lost, such as those that tidy weak sets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


SIGNAL = signal.SIGUSR1
"""Replaces Ctrl-C in tests that choose the moment: pytest-timeout needs SIGALRM, which a timer sends."""


@contextmanager
def handled(number: int) -> Iterator[None]:
    """Let a signal do what Ctrl-C does."""
    before = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.fixture(autouse=True)
def chosen() -> Iterator[None]:
    with handled(SIGNAL):
        yield


@pytest.fixture
def alarm() -> Iterator[None]:
    with handled(signal.SIGALRM):
        yield
        stop_alarm()


def interrupted(work: Callable[[], Any], after: float) -> None:
    """Repeat ``work`` until the interrupt, which comes after so many seconds.

    It comes again should it be lost, as in Python's own callbacks of weak references.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, after, 0.5)
        while True:
            work()
    except KeyboardInterrupt:
        stop_alarm()


def stop_alarm() -> None:
    """Also where a busy machine lets the next alarm come before this one is dealt with."""
    while True:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        except KeyboardInterrupt:
            continue


class Moment:
    """A profile hook: the signal comes at the ``number``-th moment at which Python delivers signals; 0: never."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_return"):
            self.seen += 1
            if self.seen == self.number:
                signal.raise_signal(SIGNAL)


def interrupted_at(work: Callable[[], Any], number: int) -> int:
    """Call ``work`` and interrupt it at its ``number``-th moment; return how many moments there were until its end."""
    moment, before = Moment(number), sys.getprofile()
    try:
        sys.setprofile(moment)
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(before)
    return moment.seen


def spread(moments: int, most: int) -> Sequence[int]:
    """Numbers from 1 to ``moments``: all, or ``most`` at equal distances with the first and the last."""
    if moments <= most:
        return range(1, moments + 1)
    return sorted({1 + n * (moments - 1) // (most - 1) for n in range(most)})


Seconds = tuple[int, float, float]
"""How many interrupts by a timer, and their least and greatest delay."""
Interruptions = Callable[[Callable[[], Any], int, Seconds], Iterator[None]]


def enumerated(work: Callable[[], Any], most: int, seconds: Seconds) -> Iterator[None]:
    """Interrupt ``work`` at each of its moments, or at ``most`` of them."""
    for number in spread(interrupted_at(work, 0), most):
        interrupted_at(work, number)
        yield


def timed(work: Callable[[], Any], most: int, seconds: Seconds) -> Iterator[None]:
    """Interrupt repetitions of ``work`` by a timer."""
    times, least, greatest = seconds
    dice = random.Random(1)
    with handled(signal.SIGALRM):
        for _ in range(times):
            interrupted(work, dice.uniform(least, greatest))
            yield


@pytest.fixture(params=[enumerated, pytest.param(timed, marks=pytest.mark.slow)])
def interruptions(request: pytest.FixtureRequest) -> Interruptions:
    way: Interruptions = request.param
    return way


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
def test_interrupted_blocks_restore_their_modes(work: Callable[[], None], interruptions: Interruptions) -> None:
    for _ in interruptions(work, 1000, (1500, 2e-5, 3e-4)):
        assert {n: getattr(modes, n) for n in NAMES} == {n: getattr(Modes, n) for n in NAMES}


def test_blocks_work_in_stacks_and_by_hand() -> None:
    in_a_stack()
    assert modes.grad and modes.autocast is None
    block, seen = no_grad(), []
    block.__enter__()
    seen.append(modes.grad)
    block.__exit__(None, None, None)
    assert [*seen, modes.grad] == [False, True]


def is_free(lock: Lock) -> bool:
    """Whether another thread can take a lock."""
    free: list[bool] = []

    def take() -> None:
        free.append(lock._lock.acquire(blocking=False))
        if free[0]:
            lock._lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return free == [True]


def test_interrupted_locks_are_free(interruptions: Interruptions) -> None:
    lock = Lock()

    def work() -> None:
        with lock:
            pass

    for _ in interruptions(work, 1000, (500, 2e-5, 3e-4)):
        assert is_free(lock)


LOADS = """
import signal, sys, threading
from tests.base.test_interrupts import SIGNAL, enumerated, interrupt, timed
from tracecomp.codegen.text import native

host = native.host_target()
text = "define i32 @f() {{\\n ret i32 1\\n}}\\n"
code = native.compile_object(text, host)
signal.signal(SIGNAL, interrupt)

def work():
    {work}

work()
for _ in {way}(work, 1000, (600, 2e-5, 2e-3)):
    thread = threading.Thread(target=native.compile_object, args=(text, host), daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        sys.exit("another thread waits for LLVM for ever")
print("done")
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("work", ["native.compile_object(text, host)", "native.Linked([code], host, {}).address('f')"])
def test_llvm_interrupted_at_any_moment_serves_other_threads(work: str, interruptions: Interruptions) -> None:
    """The test runs in a separate process: interrupting a call of llvmlite can free LLVM's objects twice."""
    script = LOADS.format(work=work, way=interruptions.__name__)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0 and ended.stdout == "done\n", ended.stderr[-2000:]


@pytest.mark.slow  # the interrupted moments depend on earlier compilations of the process
def test_interrupted_compilations_leave_nothing_on(tmp_path: Any, interruptions: Interruptions) -> None:
    numbers = count()
    settings = config.current()
    traced = sys.gettrace()

    def work() -> None:
        number = next(numbers)
        with config.override(cache_dir=str(tmp_path / str(number))):
            compiled = tc.compile(lambda x: (x @ x).relu().sum() * (number + 0.5), fast_math=True)
            for _ in range(3):
                compiled(tc.ones(4, 4))

    work()  # imports of a first compilation are not interrupted here
    for _ in interruptions(work, 60, (25, 0.001, 0.12)):
        assert {n: getattr(modes, n) for n in NAMES} == {n: getattr(Modes, n) for n in NAMES}
        background.finish()  # the second thread compiles without the collector, too
        assert gc.isenabled() and sys.gettrace() is traced and config.current().fast_math == settings.fast_math


def test_an_interrupted_question_about_a_topic_leaves_logging_to_other_threads() -> None:
    """The lock of ``logging`` was kept for ever, and the second thread waited for it at its next compilation."""

    def ask() -> None:
        logs.wanted("graphs")

    for number in range(1, interrupted_at(ask, 0) + 1):
        interrupted_at(ask, number)
        other = threading.Thread(target=logging.getLogger, args=("tracecomp.graphs",), daemon=True)
        other.start()
        other.join(60)
        assert not other.is_alive(), number


def test_signals_in_a_short_block_wait_for_its_end() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), uninterrupted:
        with uninterrupted:
            signal.raise_signal(SIGNAL)
            steps.append("inside")
        steps.append("behind")
    assert steps == ["inside", "behind"] and signal.getsignal(SIGNAL) is interrupt
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(SIGNAL)


def test_a_handler_set_in_a_short_block_stays() -> None:
    with uninterrupted:
        signal.signal(SIGNAL, signal.SIG_IGN)
    assert signal.getsignal(SIGNAL) is signal.SIG_IGN


def test_short_blocks_interrupted_at_any_moment_restore_handlers(interruptions: Interruptions) -> None:
    counts = [0, 0]

    def work() -> None:
        with uninterrupted:
            counts[0] += 1
            counts[1] += 1

    for _ in interruptions(work, 1000, (1000, 2e-5, 3e-4)):
        assert counts[0] == counts[1]
        with uninterrupted:
            pass
        assert signal.getsignal(SIGNAL) is interrupt and uninterrupted._depth == 0


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

    def check(self) -> bytes:
        """Return the state of the networks and their optimizer. Raise AssertionError if a step is half done or a mode
        is left on."""
        first, second = self.state(0), self.state(1)
        assert first == second, "a step is half done"
        assert modes.grad and modes.recorder is None
        return first


def interrupt_training(kind: str, compiled: bool, moments: int, seed: int) -> int:
    """Interrupt a training so often by a timer; how many of the moments left a state that none before had left."""
    twins, dice, seen = Twins(kind, compiled), random.Random(seed), set()
    for n in range(moments):
        for _ in range(4 if n == moments // 3 else 0):  # from here on compiled code runs, if it did not yet
            twins.run()
        interrupted(twins.run, dice.choice((0.001, 0.05)) * dice.uniform(0.05, 2))
        seen.add(twins.check())
    return len(seen)


@pytest.mark.slow
@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_is_whole_or_not_done_whenever_a_timer_ends(kind: str, compiled: bool) -> None:
    tc.compile(lambda x: x + 1)(tc.ones(1))  # imports of a first compilation are not interrupted here
    assert interrupt_training(kind, compiled, 60, 5) > 10


@pytest.mark.slow  # the interrupted moments depend on earlier compilations of the process
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("runs", ["eager", "recording", "compiled"])
def test_a_step_is_whole_or_not_done_whenever_ctrl_c_comes(kind: str, runs: str) -> None:
    Twins(kind, runs != "eager").run()  # imports of a first step are not interrupted here
    twins = Twins(kind, runs == "compiled")
    for _ in range(4):
        twins.run()

    def step() -> None:
        (tc.compile(twins.step) if runs == "recording" else twins.run)()

    moved = set()
    for number in spread(interrupted_at(step, 0), 16 if runs == "recording" else 150):
        before = twins.check()
        interrupted_at(step, number)
        moved.add(twins.check() != before)
    assert moved == {False, True}, "the moments lie before and after the update"


@pytest.mark.parametrize("size", [10, 2**20])
def test_a_loop_in_c_stops_at_the_next_call(size: int) -> None:
    """Python runs no bytecode between the calls of such a loop, so that the calls themselves ask for signals."""
    total, x = tc.zeros(size), tc.ones(size)

    @tc.compile
    def step(x: Any, nothing: None) -> None:
        total.add_(x)

    for _ in range(4):
        step(x, None)
    assert step.entries[0].fast is not None
    marks = chain(repeat(None, 20), map(_thread.interrupt_main, [SIGNAL]), repeat(None, 20))
    with pytest.raises(KeyboardInterrupt):
        deque(map(step, repeat(x), marks), maxlen=0)
    assert total[0].item() == total[-1].item() == 24


STOPS = """
import signal
import tracecomp as tc
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in background jobs
step, x = tc.compile(lambda x: x + 1), tc.ones(2**20)
print(flush=True)
while True:
    step(x)
"""


def test_a_program_stops() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert errors.rstrip().endswith("KeyboardInterrupt")
