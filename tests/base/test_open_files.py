"""Calls when no file can be opened: they work, or an OSError says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tracecomp as tc

pytest.importorskip("resource")

PROGRAM = """
import os, resource, sys
import tracecomp as tc
from tracecomp import nn

x, net = tc.randn(4, 8), nn.Linear(8, 8)
image, path = tc.ones(1, 1, 8, 8), sys.argv[1]
tc.ones(2).sum()

WORKS = {
    "add": lambda: x + x,
    "print": lambda: repr(x),
    "index": lambda: x[tc.tensor([1, 2])],
    "matmul": lambda: x @ x.T,
    "convolution": lambda: nn.functional.conv2d(image, tc.ones(1, 1, 3, 3)),
    "backward": lambda: net(x).sum().backward(),
    "module": lambda: nn.LSTM(8, 8)(x),
    "fft": lambda: tc.fft.fft(x),
    "linalg": lambda: tc.linalg.svd(x),
    "vmap": lambda: tc.vmap(lambda a: a * 2)(x),
    "loop": lambda: tc.while_loop(lambda i: i < 3, lambda i: (i + 1,), (tc.tensor(0),)),
    "sparse": lambda: x.to_sparse(),
    "distribution": lambda: tc.distributions.Normal(0.0, 1.0).sample(),
    "autocast": lambda: tc.autocast("cpu"),
    "operator": lambda: tc.ops.aten.add(x, x),
    "compile": lambda: tc.compile(lambda x: (x * 2).sum())(x),
    "export": lambda: tc.export.export(net, (x,)),
    "script": lambda: tc.jit.script(net),
    "save": lambda: tc.save(x, path),
    "load": lambda: tc.load(path),
}
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
results = []
for name, work in WORKS.items():
    try:
        work()
        results.append((name, "works"))
    except OSError as error:
        results.append((name, str(error)))
for handle in held:
    os.close(handle)
for name, work in WORKS.items():
    work()
for result in results:
    print(*result, sep=": ")
"""


def test_a_call_works_or_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    environment = {**os.environ, "TRACECOMP_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(tc.__file__).parents[1])}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    results = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert len(results) == 20
    for name, result in results.items():
        told = "too many files are open. Close some, or raise the limit (ulimit -n)" in result
        assert result == "works" or told or result.endswith(repr(str(path))), f"{name}: {result}"
    assert results["add"] == results["print"] == results["index"] == "works"
