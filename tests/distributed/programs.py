"""Small programs for torch.distributed: ``python programs.py MODULE FOLDER`` runs all in one process of several.

``MODULE`` is ``torch`` or ``tracecomp``; nothing else differs. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT identify
this process. The result of every program, or its error, goes to ``FOLDER/MODULE-rank.pickle``.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(run: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[run.__name__] = run
    return run


def mine(torch: Any, rank: int, *shape: int, dtype: Any = None) -> Any:
    """Numbers that differ from rank to rank; their sums are exact."""
    count = 1
    for n in shape:
        count *= n
    found = (torch.arange(count) * 7 + rank * 3) % 11
    return found.reshape(*shape).to(dtype or torch.float32)


def reductions(name: str, kinds: str) -> None:
    for kind in kinds.split():

        def run(torch: Any, dist: Any, rank: int, size: int, kind: str = kind) -> Any:
            x = mine(torch, rank, 3, 4, dtype=getattr(torch, kind))
            dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
            return x

        PROGRAMS[f"all_reduce_{name}_{kind}"] = run


reductions("SUM", "float32 float64 float16 bfloat16 int64 int32 uint8 int8")
reductions("PRODUCT", "float32 int64")
reductions("MIN", "float32 int32")
reductions("MAX", "float64 uint8")
reductions("BAND", "int32")
reductions("BOR", "int64")
reductions("BXOR", "uint8")


@program
def all_reduce_of_a_large_tensor(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = mine(torch, rank, 50001)
    dist.all_reduce(x)
    return x.sum(), x[:9], x[-9:]


@program
def all_reduce_in_place_through_a_view(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = mine(torch, rank, 4, 4)
    dist.all_reduce(x[1])
    return x


@program
def all_reduce_of_a_scalar_and_of_nothing(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x, nothing = torch.tensor(float(rank + 1)), torch.zeros(0)
    dist.all_reduce(x)
    dist.all_reduce(nothing)
    return x, nothing


@program
def all_reduce_of_complex_numbers(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.tensor([1 + 2j, 3 - 1j]) * (rank + 1)
    dist.all_reduce(x)
    return torch.view_as_real(x)


@program
def asynchronous_all_reduces_are_waited_for(torch: Any, dist: Any, rank: int, size: int) -> Any:
    xs = [mine(torch, rank, n) for n in (3, 5, 4000)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    answers = [work.wait() for work in works]
    return xs[0], xs[1], xs[2].sum(), answers, [work.is_completed() for work in works]


@program
def reduce_at_the_last_rank(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = mine(torch, rank, 5)
    dist.reduce(x, size - 1)
    return x if rank == size - 1 else None


@program
def broadcast_from_every_rank(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found = []
    for src in range(size):
        x = mine(torch, rank, 2, 3)
        dist.broadcast(x, src)
        found.append(x)
    return found


@program
def broadcast_of_booleans(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = mine(torch, rank, 6) > 4
    dist.broadcast(x, src=0)
    return x


@program
def scalars_travel(torch: Any, dist: Any, rank: int, size: int) -> Any:
    sent, least = torch.tensor(float(rank + 3)), torch.tensor(rank + 3)
    dist.broadcast(sent, src=1)
    rows = [torch.tensor(0.0) for _ in range(size)]
    dist.all_gather(rows, torch.tensor(float(rank)))
    dist.reduce(least, 0, op=dist.ReduceOp.MIN)
    got = torch.tensor(0.0)
    dist.scatter(got, [torch.tensor(float(r * 2)) for r in range(size)] if rank == 0 else None, src=0)
    gathered = [torch.tensor(0.0) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.tensor(float(rank)), gathered, dst=0)
    if rank == 0:
        dist.send(torch.tensor(7.0), 1)
    elif rank == 1:
        dist.recv(got, 0)
    return sent, rows, least if rank == 0 else None, got, gathered


@program
def nothing_and_half_and_booleans(torch: Any, dist: Any, rank: int, size: int) -> Any:
    half, flags, none = mine(torch, rank, 5, dtype=torch.bfloat16), mine(torch, rank, 5) > 4, torch.zeros(0, 3)
    dist.all_reduce(half, op=dist.ReduceOp.MAX)
    dist.broadcast(none, src=0)
    rows = [torch.zeros(5, dtype=torch.bool) for _ in range(size)]
    dist.all_gather(rows, flags)
    return half, rows, none


@program
def all_gather_of_tensors(torch: Any, dist: Any, rank: int, size: int) -> Any:
    rows = [torch.zeros(2, 2) for _ in range(size)]
    dist.all_gather(rows, mine(torch, rank, 2, 2))
    return rows


@program
def all_gather_of_half_precision(torch: Any, dist: Any, rank: int, size: int) -> Any:
    rows = [torch.zeros(3, dtype=torch.bfloat16) for _ in range(size)]
    dist.all_gather(rows, mine(torch, rank, 3, dtype=torch.bfloat16))
    return rows


@program
def all_gather_into_one_tensor(torch: Any, dist: Any, rank: int, size: int) -> Any:
    whole = torch.zeros(2 * size, 3)
    dist.all_gather_into_tensor(whole, mine(torch, rank, 2, 3))
    return whole


@program
def gather_at_rank_one(torch: Any, dist: Any, rank: int, size: int) -> Any:
    rows = [torch.zeros(4) for _ in range(size)] if rank == 1 else None
    dist.gather(mine(torch, rank, 4), rows, dst=1)
    return rows


@program
def scatter_from_rank_one(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.zeros(4)
    dist.scatter(x, [mine(torch, r + 5, 4) for r in range(size)] if rank == 1 else None, src=1)
    return x


@program
def reduce_scatter_of_a_list(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.zeros(3)
    dist.reduce_scatter(x, [mine(torch, rank + r, 3) for r in range(size)])
    return x


@program
def reduce_scatter_of_one_tensor(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(x, mine(torch, rank, 2 * size, 3))
    return x


@program
def all_to_all_of_rows(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.zeros(size * 2)
    dist.all_to_all_single(x, mine(torch, rank, size * 2))
    return x


@program
def all_to_all_of_uneven_rows(torch: Any, dist: Any, rank: int, size: int) -> Any:
    sends = [r + 1 for r in range(size)]
    x = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(x, mine(torch, rank, sum(sends), 2), [rank + 1] * size, sends)
    return x


@program
def all_to_all_of_rows_that_are_even_in_one_process(torch: Any, dist: Any, rank: int, size: int) -> Any:
    counts = [[2] * size, *([s % 3, *[2] * (size - 1)] for s in range(1, size))]
    x = torch.zeros(sum(row[rank] for row in counts))
    dist.all_to_all_single(x, mine(torch, rank, sum(counts[rank])), [row[rank] for row in counts], counts[rank])
    return x


@program
def receives_get_messages_in_the_order_in_which_they_began(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found = [torch.zeros(2) for _ in range(4)]
    works = [dist.irecv(x, (rank - 1) % size) for x in found]
    for k in range(4):
        dist.send(torch.full((2,), 10.0 * rank + k), (rank + 1) % size)
    for work in reversed(works):
        work.wait()
    return found


@program
def what_is_completed_is_in_place(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x, y = mine(torch, rank, 5), torch.zeros(3)
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
    sending, coming = dist.isend(mine(torch, rank, 3), (rank + 1) % size), dist.irecv(y, (rank - 1) % size)
    if torch.__name__ == "torch":  # gloo says so of a message only after wait()
        coming.wait()
    while not coming.is_completed():
        pass
    found = x.clone(), y.clone()
    sending.wait()
    return found


@program
def send_and_receive(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = mine(torch, rank, 4)
    if rank == 0:
        dist.send(x, dst=1)
    elif rank == 1:
        sender = dist.recv(x, src=0)
        return x, sender
    return x


@program
def tags_tell_messages_apart(torch: Any, dist: Any, rank: int, size: int) -> Any:
    a, b = torch.zeros(2), torch.zeros(2)
    if rank == 0:
        works = [dist.isend(torch.ones(2) * n, 1, tag=6 + n) for n in (1, 2)]
        for work in works:
            work.wait()
    elif rank == 1:
        dist.recv(b, 0, tag=8)
        dist.recv(a, 0, tag=7)
    return a, b


@program
def receive_from_anyone(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x = torch.zeros(2)
    if rank:
        dist.send(torch.ones(2) * rank, 0)
        return None
    return sorted((dist.recv(x), int(x[0])) for _ in range(size - 1))


@program
def a_ring_of_isend_and_irecv(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x, y = mine(torch, rank, 1000), torch.zeros(1000)
    works = [dist.isend(x, (rank + 1) % size), dist.irecv(y, (rank - 1) % size)]
    for work in works:
        work.wait()
    return y[:5], y.sum()


@program
def a_ring_in_one_batch(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x, y = mine(torch, rank, 3), torch.zeros(3)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, y, (rank - 1) % size)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return y


@program
def large_messages_cross(torch: Any, dist: Any, rank: int, size: int) -> Any:
    x, y = torch.full((300000,), float(rank)), torch.zeros(300000)
    work = dist.isend(x, (rank + 1) % size)
    dist.recv(y, (rank - 1) % size)
    work.wait()
    return y.sum()


@program
def a_group_of_the_ends(torch: Any, dist: Any, rank: int, size: int) -> Any:
    ends = dist.new_group([0, size - 1])
    x = torch.ones(2) * (rank + 1)
    if rank in (0, size - 1):
        dist.all_reduce(x, group=ends)
        return x, dist.get_rank(ends), dist.get_world_size(ends), dist.get_process_group_ranks(ends)
    return x


@program
def one_group_each(torch: Any, dist: Any, rank: int, size: int) -> Any:
    groups = [dist.new_group([r]) for r in range(size)]
    x = torch.ones(1) * rank
    dist.all_reduce(x, group=groups[rank])
    return x, [dist.get_rank(g) for g in groups]


@program
def broadcast_within_a_group(torch: Any, dist: Any, rank: int, size: int) -> Any:
    group = dist.new_group([1, 0])
    x = mine(torch, rank, 3)
    if rank < 2:
        dist.broadcast(x, src=1, group=group)
        return x, dist.get_global_rank(group, 1), dist.get_group_rank(group, 1)
    return x


@program
def subgroups(torch: Any, dist: Any, rank: int, size: int) -> Any:
    own, every = dist.new_subgroups(1)
    return dist.get_world_size(own), len(every)


@program
def objects_from_everyone(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found: list[Any] = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    return found


@program
def objects_to_everyone(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found = [f"from {rank}", rank, None] if rank == 0 else [None, None, None]
    dist.broadcast_object_list(found, src=0)
    return found


@program
def objects_gathered_and_scattered(torch: Any, dist: Any, rank: int, size: int) -> Any:
    gathered: Any = [None] * size if rank == 0 else None
    dist.gather_object((rank, "here"), gathered, dst=0)
    out: list[Any] = [None]
    dist.scatter_object_list(out, [[r] * r for r in range(size)] if rank == 0 else None, src=0)
    return gathered, out


@program
def objects_sent(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found: list[Any] = [None, None]
    if rank == 0:
        dist.send_object_list([{"a": 1}, [2, 3]], dst=1)
    elif rank == 1:
        dist.recv_object_list(found, src=0)
    return found


@program
def barriers(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    dist.monitored_barrier(timeout=timedelta(seconds=100))
    return dist.is_initialized(), dist.get_rank(), dist.get_world_size(), dist.get_backend()


@program
def the_store_of_a_tcp_address(torch: Any, dist: Any, rank: int, size: int) -> Any:
    store = dist.PrefixStore("mine", dist.distributed_c10d._get_default_store())
    store.set(f"key{rank}", f"value{rank}")
    dist.barrier()
    got = [store.get(f"key{r}") for r in range(size)]
    dist.barrier()
    store.add("sum", rank)
    dist.barrier()
    return got, store.add("sum", 0), store.check(["key0"]), store.check(["nothing"])


@program
def hash_stores(torch: Any, dist: Any, rank: int, size: int) -> Any:
    store = dist.HashStore()
    store.set("a", "1")
    found = [store.get("a"), store.add("n", 5), store.add("n", -2), store.delete_key("a"), store.delete_key("a")]
    return [*found, store.compare_set("c", "", "new"), store.compare_set("c", "other", "x"), store.num_keys()]


# ---- errors


@program
def gather_without_a_list(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.gather(torch.ones(1), [torch.ones(1)] * size if rank else None, dst=0)


@program
def a_number_is_no_tensor(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.all_reduce(3.0)


@program
def a_tensor_is_no_list(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.all_gather(torch.ones(2), torch.ones(2))


@program
def a_second_beginning(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.init_process_group("gloo")


@program
def a_rank_outside_of_the_world(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.new_group([0, size + 3])


@program
def a_send_to_oneself(torch: Any, dist: Any, rank: int, size: int) -> Any:
    dist.send(torch.ones(1), dist.get_rank())


# ---- data parallel: gradients are rounded, because the order of sums is not gloo's


def net(torch: Any, rank: int, *layers: Any) -> Any:
    """A network whose parameters differ from rank to rank, until they are made equal."""
    found = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for i, p in enumerate(found.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape).float().mul(0.37).add(i).sin() * 0.3 + rank * 0.5)
    return found


def batch(torch: Any, rank: int, step: int, *shape: int) -> Any:
    return mine(torch, rank * 5 + step, *shape).sub(5).div(4)


def rounded(torch: Any, tensors: Any) -> Any:
    return [
        None if t is None else [round(v, 4) + 0.0 for v in t.detach().double().reshape(-1).tolist()] for t in tensors
    ]


def trained(torch: Any, model: Any, rank: int, shape: tuple[int, ...], steps: int = 3, **options: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(torch, rank, step, *shape)).square().mean().backward()
        optimizer.step()
    return rounded(torch, [*model.parameters(), *model.buffers()])


@program
def ddp_trains(torch: Any, dist: Any, rank: int, size: int) -> Any:
    nn = torch.nn
    model = nn.parallel.DistributedDataParallel(net(torch, rank, nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
    return trained(torch, model, rank, (5, 4)), list(model.state_dict())


@program
def ddp_with_small_buckets_and_views(torch: Any, dist: Any, rank: int, size: int) -> Any:
    nn = torch.nn
    inner = net(torch, rank, nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 2))
    return trained(
        torch,
        nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=0.0001, gradient_as_bucket_view=True),
        rank,
        (5, 4),
    )


@program
def ddp_sends_buffers_of_rank_zero(torch: Any, dist: Any, rank: int, size: int) -> Any:
    nn = torch.nn
    model = nn.parallel.DistributedDataParallel(net(torch, rank, nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)))
    found = trained(torch, model, rank, (5, 4))
    model(batch(torch, rank, 9, 5, 4))
    return found if rank == 0 else found[:6]  # others keep statistics of their batch until the next call


@program
def ddp_without_broadcast_of_buffers(torch: Any, dist: Any, rank: int, size: int) -> Any:
    nn = torch.nn
    inner = net(torch, rank, nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    return trained(torch, nn.parallel.DistributedDataParallel(inner, broadcast_buffers=False), rank, (5, 4))


@program
def ddp_accumulates_without_synchronisation(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = torch.nn.parallel.DistributedDataParallel(net(torch, rank, torch.nn.Linear(3, 2)))
    with model.no_sync():
        model(batch(torch, rank, 0, 4, 3)).square().sum().backward()
    alone = rounded(torch, [p.grad for p in model.parameters()])
    model(batch(torch, rank, 1, 4, 3)).square().sum().backward()
    return alone, rounded(torch, [p.grad for p in model.parameters()])


@program
def ddp_accumulates_with_synchronisation(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = torch.nn.parallel.DistributedDataParallel(net(torch, rank, torch.nn.Linear(3, 2)))
    for step in range(2):
        model(batch(torch, rank, step, 4, 3)).square().sum().backward()
    return rounded(torch, [p.grad for p in model.parameters()])


def branches(torch: Any) -> Any:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.never = (torch.nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Any, second: bool) -> Any:
            return self.second(self.first(x)) if second else self.first(x)

    return Branches()


@program
def ddp_finds_unused_parameters(torch: Any, dist: Any, rank: int, size: int) -> Any:
    inner = branches(torch)
    net(torch, rank, inner)
    model = torch.nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
    found = []
    for step in range(3):
        model.zero_grad()
        model(batch(torch, rank, step, 4, 3), second=(rank + step) % 3 == 0 and step < 2).square().mean().backward()
        found.append(rounded(torch, [p.grad for p in model.parameters()]))
    return found


@program
def ddp_says_when_parameters_are_unused(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = torch.nn.parallel.DistributedDataParallel(branches(torch))
    for step in range(2):
        model(batch(torch, rank, step, 4, 3), second=True).square().mean().backward()


@program
def ddp_of_a_module_without_parameters(torch: Any, dist: Any, rank: int, size: int) -> Any:
    torch.nn.parallel.DistributedDataParallel(torch.nn.ReLU())


@program
def ddp_with_a_static_graph(torch: Any, dist: Any, rank: int, size: int) -> Any:
    inner = branches(torch)
    net(torch, rank, inner)
    model = torch.nn.parallel.DistributedDataParallel(inner, static_graph=True)
    for step in range(2):
        model.zero_grad()
        model(batch(torch, rank, step, 4, 3), second=True).square().mean().backward()
    return rounded(torch, [p.grad for p in inner.first.parameters()])


@program
def ddp_with_a_hook_of_the_users(torch: Any, dist: Any, rank: int, size: int) -> Any:
    def halved(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch checks annotations
        state.append((bucket.index(), bucket.is_last(), len(bucket.parameters())))
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / 2)

    model = torch.nn.parallel.DistributedDataParallel(net(torch, rank, torch.nn.Linear(3, 2)))
    state: list[Any] = []
    model.register_comm_hook(state, halved)
    model(batch(torch, rank, 0, 4, 3)).square().sum().backward()
    return rounded(torch, [p.grad for p in model.parameters()]), state


@program
def ddp_compresses_by_a_known_hook(torch: Any, dist: Any, rank: int, size: int) -> Any:
    hooks = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
    model = torch.nn.parallel.DistributedDataParallel(net(torch, rank, torch.nn.Linear(3, 2)))
    model.register_comm_hook(None, hooks.fp16_compress_hook)
    model(batch(torch, rank, 0, 4, 3)).square().mean().backward()
    return [[round(v, 2) + 0.0 for v in row] for row in rounded(torch, [p.grad for p in model.parameters()])]


@program
def ddp_in_a_group(torch: Any, dist: Any, rank: int, size: int) -> Any:
    group = dist.new_group([0, 1])
    if rank > 1:
        return None
    inner = net(torch, rank, torch.nn.Linear(3, 2))
    return trained(torch, torch.nn.parallel.DistributedDataParallel(inner, process_group=group), rank, (4, 3))


def joined(torch: Any, rank: int, *layers: Any, **options: Any) -> Any:
    """A model trained on more batches by higher ranks."""
    model = torch.nn.parallel.DistributedDataParallel(net(torch, 0, *layers), find_unused_parameters=len(layers) > 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join(**options):
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            model(batch(torch, rank, step, 5, 4)).square().mean().backward()
            optimizer.step()
    return rounded(torch, [*model.parameters(), *model.buffers()])


@program
def ddp_joins_uneven_inputs(torch: Any, dist: Any, rank: int, size: int) -> Any:
    return joined(torch, rank, torch.nn.Linear(4, 2))


@program
def ddp_joins_with_buffers_and_unused_parameters(torch: Any, dist: Any, rank: int, size: int) -> Any:
    return joined(torch, rank, torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2))


@program
def ddp_joins_and_divides_by_those_with_inputs(torch: Any, dist: Any, rank: int, size: int) -> Any:
    return joined(torch, rank, torch.nn.Linear(4, 2), divide_by_initial_world_size=False)


@program
def ddp_joins_at_once_when_all_have_as_many(torch: Any, dist: Any, rank: int, size: int) -> Any:
    return joined(torch, 0, torch.nn.Linear(4, 2))


@program
def ddp_ends_all_when_the_first_has_no_inputs(torch: Any, dist: Any, rank: int, size: int) -> Any:
    return joined(torch, rank, torch.nn.Linear(4, 2), throw_on_early_termination=True)


@program
def ddp_with_views_of_buckets_keeps_gradients_in_place(torch: Any, dist: Any, rank: int, size: int) -> Any:
    inner = net(torch, rank, torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model = torch.nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=True)
    found = []
    for step in range(3):
        model.zero_grad(set_to_none=step == 1)
        model(batch(torch, rank, step, 4, 3)).square().mean().backward()
        found.append(rounded(torch, [p.grad for p in model.parameters()]))
    return found


@program
def ddp_with_a_hook_in_small_buckets(torch: Any, dist: Any, rank: int, size: int) -> Any:
    hooks = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
    inner = net(torch, rank, torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    model = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=0.00001)
    model.register_comm_hook(None, hooks.allreduce_hook)
    for step in range(2):
        model(batch(torch, rank, step, 4, 3)).square().mean().backward()
    return rounded(torch, [p.grad for p in model.parameters()])


@program
def a_second_hook_is_an_error(torch: Any, dist: Any, rank: int, size: int) -> Any:
    hooks = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
    model = torch.nn.parallel.DistributedDataParallel(net(torch, rank, torch.nn.Linear(3, 4)))
    model.register_comm_hook(None, hooks.allreduce_hook)
    model.register_comm_hook(None, hooks.allreduce_hook)


@program
def zero_redundancy_trains_as_the_optimizer_alone(torch: Any, dist: Any, rank: int, size: int) -> Any:
    optim = importlib.import_module(f"{torch.__name__}.distributed.optim")
    nn, found = torch.nn, []
    for sharded in (True, False):
        inner = net(torch, rank, nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        model = nn.parallel.DistributedDataParallel(inner)
        made = torch.optim.AdamW
        optimizer = (
            optim.ZeroRedundancyOptimizer(model.parameters(), optimizer_class=made, lr=0.02)
            if sharded
            else made(model.parameters(), lr=0.02)
        )
        for step in range(3):
            optimizer.zero_grad()
            model(batch(torch, rank, step, 5, 4)).square().mean().backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5
        found.append(rounded(torch, model.parameters()))
        if sharded:
            optimizer.consolidate_state_dict(to=1)
            if rank == 1:
                state = optimizer.state_dict()
                found.append(
                    [sorted(state["state"]), rounded(torch, [s["exp_avg"] for _, s in sorted(state["state"].items())])]
                )
    return found, found[0] == found[-1]


@program
def zero_redundancy_loads_a_whole_state(torch: Any, dist: Any, rank: int, size: int) -> Any:
    optim = importlib.import_module(f"{torch.__name__}.distributed.optim")
    inner = net(torch, 0, torch.nn.Linear(3, 2))
    saved = torch.optim.SGD(inner.parameters(), lr=0.1, momentum=0.9)
    inner(batch(torch, 0, 0, 4, 3)).sum().backward()
    saved.step()
    optimizer = optim.ZeroRedundancyOptimizer(inner.parameters(), torch.optim.SGD, lr=0.5, momentum=0.1)
    optimizer.load_state_dict(saved.state_dict())
    optimizer.step()
    return rounded(torch, inner.parameters()), optimizer.param_groups[0]["lr"]


def fsdp(torch: Any) -> Any:
    return importlib.import_module(f"{torch.__name__}.distributed.fsdp")


def sharded(torch: Any, rank: int, **options: Any) -> Any:
    """A model whose first layer has more rows than its last one, which has fewer than there are processes."""
    nn, fully_shard = torch.nn, fsdp(torch).fully_shard
    model = net(torch, 0, nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))
    fully_shard(model[0], **options)
    fully_shard(model[2], **options)
    return fully_shard(model, **options)


def gathered(torch: Any, tensors: Any) -> Any:
    return rounded(torch, [t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors])


@program
def fully_sharded_trains(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = sharded(torch, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for step in range(3):
        model(batch(torch, rank, step, 5, 4)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return gathered(torch, model.parameters()), [*model.state_dict()], type(model[0]).__name__


@program
def fully_sharded_keeps_whole_parameters(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = sharded(torch, rank, reshard_after_forward=False)
    model(batch(torch, rank, 0, 5, 4)).square().mean().backward()
    return gathered(torch, [p.grad for p in model.parameters()])


@program
def fully_sharded_accumulates(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = sharded(torch, rank)
    for step in range(3):
        model.set_requires_gradient_sync(step == 2)
        model(batch(torch, rank, step, 5, 4)).square().mean().backward()
    return gathered(torch, [p.grad for p in model.parameters()])


@program
def fully_sharded_states_are_whole_on_demand(torch: Any, dist: Any, rank: int, size: int) -> Any:
    states = importlib.import_module(f"{torch.__name__}.distributed.checkpoint.state_dict")
    model = sharded(torch, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    model(batch(torch, rank, 0, 5, 4)).square().mean().backward()
    optimizer.step()
    options = states.StateDictOptions(full_state_dict=True)
    weights, state = states.get_state_dict(model, optimizer, options=options)
    other = sharded(torch, rank)
    second = torch.optim.AdamW(other.parameters(), lr=0.5)
    states.set_state_dict(
        other, second, model_state_dict=weights, optim_state_dict=state,
        options=states.StateDictOptions(full_state_dict=True),
    )  # fmt: skip
    moments = {k: gathered(torch, [v["exp_avg"]]) for k, v in sorted(state["state"].items())}
    return gathered(torch, weights.values()), moments, gathered(torch, other.parameters()), second.param_groups[0]["lr"]


@program
def fully_sharded_runs_when_it_is_unsharded(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = sharded(torch, rank)
    model.unshard()
    model[0].unshard()
    model(batch(torch, rank, 0, 5, 4)).square().mean().backward()
    return gathered(torch, [p.grad for p in model.parameters()])


@program
def rows_are_made_of_whole_tensors(torch: Any, dist: Any, rank: int, size: int) -> Any:
    tensors = importlib.import_module(f"{torch.__name__}.distributed.tensor")
    model = sharded(torch, rank)
    given = model.state_dict()["0.weight"]
    whole = mine(torch, 0, 7, 4)
    rows = tensors.distribute_tensor(whole, given.device_mesh, given.placements)
    model.load_state_dict({"0.weight": torch.nn.Parameter(rows)}, strict=False, assign=True)
    shown = (
        gathered(torch, [model[0].weight]),
        isinstance(given, tensors.DTensor),
        given.placements == (tensors.Shard(0),),
    )
    model(batch(torch, rank, 0, 5, 4)).square().mean().backward()
    return shown, tuple(rows.to_local().shape), gathered(torch, [model[0].weight.grad])


@program
def a_whole_parameter_while_it_is_unsharded(torch: Any, dist: Any, rank: int, size: int) -> Any:
    model = sharded(torch, rank)
    model[0].unshard()
    whole = tuple(model[0].weight.shape), rounded(torch, [model[0].weight])
    model[0].reshard()
    return whole, gathered(torch, [model[0].weight])


@program
def scalars_cannot_be_sharded(torch: Any, dist: Any, rank: int, size: int) -> Any:
    module = torch.nn.Module()
    module.scale = torch.nn.Parameter(torch.tensor(1.0))
    fsdp(torch).fully_shard(module)


@program
def lists_of_modules_cannot_be_sharded(torch: Any, dist: Any, rank: int, size: int) -> Any:
    fsdp(torch).fully_shard(torch.nn.ModuleList([torch.nn.Linear(2, 2)]))


@program
def a_mesh_of_processes(torch: Any, dist: Any, rank: int, size: int) -> Any:
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "tp"))
    x, y = mine(torch, rank, 4), mine(torch, rank, 2)
    dist.all_reduce(x, group=mesh.get_group("tp"))
    dist.all_reduce(y, group=mesh["dp"].get_group())
    told = [mesh.ndim, tuple(mesh.shape), mesh.size(), mesh.size(1), mesh.get_coordinate(), mesh.get_rank()]
    places = [mesh.get_local_rank("tp"), mesh["tp"].get_local_rank(), mesh.get_local_rank(0)]
    rows = [mesh["tp"].mesh.tolist(), mesh["dp"].mesh.tolist(), mesh.mesh.tolist(), mesh["tp"].mesh_dim_names]
    return x, y, told, places, rows


@program
def meshes_that_are_refused(torch: Any, dist: Any, rank: int, size: int) -> Any:
    found = []
    for shape, names in ((2, size), ("a", "b")), ((1, size), ("a", "a")), ((1, size), ("a",)):
        try:
            dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
        except RuntimeError as error:
            found.append(str(error).split(" (at ")[0])
    mesh = dist.device_mesh.DeviceMesh("cpu", list(range(size)))
    flat = dist.device_mesh.init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"))
    for call in (lambda: flat.get_group(), lambda: mesh["a"], lambda: flat["c"]):
        try:
            call()
        except (RuntimeError, KeyError) as error:
            found.append(type(error).__name__)
    return found, mesh.get_group().size()


@program
def gradients_through_collectives(torch: Any, dist: Any, rank: int, size: int) -> Any:
    functional = importlib.import_module(f"{torch.__name__}.distributed.nn.functional")
    x = batch(torch, rank, 0, 3).requires_grad_()
    functional.all_reduce(x * x).mul(rank + 1.0).sum().backward()
    first, x.grad = rounded(torch, [x.grad]), None
    gathered = functional.all_gather(x * 2)
    sum((i + 1) * row.square().sum() for i, row in enumerate(gathered)).backward()
    return first, rounded(torch, [x.grad])


def plain(value: Any, torch: Any) -> Any:
    """Tensors as nested lists with their dtype."""
    if isinstance(value, torch.Tensor):
        wide = value.float() if value.is_floating_point() else value
        return str(value.dtype).removeprefix("torch."), tuple(value.shape), wide.tolist()
    if isinstance(value, list | tuple):
        return [plain(v, torch) for v in value]
    return value


def main(module: str, folder: Path) -> None:
    torch = importlib.import_module(module)
    dist = importlib.import_module(f"{module}.distributed")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", timeout=timedelta(seconds=100))
    found = {}
    for name, run in PROGRAMS.items():
        print(name, flush=True)
        try:
            found[name] = plain(run(torch, dist, rank, size), torch)
        except Exception as error:
            found[name] = f"raises {next(c.__name__ for c in type(error).__mro__ if c.__module__ == 'builtins')}"
        dist.barrier()
    (folder / f"{module}-{rank}.pickle").write_bytes(pickle.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
