"""The gRPC server in one event loop with its engine: typed contents, errors and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tracecomp.serve.engine import Engine
from tracecomp.serve.grpc_messages import SERVICE, message
from tracecomp.serve.grpc_server import Remote
from tracecomp.serve.repository import Entry
from tracecomp.serve.settings import Settings

Call = Callable[..., Any]


def serving(models: Path, work: Callable[[Engine, Call], Awaitable[None]]) -> None:
    """Run ``work`` with an engine and the method ModelInfer of its server."""

    async def main() -> None:
        engine = Engine([Entry("triple", "3", models / "scaled/3/model.tcp", Settings())])
        await engine.start()
        server = Remote("127.0.0.1:0", 1 << 20)
        await server.start(engine)
        await engine.settled()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=message("ModelInferRequest").SerializeToString,
                response_deserializer=message("ModelInferResponse").FromString,
            )
            await work(engine, call)
        await server.stop(0)
        await engine.close()

    asyncio.run(main())


def request(*values: float, datatype: str = "FP32", field: str = "fp32_contents", **more: Any) -> Any:
    given = {"name": "x", "datatype": datatype, "shape": [1, 6], "contents": {field: values}}
    return message("ModelInferRequest")(**{"model_name": "triple", "inputs": [given], **more})


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_typed_contents_and_errors(models: Path) -> None:
    async def work(engine: Engine, call: Call) -> None:
        answer = await call(request(*range(6), id="a", parameters={"priority": {"int64_param": 1}}))
        assert (answer.id, answer.model_version) == ("a", "3")
        assert memoryview(answer.raw_output_contents[0]).cast("f").tolist() == [0, 3, 6, 9, 12, 15]
        raw = message("ModelInferRequest")(
            model_name="triple", inputs=[{"name": "x", "datatype": "FP32", "shape": [1, 6]}], raw_input_contents=[b"1"]
        )
        for bad, code in (
            (request(1), grpc.StatusCode.INVALID_ARGUMENT),
            (request(*range(6), field="int64_contents"), grpc.StatusCode.INVALID_ARGUMENT),
            (request(*[300] * 6, datatype="UINT8", field="uint_contents"), grpc.StatusCode.INVALID_ARGUMENT),
            (request(*range(6), model_name="none"), grpc.StatusCode.NOT_FOUND),
            (request(*range(6), parameters={"timeout": {"string_param": "1"}}), grpc.StatusCode.INVALID_ARGUMENT),
            (raw, grpc.StatusCode.INVALID_ARGUMENT),
            (request(*[1.0] * 300_000), grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(bad)
            assert caught.value.code() == code and "Traceback" not in caught.value.details()

    serving(models, work)


def test_deadlines_and_clients_that_leave(models: Path) -> None:
    async def work(engine: Engine, call: Call) -> None:
        (model,) = engine
        model.batcher.pause()
        waiting = call(request(*range(6)))
        await until(lambda: model.batcher.waiting == 1)
        waiting.cancel()
        await until(lambda: model.batcher.waiting == 0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request(*range(6)), timeout=0.01)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: model.batcher.waiting == 0)

    serving(models, work)
