"""``TRACECOMP_CPU`` limits what code may use, and training gives the same bits at every level."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tracecomp.base import config
from tracecomp.codegen.text.target import FEATURES
from tracecomp_runtime import processor

pytestmark = pytest.mark.skipif(not FEATURES.keys() & set(processor.levels()), reason="levels of x86-64 only")

TRAINING = """
import hashlib
import tracecomp as torch
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import compiler

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.GELU(), torch.nn.LayerNorm(33), torch.nn.Linear(33, 5))
optimizer = torch.optim.Adam(model.parameters())
x, y = torch.randn(37, 20), torch.randint(5, (37,))

def step(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x).half().float(), y)
    loss.backward()
    optimizer.step()
    return loss

step, digest = torch.compile(step), hashlib.sha256()
for _ in range(3):
    digest.update(step(x, y).detach().numpy().tobytes())
for p in model.parameters():
    digest.update(p.detach().numpy().tobytes())
print(host().vector_bytes * 8, compiler.host_target().vector_bits, digest.hexdigest())
"""
BITS = {"x86-64-v2": 128, "x86-64-v3": 256, "x86-64-v4": 512}


def trained(level: str) -> tuple[int, int, str]:
    """Widths of vectors that schedules and code have, and the digest of losses and weights."""
    environment = {**os.environ, "TRACECOMP_CPU": level}
    command = [sys.executable, "-c", TRAINING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    machine, code, digest = done.stdout.split()
    return int(machine), int(code), digest


def test_each_level_has_its_vectors_and_the_same_bits() -> None:
    found = {level: trained(level) for level in processor.levels()}
    assert {level: widths for level, (*widths, _) in found.items()} == {n: [BITS[n]] * 2 for n in found}
    assert len({digest for *_, digest in found.values()}) == 1


def test_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="TRACECOMP_CPU='sse4': expected one of x86-64-v4, x86-64-v3, x86-64-v2"):
        config.from_environment({"TRACECOMP_CPU": "sse4"})


def test_a_running_process_keeps_its_level() -> None:
    with pytest.raises(TypeError, match="Set TRACECOMP_CPU before it starts"), config.override(cpu="x86-64-v2"):
        pass
