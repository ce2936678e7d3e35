"""Waiting requests of one model, and the batches that are made of them.

A request waits while the model computes others; then those with equal shapes behind the first size run together. So
batches grow with the load, and a lone request does not wait. ``max_delay`` lets it wait for others, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from tracecomp.serve.errors import DeadlineExceeded, ServeError, Unavailable
from tracecomp.serve.frames import Parts
from tracecomp.serve.process import Done, Take, WorkerDied, WorkerHung
from tracecomp.serve.tensors import TensorData

Run = Callable[[Parts, Sequence[str], Take | None, Done], None]
"""Computes a batch, or a stream if there is a ``Take``."""
Computed = Callable[[int, Sequence[float], float], None]
"""Called after each batch with its rows, the seconds that its requests waited, and those that it took."""
LOWEST_PRIORITY = 1 << 31  # behind every priority that a client may name


@dataclass(order=True, slots=True)
class Waiting:
    """A request in the queue. Requests are ordered by priority (1 is served first, 0 last), then by arrival."""

    priority: int
    number: int
    inputs: Sequence[TensorData] = field(compare=False)
    wanted: Sequence[str] = field(compare=False)
    deadline: float | None = field(compare=False)
    arrival: float = field(compare=False)
    answer: asyncio.Future[Sequence[TensorData]] = field(compare=False)
    nbytes: int = field(compare=False)
    chunks: asyncio.Queue[Sequence[TensorData] | None] | None = field(compare=False, default=None)
    """The answers of a stream, and None behind the last one."""
    alarm: asyncio.TimerHandle | None = field(compare=False, default=None)
    is_alone: bool = field(compare=False, default=False)
    """Whether the request must not be batched."""
    is_retried: bool = field(compare=False, default=False)
    is_queued: bool = field(compare=False, default=False)

    def take(self, outputs: Sequence[TensorData]) -> bool:
        """Receive one answer of a stream; whether the client wants more."""
        if self.chunks is None or self.answer.done():
            return False
        self.chunks.put_nowait(outputs)
        return True

    @property
    def rows(self) -> int:
        """The rows of a request that may be batched."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else 1

    def fail(self, error: Exception) -> None:
        """Answer with an error, unless the client has left."""
        if not self.answer.done():
            self.answer.set_exception(error)


MAX_WAITING_BYTES = 256 << 20  # of one model's queues, unless a single request has more
_STOPPING = "the server is stopping"
Key = tuple[tuple[str, tuple[int, ...]], ...]


