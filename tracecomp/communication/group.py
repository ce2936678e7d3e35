"""A group of processes, and its collectives on arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from tracecomp.communication import combine
from tracecomp.communication.call import Call
from tracecomp.communication.combine import Node, ReduceOp
from tracecomp.communication.messages import Array, Kind, Sending
from tracecomp.communication.messenger import Messenger, Place, Receiving
from tracecomp.communication.shared_memory import LARGEST, SharedMemory, meet
from tracecomp.communication.work import Worker

_SMALL = 1 << 13
"""Most bytes for which every process receives everything and computes a reduction alone."""


class Group:
    """The processes ``ranks``, in this order. All of them call the same collectives in the same order.

    Ranks in arguments of methods are group ranks. Collectives run at once, in the calling thread; ``worker`` serializes
    them with asynchronous ones; ``sender`` completes sends that are never waited for.
    """

    def __init__(
        self, messenger: Messenger, ranks: Sequence[int], number: int, seconds: float, backend: str, name: str
    ) -> None:
        self.messenger, self.ranks, self.number, self.seconds = messenger, tuple(ranks), number, seconds
        self.backend, self.group_name, self.group_desc = backend, name, "undefined"
        self.place = self.ranks.index(messenger.rank)
        self.worker, self.sender = Worker(f"tracecomp group {name}"), Worker(f"tracecomp sender {name}")
        self._count = 0
        self._shared: SharedMemory | None = None
        self._on_one_machine = len(self.ranks) > 1  # as far as known

    def __repr__(self) -> str:
        how = self.messenger.transport.name
        return f"ProcessGroup({self.group_name!r}, rank {self.place} of {len(self.ranks)}, {self.backend} over {how})"

    def rank(self) -> int:
        """This process's group rank."""
        return self.place

    def size(self) -> int:
        """The number of processes of the group."""
        return len(self.ranks)

    def name(self) -> str:
        """The requested backend."""
        return self.backend

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time limit of later operations."""
        self.seconds = timeout.total_seconds()

    # ---- one collective

    def _enter(self, what: str, nbytes: int | None = None) -> Call:
        """Start the next collective; ``what`` must be the same text in all processes.

        It uses shared memory if no process publishes more than ``nbytes`` at once, the same number everywhere.
        """
        self._count += 1
        call = Call(self.messenger, self._count, self.at(what))
        if len(self.ranks) == 1:
            return call
        if nbytes is None or nbytes > LARGEST or not self._on_one_machine:
            call.compare()
        elif self._shared is not None and nbytes <= self._shared.capacity:
            call.shared = self._shared
        else:  # the first one, or a larger one than all earlier
            call.compare()
            call.shared = self._shared = meet(self.place, nbytes, lambda a: call.exchange([a] * self.size()))
            self._on_one_machine = self._shared is not None
        return call

    def barrier(self, what: str = "barrier()") -> None:
        """Return when all processes have called it, with the same ``what``."""
        call, empty, step = self._enter(what, 0), np.empty(0, np.uint8), 1
        if call.shared is not None:
            call.publish([])
            return
        while step < self.size():
            call.send((self.place + step) % self.size(), empty)
            call.receive((self.place - step) % self.size())
            step *= 2
        call.end()

    def broadcast(self, array: Array, root: int) -> Array:
        """Return the array of ``root``, along a binary tree; other arrays give shape and dtype."""
        call = self._enter(f"broadcast(from {self.ranks[root]}, {_type(array)})", array.nbytes)
        if call.shared is not None:
            call.publish([array] if self.place == root else [])
            return array if self.place == root else _like(array, call.published(root, array.nbytes)).copy()
        size, me = self.size(), (self.place - root) % self.size()
        step = 1
        while step < size:
            if step <= me < 2 * step:
                array = call.receive((self.place - step) % size).view(array.dtype).reshape(array.shape)
            elif me < step and me + step < size:
                call.send((self.place + step) % size, array)
            step *= 2
        call.end()
        return array

    def all_gather(self, array: Array) -> list[Array]:
        """Return the arrays of all processes, which have one shape and dtype."""
        call = self._enter(f"all_gather({_type(array)})", array.nbytes)
        if call.shared is not None:
            call.publish([array])
            return [_like(array, call.published(r, array.nbytes)).copy() for r in range(self.size())]
        return [_like(array, body) for body in call.exchange([array] * self.size())]

    def gather_bytes(self, array: Array, what: str) -> list[Array]:
        """Return the bytes of all processes, of any number each."""
        return self._enter(what).exchange([array] * self.size())

    def all_to_all(self, arrays: Sequence[Array], what: str) -> list[Array]:
        """Return the bytes that every process has for this one; ``arrays`` are those for every process."""
        return self._enter(what).exchange(arrays)

    def swap(self, arrays: Sequence[Array], likes: Sequence[Array]) -> list[Array]:
        """Return the array that every process has for this one; ``likes`` have shapes and dtypes.

        DistBackendError in all processes when one has another number of bytes for this one.
        """
        what = f"all_to_all({arrays[0].dtype.name})"
        call = self._enter(what)
        bodies = call.exchange(arrays)
        for rank, (body, like) in enumerate(zip(bodies, likes, strict=True)):
            if body.nbytes != like.nbytes:
                why = (
                    f"{what}: rank {self.ranks[rank]} sent {body.nbytes} bytes to rank {self.messenger.rank}, "
                    f"which expected {like.nbytes} bytes ({_type(like)})"
                )
                self.messenger.give_up(call.at, why)
        return [_like(like, body) for body, like in zip(bodies, likes, strict=True)]

    def gather(self, array: Array, root: int) -> list[Array]:
        """At ``root`` the arrays of all processes, elsewhere nothing."""
        call = self._enter(f"gather(to {self.ranks[root]}, {_type(array)})")
        found: list[Array] = []
        if self.place == root:
            found = [array if r == root else _like(array, call.receive(r)) for r in range(self.size())]
        else:
            call.send(root, array)
        call.end()
        return found

    def scatter(self, arrays: Sequence[Array], like: Array, root: int) -> Array:
        """Return the array that ``root`` has for this process; ``like`` has shape and dtype."""
        call = self._enter(f"scatter(from {self.ranks[root]}, {_type(like)})")
        if self.place != root:
            found = _like(like, call.receive(root))
        else:
            found = arrays[root]
            for r in range(self.size()):
                if r != root:
                    call.send(r, arrays[r])
        call.end()
        return found

    # ---- reductions

    def all_reduce(self, leaves: Sequence[Array], op: ReduceOp, total: int | None = None) -> Array:
        """``leaves`` of all processes combined along the tree over all ``total`` leaves, one per process by default.

        With more, a process has those of ``combine.share``, or has combined them to nodes of ``combine.parts``.
        """
        total = self.size() if total is None else total
        first = leaves[0]
        combine.check(op, first.dtype)
        what = f"all_reduce({op.name}, {_type(first)}{self._in_leaves(total)})"
        call = self._enter(what, first.nbytes * self._most_nodes(total))
        own = combine.share(total, self.place, self.size())
        known = _subtrees(op, leaves, own, total)
        if self.size() == 1:
            result = combine.evaluated(op, (0, total), known)
        elif call.shared is not None:
            return self._by_memory(call, op, known, first, total)
        elif first.nbytes <= _SMALL:
            bodies = call.exchange([_joined(known)] * self.size())
            result = self._evaluated(op, bodies, first.dtype, total).reshape(first.shape)
        else:
            result = self._by_pieces(call, op, known, first, total)
        result = combine.finished(op, result, total)
        return result.copy() if result is first else result

    def _by_memory(self, call: Call, op: ReduceOp, known: Mapping[Node, Array], like: Array, total: int) -> Array:
        """Every process reads what others have, and combines a piece of it; all of it if it is small."""
        call.publish([*known.values()])
        small = like.nbytes <= _SMALL
        cuts = self._cuts(like.size)
        low, high = (0, like.size) if small else cuts[self.place : self.place + 2]
        pieces: dict[Node, Array] = {}
        for rank in range(self.size()):
            nodes = combine.parts(total, combine.share(total, rank, self.size()))
            rows = call.published(rank, like.nbytes * len(nodes)).view(like.dtype).reshape(len(nodes), -1)
            pieces.update(zip(nodes, rows[:, low:high], strict=True))
        mine = combine.finished(op, combine.evaluated(op, (0, total), pieces), total)
        if small:
            return mine.reshape(like.shape)
        call.publish([mine])
        sizes = [(b - a) * like.itemsize for a, b in pairwise(cuts)]
        found = [call.published(r, size) for r, size in enumerate(sizes)]
        return np.concatenate(found).view(like.dtype).reshape(like.shape)

    def _cuts(self, size: int) -> list[int]:
        """The boundaries of the pieces that processes combine."""
        return [size * r // self.size() for r in range(self.size() + 1)]

    def _most_nodes(self, total: int) -> int:
        """Most nodes of the tree over leaves that a process has."""
        if total == self.size():
            return 1
        shares = (combine.share(total, r, self.size()) for r in range(self.size()))
        return max(len(combine.parts(total, own)) for own in shares)

    def _by_pieces(self, call: Call, op: ReduceOp, known: Mapping[Node, Array], like: Array, total: int) -> Array:
        """Every process combines one piece of the array, then all get all pieces."""
        cuts = self._cuts(like.size)
        flat = {node: value.reshape(-1) for node, value in known.items()}
        to = [_joined({n: v[a:b] for n, v in flat.items()}) for a, b in pairwise(cuts)]
        mine = self._evaluated(op, call.exchange(to, end=False), like.dtype, total)
        pieces = call.exchange([mine] * self.size())
        return np.concatenate([p.view(like.dtype) for p in pieces]).reshape(like.shape)

    def _evaluated(self, op: ReduceOp, bodies: Sequence[Array], dtype: np.dtype[Any], total: int) -> Array:
        """The root of the tree from the subtrees that each process has sent concatenated."""
        known: dict[Node, Array] = {}
        for rank, body in enumerate(bodies):
            nodes = combine.parts(total, combine.share(total, rank, self.size()))
            known.update(zip(nodes, body.view(dtype).reshape(len(nodes), -1), strict=True))
        return combine.evaluated(op, (0, total), known)

    def reduce(self, array: Array, op: ReduceOp, root: int) -> Array | None:
        """At ``root`` the arrays of all processes combined, elsewhere None."""
        combine.check(op, array.dtype)
        call = self._enter(f"reduce({op.name}, to {self.ranks[root]}, {_type(array)})")
        if self.place != root:
            call.send(root, array)
            call.end()
            return None
        arrays = [array if r == root else _like(array, call.receive(r)) for r in range(self.size())]
        call.end()
        return self._of_processes(op, arrays)

    def reduce_scatter(self, arrays: Sequence[Array], op: ReduceOp, total: int | None = None) -> Array:
        """The arrays that all processes have for this one combined, along the tree over all ``total`` leaves.

        ``arrays`` has, leaf by leaf or node by node, one array for every process. Leaves are distributed as in
        ``all_reduce``.
        """
        total = self.size() if total is None else total
        like = arrays[self.place]
        combine.check(op, like.dtype)
        types = ", ".join(map(_type, arrays[: self.size()]))
        nbytes = [a.nbytes for a in arrays[: self.size()]]
        call = self._enter(
            f"reduce_scatter({op.name}, {types}{self._in_leaves(total)})", sum(nbytes) * self._most_nodes(total)
        )
        own = combine.share(total, self.place, self.size())
        to = [_joined(_subtrees(op, arrays[r :: self.size()], own, total)) for r in range(self.size())]
        if call.shared is None:
            bodies: Sequence[Array] = call.exchange(to)
        else:
            call.publish(to)
            bodies = [self._scattered(call, nbytes, r, total) for r in range(self.size())]
        result = self._evaluated(op, bodies, like.dtype, total).reshape(like.shape)
        return combine.finished(op, result, total)

    def _scattered(self, call: Call, nbytes: Sequence[int], rank: int, total: int) -> Array:
        """The part that a process has published for this one, after the parts for earlier ranks."""
        count = len(combine.parts(total, combine.share(total, rank, self.size())))
        begin = sum(nbytes[: self.place]) * count
        return call.published(rank, sum(nbytes) * count)[begin : begin + nbytes[self.place] * count]

    def _in_leaves(self, total: int) -> str:
        return "" if total == self.size() else f" in {total} leaves"

    def _of_processes(self, op: ReduceOp, arrays: Sequence[Array]) -> Array:
        result = combine.evaluated(op, (0, self.size()), combine.of_leaves(arrays))
        return combine.finished(op, result, self.size())

    # ---- point to point

    def send(self, array: Array, to: int, tag: int) -> Sending:
        """Start to send to one process."""
        return self.messenger.send(self.ranks[to], Kind.POINT, self.number, tag, array)

    def ask(self, sources: Sequence[int], tag: int) -> Receiving:
        """Request the next message with ``tag`` of one of ``sources``."""
        return self.messenger.ask([self.ranks[s] for s in sources], Kind.POINT, self.number, tag)

    def received(self, asked: Receiving, tag: int, what: str, seconds: float | None = None) -> tuple[int, Array]:
        """Wait for the requested message: its sender and bytes."""
        message = self.messenger.received(asked, Kind.POINT, tag, self.at(what, seconds))
        return self.ranks.index(message.source), message.body

    def receive_within(self, sources: Sequence[int], tag: int, what: str, seconds: float, fatal: bool = True) -> None:
        """Wait for an empty message; an error ends the group only if it is ``fatal``."""
        self.messenger.receive_any([self.ranks[s] for s in sources], Kind.POINT, tag, self.at(what, seconds), fatal)

    def at(self, what: str, seconds: float | None = None) -> Place:
        """The context of a wait of this group, for errors."""
        limit = self.seconds if seconds is None else seconds
        return Place(self.number, self.ranks, what, time.monotonic() + limit, limit)


def _type(array: Array) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _like(array: Array, body: Array) -> Array:
    return body.view(array.dtype).reshape(array.shape)


def _subtrees(op: ReduceOp, leaves: Sequence[Array], own: Node, total: int) -> dict[Node, Array]:
    """The values that one process can combine alone: the largest nodes over its leaves. They may be given already."""
    nodes = combine.parts(total, own)
    if len(leaves) == len(nodes):
        return dict(zip(nodes, leaves, strict=True))
    if len(leaves) != own[1] - own[0]:
        raise ValueError(f"expected {own[1] - own[0]} leaves, those of {list(range(*own))}, got {len(leaves)}")
    known = combine.of_leaves(leaves, own[0])
    return {node: combine.evaluated(op, node, known) for node in nodes}


def _joined(known: Mapping[Node, Array]) -> Array:
    """Concatenate values of nodes."""
    values = [v.reshape(-1) for v in known.values()]
    return values[0] if len(values) == 1 else np.concatenate(values)
