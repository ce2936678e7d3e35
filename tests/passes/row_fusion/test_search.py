"""Row-tiled fusion: when kernels are fused, that bits stay, and that large results need no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.base import config
from tracecomp.base.dump import Dump
from tracecomp.ir.graph import Graph
from tracecomp.ir.loop_interp import interpret_program
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loop_verify import verify_program
from tracecomp.ir.program import Program
from tracecomp.nn import functional
from tracecomp.passes import pipeline
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.explain import describe_partition
from tracecomp.passes.pipeline import Lowered, lower
from tracecomp.runtime.executable import Executable

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 20, 28, 8
SMALL = replace(host(), l2_bytes=8000)
Function = Callable[..., Any]


def optimised(fn: Function, *args: Any) -> Graph:
    return pipeline.run(torch.trace(fn, *args), Dump("", enabled=False))[-1].state


def lowered(fn: Function, *args: Any) -> Lowered:
    return lower(optimised(fn, *args), machine=SMALL)


def unfused(graph: Graph, machine: Machine = SMALL) -> Lowered:
    with config.override(fusion=False):
        return lower(graph, machine=machine)


def arrays(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    found = []
    for given in graph.inputs:
        t = given.value.type
        made = rng.standard_normal(t.shape) if t.dtype.is_floating_point else rng.integers(0, 9, t.shape)
        found.append(made.astype(t.dtype.numpy) if given.data is None else np.asarray(given.data))
    return found


def outputs(graph: Graph) -> list[Any]:
    return [np.zeros(o.value.shape, o.value.dtype.numpy) for o in graph.outputs]


def bits(graph: Graph, program: Program, threads: int) -> list[bytes]:
    found = outputs(graph)
    Executable(program).run(arrays(graph), found, threads)
    return [a.tobytes() for a in found]


def interpreted(graph: Graph, program: Program) -> list[bytes]:
    found = outputs(graph)
    interpret_program(program, arrays(graph), found)
    return [a.tobytes() for a in found]


def qkv(queries: int = QUERIES, keys: int = KEYS, heads: int = HEADS, dtype: Any = torch.float32) -> list[Any]:
    shapes = ((HEADS, queries), (heads, keys), (heads, keys))
    return [torch.randn(BATCH, h, n, SIZE, dtype=dtype) for h, n in shapes]


def attention(**options: Any) -> Function:
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options)


def by_hand(q: Any, k: Any, v: Any) -> Any:
    mask = torch.arange(k.shape[-2]) * 0.25
    return torch.softmax(q @ k.transpose(-2, -1) * 0.5 + mask, -1) @ v


def projected(q: Any, k: Any, v: Any) -> Any:
    """Heads side by side in memory, before and after."""
    q, k, v = (x.transpose(1, 2).reshape(BATCH, -1, HEADS * SIZE) for x in (q, k, v))
    w = torch.linspace(-1, 1, HEADS * SIZE).outer(torch.linspace(0, 1, HEADS * SIZE))
    q, k, v = ((x @ w).reshape(BATCH, -1, HEADS, SIZE).transpose(1, 2) for x in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(BATCH, -1, HEADS * SIZE) @ w


def step(fn: Function) -> Function:
    def run(*args: Any) -> Any:
        leaves = [a.detach().requires_grad_() for a in args]
        out = fn(*leaves)
        (out * out).sum().backward()
        return (out, *(x.grad for x in leaves))

    return run


CASES: dict[str, tuple[Function, list[Any]]] = {
    "plain": (attention(), qkv()),
    "causal": (attention(is_causal=True), qkv()),
    "added mask": (attention(attn_mask=torch.randn(QUERIES, KEYS)), qkv()),
    "mask of each head": (attention(attn_mask=torch.randn(BATCH, HEADS, QUERIES, KEYS)), qkv()),
    "boolean mask": (attention(attn_mask=torch.arange(KEYS) % 3 > 0), qkv()),
    "dropout": (attention(dropout_p=0.25), qkv()),
    "grouped heads": (attention(enable_gqa=True), qkv(heads=2)),
    "a rest of rows": (attention(), qkv(23, 37)),
    "two queries": (attention(), qkv(2, 150)),
    "one column": (lambda q, k, v: attention()(q, k, v[..., :1]), qkv()),
    "half": (lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1), -1) @ v, qkv(dtype=torch.float16)),
    "double": (attention(), qkv(dtype=torch.float64)),
    "by hand": (by_hand, qkv()),
    "projected": (projected, qkv()),
}


@pytest.mark.sampled(16)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("case", CASES)
def test_bits_stay(case: str, backward: bool) -> None:
    fn, args = CASES[case]
    torch.manual_seed(0)
    graph = optimised(step(fn) if backward else fn, *args)
    machine = SMALL.tuned(parallel_work=1)
    chained, apart = lower(graph, machine=machine), unfused(graph, machine)
    assert chained.partition.row_fusions
    assert not apart.partition.row_fusions
    verify_program(chained.program)
    expected = bits(graph, apart.program, 1)
    assert bits(graph, chained.program, 1) == expected
    assert bits(graph, chained.program, 2) == expected


def test_gradients_of_a_plain_sum() -> None:
    """The gradient that comes in is one number, so a contraction has an operand that moves with no variable."""

    def gradients(*args: Any) -> Any:
        leaves = [a.detach().requires_grad_() for a in args]
        attention()(*leaves).sum().backward()
        return tuple(x.grad for x in leaves)

    graph = optimised(gradients, *(torch.randn(BATCH, HEADS, 48, 64) for _ in range(3)))
    machine = SMALL.tuned(parallel_work=1)
    chained, apart = lower(graph, machine=machine), unfused(graph, machine)
    assert chained.partition.row_fusions
    verify_program(chained.program)
    assert bits(graph, chained.program, 1) == bits(graph, apart.program, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", ["causal", "a rest of rows", "projected"])
def test_the_interpreter_agrees(case: str) -> None:
    fn, args = CASES[case]
    graph = optimised(step(fn), *args)
    machine = SMALL.tuned(parallel_work=1)
    chained, apart = lower(graph, machine=machine), unfused(graph, machine)
    assert interpreted(graph, chained.program) == interpreted(graph, apart.program)


@pytest.mark.parametrize("case", ["plain", "by hand", "projected", "a rest of rows", "grouped heads"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_scores_need_no_memory(case: str, backward: bool) -> None:
    fn, args = CASES[case]
    found = lowered(step(fn) if backward else fn, *args)
    scores = BATCH * HEADS * args[0].shape[-2] * args[1].shape[-2]
    sizes = [p.size for s in found.program.steps for p in s.kernel.params]
    assert max(sizes) < scores


def test_scores_are_computed_again_for_gradients() -> None:
    fn, args = CASES["projected"]
    forward, backward = lowered(step(fn), *args).partition.row_fusions
    assert len(forward.groups) == 3
    again = [g for g in backward.groups if any(g.nodes is other.nodes for other in forward.groups)]
    assert again == list(backward.groups[:2])
    assert len(backward.non_row_outputs) == 2  # gradients of keys and values are sums over rows


def test_few_heads_do_not_sum_over_rows() -> None:
    q, k, v = (torch.randn(2, n, SIZE) for n in (60, 60, 60))
    row_fusions = lowered(step(attention()), q, k, v).partition.row_fusions
    assert row_fusions
    assert not any(g.kind == "bilinear" for c in row_fusions for g in c.non_row_outputs)


def test_small_results_stay_as_they_were() -> None:
    fn, args = CASES["plain"]
    assert not lower(optimised(fn, *args)).partition.row_fusions


def test_much_arithmetic_stays_apart() -> None:
    x, v, w = torch.randn(256, 512), torch.randn(512, 512), torch.randn(512, 512)
    assert not lowered(lambda x: torch.relu(x @ v) @ w, x).partition.row_fusions


def test_layers_take_turns() -> None:
    x, v, w = torch.randn(96, 16), torch.randn(16, 64), torch.randn(64, 16)
    found = lowered(lambda x: functional.layer_norm(torch.relu(x @ v) @ w, (16,)), x)
    (chain,) = found.partition.row_fusions
    assert (chain.outer, chain.count, len(chain.groups)) == (1, 96, 2)


def test_what_is_overwritten_is_in_no_row_fusion() -> None:
    x, v, w = torch.randn(96, 16), torch.randn(16, 64), torch.randn(64, 16)
    graph = optimised(lambda x: torch.relu(x @ v) @ w + x, x)
    assert lower(graph, machine=SMALL).partition.row_fusions
    assert not lower(graph, {0: 0}, machine=SMALL).partition.row_fusions


def test_a_row_fusion_can_be_read() -> None:
    fn, args = CASES["plain"]
    found = lowered(fn, *args)
    text = print_program(found.program)
    assert "row_block <" in text
    assert text.count("local rows") == 2
    assert "are one loop over blocks of 10 of 8 x 20 rows, which keeps 35840 bytes out of memory" in describe_partition(
        found.partition
    )


def depthwise(size: int, padding: int = 1) -> tuple[Function, list[Any]]:
    x, w = torch.randn(3, 8, size, size), torch.randn(8, 1, 3, 3)
    return lambda x, w: functional.conv2d(x, w, padding=padding, groups=8), [x, w]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [9, 16, 21])
def test_padding_and_depthwise_convolution_take_turns(size: int) -> None:
    fn, args = depthwise(size)
    graph = optimised(fn, *args)
    together, apart = lower(graph, machine=SMALL), unfused(graph)
    assert len(together.program.steps) == 1 and together.program.arena_bytes == 0 and len(apart.program.steps) == 2
    verify_program(together.program)
    wanted = bits(graph, apart.program, 1)
    assert bits(graph, together.program, 1) == bits(graph, together.program, 2) == wanted
    assert interpreted(graph, together.program) == wanted


def test_padding_that_others_read_stays_in_memory() -> None:
    fn, args = depthwise(16, padding=0)

    def shared(x: Any, w: Any) -> Any:
        padded = functional.pad(x, (1, 1, 1, 1))
        return padded, fn(padded, w)

    dense = lowered(lambda x, w: functional.conv2d(x, w, padding=1), args[0], torch.randn(64, 8, 3, 3))
    for found in (lowered(shared, *args), dense):
        assert not found.partition.row_fusions
        assert [step.label.split()[0] for step in found.program.steps][:2] == ["pad", "contract"]


READERS: tuple[Function, ...] = (
    lambda s, v: s.sum(-1), lambda s, v: s @ v, lambda s, v: s.transpose(-2, -1) @ v, lambda s, v: s.amax(-2),
    lambda s, v: torch.softmax(s, -1) @ v, lambda s, v: (s @ v).transpose(0, 1) * 2,
)  # fmt: skip


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(16))
def test_bits_stay_where_several_read_what_is_between(seed: int) -> None:
    """Gradients of both operands, masks and sums that several fusions want: each kernel runs once, in one of them."""
    r = np.random.default_rng(seed)
    readers = [READERS[n] for n in r.choice(len(READERS), r.integers(1, 3), replace=False)] if seed else READERS[:1]
    between: Function = (torch.relu, torch.tanh, lambda s: torch.where(s > 0, s, s * 0.1))[r.integers(3) if seed else 0]

    def fn(x: Any) -> Any:
        s = between(x.transpose(0, 1) @ x.permute(1, 2, 0))
        return x.sum() + sum(reader(s, x.transpose(0, 1)).sum() for reader in readers)

    graph = optimised(step(fn), torch.randn(int(r.choice([20, 27])), int(r.choice([16, 25])), SIZE))
    machine = SMALL.tuned(parallel_work=1)
    chained, apart = lower(graph, machine=machine), unfused(graph, machine)
    members = [g for fused in chained.partition.row_fusions for g in fused.groups]
    assert len(set(members)) == len(members)
    verify_program(chained.program)
    assert bits(graph, chained.program, 1) == bits(graph, apart.program, 1)
