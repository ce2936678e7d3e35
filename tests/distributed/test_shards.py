"""Weights, buffers and optimizer state have the same bits for any number of processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp.communication import combine
from tracecomp.communication.combine import ReduceOp
from tracecomp.utils.data import DistributedSampler

SCRIPT = str(Path(__file__).with_name("shards.py"))


def digests(folder: Path, size: int, *more: str, threads: int = 1) -> list[str]:
    succeed(gang(size, SCRIPT, str(folder), "6", *more, more={"TRACECOMP_NUM_THREADS": str(threads)}))
    return (folder / f"{size}{'c' if more else ''}.txt").read_text().splitlines()


@pytest.mark.slow
def test_one_two_three_and_four_processes_train_to_the_same_bits(tmp_path: Path) -> None:
    alone = digests(tmp_path, 1)
    assert [digests(tmp_path, size) for size in (2, 3, 4)] == [alone] * 3


@pytest.mark.slow
def test_compiled_steps_give_the_same_bits_for_any_number_of_processes_and_threads(tmp_path: Path) -> None:
    alone = digests(tmp_path, 1, "compiled", threads=2)
    assert digests(tmp_path, 3, "compiled") == alone


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 5, 7, 8, 13])
def test_a_sum_has_the_bits_of_the_whole_tree_however_its_leaves_are_shared(leaves: int) -> None:
    values = [np.random.default_rng(i).standard_normal(50).astype(np.float32) * 10.0 ** (i % 5) for i in range(leaves)]
    whole = combine.evaluated(ReduceOp.SUM, (0, leaves), combine.of_leaves(ReduceOp.SUM, values))
    for size in range(1, leaves + 1):
        known: dict[combine.Node, combine.Array] = {}
        for rank in range(size):
            own = combine.share(leaves, rank, size)
            mine = combine.of_leaves(ReduceOp.SUM, values[slice(*own)], own[0])
            known |= {node: combine.evaluated(ReduceOp.SUM, node, mine) for node in combine.parts(leaves, own)}
        assert combine.evaluated(ReduceOp.SUM, (0, leaves), known).tobytes() == whole.tobytes(), size


def test_a_tree_sums_pairs_of_neighbours() -> None:
    a, b, c, d, e = (np.float32(x) for x in (1e8, 1.0, -1e8, 3.0, 0.5))
    leaves = [np.array([x]) for x in (a, b, c, d, e)]
    found = combine.evaluated(ReduceOp.SUM, (0, 5), combine.of_leaves(ReduceOp.SUM, leaves))
    assert found[0] == ((a + b) + (c + d)) + e


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_global_batches_have_the_same_samples_in_the_same_shards(size: int) -> None:
    samplers = [DistributedSampler(range(50), size, r, shards=4, shard_size=3) for r in range(size)]
    rows = [list(sampler) for sampler in samplers]
    assert [len(row) for row in rows] == [len(sampler) for sampler in samplers]
    batches = len(rows[0]) // samplers[0].batch_size
    found = []
    for b in range(batches):
        for sampler, row in zip(samplers, rows, strict=True):
            found += row[b * sampler.batch_size : (b + 1) * sampler.batch_size]
    alone = list(DistributedSampler(range(50), 1, 0, shards=4, shard_size=3))
    assert found == alone and set(alone) == set(range(50))


def test_a_pass_goes_on_where_another_number_of_processes_has_stopped() -> None:
    first = DistributedSampler(range(48), 2, 1, shards=4, shard_size=3)
    first.set_epoch(3)
    first.given(2)
    second = DistributedSampler(range(48), 1, 0, shards=4, shard_size=3)
    whole = DistributedSampler(range(48), 1, 0, shards=4, shard_size=3)
    whole.set_epoch(3)
    second.load_state_dict(first.state_dict())
    assert list(second) == list(whole)[24:]


def test_shares_without_shards_are_those_of_torch() -> None:
    theirs = pytest.importorskip("torch").utils.data.DistributedSampler
    for rank in range(3):
        for drop in (False, True):
            mine = DistributedSampler(range(11), 3, rank, shuffle=False, drop_last=drop)
            assert list(mine) == list(theirs(range(11), 3, rank, shuffle=False, drop_last=drop))


@pytest.fixture
def alone() -> object:
    torch.distributed.init_process_group("mpi")
    yield None
    torch.distributed.destroy_process_group()


def test_a_mean_over_shards_is_the_mean_over_the_batch(alone: None) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    model = torch.nn.parallel.DistributedDataParallel(net, shards=4)
    data, goal = torch.randn(8, 3), torch.randn(8, 2)
    x, y = model.shard(data, goal)
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    mean = model.mean(loss)
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    plain = torch.nn.functional.mse_loss(net(data), goal)
    plain.backward()
    torch.testing.assert_close(mean, plain.detach())
    for mine, p in zip(grads, net.parameters(), strict=True):
        torch.testing.assert_close(mine, p.grad)


def test_dropout_differs_from_shard_to_shard(alone: None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.Dropout(0.5)), shards=2
    )
    kept = [part != 0 for part in model(model.shard(torch.ones(6, 4))).parts]
    assert not torch.equal(*kept)


def test_normalisation_over_shards_is_that_of_the_batch(alone: None) -> None:
    plain, x = torch.nn.BatchNorm2d(3), torch.randn(8, 3, 4, 4)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.SyncBatchNorm(3), shards=4)
    out = torch.cat(model(model.shard(x)).parts)
    torch.testing.assert_close(out, plain(x))
    torch.testing.assert_close(model.module.running_mean, plain.running_mean)
    torch.testing.assert_close(model.module.running_var, plain.running_var)


def test_what_shards_cannot_do_is_said(alone: None) -> None:
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1), shards=4)
    with pytest.raises(ValueError, match="cannot be cut into 4 equal shards"):
        model.shard(torch.ones(6, 3))
    with pytest.raises(RuntimeError, match="trains on shards"):
        model(torch.ones(8, 3))
    out = model(model.shard(torch.ones(8, 3)))
    with pytest.raises(RuntimeError, match="their values differ"):
        out.tolist()
    with pytest.raises(RuntimeError, match="needs gradients is combined with shards"):
        out * torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="two models"):
        out - torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1), shards=4).shard(torch.ones(8, 1))
    with pytest.raises(ValueError, match="BatchNorm"):
        torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(3), shards=2)
