"""Small programs for torch.distributed: ``python programs.py MODULE FOLDER`` runs all in one process of several.

``MODULE`` is ``torch`` or ``tracecomp``; nothing else differs. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who
this process is. What every program gives, or the error that it raises, goes to ``FOLDER/MODULE-rank.pickle``.
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
    dist.monitored_barrier(timeout=timedelta(seconds=20))
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
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
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
