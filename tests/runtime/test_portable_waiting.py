"""Waiting without Linux's system calls: the choice, its code, and loops that threads share with it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.codegen.kernels.test_kernels import reduced_rows
from tracecomp.codegen.kernels.program import emit_program
from tracecomp.codegen.text import native
from tracecomp.codegen.text.assembler import module_text
from tracecomp.codegen.text.native import compile_object
from tracecomp.codegen.threads import pauses, portable_waiting, sync
from tracecomp.codegen.threads.portable_waiting import PortableWaiting, Way, waiting_for
from tracecomp.ir.types import float32

RUN = """
import sys, threading
import numpy as np
from tracecomp.codegen.threads import pauses, portable_waiting, sync
portable = lambda target: portable_waiting.PortableWaiting(target, "usleep")
sync.waiting_for = pauses.waiting_for = portable
import tracecomp as torch
from tests.runtime.test_executable import adding, result
from tracecomp.runtime.executable import Executable

executable, x = Executable(adding(1.0)), np.ones(100000, np.float32)
for n in range(200):
    assert np.array_equal(result(executable, x, 1 + n % 4), x + 1)

def total(x):
    for _ in range(300):
        x = x * 1.5 - x.round()
    return x.sum()

torch.set_num_threads(2)
run, y = torch.compile(total), torch.linspace(0.0, 1.0, 1000)
assert len({total(y).item(), run(y).item(), run(y).item()}) == 1
"""


@pytest.mark.slow
def test_threads_share_loops_without_futex() -> None:
    """This system's functions of POSIX alone, as on one that has nothing better."""
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


class Process:
    """A process with these functions."""

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(self, name, object())


@pytest.mark.parametrize(
    ("names", "way"),
    [
        (("usleep",), "usleep"),
        (("usleep", "__ulock_wait", "__ulock_wake"), "ulock"),
        (("usleep", "__ulock_wait"), "usleep"),
        (
            ("usleep", "__ulock_wait", "__ulock_wake", "os_sync_wait_on_address", "os_sync_wake_by_address_all"),
            "os_sync",
        ),
    ],
)
def test_the_best_way_is_chosen_by_what_the_process_has(
    names: tuple[str, ...], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Process(*names))
    assert portable_waiting.way_to_wait.__wrapped__() == way


def test_linux_has_its_own_way() -> None:
    host = native.host_target()
    assert type(waiting_for(host)) is not PortableWaiting or "linux" not in host.triple
    assert type(waiting_for(replace(host, triple="arm64-apple-darwin23"))) is PortableWaiting


@pytest.mark.parametrize("way", ["os_sync", "ulock", "usleep"])
def test_llvm_accepts_the_code_for_macos(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such a machine: the shared code, and a program with a parallel loop, become objects of macOS."""
    try:
        target = native.cross_target("arm64-apple-darwin23", "apple-m1", "+neon")
    except RuntimeError:
        pytest.skip("this LLVM has no code generator for AArch64")
    monkeypatch.setattr(portable_waiting, "way_to_wait", lambda: way)
    shared = module_text(sync.shared_text(target), pauses.pause_text(target, hook=True))
    assert "@syscall" not in shared and f"@{portable_waiting._NEEDED[way][0]}" in shared
    program = reduced_rows(5000, 200, 64, 64, "add", float32, True)
    for text in (shared, emit_program(program, target).text):
        assert compile_object(text, target)[:4] == bytes.fromhex("cffaedfe")
