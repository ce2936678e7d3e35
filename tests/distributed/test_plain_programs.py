"""Programs written for PyTorch have the same bits for any number of processes, with TRACECOMP_SHARDS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp import distributed as dist
from tracecomp.communication import logical
from tracecomp.distributed import checkpoint
from tracecomp.distributed.optim import ZeroRedundancyOptimizer
from tracecomp.distributed.run import parser, plan_of
from tracecomp.nn.parallel import DistributedDataParallel
from tracecomp.utils.data import DataLoader, DistributedSampler, TensorDataset

HOWS = ((), ("step",), ("module",), ("fsdp",), ("fully_shard",), ("fully_shard", "step"), ("fsdp", "module"))
"""Wrappers of the model, and compiled parts: arguments of tests/distributed/plain.py."""
SCRIPT = str(Path(__file__).with_name("plain.py"))


def digests(folder: Path, size: int, threads: int = 1, *more: str) -> list[str]:
    environment = {"TRACECOMP_SHARDS": "4", "TRACECOMP_NUM_THREADS": str(threads)}
    succeed(gang(size, SCRIPT, str(folder), "4", *more, more=environment))
    return (folder / "digests.txt").read_text().splitlines()


@pytest.mark.slow
def test_a_plain_program_trains_to_the_same_bits_in_any_number_of_processes(tmp_path: Path) -> None:
    alone = digests(tmp_path, 1)
    assert [digests(tmp_path, size, 2) for size in (2, 3, 4)] == [alone] * 3


def _marked(how: tuple[str, ...]) -> Any:
    reason = "in several processes, compiled parts of sharded models raise: ranks disagree about the next collective"
    open_ = how in (("fully_shard", "step"), ("fsdp", "module"))
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if open_ else []
    return pytest.param(how, id=" ".join(how), marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("how", [_marked(how) for how in HOWS[1:]])
def test_wrappers_and_compilation_do_not_change_a_bit(tmp_path: Path, how: tuple[str, ...]) -> None:
    expected = digests(tmp_path, 1)
    assert [digests(tmp_path, size, 1, *how) for size in (1, 2, 3, 4)] == [expected] * 4


@pytest.fixture
def four_shards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRACECOMP_SHARDS", "4")
    monkeypatch.delenv("TRACECOMP_PROCESSES", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    dist.init_process_group("mpi")
    yield
    dist.destroy_process_group()


def loader(batch_size: int = 2, **options: Any) -> Any:
    data = TensorDataset(torch.arange(24.0).reshape(24, 1), torch.arange(24))
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data, shuffle=False), **options)


def test_each_shard_has_the_samples_of_a_process(four_shards: None) -> None:
    assert dist.get_world_size() == 4 and dist.get_rank() == 0
    batches = [y for _, y in loader()]
    assert len(loader()) == len(batches) == 3 and len(batches[0]) == 2
    assert [part.tolist() for part in batches[1].parts] == [[8, 12], [9, 13], [10, 14], [11, 15]]


def test_every_shard_is_collated_alone(four_shards: None) -> None:
    sizes: list[int] = []

    def collate(items: list[Any]) -> Any:
        sizes.append(len(items))
        return torch.stack([x for x, _ in items])

    assert len([*loader(5, collate_fn=collate, drop_last=True)]) == 1 and sizes == [5] * 4


def test_numbers_of_shards_are_means_and_sums_are_over_all(four_shards: None) -> None:
    x, y = next(iter(loader()))
    assert x.mean().item() == 3.5 and y.sum().item() == 7.0 and float(x.mean()) == 3.5
    assert f"{x.mean():.2f}" == "3.50" and bool((x >= 0).all())
    with pytest.raises(RuntimeError, match="condition differs"):
        bool(x.mean() > 3.5)
    total, top = x.sum(), y.max()
    dist.all_reduce(total)
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    assert total.item() == 28.0 and (total / 4).tolist() == 7.0 and top.item() == 7
    plain = torch.tensor([2.0])
    dist.all_reduce(plain)
    assert plain.item() == 8.0
    gathered = [torch.zeros(()) for _ in range(4)]
    dist.all_gather(gathered, x.sum())
    assert [t.item() for t in gathered] == [4.0, 6.0, 8.0, 10.0]


def test_objects_of_a_process_are_those_of_its_shards(four_shards: None) -> None:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.gather_object([dist.get_rank()], gathered)
    assert gathered == [[0]] * 4 and gathered[0] is not gathered[1]
    with pytest.raises(RuntimeError, match="not supported with TRACECOMP_SHARDS"):
        dist.scatter_object_list([None], [1, 2, 3, 4])


def test_checkpoints_and_sharded_optimizers_count_processes(four_shards: None, tmp_path: Path) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    x, _ = next(iter(loader()))
    model(x.expand(2, 2)).mean().backward()
    optimizer.step()
    optimizer.consolidate_state_dict()
    checkpoint.save({"model": model, "states": optimizer.state_dict()["state"]}, checkpoint_id=tmp_path)
    found: dict[str, Any] = {"model": {}, "states": {}}
    checkpoint.load(found, checkpoint_id=tmp_path)
    assert torch.equal(found["model"]["module.weight"], model.module.weight)
    assert torch.equal(found["states"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def gradients(module: Any, compiled: bool = False) -> list[Any]:
    """Those of three passes over a model created from the same seed."""
    torch.manual_seed(3)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    model = DistributedDataParallel(module)

    def step(x: Any) -> Any:
        model(x / 24).square().mean().backward()

    run = torch.compile(step) if compiled else step
    for x, _ in loader():
        run(x)
    return [p.grad for p in module.parameters()]


class Recomputed(torch.nn.Module):
    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=False)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_recomputed_shard_draws_the_same_numbers(four_shards: None, compiled: bool) -> None:
    body = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    expected = gradients(body, compiled)
    for p in body.parameters():
        p.grad = None
    for a, b in zip(gradients(Recomputed(body), compiled), expected, strict=True):
        assert torch.equal(a, b)


def test_batches_that_are_skipped_draw_no_numbers(four_shards: None) -> None:
    drop, state = torch.nn.Dropout(0.5), torch.get_rng_state()
    *_, (x, _) = loader()
    assert torch.equal(torch.get_rng_state(), state)
    kept = drop(x + 1)
    assert not torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(state)
    again, other = drop(x + 1), drop(x + 1)
    assert all(torch.equal(a, b) for a, b in zip(kept.parts, again.parts, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(kept.parts, other.parts, strict=True))


class Cells(torch.nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.cell = kind(1, 3)

    def forward(self, x: Any) -> Any:
        state = self.cell(x, self.cell(x))
        return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("kind", [torch.nn.RNNCell, torch.nn.LSTMCell, torch.nn.GRUCell])
def test_recurrent_cells_take_shards(four_shards: None, kind: Any) -> None:
    module = Cells(kind)
    found = gradients(module)
    x = (torch.arange(24.0) / 24).reshape(24, 1)
    for p, mine in zip(module.parameters(), found, strict=True):
        (expected,) = torch.autograd.grad(module(x).square().mean() * 3, [p])  # three batches of the same size
        torch.testing.assert_close(mine, expected)


def test_a_known_mean_is_forgotten_by_a_write(four_shards: None) -> None:
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    loss = model(next(iter(loader()))[0]).square().mean()
    assert loss.known_mean() is None
    loss.backward()
    mean = loss.item()
    assert loss.detach().clone().known_mean().item() == mean == model.mean(loss).item()
    kept = loss.detach()
    kept *= 0.0
    assert kept.item() == loss.item() == 0.0


def test_every_forward_pass_has_its_own_backward_pass(four_shards: None) -> None:
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    x, _ = next(iter(loader()))
    first, second = model(x).mean(), model(x).square().mean()
    first.backward()
    second.backward()
    together = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    (model(x).mean() + model(x).square().mean()).backward()
    for a, p in zip(together, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)


def test_what_depends_on_processes_is_refused(four_shards: None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = TensorDataset(torch.ones(8, 1))
    with pytest.raises(ValueError, match="num_replicas is 2, but TRACECOMP_SHARDS is 4"):
        DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.raises(ValueError, match="shards=2, but TRACECOMP_SHARDS=4"):
        DistributedDataParallel(torch.nn.Linear(1, 1), shards=2)
    with pytest.raises(RuntimeError, match="DataLoader with a DistributedSampler"):
        DistributedDataParallel(torch.nn.Linear(1, 1))(torch.ones(2, 1))
    with pytest.raises(RuntimeError, match="not supported with TRACECOMP_SHARDS"):
        dist.all_to_all([torch.ones(1)], [torch.ones(1)])
    with pytest.raises(ValueError, match="world_size is 2, but TRACECOMP_SHARDS is 4"):
        logical.processes(4, 2)
    monkeypatch.setenv("TRACECOMP_SHARDS", "many")
    with pytest.raises(ValueError, match="TRACECOMP_SHARDS=many"):
        logical.requested()


def test_programs_see_the_number_of_shards_as_the_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(parser().parse_args(["--shards", "8", "-n", "2", "train.py"]))
    found = plan.variables(0, 1)
    assert (found["WORLD_SIZE"], found["TRACECOMP_SHARDS"], found["TRACECOMP_PROCESSES"]) == ("8", "8", "2")
    with pytest.raises(SystemExit, match="fewer than 4 processes"):
        plan_of(parser().parse_args(["--shards", "2", "-n", "4", "train.py"]))
    for name, value in (("TRACECOMP_SHARDS", "8"), ("WORLD_SIZE", "2"), ("TRACECOMP_PROCESSES", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TRACECOMP_PROCESSES")
    logical.announce()
    logical.announce()
    assert os.environ["WORLD_SIZE"] == "8" and os.environ["TRACECOMP_PROCESSES"] == "2"
    assert logical.processes(8, 8) == logical.processes(8, -1) == 2
