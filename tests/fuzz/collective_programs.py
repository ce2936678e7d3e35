"""Random programs of collectives and arithmetic, drawn from a seed, and what runs them.

A program is lines on a pool of tensors: arithmetic, and collectives (in place, on views, asynchronous, with
derivatives) on all processes and on sub-groups. ``Here`` runs it in one process of several. ``Model`` runs it for all
ranks in one process: a collective is plain arithmetic on a list of tensors, so autograd gives its gradients. All values
are small integers in floats, whose sums are exact.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

DTYPES = ("float64", "float64", "float32", "int64", "int32", "bfloat16")
Pool = list[Any]


@dataclass(frozen=True)
class Var:
    """Facts about a tensor of the pool that are known before the program runs."""

    shape: tuple[int, ...]
    dtype: str
    grad: bool = False  # whether it depends on what requires grad


@dataclass(frozen=True)
class Line:
    """One line of a program: ``kind`` of the tensors ``at``; of the group ``group``, if it is a collective."""

    kind: str
    at: tuple[int, ...]
    group: int = -1
    more: Any = None


@dataclass(frozen=True)
class Program:
    groups: list[list[int]]
    inputs: list[Var]
    lines: list[Line]
    inside: bool  # whether the backward pass belongs to the function


# ---- drawing


class Writer:
    """Draws a program for ``size`` processes."""

    def __init__(self, seed: int, size: int) -> None:
        self.draw, self.size = random.Random(seed), size
        more = [
            sorted(self.draw.sample(range(size), self.draw.randint(2, size))) for _ in range(self.draw.randint(0, 2))
        ]
        self.groups = [list(range(size)), *more]
        with_grad = self.draw.random() < 0.6
        self.pool = [
            Var(self._shape(), "float64" if with_grad and i < 2 else self.draw.choice(DTYPES), with_grad and i < 2)
            for i in range(4)
        ]
        self.inputs, self.lines = [*self.pool], list[Line]()

    def _shape(self) -> tuple[int, ...]:
        if self.draw.random() < 0.1:
            return (3000,)
        return tuple(self.draw.randint(1, 4) for _ in range(self.draw.randint(1, 3)))

    def program(self, count: int) -> Program:
        kinds = [*ARITHMETIC, *COLLECTIVES, *COLLECTIVES]
        while len(self.lines) < count:
            kind = self.draw.choice(kinds)
            getattr(self, f"_{kind}", self._one)(kind)
        return Program(self.groups, self.inputs, self.lines, self.draw.random() < 0.7)

    def _add(self, line: Line, *made: Var) -> None:
        self.lines.append(line)
        self.pool += made

    def _pick(self, grad: bool | None = None) -> int:
        known = [i for i, v in enumerate(self.pool) if grad is None or v.grad == grad]
        return self.draw.choice(known)

    def _one(self, kind: str) -> None:
        """Elementwise, of one tensor."""
        i = self._pick()
        self._add(Line(kind, (i,), more=self.draw.randint(2, 3)), self.pool[i])

    def _both(self, kind: str) -> None:
        i = self._pick()
        same = [k for k, v in enumerate(self.pool) if v.shape == self.pool[i].shape and v.dtype == self.pool[i].dtype]
        k = self.draw.choice(same)
        self._add(Line(kind, (i, k)), replace(self.pool[i], grad=self.pool[i].grad or self.pool[k].grad))

    _plus = _times = _both

    def _turn(self, kind: str) -> None:
        i = self._pick()
        self._add(Line(kind, (i,)), replace(self.pool[i], shape=self.pool[i].shape[::-1]))

    def _total(self, kind: str) -> None:
        i = self._pick()
        if len(self.pool[i].shape) > 1:
            self._add(Line(kind, (i,)), replace(self.pool[i], shape=self.pool[i].shape[1:]))

    def _constant(self, kind: str) -> None:
        """Add values that depend on no tensor; numbers differ from rank to rank."""
        i = self._pick()
        self._add(Line(kind, (i,)), replace(self.pool[i], grad=False))

    def _write(self, kind: str) -> None:
        """In place."""
        i = self._pick(False)
        self._add(Line(kind, (i,)))

    def _group(self) -> int:
        return self.draw.randrange(len(self.groups))

    def _in_place(self, kind: str) -> None:
        i, group = self._pick(False), self._group()
        row = bool(self.pool[i].shape[0] > 1 and self.draw.random() < 0.4)
        root = self.draw.choice(self.groups[group])
        op = self.draw.choice(["SUM", "SUM", "MAX", "MIN"])
        wait = self.draw.choice(["at once", "late", "late", "never"])
        self._add(Line(kind, (i,), group, {"row": row, "root": root, "op": op, "async": wait == "late"}))

    _all_reduce = _broadcast = _in_place

    def _gathered(self, kind: str) -> None:
        i, group = self._pick(False), self._group()
        self._add(Line(kind, (i,), group), *[self.pool[i]] * len(self.groups[group]))

    _all_gather = _all_to_all = _gathered

    def _into(self, kind: str) -> None:
        i, group = self._pick(False), self._group()
        shape = self.pool[i].shape
        self._add(
            Line(kind, (i,), group), replace(self.pool[i], shape=(shape[0] * len(self.groups[group]), *shape[1:]))
        )

    _gather_into = _into

    def _scattered(self, kind: str) -> None:
        i, group = self._pick(False), self._group()
        self._add(Line(kind, (i,), group), self.pool[i])

    def _reduce_scatter(self, kind: str) -> None:
        self._scattered(kind)

    def _differentiable(self, kind: str) -> None:
        if not any(v.grad for v in self.pool):
            return
        i, group = self._pick(True), self._group()
        v, root = self.pool[i], self.draw.choice(self.groups[group])
        count = len(self.groups[group]) if kind == "f_all_gather" else 1
        self._add(Line(kind, (i,), group, {"root": root}), *[v] * count)

    _f_all_reduce = _f_broadcast = _f_all_gather = _f_reduce_scatter = _differentiable

    def _ring(self, kind: str) -> None:
        self._scattered(kind)

    def _reduce(self, kind: str) -> None:
        i, group = self._pick(False), self._group()
        self._add(Line(kind, (i,), group, {"root": self.draw.choice(self.groups[group])}))

    _scatter = _reduce


# ---- arithmetic, which is the same in the model


def small(x: Any) -> Any:
    """Integers between -4 and 3, whose derivative is 1."""
    return x.remainder(8) - 4


def written(pool: Pool, line: Line, number: int) -> None:
    pool[line.at[0]].mul_(3).remainder_(5)


def branched(pool: Pool, line: Line, number: int) -> None:
    """Add lines that some ranks run and others do not."""
    x = pool[line.at[0]]
    pool.append(small(x * 3) if x.detach().sum() > 0 else small(x + 1))


ARITHMETIC: dict[str, Callable[[Pool, Line, int], Any]] = {
    "plus": lambda p, s, n: p.append(small(p[s.at[0]] + p[s.at[1]])),
    "times": lambda p, s, n: p.append(small(p[s.at[0]] * p[s.at[1]])),
    "scale": lambda p, s, n: p.append(small(p[s.at[0]] * s.more)),
    "relu": lambda p, s, n: p.append(small(p[s.at[0]].relu() + 1)),
    "turn": lambda p, s, n: p.append(p[s.at[0]].permute(*range(p[s.at[0]].ndim - 1, -1, -1)).clone()),
    "total": lambda p, s, n: p.append(small(p[s.at[0]].sum(0).to(p[s.at[0]].dtype))),
    "write": written,
    "number": lambda p, s, n: p.append(small(p[s.at[0]] * n)),
    "branch": branched,
    "constant": lambda p, s, n: p.append(p[s.at[0]].detach().new_full(tuple(p[s.at[0]].shape), n)),
}


# ---- collectives, in one process of several


class Here:
    """Runs lines in this process."""

    def __init__(self, torch: Any, dist: Any, rank: int, groups: Sequence[Any], lists: Sequence[list[int]]) -> None:
        self.torch, self.dist, self.rank, self.groups, self.lists = torch, dist, rank, groups, lists
        self.f = importlib.import_module(f"{dist.__name__}.nn.functional")

    def run(self, program: Program, inputs: Pool, number: int) -> Pool:
        pool, works = [*inputs], list[tuple[int, Any]]()
        for line in program.lines:
            for _, work in [w for w in works if w[0] in line.at]:
                work.wait()
            works = [w for w in works if w[0] not in line.at]
            if line.kind in ARITHMETIC:
                ARITHMETIC[line.kind](pool, line, number)
            elif self.rank in self.lists[line.group]:
                work = getattr(self, line.kind)(pool, line, self.groups[line.group], len(self.lists[line.group]))
                works += [(line.at[0], work)] if work is not None else []
            else:
                left_out(pool, line, len(self.lists[line.group]))
        for _, work in works:
            work.wait()
        return pool

    def all_reduce(self, pool: Pool, line: Line, group: Any, size: int) -> Any:
        x = pool[line.at[0]]
        op = getattr(self.dist.ReduceOp, line.more["op"])
        return self.dist.all_reduce(x[1] if line.more["row"] else x, op, group, line.more["async"])

    def broadcast(self, pool: Pool, line: Line, group: Any, size: int) -> Any:
        x = pool[line.at[0]]
        return self.dist.broadcast(x[1] if line.more["row"] else x, line.more["root"], group, line.more["async"])

    def all_gather(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        to = [self.torch.zeros_like(pool[line.at[0]]) for _ in range(size)]
        self.dist.all_gather(to, pool[line.at[0]], group)
        pool += to

    def all_to_all(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        to = [self.torch.zeros_like(x) for _ in range(size)]
        self.dist.all_to_all(to, [small(x + k) for k in range(size)], group)
        pool += to

    def gather_into(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        to = self.torch.zeros((size * x.shape[0], *x.shape[1:]), dtype=x.dtype)
        self.dist.all_gather_into_tensor(to, x, group)
        pool.append(to)

    def reduce_scatter(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        to = self.torch.zeros_like(x)
        self.dist.reduce_scatter_tensor(to, self.torch.cat([small(x + k) for k in range(size)]), group=group)
        pool.append(small(to))

    def f_all_reduce(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        pool.append(small(self.f.all_reduce(pool[line.at[0]] * 1, group=group)))

    def f_broadcast(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        pool.append(self.f.broadcast(pool[line.at[0]] * 1, line.more["root"], group) * 1)

    def f_all_gather(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        pool += [t * 1 for t in self.f.all_gather(pool[line.at[0]] * 1, group)]

    def f_reduce_scatter(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        given = [small(x * (k + 1)) for k in range(size)]
        pool.append(small(self.f.reduce_scatter(self.torch.zeros_like(x), given, group=group)))

    def ring(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x, ranks = pool[line.at[0]], self.lists[line.group]
        at, to = ranks.index(self.rank), self.torch.zeros_like(x)
        sent = self.dist.isend(x, ranks[(at + 1) % size], group)
        self.dist.recv(to, ranks[at - 1], group)
        sent.wait()
        pool.append(to)

    def reduce(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]].clone()
        self.dist.reduce(x, line.more["root"], group=group)
        if self.rank == line.more["root"]:
            pool[line.at[0]].copy_(x)

    def scatter(self, pool: Pool, line: Line, group: Any, size: int) -> None:
        x = pool[line.at[0]]
        given = [small(x + k) for k in range(size)] if self.rank == line.more["root"] else None
        to = self.torch.zeros_like(x)
        self.dist.scatter(to, given, line.more["root"], group)
        x.copy_(to)


def left_out(pool: Pool, line: Line, size: int) -> None:
    """Give a process outside of the group other values instead of results."""
    x = pool[line.at[0]]
    if line.kind in ("all_gather", "all_to_all", "f_all_gather"):
        pool += [x * 1 for _ in range(size)]
    elif line.kind == "gather_into":
        pool.append((x * 1).repeat(size, *[1] * (x.ndim - 1)))
    elif line.kind not in ("all_reduce", "broadcast", "reduce", "scatter"):
        pool.append(x * 1)


COLLECTIVES = tuple(name for name, value in vars(Here).items() if callable(value) and name not in ("__init__", "run"))


# ---- collectives, in the model


class Model:
    """Runs lines for all ranks in one process; ``pools[r]`` are the tensors of rank r."""

    def __init__(self, torch: Any, lists: Sequence[list[int]]) -> None:
        self.torch, self.lists = torch, lists

    def run(self, program: Program, inputs: Sequence[Pool], numbers: Sequence[int]) -> list[Pool]:
        pools = [[*own] for own in inputs]
        for line in program.lines:
            if line.kind in ARITHMETIC:
                for pool, number in zip(pools, numbers, strict=True):
                    ARITHMETIC[line.kind](pool, line, number)
                continue
            members = self.lists[line.group]
            for rank, pool in enumerate(pools):
                if rank not in members:
                    left_out(pool, line, len(members))
            getattr(self, line.kind)(
                [pools[r] for r in members], [pools[r][line.at[0]] for r in members], line, members
            )
        return pools

    def _total(self, tensors: Sequence[Any], op: str = "SUM") -> Any:
        found = tensors[0]
        for t in tensors[1:]:
            found = {"SUM": self.torch.add, "MAX": self.torch.maximum, "MIN": self.torch.minimum}[op](found, t)
        return found

    def _put(self, xs: Sequence[Any], line: Line, value: Callable[[Sequence[Any]], Any]) -> None:
        rows = [x[1] if line.more["row"] else x for x in xs]
        found = value([r.clone() for r in rows])
        for r in rows:
            r.copy_(found)

    def all_reduce(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        self._put(xs, line, lambda rows: self._total(rows, line.more["op"]))

    def broadcast(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        self._put(xs, line, lambda rows: rows[members.index(line.more["root"])])

    def all_gather(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for pool in pools:
            pool += [x.clone() for x in xs]

    f_all_gather = all_gather

    def all_to_all(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for k, pool in enumerate(pools):
            pool += [small(x + k) for x in xs]

    def gather_into(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for pool in pools:
            pool.append(self.torch.cat([*xs]))

    def reduce_scatter(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for k, pool in enumerate(pools):
            pool.append(small(self._total([small(x + k) for x in xs])))

    def f_all_reduce(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for pool in pools:
            pool.append(small(self._total(xs)))

    def f_broadcast(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for pool in pools:
            pool.append(xs[members.index(line.more["root"])].clone())

    def f_reduce_scatter(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for k, pool in enumerate(pools):
            pool.append(small(self._total([small(x * (k + 1)) for x in xs])))

    def ring(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        for k, pool in enumerate(pools):
            pool.append(xs[k - 1].clone())

    def reduce(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        xs[members.index(line.more["root"])].copy_(self._total([x.clone() for x in xs]))

    def scatter(self, pools: list[Pool], xs: Sequence[Any], line: Line, members: list[int]) -> None:
        source = xs[members.index(line.more["root"])].clone()
        for k, x in enumerate(xs):
            x.copy_(small(source + k))
