"""Signals during loops of compiled programs: Ctrl-C ends a loop that does not end, and its call changes no state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.base import config
from tracecomp.codegen.threads.pauses import PAUSE

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no such signal")

ENDLESS = tc.tensor(-1)
"""The loops below end when their counter is equal to a number, so not for this one."""


class Stopped(BaseException):
    """Raised by the handler."""


class Handler:
    """A handler that raises from its call number ``last`` on: Python may drop an exception, as in a callback."""

    def __init__(self, last: int) -> None:
        self.last, self.calls = last, 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.calls += 1
        if self.calls >= self.last:
            raise Stopped


@pytest.fixture
def signals() -> Iterator[Callable[[Handler, Callable[[], Any]], None]]:
    """Run a call that does not end while another thread sends signals."""
    before = signal.getsignal(signal.SIGUSR1)

    def interrupt(handler: Handler, work: Callable[[], Any]) -> None:
        ended = threading.Event()

        def send() -> None:
            while not ended.wait(0.05):
                os.kill(os.getpid(), signal.SIGUSR1)

        signal.signal(signal.SIGUSR1, handler)
        sender = threading.Thread(target=send)
        sender.start()
        try:
            with pytest.raises(Stopped):
                work()
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            ended.set()
            sender.join()

    yield interrupt
    signal.signal(signal.SIGUSR1, before)


def halves(x: Any, n: Any) -> Any:
    return tc.while_loop(lambda i, y: i != n, lambda i, y: (i + 1, y * 0.5 + 1), (tc.tensor(0), x))[1]


def nested(x: Any, n: Any) -> Any:
    return tc.scan(lambda carry, row: (halves(carry, n) + row, carry), x[0], x)[0]


def inside(x: Any, n: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        return i + 1, tc.cond(y.sum() > 0, lambda z: halves(z, n), lambda z: z * 2, (y,))

    return tc.while_loop(lambda i, y: i != 3, body, (tc.tensor(0), x))[1]


def large(x: Any, n: Any) -> Any:
    first = tc.tensor(0), x.expand(300, 300)
    return tc.while_loop(lambda i, y: i != n, lambda i, y: (i + 1, (y @ y).sin()), first)[1]


PROGRAMS = {"loop": halves, "loop in a scan": nested, "loop in a branch": inside, "parallel kernels": large}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_handler_that_raises_ends_the_loop(name: str, signals: Any) -> None:
    compiled, x = tc.compile(PROGRAMS[name]), tc.ones(1, 300) if name == "parallel kernels" else tc.ones(3, 4)
    for _ in range(3):
        finite = compiled(x, tc.tensor(5))
    signals(Handler(1), lambda: compiled(x, ENDLESS))
    assert compiled(x, tc.tensor(5)).equal(finite)


def test_a_handler_that_returns_does_not_end_the_loop(signals: Any) -> None:
    compiled, handler = tc.compile(halves), Handler(4)
    for _ in range(3):
        compiled(tc.ones(4), tc.tensor(5))
    assert compiled.entries[0].fast is not None
    signals(handler, lambda: compiled(tc.ones(4), ENDLESS))
    assert handler.calls >= 4


def test_a_call_inside_a_handler(signals: Any) -> None:
    compiled = tc.compile(halves)
    expected = compiled(tc.ones(4), tc.tensor(5))
    results = []

    class Calls(Handler):
        def __call__(self, number: int, frame: FrameType | None) -> None:
            results.append(compiled(tc.ones(4), tc.tensor(5)))
            super().__call__(number, frame)

    for _ in range(3):
        compiled(tc.ones(4), tc.tensor(5))
    signals(Calls(2), lambda: compiled(tc.ones(4), ENDLESS))
    assert len(results) >= 2 and all(r.equal(expected) for r in results)


@pytest.mark.parametrize("checked", [False, True])
def test_the_call_from_python(checked: bool, signals: Any) -> None:
    """Results with history and checked programs do not take the native call of compiled functions."""
    with config.override(check=checked):
        compiled, x = tc.compile(halves), tc.ones(4, requires_grad=not checked)
        for _ in range(3):
            compiled(x, tc.tensor(5))
        signals(Handler(1), lambda: compiled(x, ENDLESS))


def test_state_is_unchanged(signals: Any) -> None:
    """State is written before, in and after the loop; whichever kernel writes it, the interrupted call does not."""
    first, carried, last, rows = tc.zeros(5000), tc.ones(8), tc.zeros(6), tc.zeros(4, 5000)

    @tc.compile
    def step(n: Any) -> Any:
        first.add_(1)
        rows[1].add_(first)
        carried.copy_(halves(carried, n))
        last.add_(carried[:6])
        return first.sum()

    def state() -> list[Any]:
        return [t.clone() for t in (first, carried, last, rows)]

    for _ in range(4):
        step(tc.tensor(3))
    assert step.entries[0].fast is not None
    before = state()
    signals(Handler(1), lambda: step(ENDLESS))
    assert all(a.equal(b) for a, b in zip(before, state(), strict=True))
    step(tc.tensor(3))
    assert first.eq(5).all() and not carried.equal(before[1]) and rows[1].eq(15).all()


@pytest.mark.parametrize("native", [True, False])
def test_program_files(native: bool, tmp_path: Path, signals: Any) -> None:
    digest = tc.compile(halves).save(tmp_path / "f.tcp", tc.ones(4), tc.tensor(5))
    run = tc.load_program(tmp_path / "f.tcp", digest=digest)
    x = np.ones(4, np.float32)
    expected = run(x, np.array(5))
    given = x if native else np.ones(8, np.float32)[::2]  # arrays with gaps are copied by Python
    signals(Handler(1), lambda: run(given, np.array(-1)))
    assert np.array_equal(run(given, np.array(5)), expected)


def test_scans_handle_signals_unless_state_is_written_before() -> None:
    """A scan has an end, and so may delay a signal. A loop without an end does not: the state is written behind it."""
    total = tc.zeros(3000)

    def scanned(x: Any) -> Any:
        return tc.scan(lambda carry, row: (carry.sin() + row, carry), x[0], x)[1]

    def written(x: Any) -> Any:
        total.add_(1)
        return scanned(x)

    def written_twice(x: Any) -> Any:
        total.add_(1)
        return scanned(x) + halves(x, x[0, 0].long() + 1)

    found = {}
    for function in (scanned, written, written_twice):
        compiled = tc.compile(function)
        for _ in range(3):
            compiled(tc.ones(5, 3))
        found[function.__name__] = compiled.entries[0].plan.forward.executable.llvm_ir.count(f"call i1 @{PAUSE}")
    assert found == {"scanned": 1, "written": 0, "written_twice": 2}


SCRIPT = """
import signal, tracecomp as tc
signal.signal(signal.SIGINT, signal.default_int_handler)
f = tc.compile(lambda n: tc.while_loop(lambda i: i != n, lambda i: (i + 1,), (tc.tensor(0),)))
for _ in range(4):
    f(tc.tensor(4))
print(flush=True)
f(tc.tensor(-1))
"""


def test_ctrl_c_ends_the_program() -> None:
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    assert errors.rstrip().endswith("KeyboardInterrupt")