class Batcher:
    """Queues of requests by shape, which are emptied batch by batch.

    ``run`` computes a batch. ``max_rows`` is the largest one, 0 if requests run alone; the owner sets it when the
    model is ready and calls ``resume``. Nothing runs before. A request to a free model starts in the call that
    submits it, and an answer wakes its request directly: each further turn of the event loop would delay both.
    """

    def __init__(self, run: Run, max_delay: float, max_waiting: int, computed: Computed | None = None) -> None:
        self.max_rows = 0
        self.batches = 0
        """Batches that have been computed."""
        self._run, self._max_delay, self._max_waiting, self._computed = run, max_delay, max_waiting, computed
        self._queues: dict[Key, list[Waiting]] = {}
        self.waiting = 0
        """Requests in the queues."""
        self._left = self._bytes = 0
        self._numbers = count()
        self._batch: Sequence[Waiting] = ()  # that the model computes
        self.is_ready = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def close(self) -> None:
        """Stop, and refuse all requests."""
        self._is_closed = True
        self.pause()
        if self._timer is not None:
            self._timer.cancel()
        self.refuse(_STOPPING)
        for item in self._batch:
            item.fail(Unavailable(_STOPPING))

    async def drain(self) -> None:
        """Wait until every request that has arrived is answered."""
        await self._idle.wait()

    def resume(self, max_rows: int) -> None:
        """The model is ready."""
        self.max_rows = max_rows
        self.is_ready = not self._is_closed
        self._start_next()

    def pause(self) -> None:
        """The model is not ready; requests wait."""
        self.is_ready = False

    def refuse(self, reason: str) -> None:
        """Answer every waiting request with Unavailable."""
        for queue in self._queues.values():
            for item in queue:
                item.fail(Unavailable(reason))

    async def submit(
        self, inputs: Sequence[TensorData], wanted: Sequence[str] = (), *, priority: int = 0,
        timeout: float | None = None,
    ) -> Sequence[TensorData]:  # fmt: skip
        """The model's outputs for ``inputs``. A cancelled call leaves the queue.

        ``timeout`` is the number of seconds until DeadlineExceeded. Unavailable if too many requests wait.
        """
        item = self._enter(inputs, wanted, priority, timeout)
        try:
            return await item.answer
        finally:
            self._leave(item)

    async def stream(
        self, inputs: Sequence[TensorData], wanted: Sequence[str] = (), *, priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[Sequence[TensorData], None]:  # fmt: skip
        """The model's answers for ``inputs``, one after the other. A closed generator ends the computation."""
        chunks: asyncio.Queue[Sequence[TensorData] | None] = asyncio.Queue()
        item = self._enter(inputs, wanted, priority, timeout, chunks)
        item.answer.add_done_callback(lambda _: chunks.put_nowait(None))
        try:
            while (outputs := await chunks.get()) is not None:
                yield outputs
            await item.answer
        finally:
            self._leave(item)

    def _enter(
        self, inputs: Sequence[TensorData], wanted: Sequence[str], priority: int, timeout: float | None,
        chunks: asyncio.Queue[Sequence[TensorData] | None] | None = None,
    ) -> Waiting:  # fmt: skip
        nbytes = sum(len(tensor.data) for tensor in inputs)
        if self._is_closed:
            raise Unavailable(_STOPPING)
        if self.waiting and self._bytes + nbytes > MAX_WAITING_BYTES:
            raise Unavailable(f"{self._bytes} bytes are waiting; try again later")
        if self.waiting >= self._max_waiting:
            raise Unavailable(f"{self.waiting} requests are waiting; try again later")
        loop = asyncio.get_running_loop()
        now = loop.time()
        item = Waiting(
            priority or LOWEST_PRIORITY, next(self._numbers), inputs, wanted, now + timeout if timeout else None, now,
            loop.create_future(), nbytes, chunks, is_alone=chunks is not None,
        )  # fmt: skip
        if item.deadline is not None:
            item.alarm = loop.call_at(item.deadline, item.fail, _late())
        self._open += 1
        self._idle.clear()
        self._push(item)
        self._start_next()
        return item

    def _leave(self, item: Waiting) -> None:
        item.answer.cancel()  # a closed stream wants no more
        if item.alarm is not None:
            item.alarm.cancel()
        if item.is_queued:
            self._forget(item)
        self._open -= 1
        if not self._open:
            self._idle.set()

    # ---- the queue

    def _push(self, item: Waiting) -> None:
        heappush(self._queues.setdefault(self._key(item), []), item)
        item.is_queued = True
        self._bytes += item.nbytes
        self.waiting += 1

    def _forget(self, item: Waiting) -> None:
        """Forget an answered request that is still in a queue. Its place is freed when it comes first, or with many
        others."""
        item.is_queued, item.inputs = False, ()
        self._bytes -= item.nbytes
        self.waiting -= 1
        self._left += 1
        if self._left > self._max_waiting:
            self._left = 0
            for key, queue in [*self._queues.items()]:
                queue[:] = [other for other in queue if other.is_queued]
                heapify(queue)
                if not queue:
                    del self._queues[key]

    def _key(self, item: Waiting) -> Key:
        """Requests with equal keys may be computed together."""
        return tuple((t.datatype, t.shape[1:] if self.max_rows else t.shape) for t in item.inputs)

    def _next_queue(self) -> list[Waiting] | None:
        """The queue with the most urgent first request."""
        for key, queue in [*self._queues.items()]:
            _drop_left(queue)
            if not queue:
                del self._queues[key]
        return min(self._queues.values(), key=lambda queue: queue[0], default=None)

    def _start_next(self) -> None:
        """Start the next batch if the model is free, and no further request may still join it."""
        queue = self._next_queue() if self.is_ready and not self._batch else None
        if queue is None:
            return
        left = self._seconds_left(queue) if self._max_delay else 0
        if left <= 0:
            self._compute(self._take(queue))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self._delayed)

    def _delayed(self) -> None:
        self._timer = None
        self._start_next()

    def _seconds_left(self, queue: Sequence[Waiting]) -> float:
        """How long the batch may wait for others; 0 if it is full."""
        if sum(item.rows for item in queue) >= self.max_rows:
            return 0
        return min(item.arrival for item in queue) + self._max_delay - asyncio.get_running_loop().time()

    def _take(self, queue: list[Waiting]) -> list[Waiting]:
        """The requests of the next batch, in order, as long as they fit."""
        batch: list[Waiting] = []
        rows = 0
        while queue:
            first = queue[0]
            if batch and (first.is_alone or batch[0].is_alone or rows + first.rows > self.max_rows):
                break
            heappop(queue).is_queued = False
            batch.append(first)
            rows += first.rows
            _drop_left(queue)
        self._bytes -= sum(item.nbytes for item in batch)
        self.waiting -= len(batch)
        return batch

    # ---- the batch

    def _compute(self, batch: Sequence[Waiting]) -> None:
        self._batch, start = batch, asyncio.get_running_loop().time()
        wanted: Sequence[str] = batch[0].wanted if len(batch) == 1 else ()
        take = None if batch[0].chunks is None else batch[0].take
        parts = _together([item.inputs for item in batch])
        self._run(parts, wanted, take, lambda outputs, error: self._finished(batch, start, outputs, error))

    def _finished(
        self, batch: Sequence[Waiting], start: float, outputs: Sequence[TensorData], error: Exception | None
    ) -> None:
        self._batch = ()
        if isinstance(error, WorkerDied | WorkerHung):
            self.pause()
            self._process_ended(batch, error)
        elif error is not None:
            self._failed(batch, error)
        self._start_next()  # the model computes while the answers are sent
        if error is None:
            self.batches += 1
            _share(batch, outputs)
            if self._computed is not None:
                loop = asyncio.get_running_loop()
                waited, seconds = [start - item.arrival for item in batch], loop.time() - start
                # after the answers, which are already on their way
                loop.call_soon(self._computed, sum(item.rows for item in batch), waited, seconds)

    def _process_ended(self, batch: Sequence[Waiting], error: WorkerDied | WorkerHung) -> None:
        """Send each request once more, alone, because one of them may be the cause."""
        for item in batch:
            if isinstance(error, WorkerHung) and len(batch) == 1:
                item.fail(DeadlineExceeded(str(error)))
            elif item.is_retried or item.chunks is not None:
                item.fail(Unavailable("the model's process ended while it computed this request"))
            else:
                item.is_retried = True
                self._again_alone(item)

    def _failed(self, batch: Sequence[Waiting], error: Exception) -> None:
        """Run each request alone, because one of them may be at fault."""
        for item in batch:
            if len(batch) > 1:
                self._again_alone(item)
            else:
                item.fail(error)

    def _again_alone(self, item: Waiting) -> None:
        item.is_alone = True
        if not item.answer.done():
            self._push(item)


