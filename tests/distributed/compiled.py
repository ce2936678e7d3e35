"""A data-parallel step as one graph per rank, compared with the eager one; every process checks it."""

from __future__ import annotations

from typing import Any

import tracecomp as torch
from tracecomp import distributed as dist
from tracecomp import nn
from tracecomp.distributed.fsdp import fully_shard
from tracecomp.distributed.nn.functional import all_reduce
from tracecomp.nn import functional as F
from tracecomp.nn.parallel import DistributedDataParallel


def trained(compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(dist.get_rank())
    net = nn.Sequential(nn.Linear(6, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net), bucket_cap_mb=0.0005)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    xs = [torch.randn(8, 6) for _ in range(6)]

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        return mean

    run = torch.compile(step, fullgraph=True) if compiled else step
    losses = [run(x, torch.arange(8) % 3) for x in xs]
    return [*losses, *(p.detach() for p in model.parameters())], run


def sharded(compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 5))
    model = fully_shard(nn.Sequential(fully_shard(net[0]), net[1], fully_shard(net[2])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

    run = torch.compile(step, fullgraph=True) if compiled else step
    for i in range(4):
        torch.manual_seed(i + 10 * dist.get_rank())
        run(torch.randn(12, 7), torch.randint(0, 5, (12,)))
    return [p.full_tensor() for p in model.parameters()], run


def check_sharded() -> None:
    eager, _ = sharded(False)
    compiled, run = sharded(True)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
    nodes = [str(node.op.name) for node in run.graphs[0].live_nodes()]
    # weights of two layers, then four gradients for their norm
    assert len(run.graphs) == 1 and nodes.count("all_gather") == 2 + 4 and nodes.count("reduce_scatter") == 2, nodes


def check_columns() -> None:
    """Memory with gaps is sent and written element by element; gloo takes it for memory in one piece."""
    x = torch.arange(12.0).reshape(3, 4)
    dist.all_reduce(x[:, 1])
    expected = torch.arange(12.0).reshape(3, 4)
    expected[:, 1] *= dist.get_world_size()
    assert torch.equal(x, expected), x


def check_recordings_at_other_times() -> None:
    """A rank that records again alone also differentiates alone: its collectives do not call the others."""
    rank, size = dist.get_rank(), dist.get_world_size()
    run = torch.compile(lambda x, factor: all_reduce(x * factor))
    for call in range(4):
        x, factor = torch.ones(3, requires_grad=True), 2 + rank * call
        y = run(x, factor)
        (y * (rank + 1)).sum().backward()
        assert y.tolist() == [float(2 * size + call * size * (size - 1) // 2)] * 3, (call, y)
        assert x.grad.tolist() == [float(factor * size * (size + 1) // 2)] * 3, (call, x.grad)


def main() -> None:
    dist.init_process_group("gloo")
    check_columns()
    check_recordings_at_other_times()
    check_sharded()
    eager, _ = trained(False)
    compiled, run = trained(True)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
    assert len(run.graphs) == 1
    nodes = [str(node.op.name) for node in run.graphs[0].live_nodes()]
    # two buckets of gradients, two sums of statistics forwards and their two derivatives, the mean of losses
    assert nodes.count("all_reduce") == 2 + 4 + 1, nodes.count("all_reduce")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
