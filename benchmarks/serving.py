"""Latency and throughput of model servers that run one program file.

``--rival litserve=/venvs/litserve/bin/python`` measures LitServe, too, with the Python of an environment that has
LitServe and the dependencies of tracecomp. The model uses one thread everywhere. Requests are JSON over HTTP with one
row each, and every server may batch 32 of them. The servers run in turns. Processor time counts all processes of a
server. At last, the model's process and the server are killed.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

import tracecomp as torch
from benchmarks.serving_rivals import PATHS, RIVALS
from tracecomp import nn
from tracecomp.export import Dim

WIDTH, ROWS = 64, 32
MODELS = ("small", "large", "heavy")
"""A row of the small model takes far less time than a request, and a row of the large one less. A row of the heavy one
takes far more: it shows which part of the raw throughput the server reaches."""
Measured = dict[str, float]


def network(name: str) -> nn.Module:
    """The model as layers."""
    layers: list[nn.Module]
    if name == "heavy":
        layers = [layer for _ in range(20) for layer in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU())]
        first = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 128, 3, padding=1), nn.ReLU())
        return nn.Sequential(*first, *layers, nn.Flatten(), nn.Linear(128 * 64, 10))
    hidden = (256,) if name == "small" else (2048, 2048)
    pairs = pairwise((WIDTH, *hidden))
    layers = [layer for before, after in pairs for layer in (nn.Linear(before, after), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 10))


def save(folder: Path) -> None:
    """Write the models and their settings, one in a folder each, as some servers take one model."""
    for name in MODELS:
        torch.manual_seed(0)
        module = network(name).eval()
        (folder / name).mkdir()
        rows = {"input": {0: Dim("rows", max=ROWS)}}
        program = torch.compile(module)
        program.save(folder / name / f"{name}.tcp", torch.ones(2, WIDTH), kind="graph", dynamic_shapes=rows)
        (folder / name / f"{name}.json").write_text(json.dumps({"threads": 1, "max_batch_size": ROWS}))


def in_process(path: Path) -> Measured:
    """Median seconds of a call with one row, and rows a second with full batches."""
    program = torch.load_program(path, threads=1).program
    found = {}
    for key, rows in (("call", 1), ("batch", ROWS)):
        x = np.random.default_rng(0).standard_normal((rows, WIDTH), np.float32)
        found[key] = _median(partial(program, x), 2.0)
    return {"call": found["call"], "rows": ROWS / found["batch"]}


def _median(call: Callable[[], object], seconds: float) -> float:
    taken: list[float] = []
    for _ in range(20):
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def cpu_seconds(root: int) -> float:
    """Processor time of a process and all below it. Unlike elapsed time, it says something on a busy machine, too."""
    ticks = {pid: ticks for pid, _, ticks in _processes()}
    return sum(ticks.get(pid, 0) for pid in _tree(root)) / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, int, int]]:
    """Identifier, parent and processor time of each process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields, pid = path.read_text().rpartition(") ")[2].split(), int(path.parent.name)
            yield pid, int(fields[1]), int(fields[11]) + int(fields[12])


def _tree(root: int) -> list[int]:
    """A process and all below it; parents come before their children."""
    parents = {pid: parent for pid, parent, _ in _processes()}
    found = [root]
    for process in found:
        found += [pid for pid, parent in parents.items() if parent == process]
    return found


@contextmanager
def running(name: str, python: str, folder: Path, port: int) -> Iterator[int]:
    """The process of a server of the only model in ``folder``. Its process group ends with the block."""
    if name == "tracecomp":
        command = [python, "-m", "tracecomp", "serve", str(folder), "--port", str(port), "--no-grpc"]
    else:
        command = [python, "-m", "benchmarks.serving_rivals", name, str(folder), str(port)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log)
        try:
            yield process.pid
        except Exception as error:
            log.seek(0)
            raise RuntimeError(f"{name} failed: {error!r}\n{log.read()[-2000:]}") from error
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_ready(port: int, path: str, body: bytes, seconds: float = 120) -> bytes:
    """The first answer with status 200."""
    end = time.perf_counter() + seconds
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status == 200:
                return answer
            if response.status in (400, 422) and b"not ready" not in answer:
                raise RuntimeError(answer.decode())
        except OSError:
            answer = b"no connection"
        finally:
            connection.close()
        if time.perf_counter() > end:
            raise TimeoutError(answer)
        time.sleep(0.02)


def message(port: int, path: str, body: bytes) -> bytes:
    """A request as bytes, so that the client computes little."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def answer_length(data: bytes) -> int | None:
    """The bytes of the first answer in ``data``; None if they are not known yet. Chunked answers end with a zero."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return None
    lower = head.lower()
    if b"content-length:" in lower:
        return len(head) + 4 + int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
    end = body.find(b"0\r\n\r\n")
    return None if end < 0 else len(head) + 4 + end + 5


