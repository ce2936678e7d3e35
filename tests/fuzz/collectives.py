"""Random programs of collectives, under PyTorch with gloo and here: ``python -m tests.fuzz.collectives``.

The seed alone determines a program, so all processes and both libraries run the same one. Programs have tensors of
sizes 0 and 1, views, several dtypes and sub-groups. Works are awaited out of order, and groups end and begin again.
Afterwards every rank must have the same tensors. Values are small integers, whose sums are exact in any order. PyTorch
gets contiguous tensors: gloo reads and writes other ones as if they were contiguous. If it refuses, no comparison
follows.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tests.distributed.gangs import gang

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8", "bool", "complex64")
SHAPES: Sequence[tuple[int, ...]] = ((), (0,), (1,), (3,), (2, 3), (0, 4), (1, 1), (5, 2), (2, 3, 4), (700,), (40, 70))
FORMS = ("plain", "plain", "plain", "transposed", "stepped", "narrowed", "row", "column")


class Player:
    """Runs programs in one process, with one library."""

    def __init__(self, torch: Any, dist: Any) -> None:
        self.torch, self.dist = torch, dist
        self.draw = random.Random()  # the same numbers on every rank
        self.groups: list[tuple[Any, list[int]]] = []
        self.told: dict[int, str] = {}  # by the number of the call
        self.step = 0

    # ---- tensors

    def values(self, shape: tuple[int, ...], dtype: str, rank: int, small: bool = False) -> Any:
        """Return the values of ``rank`` in this step."""
        own = random.Random(f"{self.step}/{rank}/{shape}")
        count = 1
        for extent in shape:
            count *= extent
        low, high = (1, 2) if small else (0, 7) if dtype == "uint8" else (-5, 6)
        found = self.torch.tensor([own.randint(low, high) for _ in range(count)], dtype=self.torch.int64)
        return found.to(getattr(self.torch, dtype)).reshape(shape)

    def shaped(self, values: Any, form: str) -> tuple[Any, Any]:
        """Return a tensor with these values, and the tensor that owns its memory."""
        torch = self.torch
        if torch.__name__ == "torch":
            return values, values
        if form == "transposed" and values.ndim >= 2:
            base = values.transpose(0, 1).contiguous()
            return base.transpose(0, 1), base
        if form == "stepped" and values.ndim:
            base = torch.zeros((2 * values.shape[0], *values.shape[1:]), dtype=values.dtype)
            base[::2] = values
            return base[::2], base
        if form == "narrowed" and values.ndim:
            base = torch.zeros((values.shape[0] + 2, *values.shape[1:]), dtype=values.dtype)
            base[1:-1] = values
            return base[1:-1], base
        if form == "row":
            base = torch.zeros((2, *values.shape), dtype=values.dtype)
            base[1] = values
            return base[1], base
        if form == "column":
            base = torch.zeros((*values.shape, 2), dtype=values.dtype)
            base[..., 1] = values
            return base[..., 1], base
        return values, values

    def tell(self, what: str, *tensors: Any, base: Any = None) -> None:
        """Note what tensors hold; also when something was written in ``base`` outside of the first, a view of it."""
        parts = []
        for t in tensors:
            if isinstance(t, self.torch.Tensor):
                values = self.torch.view_as_real(t) if t.dtype.is_complex else t
                parts.append(f"{str(t.dtype).split('.')[-1]}{list(t.shape)}{values.tolist()}")
            else:
                parts.append(repr(t))
        if base is not None and base is not tensors[0]:
            tensors[0].zero_()
            if base.count_nonzero():
                parts.append("the rest was written")
        self.told[self.step] = f"{what}: {'; '.join(parts)}"

    # ---- calls

    def program(self, seed: int, steps: int) -> None:
        """Run one program; append its results to ``told``."""
        self.draw = random.Random(seed)
        self.groups = [(None, list(range(self.dist.get_world_size())))]
        kinds: list[Callable[[Any, list[int], str], None]] = [
            self.all_reduce, self.all_reduce, self.broadcast, self.reduce, self.all_gather, self.into_tensor,
            self.gather, self.scatter, self.reduce_scatter, self.reduce_scatter_tensor, self.all_to_all_single,
            self.all_to_all, self.ring, self.batch, self.objects, self.coalesced, self.pending, self.pending,
            self.barrier, self.new_group, self.any_source,
        ]  # fmt: skip
        for self.step in range(seed * 1000, seed * 1000 + steps):
            kind = self.draw.choice(kinds)
            group, ranks = self.draw.choice(self.groups)
            form = self.draw.choice(FORMS)
            before = self.draw.getstate()
            state = random.Random(f"{seed}/{self.step}")
            self.draw = state
            if self.dist.get_rank() in ranks:
                try:
                    kind(group, ranks, form)
                except Exception as error:
                    said = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
                    self.told[self.step] = f"{kind.__name__} raises {said}"
            elif kind == self.new_group:
                kind(group, ranks, form)
            self.draw = random.Random()
            self.draw.setstate(before)

    def tensor(self, form: str, small: bool = False, dtype: str | None = None) -> tuple[Any, Any, str]:
        kind, shape = dtype or self.draw.choice(DTYPES), self.draw.choice(SHAPES)
        t, base = self.shaped(self.values(shape, kind, self.dist.get_rank(), small), form)
        return t, base, kind

    def op(self, dtype: str) -> tuple[str, Any]:
        names = ["SUM", "PRODUCT", "MIN", "MAX"]
        if dtype in ("int64", "int32", "uint8", "int8", "bool"):
            names += ["BAND", "BOR", "BXOR"]
        name = "SUM" if dtype.startswith("complex") else self.draw.choice(names)
        return name, getattr(self.dist.ReduceOp, name)

    def refuse_in_torch(self, when: bool, why: str) -> None:
        """Raise where PyTorch 2.13 with gloo does not support a call."""
        if when and self.torch.__name__ == "torch":
            raise RuntimeError(why)

    def all_reduce(self, group: Any, ranks: list[int], form: str) -> None:
        kind = self.draw.choice(DTYPES)
        name, op = self.op(kind)
        t, base, _ = self.tensor(form, name == "PRODUCT", kind)
        self.dist.all_reduce(t, op, group=group)
        self.tell(f"all_reduce {name}", t, base=base)

    def broadcast(self, group: Any, ranks: list[int], form: str) -> None:
        src = self.draw.choice(ranks)
        t, base, _ = self.tensor(form)
        self.dist.broadcast(t, src, group=group)
        self.tell("broadcast", t, base=base)

    def reduce(self, group: Any, ranks: list[int], form: str) -> None:
        kind = self.draw.choice(DTYPES)
        name, op = self.op(kind)
        t, base, _ = self.tensor(form, name == "PRODUCT", kind)
        dst = self.draw.choice(ranks)
        self.dist.reduce(t, dst, op, group=group)
        if self.dist.get_rank() == dst:  # gloo leaves partial sums on other ranks
            self.tell(f"reduce {name}", t, base=base)

    def all_gather(self, group: Any, ranks: list[int], form: str) -> None:
        t, _, _ = self.tensor(form)
        to = [self.torch.zeros(t.shape, dtype=t.dtype) for _ in ranks]
        self.dist.all_gather(to, t, group=group)
        self.tell("all_gather", *to)

    def into_tensor(self, group: Any, ranks: list[int], form: str) -> None:
        t, _, _ = self.tensor(form)
        shape = t.shape if t.ndim else (1,)
        shape = (len(ranks) * shape[0], *shape[1:])
        to = self.torch.zeros(shape, dtype=t.dtype)
        self.dist.all_gather_into_tensor(to, t, group=group)
        self.tell("all_gather_into_tensor", to)

    def gather(self, group: Any, ranks: list[int], form: str) -> None:
        t, _, kind = self.tensor(form)
        self.refuse_in_torch(kind == "complex64", "the root alone fails")
        dst = self.draw.choice(ranks)
        to = [self.torch.zeros(t.shape, dtype=t.dtype) for _ in ranks] if self.dist.get_rank() == dst else None
        self.dist.gather(t, to, dst, group=group)
        self.tell("gather", *(to or ()))

    def scatter(self, group: Any, ranks: list[int], form: str) -> None:
        t, base, _ = self.tensor(form)
        src = self.draw.choice(ranks)
        given = [(t * 0 + r).to(t.dtype) for r in ranks] if self.dist.get_rank() == src else None
        self.dist.scatter(t, given, src, group=group)
        self.tell("scatter", t, base=base)

    def reduce_scatter(self, group: Any, ranks: list[int], form: str) -> None:
        t, base, _ = self.tensor(form)
        self.dist.reduce_scatter(t, [t.clone() for _ in ranks], group=group)
        self.tell("reduce_scatter", t, base=base)

    def reduce_scatter_tensor(self, group: Any, ranks: list[int], form: str) -> None:
        t, base, _ = self.tensor(form)
        self.refuse_in_torch(not t.ndim or not t.numel(), "crashes")
        self.dist.reduce_scatter_tensor(t, self.torch.cat([t.reshape(t.shape or (1,))] * len(ranks)), group=group)
        self.tell("reduce_scatter_tensor", t, base=base)

    def all_to_all_single(self, group: Any, ranks: list[int], form: str) -> None:
        me, count = ranks.index(self.dist.get_rank()), len(ranks)
        sizes = [[self.draw.randint(0, 3) for _ in ranks] for _ in ranks]
        kind, width = self.draw.choice(DTYPES), self.draw.choice([(), (2,), (0,)])
        if self.draw.random() < 0.4:
            t, _ = self.shaped(self.values((2 * count, *width), kind, self.dist.get_rank()), form)
            to = self.torch.zeros(t.shape, dtype=t.dtype)
            self.dist.all_to_all_single(to, t, group=group)
        else:
            t, _ = self.shaped(self.values((sum(sizes[me]), *width), kind, self.dist.get_rank()), form)
            into = [row[me] for row in sizes]
            to = self.torch.zeros((sum(into), *width), dtype=t.dtype)
            self.dist.all_to_all_single(to, t, into, sizes[me], group=group)
        self.tell("all_to_all_single", to)

    def all_to_all(self, group: Any, ranks: list[int], form: str) -> None:
        me = ranks.index(self.dist.get_rank())
        sizes = [[self.draw.randint(0, 3)] * len(ranks)] * len(ranks)
        kind = self.draw.choice(DTYPES)
        given = [self.values((n,), kind, self.dist.get_rank()) for n in sizes[me]]
        to = [self.torch.zeros((row[me],), dtype=given[0].dtype) for row in sizes]
        self.dist.all_to_all(to, given, group=group)
        self.tell("all_to_all", *to)

    def ring(self, group: Any, ranks: list[int], form: str) -> None:
        """To the right and from the left; several messages, in order, by tags or not."""
        if len(ranks) < 2:
            return
        at, count = ranks.index(self.dist.get_rank()), self.draw.randint(1, 3)
        right, left = ranks[(at + 1) % len(ranks)], ranks[at - 1]
        mine = [self.tensor(form, dtype=self.draw.choice(DTYPES)) for _ in range(count)]
        to = [(self.torch.zeros(t.shape, dtype=t.dtype)) for t, _, _ in mine]
        one, blocking = self.draw.random() < 0.5, self.draw.random() < 0.5
        tags = [10 + (0 if one else k) for k in range(count)]
        works = [self.dist.isend(t, right, group=group, tag=tag) for tag, (t, _, _) in zip(tags, mine, strict=True)]
        order = list(range(count))
        if not one or not blocking:
            self.draw.shuffle(order)
        if blocking:
            for k in order:
                self.dist.recv(to[k], left, group=group, tag=tags[k])
        else:
            asked = [self.dist.irecv(x, left, group=group, tag=tag) for tag, x in zip(tags, to, strict=True)]
            for k in order:
                asked[k].wait()
        for work in reversed(works):
            work.wait()
        self.tell("ring", *to)

    def batch(self, group: Any, ranks: list[int], form: str) -> None:
        if len(ranks) < 2 or group is not None:
            return
        at = ranks.index(self.dist.get_rank())
        t, _, _ = self.tensor("plain")
        to = [self.torch.zeros(t.shape, dtype=t.dtype) for _ in range(2)]
        P = self.dist.P2POp
        right, left = ranks[(at + 1) % len(ranks)], ranks[at - 1]
        calls = [P(self.dist.isend, t, right), P(self.dist.irecv, to[0], left)]
        if len(ranks) > 2:
            calls += [P(self.dist.isend, t, left), P(self.dist.irecv, to[1], right)]
        for work in self.dist.batch_isend_irecv(calls):
            work.wait()
        self.tell("batch", *to)

    def any_source(self, group: Any, ranks: list[int], form: str) -> None:
        if len(ranks) < 2 or group is not None:
            return
        sender, receiver = self.draw.sample(ranks, 2)
        t, _, _ = self.tensor("plain")
        self.refuse_in_torch(not t.numel(), "a message of no bytes never comes from anywhere")
        if self.dist.get_rank() == sender:
            self.dist.send(t, receiver, tag=99)
        elif self.dist.get_rank() == receiver:
            found = self.dist.recv(t, tag=99)
            self.tell("any_source", t, found)

    def objects(self, group: Any, ranks: list[int], form: str) -> None:
        rank, src = self.dist.get_rank(), self.draw.choice(ranks)
        which = self.draw.randint(0, 3)
        value = {"rank": rank, "list": [rank] * self.draw.randint(0, 3), "text": "x" * rank, "none": None}
        if which == 0:
            to: list[Any] = [None] * len(ranks)
            self.dist.all_gather_object(to, value, group=group)
        elif which == 1:
            to = [value, (rank, 2)]
            self.dist.broadcast_object_list(to, src, group=group)
        elif which == 2:
            to = [None] * len(ranks)
            self.dist.gather_object(value, to if rank == src else None, src, group=group)
        else:
            to = [None]
            self.dist.scatter_object_list(to, [(rank, r) for r in ranks] if rank == src else None, src, group=group)
        self.tell(f"objects {which}", to)

    def coalesced(self, group: Any, ranks: list[int], form: str) -> None:
        kind = self.draw.choice(DTYPES)
        given = [self.tensor("plain", dtype=kind)[0] for _ in range(self.draw.randint(1, 4))]
        self.dist.all_reduce_coalesced(given, group=group)
        self.tell("coalesced", *given)

    def pending(self, group: Any, ranks: list[int], form: str) -> None:
        """Several operations under way, waited for in any order."""
        works, held = [], []
        for _ in range(self.draw.randint(2, 5)):
            t, _, _ = self.tensor(form)
            which = self.draw.randint(0, 2)
            if which == 0:
                works.append(self.dist.all_reduce(t, group=group, async_op=True))
            elif which == 1:
                works.append(self.dist.broadcast(t, self.draw.choice(ranks), group=group, async_op=True))
            else:
                to = [self.torch.zeros(t.shape, dtype=t.dtype) for _ in ranks]
                works.append(self.dist.all_gather(to, t, group=group, async_op=True))
                held += to
            held.append(t)
        order = list(range(len(works)))
        self.draw.shuffle(order)
        for k in order:
            works[k].wait()
        self.tell("pending", *held)

    def barrier(self, group: Any, ranks: list[int], form: str) -> None:
        self.dist.barrier(group=group)
        self.tell("barrier")

    def new_group(self, group: Any, ranks: list[int], form: str) -> None:
        if len(self.groups) > 4:
            return
        size = self.dist.get_world_size()
        found = self.draw.sample(range(size), self.draw.randint(1, size))
        made = self.dist.new_group(found)
        self.groups.append((made, sorted(found)))
        inside = self.dist.get_rank() in found
        self.tell("new_group", *((self.dist.get_rank(made), self.dist.get_world_size(made)) if inside else ()))


def run(library: str, first: int, count: int, steps: int) -> None:
    """Run as one process: print the result of each program, as lines of JSON."""
    torch, dist = importlib.import_module(library), importlib.import_module(f"{library}.distributed")
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0, timedelta(seconds=60))
    for seed in range(first, first + count):
        here = dist.PrefixStore(f"program {seed}", store)
        dist.init_process_group("gloo", store=here, rank=rank, world_size=size, timeout=timedelta(seconds=100))
        faulthandler.dump_traceback_later(90)  # a program that hangs shows where
        player = Player(torch, dist)
        player.program(seed, steps)
        print("PROGRAM", json.dumps([seed, player.told]), flush=True)
        dist.barrier()
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()


def compared(size: int, first: int, count: int, steps: int) -> int:
    """Print the programs that differ, and return their number."""
    found = {}
    for library in ("torch", "tracecomp"):
        ended = gang(
            size,
            "-m",
            "tests.fuzz.collectives",
            "--run",
            library,
            "--first",
            str(first),
            "--count",
            str(count),
            "--steps",
            str(steps),
            seconds=300,
        )
        found[library] = [
            dict(json.loads(line[8:]) for line in e.text.splitlines() if line.startswith("PROGRAM ")) for e in ended
        ]
        for rank, e in enumerate(ended):
            if e.status:
                print(f"{library}, rank {rank} ended with {e.status}: {e.text[-1500:]}")
    wrong = 0
    for rank in range(size):
        for seed in range(first, first + count):
            theirs, ours = (found[name][rank].get(seed) for name in ("torch", "tracecomp"))
            if theirs is None or ours is None:
                print(f"seed {seed}, rank {rank}: not run by {'torch' if theirs is None else 'tracecomp'}")
                wrong += 1
                continue
            for step, text in theirs.items():
                if text != ours.get(step) and " raises " not in text:
                    print(
                        f"call {step}, rank {rank} of {size}\n  torch: {text[:600]}\n  here:  {ours.get(step)!s:.600}"
                    )
                    wrong += 1
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", help="the library of this process")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--size", type=int, default=3)
    given = parser.parse_args()
    if given.run:
        run(given.run, given.first, given.count, given.steps)
        return 0
    wrong = compared(given.size, given.first, given.count, given.steps)
    print(f"{given.count} programs of {given.steps} calls in {given.size} processes: {wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
