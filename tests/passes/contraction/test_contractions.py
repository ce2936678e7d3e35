"""Convolutions whose sums are cut into k-blocks or slide over rows: against float64, and cut differently to the bit."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.codegen.running import SHARING, compile_graph, run_built, run_native, same_bits
from tests.machines import MACHINES
from tracecomp.ir.graph import Graph
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loop_printer import print_program
from tracecomp.ir.loops import Const, Prefetch, walk
from tracecomp.ir.op import OPS
from tracecomp.ir.program import call_steps
from tracecomp.ir.types import DType, TensorType, bool_, float16, float32
from tracecomp.passes.contraction.register_tiles import _numbered, _step
from tracecomp.passes.contraction.tile_schedule import TileSchedule
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.nests.peeling import Folding
from tracecomp.passes.schedule.records import parse_records

WIDE = MACHINES["Zen 4"].tuned(parallel_work=1, parallel_products=1)
"""The choice for registers of 512 bits, which does not depend on this processor, without costs of waking threads."""

Ints = tuple[int, ...]

WEIGHT_GRADIENTS: dict[str, tuple[Ints, Ints, Ints, dict[str, Any]]] = {
    "rows in pieces": ((2, 20, 69, 67), (2, 6, 67, 65), (3, 3), {}),
    "one long sum": ((3, 24, 61, 53), (3, 40, 61, 53), (1, 1), {}),
    "neighbours stored together": ((2, 6, 9, 9), (2, 70, 7, 7), (3, 3), {}),
    "groups": ((2, 48, 58, 40), (2, 12, 56, 38), (3, 3), {"groups": 2}),
    "stride": ((2, 33, 45, 37), (2, 20, 22, 18), (3, 3), {"stride": (2, 2)}),
    "channel by channel": ((3, 6, 16, 16), (3, 6, 14, 14), (3, 3), {"groups": 6}),
    "rows of 9": ((2, 6, 15, 13), (2, 6, 11, 9), (5, 5), {"groups": 6}),
    "long rows": ((2, 5, 9, 58), (2, 5, 7, 56), (3, 3), {"groups": 5}),
    "every other element": ((2, 6, 31, 29), (2, 6, 15, 14), (3, 3), {"groups": 6, "stride": (2, 2)}),
    "every third row": ((2, 6, 37, 29), (2, 6, 11, 14), (5, 3), {"groups": 6, "stride": (3, 2)}),
    "rows of 7": ((3, 40, 9, 9), (3, 40, 7, 7), (3, 3), {"groups": 40}),
    "many small results": ((4, 3, 34, 34), (4, 40, 32, 32), (3, 3), {}),
}

FORWARD: dict[str, tuple[Ints, Ints, dict[str, Any]]] = {
    "lines": ((3, 48, 37), (40, 48, 3), {}),
    "planes": ((2, 64, 13, 11), (48, 64, 3, 3), {}),
    "volumes": ((1, 32, 5, 6, 7), (40, 32, 3, 2, 3), {}),
    "groups": ((2, 64, 12, 12), (96, 32, 3, 3), {"groups": 2}),
    "stride and dilation": ((2, 40, 17, 19), (64, 40, 3, 3), {"stride": (2, 1), "dilation": (1, 2)}),
    "a long sum": ((2, 300, 9, 9), (80, 300, 3, 3), {}),
    "rows that share every other": ((2, 20, 31, 33), (20, 1, 3, 3), {"groups": 20, "stride": (2, 2)}),
    "few filters far apart": ((2, 3, 31, 75), (24, 3, 5, 3), {"stride": (2, 3)}),
}


def graph_of(name: str, shapes: list[Ints], kernel: Ints, options: dict[str, Any]) -> Graph:
    rank = len(kernel)
    attrs: dict[str, Any] = {"stride": (1,) * rank, "dilation": (1,) * rank, "groups": 1, **options}
    attrs["padding"] = ((0, 0),) * rank
    if name == "conv_weight":
        attrs["kernel"] = kernel
    graph = Graph(name)
    inputs = [graph.add_input(TensorType(float32, shape), f"x{n}") for n, shape in enumerate(shapes)]
    graph.add_output(graph.add(OPS[name], inputs, attrs)[0])
    return graph


def normal(shapes: list[Ints]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def places(x: Any, kernel: Ints, out: Ints, options: dict[str, Any]) -> dict[Ints, Any]:
    """For each place of the kernel what all windows see there, in float64."""
    rank = len(kernel)
    stride, dilation = options.get("stride", (1,) * rank), options.get("dilation", (1,) * rank)
    found = {}
    for place in np.ndindex(*kernel):
        steps = zip(place, dilation, stride, out, strict=True)
        cut = tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in steps)
        found[place] = x[(..., *cut)].astype(np.float64)
    return found


def by_group(value: Any, axis: int, groups: int) -> Any:
    return np.stack(np.split(value, groups, axis))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", WEIGHT_GRADIENTS)
def test_weight_gradients(name: str) -> None:
    x_shape, g_shape, kernel, options = WEIGHT_GRADIENTS[name]
    graph, groups = graph_of("conv_weight", [x_shape, g_shape], kernel, options), options.get("groups", 1)
    x, g = normal([x_shape, g_shape])
    have = run_native(graph, [x, g])[0]
    for place, seen in places(x, kernel, g_shape[2:], options).items():
        want = np.einsum("gncyx,gnoyx->goc", by_group(seen, 1, groups), by_group(g.astype(np.float64), 1, groups))
        np.testing.assert_allclose(have[(..., *place)], want.reshape(have.shape[:2]), rtol=1e-4, atol=2e-3)
    same_however_cut(graph, [x, g], have)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FORWARD)
def test_convolutions(name: str) -> None:
    x_shape, w_shape, options = FORWARD[name]
    graph, groups = graph_of("conv", [x_shape, w_shape], w_shape[2:], options), options.get("groups", 1)
    x, w = normal([x_shape, w_shape])
    have = run_native(graph, [x, w])[0]
    want = np.zeros(have.shape)
    for place, seen in places(x, w_shape[2:], have.shape[2:], options).items():
        part = by_group(w[(..., *place)].astype(np.float64), 0, groups)
        parts = np.einsum("gnc...,goc->gno...", by_group(seen, 1, groups), part)
        want += np.concatenate(list(parts), 1)
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-3)
    same_however_cut(graph, [x, w], have)


def same_however_cut(graph: Graph, arrays: list[Any], have: Any) -> None:
    """Neither the length of a k-block nor threads show in the result."""
    for terms, totals in ((100, 1 << 12), (4096, 1 << 24)):
        machine = SHARING.tuned(k_block_terms=terms, totals_bytes=totals)
        built, executable = compile_graph(graph, machine=machine)
        for threads in (1, 3):
            assert same_bits(run_built(built, executable, graph, arrays, threads)[0], have)
    for in_halves in (False, True):
        machine = replace(host(), in_halves=in_halves)
        assert same_bits(run_native(graph, arrays, machine=machine)[0], have)
    whole = replace(host(), l2_bytes=1 << 40).tuned(near_result_bytes=0)
    text = print_program(compile_graph(graph, machine=whole)[0].program)
    assert "local totals" not in text
    assert same_bits(run_native(graph, arrays, machine=whole)[0], have)


@pytest.mark.parametrize("spec, shapes", [
    ("mk,kn->mn", [(30, 50), (50, 35)]),
    ("mk,kn->mn", [(500, 20), (20, 50)]),
    ("mk,nk->mn", [(29, 50), (133, 50)]),
    ("bmk,bkn->bmn", [(3, 40, 65), (3, 65, 20)]),
])  # fmt: skip
def test_last_lanes_stand_by_themselves(spec: str, shapes: list[Ints]) -> None:
    """If arithmetic on half a register takes half the time, a few lanes beyond whole registers are a separate
    column."""
    graph, arrays = contraction(spec, shapes, float32), normal(shapes)
    want = np.einsum(spec, *(a.astype(np.float64) for a in arrays))
    results, texts = [], []
    for in_halves in (False, True):
        machine = Machine(64, 32, in_halves=in_halves)
        built, executable = compile_graph(graph, machine=machine.tuned(parallel_products=1))
        texts.append(print_program(built.program))
        results += [run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 3)]
    assert texts[0] != texts[1]
    np.testing.assert_allclose(results[0], want, rtol=1e-4, atol=1e-3)
    assert all(same_bits(result, results[0]) for result in results)


@pytest.mark.parametrize("rows", [3, 16, 40, 61, 97, 256])
@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8, 16])
def test_blocks_of_rows_have_every_step_once(rows: int, blocks: int) -> None:
    """Blocks of two lengths share one loop, and a condition says which steps a block has."""
    row, column = Var("m", rows), Var("n", 64)
    schedule = TileSchedule(vector=column, width=64, tile=row, height=6, row_blocks=(blocks,))
    found = []
    for number, at, some in _numbered(schedule.joined_blocks(min(blocks, max(schedule.steps, 1)))):
        step = Var("step", some.most)
        for n, k in product(range(number.extent), range(step.extent)):
            exists, place = _step(some, at, step)
            values = {number: Index((), n), step: Index((), k)}
            condition = Const(True, bool_) if exists is None else Folding(values, "").expr(exists)
            assert isinstance(condition, Const)
            if condition.value:
                (atom, _) = (*place.terms, (None, 0))[0]
                place = atom.expr.index if isinstance(atom, Computed) else place
                found.append(place.substitute(values).const)
    assert found == list(range(schedule.steps))


@pytest.mark.parametrize("rows", [61, 97, 250, 256, 509])
@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_blocks_of_two_lengths_have_one_body(rows: int, blocks: int) -> None:
    graph, arrays = contraction("mk,kn->mn", [(rows, 40), (40, 96)], float32), normal([(rows, 40), (40, 96)])
    want = run_native(graph, arrays)[0]
    machine = SHARING.tuned(wanted_blocks=2 * blocks, wanted_panels=2 * blocks)
    built, executable = compile_graph(graph, machine=machine)
    columns = len(re.findall(r"vector j\d+ < (?:64|32|96)", print_program(built.program)))
    assert columns <= 2 * 2  # whole tiles and the remaining rows, in up to two widths
    for threads in (1, 3):
        assert same_bits(run_built(built, executable, graph, arrays, threads)[0], want)


HALVES = {
    "plain": ("mk,kn->mn", (70, 90), (90, 133)),
    "one column of tiles": ("mk,kn->mn", (100, 40), (40, 33)),
    "transposed": ("km,nk->mn", (50, 77), (140, 50)),
    "batched": ("bmk,bkn->bmn", (3, 40, 65), (3, 65, 80)),
    "left in common": ("mk,bkn->bmn", (40, 65), (3, 65, 80)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HALVES)
def test_half_precision_is_converted_once(name: str) -> None:
    """Copies in float32 have the bits of converting whatever a tile loads, and the sum's are float32's."""
    spec, *shapes = HALVES[name]
    arrays = [a.astype(np.float16) for a in normal(shapes)]
    halves, singles = (contraction(spec, shapes, dtype) for dtype in (float16, float32))
    want = run_native(singles, [a.astype(np.float32) for a in arrays])[0].astype(np.float16)
    built, executable = compile_graph(halves, machine=SHARING)
    assert "local computed" in print_program(built.program)
    for threads in (1, 3):
        assert same_bits(run_built(built, executable, halves, arrays, threads)[0], want)
    apart = host().tuned(computed_reads=1 << 30)
    assert "local computed" not in print_program(compile_graph(halves, machine=apart)[0].program)
    assert same_bits(run_native(halves, arrays, machine=apart)[0], want)


def contraction(spec: str, shapes: list[Ints], dtype: DType) -> Graph:
    graph = Graph("contract")
    inputs = [graph.add_input(TensorType(dtype, shape), f"x{n}") for n, shape in enumerate(shapes)]
    graph.add_output(graph.add(OPS["contract"], inputs, {"spec": spec})[0])
    return graph


def test_k_blocks_of_a_weight_gradient_are_read_by_few_blocks() -> None:
    """Blocks for threads, but no more: each of them reads all the data."""
    x_shape, g_shape = (2, 3, 37, 37), (2, 32, 16, 16)
    graph = graph_of("conv_weight", [x_shape, g_shape], (7, 7), {"stride": (2, 2)})
    machine = replace(MACHINES["Zen 4"], tuning=SHARING.tuning, l2_bytes=1 << 15, l3_bytes=1 << 16)
    x, g = normal([x_shape, g_shape])
    built, executable = compile_graph(graph, machine=machine)
    found = re.search(r"parallel block < (\d+):\n +local totals", print_program(built.program))
    assert found
    blocks = int(found[1])
    assert SHARING.tuning.least_blocks <= blocks <= 2 * SHARING.tuning.least_blocks
    first, second = (run_built(built, executable, graph, [x, g], threads)[0] for threads in (1, 3))
    want = np.zeros(first.shape)
    for u, v in np.ndindex(7, 7):
        seen = x[:, :, u : u + 31 : 2, v : v + 31 : 2].astype(np.float64)
        want[:, :, u, v] = np.einsum("ncuv,nouv->oc", seen, g)
    np.testing.assert_allclose(first, want, rtol=1e-4, atol=1e-3)
    assert same_bits(first, second)


@pytest.mark.parametrize("shapes", [[(1500, 600), (1500, 96)], [(1500, 96), (1500, 600)]])
def test_rows_far_apart_are_read_in_lanes(shapes: list[Ints]) -> None:
    """A separate line of memory for every term would evict the others from the cache."""
    graph, arrays = contraction("km,kn->mn", shapes, float32), normal(shapes)
    built, executable = compile_graph(graph)
    [step] = call_steps(built.program.steps)
    [schedule] = parse_records("\n".join(step.kernel.schedules))
    assert schedule.fields["vector"] == ("m" if shapes[0][1] == 600 else "n")
    found = run_built(built, executable, graph, arrays)[0]
    np.testing.assert_allclose(found, arrays[0].T.astype(np.float64) @ arrays[1], rtol=1e-4, atol=1e-3)


def test_terms_far_apart_are_copied_once() -> None:
    """Rows that would evict each other from the cache, stage by stage, have the bits of contiguous rows."""
    shapes: list[Ints] = [(2100, 1024), (2100, 1024)]
    graph, arrays = contraction("km,kn->mn", shapes, float32), normal(shapes)
    built, executable = compile_graph(graph, machine=WIDE)
    assert "local computed_left" in print_program(built.program)
    found = [run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 2, 3)]
    np.testing.assert_allclose(found[0], arrays[0].T.astype(np.float64) @ arrays[1], rtol=1e-4, atol=1e-3)
    machine = WIDE.tuned(strided_reads=1 << 30)
    apart = compile_graph(graph, machine=machine)[0]
    assert "local computed_left" not in print_program(apart.program)
    assert all(same_bits(f, run_native(graph, arrays, machine=machine)[0]) for f in found)


@pytest.mark.parametrize("kernel", [(3, 3), (3, 7)])
def test_lines_of_a_large_result_are_fetched_while_windows_are_summed(kernel: Ints) -> None:
    """Also where the innermost loop is written out, and all terms are few."""
    x, w = (2, 3, 70, 130), (32, 3, *kernel)
    graph = graph_of("conv", [x, w], kernel, {"stride": (2, 2)})
    assert "prefetch" in print_program(compile_graph(graph)[0].program)
    arrays = normal([x, w])
    found = run_native(graph, arrays)[0]
    want = np.zeros(found.shape)
    for place, seen in places(arrays[0], kernel, found.shape[2:], {"stride": (2, 2)}).items():
        want += np.einsum("nc...,oc->no...", seen.astype(np.float64), arrays[1][(..., *place)])
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)


def test_few_rows_of_one_panel_are_shared() -> None:
    """If the block that packs it read it alone, there would be nothing to share."""
    shapes: list[Ints] = [(120, 900), (64, 900)]
    graph, arrays = contraction("mk,nk->mn", shapes, float32), normal(shapes)
    built, executable = compile_graph(graph, machine=WIDE)
    blocks = re.search(r"parallel \w+ < (\d+):\n[^=]*accumulate", print_program(built.program))
    assert blocks and int(blocks[1]) >= WIDE.tuning.least_blocks
    found = [run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 2, 3)]
    np.testing.assert_allclose(found[0], arrays[0].astype(np.float64) @ arrays[1].T, rtol=1e-4, atol=1e-3)
    assert all(same_bits(other, found[0]) for other in found[1:])


def test_columns_are_narrower_if_threads_would_share_few() -> None:
    """The rows of a tile remain enough sums to hide the latency of additions."""
    x_shape, g_shape = (4, 3, 18, 18), (4, 32, 16, 16)
    graph, arrays = graph_of("conv_weight", [x_shape, g_shape], (3, 3), {}), normal([x_shape, g_shape])
    found = []
    for least, blocks in ((1, 3), (4, 6)):
        built, executable = compile_graph(graph, machine=WIDE.tuned(least_blocks=least))
        shared = re.findall(r"parallel \w+ < (\d+):\n[^=]*accumulate", print_program(built.program))
        assert shared == [str(blocks)]
        found += [run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 2, 3)]
    assert all(same_bits(other, found[0]) for other in found[1:])


@pytest.mark.parametrize(("rows", "columns", "shared"), [(1, 512, True), (2, 256, False), (4, 256, True)])
def test_a_product_of_one_row_counts_the_vectors_that_it_loads(rows: int, columns: int, shared: bool) -> None:
    """One row and two rows of half the length have as many multiply-adds; the one row loads twice as many vectors."""
    shapes: list[Ints] = [(rows, 128), (128, columns)]
    graph, arrays = contraction("mk,kn->mn", shapes, float32), normal(shapes)
    built, executable = compile_graph(graph, machine=MACHINES["Zen 4"])
    assert ("opportunistic" in print_program(built.program)) == shared
    first, second = (run_built(built, executable, graph, arrays, threads)[0] for threads in (1, 3))
    assert same_bits(first, second)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_weights_of_many_heads_are_transposed_in_registers(rows: int) -> None:
    """An operand for each head keeps heads apart; each weight is still loaded in whole lines, and has its bits."""
    heads, width, terms = 5, 40, 96
    graph, plain = Graph("projection"), contraction("mk,kn->mn", [(rows, terms), (terms, heads * width)], float32)
    x, w, scale = (
        graph.add_input(TensorType(float32, shape), f"x{n}")
        for n, shape in enumerate([(rows, terms), (heads * width, terms), (width,)])
    )
    turned = graph.add(OPS["permute"], [w], {"dims": (1, 0)})[0]
    product = graph.add(OPS["contract"], [x, turned], {"spec": "mk,kn->mn"})[0]
    split = graph.add(OPS["reshape"], [product], {"shape": (rows, heads, width)})[0]
    spread = graph.add(OPS["expand"], [scale], {"shape": (rows, heads, width)})[0]
    for value in (split, graph.add(OPS["mul"], [split, spread], {})[0]):
        graph.add_output(value)
    arrays = normal([(rows, terms), (heads * width, terms), (width,)])
    built, executable = compile_graph(graph, machine=WIDE)
    [step] = call_steps(built.program.steps)
    [schedule] = parse_records("\n".join(step.kernel.schedules))
    assert schedule.fields["transposed"] == "16"
    want = run_native(plain, [arrays[0], np.ascontiguousarray(arrays[1].T)])[0].reshape(rows, heads, width)
    for threads in (1, 3):
        first, second = run_built(built, executable, graph, arrays, threads)
        assert same_bits(first, want)
        assert same_bits(second, want * arrays[2])


def test_lines_of_a_large_weight_are_prefetched_twice() -> None:
    """The next column in the order of memory, and each lane's line again before its block."""
    shapes: list[Ints] = [(1, 768), (256, 768)]
    built = compile_graph(contraction("mk,nk->mn", shapes, float32), machine=WIDE)[0]
    [step] = call_steps(built.program.steps)
    constants = sorted(s.offset.const for s in walk(step.kernel.body) if isinstance(s, Prefetch))
    assert constants == sorted([16 * 768 + 16 * n for n in range(16)] + [768 * n + 64 for n in range(16)])
