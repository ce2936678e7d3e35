"""Locks in a forked child: the thread that held one does not exist there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

_START = """
import os, threading, time
from tracecomp.base.locks import Lock
held, free = threading.Event(), threading.Event()
def hold(lock):
    with lock:
        held.set()
        free.wait()
def child_exits_with(work):
    child = os.fork()
    if child == 0:
        os._exit(work())
    return os.waitpid(child, 0)[1] >> 8
def taken(lock):
    with lock:
        return 7
"""


def run(code: str) -> None:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", _START + code], check=True, timeout=60, env=environment)


def test_lock_of_another_thread_is_free_in_the_child() -> None:
    run(
        "lock = Lock()\n"
        "thread = threading.Thread(target=hold, args=(lock,))\n"
        "thread.start()\n"
        "held.wait()\n"
        "assert child_exits_with(lambda: taken(lock)) == 7\n"
        "free.set()\n"
        "thread.join()\n"
        "assert taken(lock) == 7\n"
    )


def test_lock_of_the_forking_thread_stays_its_own() -> None:
    run(
        "lock = Lock()\n"
        "def work():\n"
        "    lock.__exit__()\n"
        "    return taken(lock)\n"
        "with lock:\n"
        "    assert child_exits_with(work) == 7\n"
    )


def test_fork_waits_for_llvm() -> None:
    run(
        "import llvmlite.binding as llvm\n"
        "from tracecomp.codegen.text import native\n"
        "native.host_target()\n"
        "def pause():\n"
        "    if threading.current_thread() is thread and not held.is_set():\n"
        "        held.set()\n"
        "        free.wait()\n"
        "thread = threading.Thread(target=lambda: native.cross_target('x86_64-linux-gnu', 'haswell', ''))\n"
        "llvm.ffi.register_lock_callback(pause, lambda: None)\n"
        "thread.start()\n"
        "held.wait()\n"
        "threading.Timer(0.2, free.set).start()\n"
        "def work():\n"
        "    native.cross_target('x86_64-linux-gnu', 'skylake', '')\n"
        "    return 7 if free.is_set() else 1\n"
        "assert child_exits_with(work) == 7\n"
        "thread.join()\n"
    )
