"""Queues and batches, with a model that is a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tracecomp.serve.batching import Batcher
from tracecomp.serve.errors import DeadlineExceeded, InvalidRequest, ServeError, Unavailable
from tracecomp.serve.frames import Parts
from tracecomp.serve.process import Done, Take, WorkerDied, WorkerHung
from tracecomp.serve.tensors import TensorData, of_array


def tensor(rows: int, value: float, width: int = 2) -> TensorData:
    return of_array("x", np.full((rows, width), value, np.float32))


class Model:
    """Doubles its input once ``gate`` is open; ``batches`` are the rows of its runs."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.order: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[Exception] = []

    def start(self, parts: Parts, wanted: Sequence[str], take: Take | None, done: Done) -> None:
        def give(task: asyncio.Task[list[TensorData]]) -> None:
            error = task.exception()
            assert error is None or isinstance(error, Exception)
            done(() if error else task.result(), error)

        asyncio.ensure_future(self.run(parts)).add_done_callback(give)

    async def run(self, parts: Parts) -> list[TensorData]:
        await self.gate.wait()
        ((name, datatype, shape, buffers),) = parts
        x = TensorData(name, datatype, tuple(shape), b"".join(buffers)).array()
        self.batches.append(len(x))
        self.order += x[:, 0].tolist()
        if self.errors:
            raise self.errors.pop(0)
        if np.isnan(x).any():
            raise InvalidRequest("not a number")
        return [of_array("y", x * 2)]


def running(work: Callable[[Model, Batcher], Awaitable[Any]], max_rows: int = 4, delay: float = 0.0) -> Any:
    async def main() -> Any:
        model = Model()
        batcher = Batcher(model.start, delay, 8)
        batcher.resume(max_rows)
        try:
            return await work(model, batcher)
        finally:
            batcher.close()

    return asyncio.run(main())


async def submitted(batcher: Batcher, *tensors: TensorData, **options: Any) -> list[asyncio.Task[Sequence[TensorData]]]:
    """Requests that wait behind the ones before."""
    tasks = [asyncio.ensure_future(batcher.submit([t], **options)) for t in tensors]
    await asyncio.sleep(0)
    return tasks


def test_requests_that_wait_run_together() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        model.gate.clear()
        tasks = await submitted(batcher, tensor(1, 0))
        await asyncio.sleep(0)  # the first one runs alone
        tasks += await submitted(batcher, tensor(1, 1), tensor(2, 2), tensor(1, 3), tensor(1, 4))
        model.gate.set()
        for k, (answer,) in enumerate(await asyncio.gather(*tasks)):
            assert answer.array().tolist() == [[2 * k, 2 * k]] * (2 if k == 2 else 1)
        assert model.batches == [1, 4, 1]

    running(work)


def test_shapes_have_queues_of_their_own() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, tensor(1, 0), tensor(1, 1, 3), tensor(1, 2), tensor(1, 3, 3))
        batcher.resume(4)
        assert [a[0].shape[1] for a in await asyncio.gather(*tasks)] == [2, 3, 2, 3]
        assert model.batches == [2, 2]

    running(work)


def test_models_without_batching_run_each_request_alone() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        await asyncio.gather(*await submitted(batcher, tensor(3, 0), tensor(1, 1)))
        assert model.batches == [3, 1]

    running(work, max_rows=0)


def test_a_delay_waits_for_others() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        first = await submitted(batcher, tensor(1, 0))
        await asyncio.sleep(0)
        second = await submitted(batcher, tensor(3, 1))  # fills the batch, so nothing waits an hour
        await asyncio.gather(*first, *second)
        assert model.batches == [4]

    running(work, delay=3600)


def test_priorities() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, tensor(1, 1), tensor(1, 2))
        tasks += await submitted(batcher, tensor(1, 3), priority=2)
        tasks += await submitted(batcher, tensor(1, 4), priority=1)
        batcher.resume(1)
        await asyncio.gather(*tasks)
        assert model.order == [4, 3, 1, 2]

    running(work, max_rows=1)


def test_clients_that_leave_are_not_computed() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, *[tensor(1, k) for k in range(8)])
        for task in tasks[:7]:
            task.cancel()
        await asyncio.wait(tasks[:7])
        tasks += await submitted(batcher, *[tensor(1, k) for k in range(8, 15)])  # the queue has room again
        batcher.resume(1)
        await asyncio.gather(*tasks[7:])
        assert model.order == [*range(7, 15)]

    running(work, max_rows=1)


def test_a_deadline_passes_while_a_request_waits() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        with pytest.raises(DeadlineExceeded):
            await batcher.submit([tensor(1, 0)], timeout=1e-6)
        batcher.resume(1)
        await batcher.submit([tensor(1, 1)])
        assert model.order == [1]

    running(work)


def test_a_full_queue_refuses() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, *[tensor(1, k) for k in range(8)])
        with pytest.raises(Unavailable, match="8 requests are waiting"):
            await batcher.submit([tensor(1, 8)])
        batcher.resume(4)
        await asyncio.gather(*tasks)

    running(work)


def test_waiting_requests_have_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracecomp.serve.batching.MAX_WAITING_BYTES", 20)

    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, tensor(1, 0), tensor(1, 1))
        with pytest.raises(Unavailable, match="16 bytes are waiting"):
            await batcher.submit([tensor(1, 2)])
        tasks.pop().cancel()
        await asyncio.sleep(0)
        tasks += await submitted(batcher, tensor(1, 3))
        batcher.resume(1)
        await asyncio.gather(*tasks)
        await asyncio.gather(*await submitted(batcher, tensor(4, 4)))  # larger than the limit, alone
        assert model.order == [0, 3, 4, 4, 4, 4]

    running(work)


def test_a_request_at_fault_fails_alone() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        tasks = await submitted(batcher, tensor(1, 0), tensor(1, float("nan")), tensor(1, 2))
        batcher.resume(4)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(f, InvalidRequest) for f in found] == [False, True, False]

    running(work)


@pytest.mark.parametrize(("error", "answer"), [(WorkerDied(), Unavailable), (WorkerHung("long"), DeadlineExceeded)])
def test_the_request_that_ends_the_process_is_found_alone(error: Exception, answer: type[ServeError]) -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        batcher.pause()
        model.errors = [error, error]
        tasks = await submitted(batcher, tensor(1, 0), tensor(1, 1), tensor(1, 2))
        for _ in range(2):
            batcher.resume(4)
            while batcher.is_ready:
                await asyncio.sleep(0)
        batcher.resume(4)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(a, answer) for a in answers] == [True, False, False]
        assert model.batches == [3, 1, 1, 1]

    running(work)


def test_draining_waits_for_every_answer() -> None:
    async def work(model: Model, batcher: Batcher) -> None:
        model.gate.clear()
        tasks = await submitted(batcher, *[tensor(3, k) for k in range(3)])
        draining = asyncio.create_task(batcher.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        model.gate.set()
        await draining
        assert all(task.done() for task in tasks) and len(model.batches) == 3
        await batcher.drain()  # nothing is open

    running(work)


def test_requests_that_wait_at_the_end_are_refused() -> None:
    async def work(model: Model, batcher: Batcher) -> list[asyncio.Task[Sequence[TensorData]]]:
        model.gate.clear()
        return await submitted(batcher, tensor(1, 0), tensor(1, 1))

    async def main() -> None:
        model = Model()
        batcher = Batcher(model.start, 0.0, 8)
        batcher.resume(1)
        tasks = await work(model, batcher)
        await asyncio.sleep(0)
        batcher.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(f, Unavailable) for f in found)

    asyncio.run(main())
