"""Too little memory for LLVM raises MemoryError; LLVM itself would end the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tracecomp as tc

pytest.importorskip("resource")

LIMITED = """
import resource, sys

def limit(megabytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))
"""

MODULE = """
from tracecomp.codegen.text import native
host = native.host_target()
text = "define i32 @f() {\\n ret i32 1\\n}\\n"
code = native.compile_object(text, host)
native.Linked([code], host, {}).address("f")
limit(8)
for work in (native.compile_object, native.compile_assembly, lambda text, host: native.Linked([code], host, {})):
    try:
        work(text, host)
    except MemoryError as error:
        print("MemoryError:", error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert native.compile_object(text, host) == code
print("ok")
"""

TRAINING = """
import tracecomp as tc
from tracecomp import nn
net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))
optimizer = tc.optim.Adam(net.parameters())
x, y = tc.randn(512, 64), tc.randint(0, 10, (512,))

@tc.compile
def step():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return loss

limit(int(sys.argv[1]))
try:
    for _ in range(20):
        step()
except (MemoryError, RuntimeError) as error:
    assert "memory" in str(error), error
print("ok")
"""


def run(program: str, cache: Path, *arguments: str) -> list[str]:
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(tc.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", LIMITED + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_llvm_is_not_called_without_memory(tmp_path: Path) -> None:
    *errors, last = run(MODULE, tmp_path)
    assert len(errors) == 3 and all(e.startswith("MemoryError: compile: 3") for e in errors) and last == "ok"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
@pytest.mark.parametrize("megabytes", [24, pytest.param(48, marks=pytest.mark.slow), 88])
def test_a_training_step_with_little_memory(megabytes: int, tmp_path: Path) -> None:
    assert run(TRAINING, tmp_path, str(megabytes)) == ["ok"]