def _drop_left(queue: list[Waiting]) -> None:
    """Remove first requests that have left the queue."""
    while queue and not queue[0].is_queued:
        heappop(queue)


def _late() -> ServeError:
    return DeadlineExceeded("the deadline of the request has passed")


def _together(requests: Sequence[Sequence[TensorData]]) -> Parts:
    """Inputs of several requests, one after the other along the first axis. Bytes in row-major order just follow each
    other."""
    if len(requests) == 1:
        return [(t.name, t.datatype, t.shape, [t.data]) for t in requests[0]]
    parts = []
    for same in zip(*requests, strict=True):
        rows = sum(t.shape[0] for t in same)
        parts.append((same[0].name, same[0].datatype, (rows, *same[0].shape[1:]), [t.data for t in same]))
    return parts


def _share(batch: Sequence[Waiting], outputs: Sequence[TensorData]) -> None:
    """Answer each request with its rows of the outputs."""
    start, total = 0, sum(item.rows for item in batch)
    for item in batch:
        found = [t for t in outputs if not item.wanted or t.name in item.wanted]
        if len(batch) > 1:
            found = [_rows(t, start, item.rows, total) for t in found]
        start += item.rows
        if not item.answer.done():
            item.answer.set_result(found)


def _rows(tensor: TensorData, start: int, count: int, total: int) -> TensorData:
    width = len(tensor.data) // total
    data = memoryview(tensor.data)[start * width : (start + count) * width]
    return TensorData(tensor.name, tensor.datatype, (count, *tensor.shape[1:]), data)
