"""Rows that compiled calls of varying sizes move: caches that grow, windows that slide, parts that are joined."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.compiled.dynamic_shapes import SizedBackend

Program = Callable[[Any, Any], Any]
WIDTH = 16

STEPS: dict[str, Program] = {
    "appended": lambda x, new: torch.cat([x, new], 2),
    "appended in front": lambda x, new: torch.cat([new, x], 2),
    "twice": lambda x, new: torch.cat([x, new * 2, x], 2),
    "many": lambda x, new: torch.cat([new, x, new, x, new, x], 2),
    "window": lambda x, new: torch.cat([x[:, :, 1:], new], 2),
    "last ones": lambda x, new: x[:, :, -2:],
    "reversed": lambda x, new: x.flip(2),
    "reversed heads": lambda x, new: x.flip(1),
    "batch": lambda x, new: torch.cat([x, x * 3], 0)[-x.shape[0] :],
    "heads": lambda x, new: torch.cat([x, x[:, :1]], 1)[:, 1:],
    "within rows": lambda x, new: torch.cat([x[..., 8:], x[..., :8]], 3),
    "turned": lambda x, new: torch.cat([x.transpose(1, 2), new.transpose(1, 2)], 1).transpose(1, 2),
    "flat": lambda x, new: x.flatten(1, 2).relu().reshape(x.shape),
    "repeated heads": lambda x, new: x.repeat_interleave(2, 1)[:, ::2],
    "repeated rows": lambda x, new: x.repeat_interleave(2, 2)[:, :, 1:],
    "attention": lambda x, new: torch.cat([x, (new @ x.mT).softmax(-1) @ x], 2),
    "chosen": lambda x, new: x.index_select(2, x.sum((0, 1, 3)).argsort()),
    "written": lambda x, new: x.index_copy(2, torch.tensor([0]), new),
}  # fmt: skip


def calls(program: Program, sizes: list[tuple[int, int]]) -> None:
    """Compare compiled calls with eager ones for batches and lengths."""
    compiled = torch.compile(program, dynamic=True)
    numbers = np.random.default_rng(5)
    for batch, length in sizes:
        x, new = (torch.tensor(numbers.standard_normal((batch, 3, n, WIDTH)).astype(np.float32)) for n in (length, 1))
        x[0, 1, -1, 3] = float("inf")  # padding repeats the last row: it must not reach a sum
        for ours, eager in zip(compiled(x, new), program(x, new), strict=True):
            assert ours.shape == eager.shape
            assert ours.numpy().tobytes() == eager.numpy().tobytes()


@pytest.mark.parametrize("name", STEPS)
def test_one_step(name: str) -> None:
    def program(x: Any, new: Any) -> Any:
        moved = STEPS[name](x, new)
        return moved, moved * 2, moved.sum(2), x.sum(1)

    calls(program, [(2, 5), (2, 6), (2, 7), (2, 9), (3, 12), (1, 13), (2, 5)])


@pytest.mark.parametrize("seed", range(12))
def test_steps_in_a_row(seed: int) -> None:
    choose = random.Random(seed)
    names = choose.choices(list(STEPS), k=3)

    def program(x: Any, new: Any) -> Any:
        kept = []
        for name in names:
            x = STEPS[name](x, new)
            kept.append(x)
        return (*kept, x.exp().sum(2))

    calls(program, [(choose.randint(1, 3), choose.randint(4, 20)) for _ in range(6)])


def test_a_cache_that_grows_is_read_from_where_it_lies() -> None:
    """Once for the product and once for the result: nothing is spread, joined and gathered one after the other."""
    compiled = torch.compile(lambda x, new: (k := torch.cat([x, new], 2), (new @ k.mT).softmax(-1)), dynamic=True)
    x, new = torch.ones(1, 2, 40, 64), torch.ones(1, 2, 1, 64)
    for _ in range(4):
        x, _ = compiled(x, new)
    plans = [e.plan.forward for e in compiled.entries if e.plan is not None]
    (sized,) = (f for f in plans if isinstance(f, SizedBackend))
    nodes = [*sized.made[0].inner.graph.live_nodes()]
    rows = [n.inputs[0] for n in nodes if n.op.name == "take" and n.inputs[0].shape[1:] == (64,)]
    assert len(rows) == 4  # of the cache and of the new row
    assert not any(v.node is not None and v.node.op.name in ("take", "where") for v in rows)
