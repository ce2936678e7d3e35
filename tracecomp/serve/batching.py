"""Waiting requests of one model, and the batches that are made of them.

A request waits while the model computes others; then those with equal shapes behind the first size run together. So
batches grow with the load, and a lone request does not wait. ``max_delay`` lets it wait for others, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count

from tracecomp.serve.errors import DeadlineExceeded, ServeError, Unavailable
from tracecomp.serve.frames import Parts
from tracecomp.serve.process import Take, WorkerDied, WorkerHung
from tracecomp.serve.tensors import TensorData

Run = Callable[[Parts, Sequence[str]], Awaitable[list[TensorData]]]
Stream = Callable[[Parts, Sequence[str], Take], Awaitable[None]]
Computed = Callable[[int, Sequence[float], float], None]
"""Called after each batch with its rows, the seconds that its requests waited, and those that it took."""
LOWEST_PRIORITY = 1 << 31  # behind every priority that a client may name


@dataclass(order=True)
class Waiting:
    """A request in the queue. Requests are ordered by priority (1 is served first, 0 last), then by arrival."""

    priority: int
    number: int
    inputs: Sequence[TensorData] = field(compare=False)
    wanted: Sequence[str] = field(compare=False)
    deadline: float | None = field(compare=False)
    arrival: float = field(compare=False)
    answer: asyncio.Future[list[TensorData]] = field(compare=False)
    nbytes: int = field(compare=False)
    chunks: asyncio.Queue[list[TensorData] | None] | None = field(compare=False, default=None)
    """The answers of a stream, and None behind the last one."""
    retried: bool = field(compare=False, default=False)
    queued: bool = field(compare=False, default=True)

    @property
    def is_alone(self) -> bool:
        """Whether the request must not be batched."""
        return self.retried or self.chunks is not None

    def take(self, outputs: list[TensorData]) -> bool:
        """Receive one answer of a stream; whether the client wants more."""
        if self.chunks is None or self.answer.done():
            return False
        self.chunks.put_nowait(outputs)
        return True

    @property
    def rows(self) -> int:
        """The rows of a request that may be batched."""
        return self.inputs[0].shape[0] if self.inputs and self.inputs[0].shape else 1

    def fail(self, error: ServeError) -> None:
        """Answer with an error, unless the client has left."""
        if not self.answer.done():
            self.answer.set_exception(error)


MAX_WAITING_BYTES = 256 << 20  # of one model's queues, unless a single request has more
_STOPPING = "the server is stopping"
Key = tuple[tuple[str, tuple[int, ...]], ...]


class Batcher:
    """Queues of requests by shape, and the task that empties them.

    ``run`` computes a batch. ``max_rows`` is the largest one, 0 if requests run alone; the owner sets it when the
    model is ready and calls ``resume``. Nothing runs before.
    """

    def __init__(
        self, run: Run, max_delay: float, max_waiting: int, computed: Computed | None = None,
        stream: Stream | None = None,
    ) -> None:  # fmt: skip
        self.max_rows = 0
        self.batches = 0
        """Batches that have been computed."""
        self._run, self._max_delay, self._max_waiting, self._computed = run, max_delay, max_waiting, computed
        self._stream: Stream = stream or _no_stream
        self._queues: dict[Key, list[Waiting]] = {}
        self.waiting = 0
        """Requests in the queues."""
        self._left = self._bytes = 0
        self._numbers = count()
        self._arrived = asyncio.Event()
        self._ready = asyncio.Event()
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to compute what waits."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """Stop, and refuse what still waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.refuse(_STOPPING)

    async def drain(self) -> None:
        """Wait until every request that has arrived is answered."""
        await self._idle.wait()

    def resume(self, max_rows: int) -> None:
        """The model is ready."""
        self.max_rows = max_rows
        self._ready.set()

    def pause(self) -> None:
        """The model is not ready; requests wait."""
        self._ready.clear()

    def refuse(self, reason: str) -> None:
        """Answer every waiting request with Unavailable."""
        for queue in self._queues.values():
            for item in queue:
                item.fail(Unavailable(reason))

    async def submit(
        self, inputs: Sequence[TensorData], wanted: Sequence[str] = (), *, priority: int = 0,
        timeout: float | None = None,
    ) -> list[TensorData]:  # fmt: skip
        """The model's outputs for ``inputs``. A cancelled call leaves the queue.

        ``timeout`` is the number of seconds until DeadlineExceeded. Unavailable if too many requests wait.
        """
        with self._queued(inputs, wanted, priority, timeout) as item:
            return await item.answer

    async def stream(
        self, inputs: Sequence[TensorData], wanted: Sequence[str] = (), *, priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncGenerator[list[TensorData], None]:  # fmt: skip
        """The model's answers for ``inputs``, one after the other. A closed generator ends the computation."""
        chunks: asyncio.Queue[list[TensorData] | None] = asyncio.Queue()
        with self._queued(inputs, wanted, priority, timeout, chunks) as item:
            item.answer.add_done_callback(lambda _: chunks.put_nowait(None))
            while (outputs := await chunks.get()) is not None:
                yield outputs
            await item.answer

    @contextmanager
    def _queued(
        self, inputs: Sequence[TensorData], wanted: Sequence[str], priority: int, timeout: float | None,
        chunks: asyncio.Queue[list[TensorData] | None] | None = None,
    ) -> Iterator[Waiting]:  # fmt: skip
        nbytes = sum(len(tensor.data) for tensor in inputs)
        if self.waiting and self._bytes + nbytes > MAX_WAITING_BYTES:
            raise Unavailable(f"{self._bytes} bytes are waiting; try again later")
        if self.waiting >= self._max_waiting:
            raise Unavailable(f"{self.waiting} requests are waiting; try again later")
        loop = asyncio.get_running_loop()
        now = loop.time()
        item = Waiting(
            priority or LOWEST_PRIORITY, next(self._numbers), inputs, wanted, now + timeout if timeout else None, now,
            loop.create_future(), nbytes, chunks,
        )  # fmt: skip
        self._open += 1
        self._idle.clear()
        self._push(item)
        alarm = loop.call_at(item.deadline, item.fail, _late()) if item.deadline is not None else None
        try:
            yield item
        finally:
            item.answer.cancel()  # a closed stream wants no more
            if alarm is not None:
                alarm.cancel()
            if item.queued:
                self._leave(item)
            self._open -= 1
            if not self._open:
                self._idle.set()

    # ---- the queue

    def _push(self, item: Waiting) -> None:
        heappush(self._queues.setdefault(self._key(item), []), item)
        item.queued = True
        self._bytes += item.nbytes
        self.waiting += 1
        self._arrived.set()

    def _leave(self, item: Waiting) -> None:
        """Forget an answered request that is still in a queue. Its place is freed when it comes first, or with many
        others."""
        item.queued, item.inputs = False, ()
        self._bytes -= item.nbytes
        self.waiting -= 1
        self._left += 1
        if self._left > self._max_waiting:
            self._left = 0
            for key, queue in [*self._queues.items()]:
                queue[:] = [other for other in queue if other.queued]
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

    async def _serve(self) -> None:
        while True:
            await self._ready.wait()
            queue = self._next_queue()
            if queue is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            if await self._more_may_come(queue):
                continue
            batch = self._take(queue)
            await self._compute(batch)

    async def _more_may_come(self, queue: Sequence[Waiting]) -> bool:
        """Wait for requests that may still join the batch; whether something changed meanwhile."""
        oldest = min(item.arrival for item in queue)
        left = oldest + self._max_delay - asyncio.get_running_loop().time()
        if left <= 0 or sum(item.rows for item in queue) >= self.max_rows:
            return False
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), left)
        except TimeoutError:
            return False
        return True

    def _take(self, queue: list[Waiting]) -> list[Waiting]:
        """The requests of the next batch, in order, as long as they fit. Streams and requests sent again run alone."""
        batch: list[Waiting] = []
        rows = 0
        while queue:
            first = queue[0]
            if batch and (first.is_alone or batch[0].is_alone or rows + first.rows > self.max_rows):
                break
            heappop(queue).queued = False
            batch.append(first)
            rows += first.rows
            _drop_left(queue)
        self._bytes -= sum(item.nbytes for item in batch)
        self.waiting -= len(batch)
        return batch

    # ---- the batch

    async def _compute(self, batch: Sequence[Waiting]) -> None:
        wanted: Sequence[str] = batch[0].wanted if len(batch) == 1 else ()
        loop = asyncio.get_running_loop()
        start = loop.time()
        parts = _together([item.inputs for item in batch])
        outputs: Sequence[TensorData] = ()
        try:
            if batch[0].chunks is None:
                outputs = await self._run(parts, wanted)
            else:
                await self._stream(parts, wanted, batch[0].take)
        except asyncio.CancelledError:
            for item in batch:
                item.fail(Unavailable(_STOPPING))
            raise
        except WorkerDied:
            self._again(batch)
        except WorkerHung as error:
            self.pause()
            if len(batch) == 1:
                batch[0].fail(DeadlineExceeded(str(error)))
            else:
                self._again(batch)
        except ServeError as error:
            if len(batch) == 1:
                batch[0].fail(error)
                return
            for item in batch:  # one of them may be at fault, so each runs alone
                await self._compute([item])
        else:
            self.batches += 1
            _share(batch, outputs)
            if self._computed is not None:
                waited = [start - item.arrival for item in batch]
                self._computed(sum(item.rows for item in batch), waited, loop.time() - start)

    def _again(self, batch: Sequence[Waiting]) -> None:
        """The process has ended: each request is sent once more, alone, because one of them may be the cause."""
        self.pause()
        for item in batch:
            if item.retried or item.chunks is not None:
                item.fail(Unavailable("the model's process ended while it computed this request"))
            else:
                item.retried = True
                if not item.answer.done():
                    self._push(item)


async def _no_stream(parts: Parts, wanted: Sequence[str], take: Take) -> None:
    raise Unavailable("this model does not stream")


def _drop_left(queue: list[Waiting]) -> None:
    """Remove first requests that have left the queue."""
    while queue and not queue[0].queued:
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
