"""The processors of compiled programs' workers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, time
import numpy as np
from tests.runtime.test_executable import adding, result
from tracecomp.runtime.executable import Executable
cores = sorted(os.sched_getaffinity(0))
before = set(os.listdir("/proc/self/task"))
executable, x = Executable(adding(1.0, 2_000_000)), np.ones(2_000_000, np.float32)
assert (result(executable, x, 2) == 2).all()
(worker,) = set(os.listdir("/proc/self/task")) - before
def await_sleep():
    state = ""
    while state != "S":
        time.sleep(0.001)
        with open(f"/proc/self/task/{worker}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
for core in (cores[0], cores[-1], cores[0]):
    os.sched_setaffinity(int(worker), {core})  # where it goes to sleep
    assert (result(executable, x, 2) == 2).all()
    await_sleep()
    os.sched_setaffinity(0, {core})  # where the caller is
    assert (result(executable, x, 2) == 2).all()
    os.sched_setaffinity(0, cores)
    assert (result(executable, x, 2) == 2).all()
    await_sleep()
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity") or not os.path.exists("/proc"), reason="needs Linux")
def test_results_when_caller_and_worker_meet_on_a_processor() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=600)
