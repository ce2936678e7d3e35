"""Where workers of compiled programs run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, threading, time
import numpy as np
from tests.runtime.test_executable import adding, result
from tracecomp.runtime.executable import Executable
cores = sorted(os.sched_getaffinity(0))
before = set(os.listdir("/proc/self/task"))
executable, x = Executable(adding(1.0, 2_000_000)), np.ones(2_000_000, np.float32)
assert (result(executable, x, 2) == 2).all()
(worker,) = set(os.listdir("/proc/self/task")) - before
for core in (cores[0], cores[1], cores[0]):
    os.sched_setaffinity(int(worker), {core})  # where it goes to sleep
    assert (result(executable, x, 2) == 2).all()
    time.sleep(0.05)
    os.sched_setaffinity(0, {core})  # where the caller is
    assert (result(executable, x, 2) == 2).all()
    os.sched_setaffinity(0, cores)
    assert (result(executable, x, 2) == 2).all()
    time.sleep(0.05)
"""


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)
def test_results_when_caller_and_worker_meet_on_a_processor() -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60)