def latency(port: int, request: bytes, seconds: float) -> float:
    """Median seconds of a request of a lone client."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call() -> None:
            connection.sendall(request)
            data = connection.recv(1 << 16)
            while (length := answer_length(data)) is None or len(data) < length:
                data += connection.recv(1 << 16)

        return _median(call, seconds)


class _Client(asyncio.Protocol):
    """Sends the request again after each answer."""

    def __init__(self, request: bytes) -> None:
        self.request, self.count, self._data = request, 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        length = answer_length(self._data)
        if length is not None and len(self._data) >= length:
            self.count += self._data.startswith(b"HTTP/1.1 200")  # some servers refuse requests under load
            self._data = self._data[length:]
            self._transport.write(self.request)


def throughput(port: int, request: bytes, clients: int, seconds: float) -> tuple[int, float]:
    """Answers to so many clients, in all and a second."""

    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        pairs = [await loop.create_connection(lambda: _Client(request), "127.0.0.1", port) for _ in range(clients)]
        await asyncio.sleep(seconds / 4)
        before, start = sum(client.count for _, client in pairs), time.perf_counter()
        await asyncio.sleep(seconds)
        count, took = sum(client.count for _, client in pairs) - before, time.perf_counter() - start
        for transport, _ in pairs:
            transport.abort()
        return max(before + count, 1), count / took

    return asyncio.run(main())


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def measure(name: str, python: str, model: str, folder: Path, seconds: float) -> Measured:
    """Seconds to the first answer, median latency and answers a second of one server with one model."""
    path, body = PATHS[name](model, WIDTH)
    port, start = _free_port(), time.perf_counter()
    with running(name, python, folder / model, port) as process:
        wait_until_ready(port, path, body)
        first = time.perf_counter() - start
        request = message(port, path, body)
        alone = latency(port, request, seconds)
        used = cpu_seconds(process)
        count, rate = throughput(port, request, 4 * ROWS, seconds)
        return {"first": first, "latency": alone, "rate": rate, "cpu": (cpu_seconds(process) - used) / count}


def recovery(model: str, folder: Path) -> Measured:
    """Seconds from SIGKILL of the model's process to an answer, and from a start after SIGKILL of the server."""
    path, body = PATHS["tracecomp"](model, WIDTH)
    port = _free_port()
    with running("tracecomp", sys.executable, folder / model, port) as process:
        wait_until_ready(port, path, body)
        os.kill(_tree(process)[-1], signal.SIGKILL)
        start = time.perf_counter()
        wait_until_ready(port, path, body)
        back = time.perf_counter() - start
        os.kill(process, signal.SIGKILL)
    start = time.perf_counter()
    with running("tracecomp", sys.executable, folder / model, port):
        wait_until_ready(port, path, body)
        return {"process": back, "server": time.perf_counter() - start}


def main() -> None:
    """Measure each server with each model in turns, and print the medians of the turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival", action="append", default=[], metavar="NAME=PYTHON", help=", ".join(RIVALS))
    parser.add_argument("--model", action="append", choices=[*MODELS], help="measure these only")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    servers = {"tracecomp": sys.executable, **dict(rival.split("=", 1) for rival in options.rival)}
    with tempfile.TemporaryDirectory() as name:
        save(Path(name))
        for model in options.model or MODELS:
            raw: list[Measured] = []
            found: dict[str, list[Measured]] = {server: [] for server in servers}
            for _ in range(options.turns):
                raw.append(in_process(Path(name) / model / f"{model}.tcp"))
                for server, python in servers.items():
                    try:
                        result = measure(server, python, model, Path(name), options.seconds)
                        found[server].append(result)
                    except RuntimeError as error:
                        print(error, file=sys.stderr, flush=True)
            _print(model, _medians(raw), {server: _medians(turns) for server, turns in found.items() if turns})
            back = _medians([recovery(model, Path(name)) for _ in range(options.turns)])
            print(f"after SIGKILL of the model's process: answer in {back['process']:.2f} s; "
                  f"of the server: {back['server']:.2f} s after its start")  # fmt: skip


def _print(model: str, raw: Measured, found: dict[str, Measured]) -> None:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"\n{model} model in process: {raw['call'] * 1e6:.0f} us a call, {raw['rows']:.0f} rows/s in batches")
    print(f"load averages {load}; cores: {os.cpu_count()}")
    print("server       first answer    latency      added  answers/s  of raw  CPU an answer")
    for server, one in found.items():
        latency, added, cpu = (x * 1e6 for x in (one["latency"], one["latency"] - raw["call"], one["cpu"]))
        print(f"{server:12} {one['first']:10.2f} s {latency:7.0f} us {added:7.0f} us {one['rate']:10.0f} "
              f"{one['rate'] / raw['rows']:7.0%} {cpu:11.0f} us", flush=True)  # fmt: skip


def _medians(turns: list[Measured]) -> Measured:
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}


if __name__ == "__main__":
    main()
