"""Random programs of collectives (``collective_programs.py``), in several processes and in a model of them in one.

``python -m tests.fuzz.compiled_collectives [--size N] [--first SEED] [--count N] [--disagree]``. Every process runs a
program eagerly and compiled, several times with other numbers. Ranks record at different times, take different branches
and drop different results. Their tensors must equal those of the model, computed with PyTorch. With ``--disagree`` one
rank calls one collective differently: all members must raise an error that says so in time.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.distributed.gangs import gang
from tests.fuzz.collective_programs import Here, Line, Model, Pool, Program, Writer

CALLS, LIMIT = 4, 10.0

# ---- running


def seen(pool: Pool, rank: int) -> Pool:
    """Return the function's results: other ranks drop some tensors, but not those that lead to gradients."""
    return [t for k, t in enumerate(pool) if t.requires_grad or (k + rank) % 3]


def values(torch: Any, program: Program, seed: int, call: int, rank: int) -> Pool:
    """Return the arguments of ``rank`` in one call."""
    draw, found = random.Random(f"{seed}/{call}/{rank}"), list[Any]()
    for v in program.inputs:
        count = 1
        for extent in v.shape:
            count *= extent
        numbers = torch.tensor([draw.randint(-4, 3) for _ in range(count)], dtype=torch.int64)
        t = numbers.reshape(v.shape).to(getattr(torch, v.dtype))
        found.append(t.requires_grad_() if v.grad else t)
    return found


def number_of(seed: int, call: int, rank: int) -> int:
    """Return a number that decides when a rank records again: other ranks record at other times."""
    return random.Random(f"{seed}/{call}/{rank}/number").choice([2, 2, 3])


