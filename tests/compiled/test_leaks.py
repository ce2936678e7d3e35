"""Dropped recordings, dropped code and calls leave nothing behind: objects, blocks, allocated bytes, mapped code.

These are counts, which do not depend on the machine's load, unlike the resident set: `benchmarks.memory_growth`
measures that one.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from functools import _lru_cache_wrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tracecomp as tc
from tracecomp import nn
from tracecomp.compiled.results import Builder
from tracecomp.eager_kernels import background

ROOT = Path(tc.__file__).parents[1]
REPETITIONS = {"shapes": 12, "functions": 40, "recordings": 40, "calls": 100, "paths": 100, "texts": 24, "links": 24}
"""Per window. Loaders are replaced after eight links, so that a window has several."""

PROGRAM = """
import gc, json, sys
from collections import Counter
from benchmarks.memory_growth import WORKS, executable, held
from tracecomp.codegen.text import native
from tracecomp.compiled import recompile_policy

recompile_policy.MAX_RECORDINGS = 8  # the first window reaches the limit
host = native.host_target()
TEXT = "define i32 @f() {\\n ret i32 1\\n}\\n"
CONSTANT = '@c = constant [5000 x i8] c"%05000d"'  # a context that is not freed keeps constants
code = native.compile_object(TEXT, host)
WORKS["texts"] = lambda n: native.compile_object(TEXT + CONSTANT % n, host)
WORKS["links"] = lambda n: native.Linked([code], host, {}).address("f")

def kinds():
    modules = ("tracecomp", "llvmlite")
    return Counter(type(o).__qualname__ for o in gc.get_objects() if str(type(o).__module__).startswith(modules))

for kind, repetitions in json.loads(sys.argv[1]).items():
    for window in range(4):
        for n in range(repetitions):
            WORKS[kind](window * repetitions + n)
        _, allocated, code_bytes, blocks = held()
        row = {"kB": allocated, "code kB": code_bytes, "blocks": blocks, "objects": kinds()}
        print(json.dumps([kind, row]), flush=True)
        del row  # rows that were kept would be growth themselves
"""


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the memory of a process with one thread and an empty cache after each window of each work."""
    environment = {
        **os.environ, "TRACECOMP_CACHE_DIR": str(tmp_path_factory.mktemp("cache")), "TRACECOMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, json.dumps(REPETITIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=environment)
    result: dict[str, list[dict[str, Any]]] = {kind: [] for kind in REPETITIONS}
    for line in done.stdout.splitlines():
        kind, row = json.loads(line)
        result[kind].append(row)
    return result


def growth(rows: list[dict[str, Any]], name: str) -> float:
    """The least growth from one window to the next: a leak grows in each, a cache that fills up does not."""
    return min(b[name] - a[name] for a, b in pairwise(rows))


@pytest.mark.parametrize("kind", REPETITIONS)
def test_no_kind_of_object_accumulates(kind: str, windows: dict[str, list[dict[str, Any]]]) -> None:
    rows = [row["objects"] for row in windows[kind]]
    names = set().union(*rows)
    complete = [dict.fromkeys(names, 0) | row for row in rows]
    assert not {name for name in names if growth(complete, name) >= REPETITIONS[kind] / 2}


@pytest.mark.parametrize("kind", REPETITIONS)
def test_machine_code_is_unmapped(kind: str, windows: dict[str, list[dict[str, Any]]]) -> None:
    assert growth(windows[kind], "code kB") < 4 * REPETITIONS[kind] / 2


@pytest.mark.parametrize("kind", REPETITIONS)
def test_memory_is_freed(kind: str, windows: dict[str, list[dict[str, Any]]]) -> None:
    """Tables of shapes are bounded by thousands, so that blocks of new shapes stay for longer than this test lasts.

    Tables of functions fill up in the first windows; a function that is not freed has hundreds of blocks.
    """
    assert growth(windows[kind], "blocks") < REPETITIONS[kind] * (40 if kind == "shapes" else 4)
    assert growth(windows[kind], "kB") < REPETITIONS[kind] * (20 if kind == "shapes" else 1)


def test_a_call_leaves_no_cycle() -> None:
    """Objects that wait for the collector keep their results: the memory is not reused, and calls stay in Python."""
    model = tc.nn.Linear(3, 3)
    optimizer = tc.optim.SGD(model.parameters(), lr=0.1)

    def step(x: tc.Tensor) -> tc.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    compiled, x = tc.compile(step), tc.ones(2, 3)
    compiled(x)
    background.finish()  # work that other tests left to the background thread is recorded, too
    gc.collect()
    gc.disable()
    try:
        compiled(x)
        assert not any(type(o) is Builder for o in gc.get_objects())  # others may answer when asked for their class
    finally:
        gc.enable()


def unbounded_caches() -> dict[int, tuple[str, int]]:
    """The caches without a limit, with their names and numbers of entries."""
    found = [o for o in gc.get_objects() if type(o) is _lru_cache_wrapper]
    ours = [c for c in found if c.__module__.startswith("tracecomp") and c.cache_info().maxsize is None]
    return {id(c): (f"{c.__module__}.{c.__qualname__}", c.cache_info().currsize) for c in ours}


def uses_of_a_size(n: int) -> None:
    """Functions of each kind on tensors of a size that no other call has."""
    x, image = tc.rand(n, n + 1), tc.rand(1, 2, n, n + 3)
    weight = tc.rand(3, 2, 3, 3, requires_grad=True)
    nn.functional.conv2d(image, weight, padding=1).sum().backward()
    nn.functional.conv_transpose2d(image, tc.rand(2, 3, 2, 2)).mean((2, 3))
    nn.functional.interpolate(image, scale_factor=2)
    nn.functional.max_pool2d(image, 2)
    nn.functional.layer_norm(x, x.shape[1:]).softmax(1)
    nn.functional.scaled_dot_product_attention(image, image, image)
    tc.linalg.solve(x @ x.T + n * tc.eye(n), x)
    tc.einsum("ij,kj->ik", x, x).sort().values.cumsum(0)
    tc.fft.rfft(x)
    tc.cat([x, x]).view(2, n, n + 1).permute(2, 0, 1).contiguous()[:, :1].std()
    x[x > 0.5].unique()
    x.gather(0, x.argmax(0, keepdim=True))
    tc.compile(lambda x: (x @ x.T).relu().sum(0), dynamic=False)(x)


def test_caches_without_a_limit_do_not_grow_with_shapes() -> None:
    for n in (5, 6):
        uses_of_a_size(n)
    before = unbounded_caches()
    for n in range(9, 14):
        uses_of_a_size(n)
    grown = [name for key, (name, size) in unbounded_caches().items() if size >= before.get(key, ("", 0))[1] + 5]
    assert not grown
