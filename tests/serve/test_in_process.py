"""``serve.Model`` and ``serve.app`` in one's own program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tracecomp import serve
from tracecomp.base.errors import TracecompError
from tracecomp.serve.errors import DeadlineExceeded, InvalidRequest, Unavailable


def test_a_model_answers_threads(models: Path) -> None:
    found: dict[int, Any] = {}
    with serve.Model(models / "scaled/3/model.tcp") as model:
        assert [(s.name, s.datatype, s.shape) for s in model.inputs] == [("x", "FP32", (-1, 6))]
        assert [s.name for s in model.outputs] == ["output_0"]

        def ask(k: int) -> None:
            found[k] = model.infer({"x": np.full((1, 6), k, np.float32)})["output_0"]

        threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(found[k].tolist() == [[3.0 * k] * 6] for k in range(8))
        later = asyncio.run(model.infer_async({"x": np.ones((2, 6), np.float32)}))
        assert later["output_0"].shape == (2, 6)
        with pytest.raises(InvalidRequest, match="expected FP32"):
            model.infer({"x": np.ones((1, 6))})
        model._loop.call_soon_threadsafe(model._version.batcher.pause)
        with pytest.raises(DeadlineExceeded):
            model.infer({"x": np.ones((1, 6), np.float32)}, timeout=0.01)
    model.close()  # a second time
    with pytest.raises(Unavailable, match="closed"):
        model.infer({"x": np.ones((1, 6), np.float32)})


def test_a_hanging_process_is_restarted(models: Path) -> None:
    x = {"x": np.ones((1, 6), np.float32)}
    with serve.Model(models / "scaled/3/model.tcp", serve.Settings(max_seconds=0.05)) as model:
        process = model._version.process
        assert process.pid is not None
        stopped = process.pid
        os.kill(stopped, signal.SIGSTOP)
        with pytest.raises(DeadlineExceeded, match=r"its limit of 0\.05 s"):
            model.infer(x)
        process._settings = serve.Settings(max_seconds=None)
        assert model.infer(x)["output_0"].tolist() == [[3.0] * 6]
        assert process.pid != stopped


def test_a_file_that_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "m.tcp").write_bytes(b"nothing")
    with pytest.raises(TracecompError, match=r"m\.tcp"):
        serve.Model(tmp_path / "m.tcp")


async def ask(app: Any, method: str, path: str, body: bytes = b"", leave: bool = False) -> tuple[int, bytes]:
    """One request to an ASGI application; with ``leave`` the client closes the connection after the body."""
    received: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if received:
            return received.pop()
        if not leave:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": [], "scheme": "http",
        "server": ("test", 80), "client": ("test", 1),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:])


def test_an_app_is_mounted_in_another_one(models: Path) -> None:
    async def main() -> None:
        app = serve.app({"triple": models / "scaled/3/model.tcp"}, max_body_bytes=500)
        outer = Starlette(routes=[Mount("/models", app)])
        path = "/models/v2/models/triple"
        status, told = await ask(outer, "GET", f"{path}/ready")  # the first request starts the process
        assert status in (200, 503) and json.loads(told)["name"] == "triple"
        await app.engine.settled()
        x = {"name": "x", "datatype": "FP32", "shape": [1, 6], "data": [1, 2, 3, 4, 5, 6]}
        body = json.dumps({"inputs": [x]}).encode()
        status, told = await ask(outer, "POST", f"{path}/infer", body)
        assert (status, json.loads(told)["outputs"][0]["data"]) == (200, [3, 6, 9, 12, 15, 18])
        assert (await ask(outer, "POST", f"{path}/infer", b" " * 501))[0] == 413
        (model,) = app.engine
        model.batcher.pause()
        assert (await ask(outer, "POST", f"{path}/infer", body, leave=True))[0] == 499
        assert model.batcher.waiting == 0
        await app.close()

    asyncio.run(main())