def loss_of(torch: Any, pool: Pool) -> Any:
    """One number of all tensors that depend on what requires grad."""
    parts = [(t * (1 + k % 3)).sum() for k, t in enumerate(t for t in pool if t.requires_grad)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def plain(pool: Pool, inputs: Pool) -> list[Any]:
    return [t.detach().double().tolist() for t in pool] + [
        t.grad.tolist() if t.requires_grad and t.grad is not None else None for t in inputs
    ]


def modelled(seed: int, size: int, count: int) -> list[list[Any]]:
    """Return the expected results of each rank, call by call."""
    torch = importlib.import_module("torch")
    program = Writer(seed, size).program(count)
    found: list[list[Any]] = [[] for _ in range(size)]
    for call in range(CALLS):
        inputs = [values(torch, program, seed, call, rank) for rank in range(size)]
        numbers = [number_of(seed, call, rank) for rank in range(size)]
        pools = Model(torch, program.groups).run(program, inputs, numbers)
        if any(v.grad for v in program.inputs):
            sum((loss_of(torch, pool) for pool in pools[1:]), loss_of(torch, pools[0])).backward()
        for rank in range(size):
            found[rank].append(plain(seen(pools[rank], rank), inputs[rank]))
    return found


def bent(program: Program, draw: random.Random) -> tuple[Program, Line, str]:
    """Return the program that one rank runs differently, the collective in question, and the change."""
    places = [
        k for k, s in enumerate(program.lines) if s.kind in ("all_reduce", "broadcast", "all_gather", "gather_into")
    ]
    k = draw.choice(places)
    line, how = program.lines[k], draw.choice(["left out", "another kind", "another tensor", "twice"])
    lines = [*program.lines]
    if how == "left out":
        lines[k : k + 1] = []
    elif how == "twice":
        lines[k : k + 1] = [line, line]
    else:
        lines[k] = replace(line, kind="odd " + how)
    return replace(program, lines=lines), line, how


class Bent(Here):
    """A process that runs lines of which one is not what the others run."""

    def run(self, program: Program, inputs: Pool, number: int) -> Pool:
        for line in program.lines:
            if line.kind.startswith("odd"):
                setattr(self, line.kind, self.odd)
        return super().run(program, inputs, number)

    def odd(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        if line.kind == "odd another kind":
            self.dist.reduce_scatter_tensor(self.torch.zeros_like(x), self.torch.cat([x] * size), group=group)
        else:
            self.dist.all_reduce(self.torch.zeros(17, dtype=self.torch.int8), group=group)


def called(torch: Any, here: Here, program: Program, compiled: bool, seed: int, rank: int) -> list[Any]:
    """Return the results of each call of the function."""
    with_grad = any(v.grad for v in program.inputs)

    def step(number: int, *inputs: Any) -> Pool:
        pool = here.run(program, [*inputs], number)
        if with_grad and program.inside:
            loss_of(torch, pool).backward()
        return seen(pool, rank)

    run, found = torch.compile(step) if compiled else step, []
    for call in range(CALLS):
        inputs = values(torch, program, seed, call, rank)
        pool = run(number_of(seed, call, rank), *inputs)
        if with_grad and not program.inside:
            loss_of(torch, pool).backward()
        found.append(plain(pool, inputs))
    return found


def child(first: int, count: int, steps: int, disagree: bool) -> None:
    """Run as one process: print the result of each program, as lines of JSON."""
    torch, dist = importlib.import_module("tracecomp"), importlib.import_module("tracecomp.distributed")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0, timedelta(seconds=60))
    for seed in range(first, first + count):
        for compiled in (False, True):
            here = dist.PrefixStore(f"{seed}/{compiled}", store)
            dist.init_process_group("gloo", store=here, rank=rank, world_size=size, timeout=timedelta(seconds=60))
            faulthandler.dump_traceback_later(80)  # a program that hangs shows where
            writer = Writer(seed, size)
            program = writer.program(steps)
            groups = [None, *(dist.new_group(ranks) for ranks in program.groups[1:])]
            if disagree:
                disagreed(torch, dist, program, groups, compiled, seed, rank)
            else:
                player = Here(torch, dist, rank, groups, program.groups)
                found = called(torch, player, program, compiled, seed, rank)
                print("PROGRAM", json.dumps([seed, compiled, found]), flush=True)
                dist.barrier()
            store.add(f"done {seed}/{compiled}", 1)
            while store.add(f"done {seed}/{compiled}", 0) < size:
                time.sleep(0.01)
            if dist.is_initialized():
                dist.destroy_process_group()
            faulthandler.cancel_dump_traceback_later()
    store.add("left", 1)
    while rank == 0 and store.add("left", 0) < size:  # it serves the store
        time.sleep(0.01)


def disagreed(
    torch: Any, dist: Any, program: Program, groups: Sequence[Any], compiled: bool, seed: int, rank: int
) -> None:  # fmt: skip
    """Check the error of each process when one rank differs."""
    draw = random.Random(seed)
    if not any(s.kind in ("all_reduce", "broadcast", "all_gather", "gather_into") for s in program.lines):
        print("PROGRAM", json.dumps([seed, compiled, None]), flush=True)
        return
    other, line, how = bent(program, draw)
    members = program.groups[line.group]
    odd = draw.choice(members)
    player = (Bent if rank == odd else Here)(torch, dist, rank, groups, program.groups)
    begin, said = time.monotonic(), ""
    try:
        called(torch, player, other if rank == odd else program, compiled, seed, rank)
        dist.barrier(group=groups[line.group]) if rank in members else None
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        dist.destroy_process_group()  # as a process that ends of it: others wait no longer
    took = time.monotonic() - begin
    print("PROGRAM", json.dumps([seed, compiled, [how, line.kind, odd, members, said[:300], took]]), flush=True)


def lines_of(size: int, first: int, count: int, steps: int, *more: str) -> list[dict[tuple[int, bool], Any]]:
    """Return the output of each process for each program."""
    command = ["-m", "tests.fuzz.compiled_collectives", "--run", "--first", str(first), "--count", str(count)]
    ended = gang(size, *command, "--steps", str(steps), *more, seconds=60 + 40.0 * count)
    told = []
    for rank, e in enumerate(ended):
        if e.status:
            print(f"rank {rank} ended with {e.status}: {e.text[-2500:]}")
        rows = [json.loads(text[8:]) for text in e.text.splitlines() if text.startswith("PROGRAM ")]
        told.append({(seed, compiled): found for seed, compiled, found in rows})
    return told


def differences(size: int, first: int, count: int, steps: int) -> list[str]:
    """Programs whose results differ from the model's."""
    wrong, told = [], lines_of(size, first, count, steps)
    for seed in range(first, first + count):
        expected = modelled(seed, size, steps)
        for rank in range(size):
            for compiled in (False, True):
                found = told[rank].get((seed, compiled))
                if found != expected[rank]:
                    how = "compiled" if compiled else "eager"
                    wrong.append(f"seed {seed}, rank {rank} of {size}, {how}: {place(found, expected[rank])}")
    return wrong


def place(found: list[Any] | None, expected: list[Any]) -> str:
    """Return the first place where results differ."""
    if found is None:
        return "not run"
    for call, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
        for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            if a != b:
                return f"call {call}, tensor {k} of {len(theirs)}: expected {a!s:.200}, got {b!s:.200}"
    return "nowhere"


def unnamed(size: int, first: int, count: int, steps: int) -> list[str]:
    """Programs in which one rank did otherwise and a member of the group was not told so in time."""
    wrong, told = [], lines_of(size, first, count, steps, "--disagree")
    for seed in range(first, first + count):
        for compiled in (False, True):
            for rank in range(size):
                found = told[rank].get((seed, compiled), "not run")
                if found is None:
                    continue
                if found == "not run":
                    wrong.append(f"seed {seed}, rank {rank} of {size}, compiled {compiled}: not run")
                    continue
                how, kind, odd, members, said, took = found
                if rank in members and ("disagree" not in said or took > LIMIT + 20):
                    wrong.append(
                        f"seed {seed}, rank {rank} of {size}, compiled {compiled}: {kind} {how} on {odd} of {members}: "
                        f"{said!r} after {took:.1f} s"
                    )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true", help="as a process of several")
    parser.add_argument("--disagree", action="store_true")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--size", type=int, default=3)
    given = parser.parse_args()
    if given.run:
        child(given.first, given.count, given.steps, given.disagree)
        return 0
    find = unnamed if given.disagree else differences
    wrong = find(given.size, given.first, given.count, given.steps)
    print(*wrong, sep="\n")
    print(f"{given.count} programs in {given.size} processes: {len(wrong)} differences")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
