"""Processes: forked, spawned, out of memory, ending while threads run, and interpreters in an interpreter."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tracecomp as tc

ROOT = Path(tc.__file__).parents[1]


def ended(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a separate program to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRACECOMP_NUM_THREADS": "2"}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600, check=False,
        env=environment,
    )  # fmt: skip


@tc.compile
def compiled(x: Any) -> Any:
    return (x @ x).relu().sum(1)


def work(given: list[list[float]]) -> Any:
    x = tc.tensor(given)
    return [compiled(x).tolist() for _ in range(3)]


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_children_compute_what_their_parent_does(how: str) -> None:
    given = [[0.5 * i - j for i in range(12)] for j in range(12)]
    expected = work(given)
    with multiprocessing.get_context(how).Pool(2) as pool:
        assert pool.map(work, [given] * 4) == [expected] * 4
    assert work(given) == expected


SUB = """
import sys
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
made = interpreters.create()
found = None
try:
    found = run(made, "import warnings; warnings.simplefilter('ignore'); import tracecomp")
except Exception as error:
    found = error
print(getattr(found, "formatted", found))
"""


def test_a_sub_interpreter_is_refused() -> None:
    done = ended(SUB)
    if "No module named" in done.stderr:
        pytest.skip("this Python has no sub-interpreters")
    assert "tracecomp cannot be imported in a sub-interpreter" in done.stdout or "numpy" in done.stdout, done.stderr


MEMORY = """
import resource, sys
import tracecomp as tc

@tc.compile
def outer(x):
    return x[:, None] * x[None, :]

@tc.compile
def inner(x):
    return (x[:, None] * x[None, :]).cumsum(1).sort(1).values.sum()

small, large = tc.ones(10), tc.ones(30_000)
for f in (outer, inner):
    for _ in range(4):
        f(small)
limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + (500 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for f in (outer, inner, outer.fn, lambda x: tc.zeros(1 << 40)):
    for _ in range(3):
        try:
            f(large)
        except (MemoryError, RuntimeError):
            print("refused")
assert outer(small).sum().item() == 100 and inner(small).item() == 550
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_without_memory_there_is_an_error_and_the_process_continues() -> None:
    done = ended(MEMORY)
    assert done.returncode == 0 and done.stdout.split() == ["refused"] * 12, done.stderr


EXIT = """
import sys, threading
import tracecomp as tc
x = tc.ones(int(sys.argv[1]), int(sys.argv[1]))
f = tc.compile(lambda x: (x @ x).relu().sum())
def call(begun):
    while True:
        f(x)
        begun.set()
def compile(begun):
    n = 0
    while True:
        n += 1
        made = tc.compile(lambda x: (x * n).sin().sum())
        made(x), made(x)
        begun.set()
events = [threading.Event() for _ in range(3)]
for work, begun in zip((call, call, compile), events):
    threading.Thread(target=work, args=(begun,), daemon=True).start()
for begun in events:
    begun.wait()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", ["4", "300"])
def test_a_process_ends_while_threads_call_and_compile(size: str) -> None:
    done = ended(EXIT, size)
    assert (done.returncode, done.stderr) == (0, "")


ONE = """
import threading
from tracecomp.compiled.native_call import call_code
barrier, found = threading.Barrier(4), []
def get():
    barrier.wait()
    found.append(call_code())
threads = [threading.Thread(target=get) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(len(set(map(id, found))))
"""


def test_threads_that_call_first_at_the_same_time_share_one_native_code() -> None:
    """Builtins point into it: a second one, which nothing refers to, would be freed under them."""
    done = ended(ONE)
    assert done.stdout.split() == ["1"], done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_where_the_system_gives_no_thread_the_caller_does_the_work() -> None:
    """With as many threads as its user may have, also for one who is no longer root: root has no such limit."""
    program = """
import os, resource, threading
import tracecomp as tc
run = tc.compile(lambda x: (x @ x).relu().sum(1))
x = tc.arange(512.0 * 512).reshape(512, 512) / 1e5
tc.set_num_threads(1)
expected = [run(x).tolist() for _ in range(3)][-1]
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
tc.set_num_threads(8)
assert all(run(x).tolist() == expected for _ in range(3))
try:
    threading.Thread(target=int).start()
    print("there are threads")
except RuntimeError:
    print("right")
"""
    process = ended(program)
    assert process.stdout == "right\n", process.stderr
