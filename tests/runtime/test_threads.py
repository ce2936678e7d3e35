"""Loops split among threads: any number of callers, workers and processors; interrupts; forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tracecomp
from tests.codegen.programs import program
from tests.runtime.test_executable import adding, result
from tracecomp.codegen.kernels.statements import STACK_LOCAL_BYTES
from tracecomp.ir.index import Index, Var, index
from tracecomp.ir.loops import Acc, Accumulate, Buffer, Const, Let, Load, Local, Loop, Read, Store, Update
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, Slot
from tracecomp.ir.scalars import call
from tracecomp.ir.types import float32
from tracecomp.runtime.executable import Executable

START = (
    "import os, signal, sys, threading, numpy as np\n"
    "from tests.runtime.test_executable import adding, result\n"
    "from tracecomp.runtime.executable import Executable\n"
    "executable, x = Executable(adding(1.0)), np.ones(100000, np.float32)\n"
)


def exit_code(text: str) -> int:
    """Return the exit code of a separate process that runs ``text``."""
    return subprocess.run([sys.executable, "-c", START + text], timeout=600, check=False).returncode


def test_many_small_calls() -> None:
    executable, x = Executable(adding(1.0, 640)), np.zeros(640, np.float32)
    out = np.empty_like(x)
    for _ in range(1000):
        executable.run([x], [out], threads=2)
        executable.run([out], [x], threads=3)
    assert np.all(x == 2000)


def test_callers_with_different_programs_and_numbers_of_threads() -> None:
    """One call has the workers, the others run alone; each leaves its own job's results."""
    failures: list[int] = []

    def work(k: int) -> None:
        size = 500 * k + 777
        executable, x = Executable(adding(k, size)), np.arange(size, dtype=np.float32)
        for n in range(100):
            if not np.array_equal(result(executable, x, 1 + (n + k) % 4), x + np.float32(k)):
                failures.append(k)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(5)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not failures


@pytest.mark.parametrize("count", [0, -1])
def test_number_of_threads_is_positive(count: int) -> None:
    with pytest.raises(RuntimeError, match="threads expects a positive integer"):
        result(Executable(adding(1.0)), np.zeros(100_000, np.float32), count)


def test_values_from_before_a_shared_loop_are_computed_once() -> None:
    """x[i] = x[i] * x[0] + sum(x), in place: no part may see what another has written."""
    n = 4000
    x, y = Buffer("x", float32, n), Buffer("y", float32, n)
    i, j = Var("i", n), Var("j", n)
    value = call("add", call("mul", Load(x, index(i)), Read("first", float32)), Read("total", float32))
    sum_ = Acc("total", "add", float32, Const(0.0, float32))
    body = (
        Let("first", Load(x, Index())),
        Accumulate((sum_,), (Loop("serial", j, (Update("total", (Load(x, index(j)),)),)),)),
        Loop("parallel", i, (Store(y, index(i), value),)),
    )
    slot = Slot("x", "input", 0, 4 * n)
    step = CallStep(Kernel("scale", (x, y), frozenset({"y"}), body), (Ref(slot), Ref(slot)))
    executable = Executable(Program("scale", (slot,), (), 0, (step,)))
    start = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    total = np.float32(0)
    for v in start:
        total = total + v
    for count in (1, 2, 3, 4):
        memory = start.copy()
        executable.run([memory], [], threads=count)
        assert np.array_equal(memory, start * start[0] + total)


def test_every_thread_has_scratch_memory() -> None:
    """y[i] = x[i] through a row of scratch memory that is too large for the stack."""
    rows, width = 40, STACK_LOCAL_BYTES
    x, y, row = Buffer("x", float32, rows), Buffer("y", float32, rows), Buffer("row", float32, width)
    i, fill, check = Var("i", rows), Var("fill", width), Var("check", width)
    highest = Acc("highest", "max", float32, Const(-np.inf, float32))
    body = (
        Local(row),
        Loop("serial", fill, (Store(row, index(fill), Load(x, index(i))),)),
        Accumulate((highest,), (Loop("serial", check, (Update("highest", (Load(row, index(check)),)),)),)),
        Store(y, index(i), Read("highest", float32)),
    )
    kernel = Kernel("rows", (x, y), frozenset({"y"}), (Loop("parallel", i, body),))
    executable, given = Executable(program(kernel, 1)), np.arange(rows, dtype=np.float32)
    for count in (1, 2, 3, 4, 2):
        assert np.array_equal(result(executable, given, count), given)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_all_threads_on_one_processor() -> None:
    assert exit_code(
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "for n in range(100):\n"
        "    assert (result(executable, x, 2 + n % 3) == 2).all()\n"
    ) == 0  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_while_another_thread_calls() -> None:
    """Parent and child continue, the child with separate workers, also if the pool was in use at the fork."""
    assert exit_code(
        "stop = threading.Event()\n"
        "def work():\n"
        "    while not stop.is_set():\n"
        "        assert (result(executable, x, 3) == 2).all()\n"
        "caller = threading.Thread(target=work)\n"
        "caller.start()\n"
        "for n in range(5):\n"
        "    child = os.fork()\n"
        "    good = all((result(executable, x, 1 + k % 4) == 2).all() for k in range(50))\n"
        "    if child == 0:\n"
        "        os._exit(0 if good else 3)\n"
        "    assert good and os.waitpid(child, 0)[1] == 0\n"
        "stop.set()\n"
        "caller.join()\n"
    ) == 0  # fmt: skip


def test_interrupt() -> None:
    assert exit_code(
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in background jobs\n"
        "begun = threading.Event()\n"
        "def interrupt():\n"
        "    begun.wait()\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        "    result(executable, x, 2)\n"
        "    begun.set()\n"
        "    while True:\n"
        "        result(executable, x, 2)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(7)\n"
    ) == 7  # fmt: skip


def test_without_a_free_thread_the_caller_does_all_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    x = tracecomp.arange(512.0 * 512).reshape(512, 512) / 1e5
    run = tracecomp.compile(lambda x: (x @ x).relu().sum(1), threads=8)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    without = [run(x).tolist() for _ in range(4)][1:]  # the first one is eager
    monkeypatch.undo()
    assert all(found == run(x).tolist() for found in without)
