"""Messages from one process to another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tracecomp.base.capture_guide import Section
from tracecomp.base.errors import at_user_line
from tracecomp.communication.errors import DistBackendError
from tracecomp.communication.group import Group
from tracecomp.communication.messages import Sending
from tracecomp.communication.messenger import Receiving
from tracecomp.communication.work import Work
from tracecomp.distributed.collectives import check_tensor, contents, place
from tracecomp.distributed.processes import get_rank, group_of, member_of
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, assign_, wrap


class _Started(Work):
    """A started send or receive: the waiting thread moves its messages."""

    def __init__(self, ready: Callable[[], bool], finish: Callable[[float | None], int]) -> None:
        self._ready, self._finish = ready, finish
        self._source: int | None = None

    def is_completed(self) -> bool:
        return self._source is not None or (self._ready() and self.wait())

    is_success = is_completed

    def exception(self) -> BaseException | None:
        return None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        if self._source is None:
            seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
            self._source = self._finish(seconds or None)
        return True

    synchronize = wait

    def result(self) -> Any:
        self.wait()
        return self._source


def _prepared(tensor: Tensor, group: object, what: str) -> Group | None:
    check_tensor(tensor, "tensor")
    if modes.recorder is not None:
        modes.recorder.refuse_here(f"calls {what}()", Section.EXCLUDE)
    return member_of(group, what)


def isend(
    tensor: Tensor, dst: int | None = None, group: Group | None = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:  # fmt: skip
    """Start to send to rank ``dst``; ``tensor`` must not change before the Work is complete."""
    found = _prepared(tensor, group, "isend")
    if found is None:
        return None
    to = place(found, dst, group_dst, "dst")
    if to == found.place:
        raise ValueError(
            at_user_line(
                "Invalid destination rank: destination rank should not be the same as the rank of the current process."
            )
        )
    sending = found.send(contents(tensor), to, tag)
    if not sending.done:
        found.sender.submit(lambda: _flushed(found, sending, f"send(to {found.ranks[to]}, tag {tag})", None))
    return _Started(lambda: sending.done, lambda seconds: _flushed(found, sending, "send()", seconds))


def _flushed(group: Group, sending: Sending, what: str, seconds: float | None) -> int:
    group.messenger.flush([sending], group.at(what, seconds))
    return group.messenger.rank


def irecv(
    tensor: Tensor, src: int | None = None, group: Group | None = None, tag: int = 0, group_src: int | None = None
) -> Work | None:  # fmt: skip
    """Start to receive from rank ``src``, any rank by default; ``tensor`` is filled when the Work is complete."""
    found = _prepared(tensor, group, "irecv")
    if found is None:
        return None
    anyone = src is None and group_src is None
    sources = [r for r in range(found.size()) if r != found.place] if anyone else [place(found, src, group_src, "src")]
    if sources == [found.place]:
        raise ValueError(
            at_user_line("Invalid source rank: source rank should not be the same as the rank of the current process.")
        )
    asked = found.ask(sources, tag)
    what = f"recv(from {'any rank' if anyone else found.ranks[sources[0]]}, tag {tag})"
    return _Started(
        lambda: found.messenger.has_come(asked),
        lambda seconds: _received(found, tensor, asked, tag, what, seconds),
    )


def _received(
    group: Group, tensor: Tensor, asked: Receiving, tag: int, what: str, seconds: float | None
) -> int:  # fmt: skip
    """Write the requested message to ``tensor``; return the sending rank."""
    source, body = group.received(asked, tag, what, seconds)
    if body.size != tensor.nbytes:
        raise DistBackendError(
            f"{what}: rank {group.ranks[source]} sent {body.size} bytes, but the tensor of shape "
            f"{list(tensor.shape)} and dtype {tensor.dtype} has {tensor.nbytes}"
        )
    with no_grad():
        assign_(tensor, wrap(body.view(tensor.dtype.numpy).reshape(tuple(tensor.shape))))
    return group.ranks[source]


def send(
    tensor: Tensor, dst: int | None = None, group: Group | None = None, tag: int = 0, group_dst: int | None = None
) -> None:  # fmt: skip
    """Send to rank ``dst``; ``tensor`` may change afterwards."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Group | None = None, tag: int = 0, group_src: int | None = None
) -> int:  # fmt: skip
    """Fill ``tensor`` with a message of rank ``src``, any rank by default; return the sending rank."""
    work = irecv(tensor, src, group, tag, group_src)
    return -1 if work is None else work.source_rank()


class P2POp:
    """A send or receive for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    def __init__(
        self, op: Callable[..., object], tensor: Tensor, peer: int | None = None, group: Group | None = None,
        tag: int = 0, group_peer: int | None = None,
    ) -> None:  # fmt: skip
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        check_tensor(tensor, "tensor")
        found = group_of(group)
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.group_peer = place(found, peer, group_peer, "peer") if found is not None else -1
        self.peer = found.ranks[self.group_peer] if found is not None else peer

    def __repr__(self) -> str:
        way = "to" if self.op is isend else "from"
        return f"P2POp({self.op.__name__} {way} {self.peer}, rank {get_rank()}, {tuple(self.tensor.shape)})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Any]:
    """Start all of them, and return their Works."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if not p2p_op_list:
        raise IndexError("batch_isend_irecv(): the list is empty. As in PyTorch, it needs at least one operation.")
    return [p.op(p.tensor, group=p.group, tag=p.tag, **_peer(p)) for p in p2p_op_list]


def _peer(p: P2POp) -> dict[str, int]:
    return {"group_dst" if p.op is isend else "group_src": p.group_peer}
