"""A worker process: it runs one model for the server."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracecomp import set_num_threads
from tracecomp.base.errors import TracecompError
from tracecomp.serve.errors import InvalidRequest, ModelFailed, ServeError, Unavailable
from tracecomp.serve.frames import Header, Parts, WorkerChannel, unpack
from tracecomp.serve.handlers import SUFFIX, HandlerModel
from tracecomp.serve.loading import Loaded, load
from tracecomp.serve.settings import Settings
from tracecomp.serve.signature import Signature
from tracecomp.serve.tensors import TensorData, of_array
from tracecomp.serve.warmup import padded, prepare

_OF_INPUT = (IndexError, ValueError, TypeError, ArithmeticError)
"""Errors of a model that are taken for faults of its input."""


class Worker:
    """A loaded model that answers messages."""

    def __init__(self, path: Path, settings: Settings) -> None:
        if settings.threads:
            set_num_threads(settings.threads)
        self._model: Loaded = load(path, settings)
        self.signature: Signature
        self.signature, self._counts = prepare(self._model, settings)

    def run(self, inputs: Sequence[TensorData], wanted: Sequence[str]) -> list[TensorData]:
        """The wanted outputs, all if none are named. ServeError for a failed run."""
        arrays = [tensor.array() for tensor in inputs]
        rows = arrays[0].shape[0] if self.signature.max_rows else 0
        if rows and not self._model.exact:
            arrays = padded(arrays, self._counts)
        try:
            results = self._model.run(arrays)
        except MemoryError:
            raise Unavailable("the model ran out of memory") from None
        except Exception as error:  # a model may raise anything
            kind = InvalidRequest if isinstance(error, _OF_INPUT) else ModelFailed
            raise kind(f"the model failed: {type(error).__name__}: {error}") from error
        named = zip((spec.name for spec in self.signature.outputs), results, strict=True)
        return [of_array(n, a[:rows] if rows else a) for n, a in named if not wanted or n in wanted]

    def stream(self, inputs: Sequence[TensorData], wanted: Sequence[str]) -> Iterator[list[TensorData]]:
        """The outputs, which are a single answer."""
        yield self.run(inputs, wanted)


def serve(channel: WorkerChannel) -> None:
    """Load the model that the first message names, then answer until the server closes the connection."""
    told, _ = channel.receive()
    try:
        worker = _loaded(json.loads(told["model"]))
    except Exception as error:  # a file may fail in any way
        channel.send({"error": ("Unavailable", f"{type(error).__name__}: {error}")})
        return
    channel.send({"signature": json.dumps(worker.signature.to_json())})
    while True:
        header, body = channel.receive()
        _answer(channel, worker, header, body)


def _loaded(told: Mapping[str, Any]) -> Worker | HandlerModel:
    path, settings = Path(told["path"]), Settings(**told["settings"])
    if settings.max_memory_mb is not None:
        most = settings.max_memory_mb << 20
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    if path.suffix != SUFFIX:
        return Worker(path, settings)
    if not told["allow_code"]:
        raise TracecompError(f"{path.name} holds Python code; start the server with --allow-code to run it")
    return HandlerModel(path, settings, Path(told["folder"]))


def _answer(channel: WorkerChannel, worker: Worker | HandlerModel, header: Header, body: memoryview) -> None:
    try:
        if not header["stream"]:
            channel.send({}, _parts(worker.run(unpack(header, body), header["wanted"])))
            return
        for found in worker.stream(unpack(header, body), header["wanted"]):
            channel.send({"more": True}, _parts(found))
            if "stop" in channel.receive()[0]:
                break
    except ServeError as error:
        channel.send({"error": (type(error).__name__, str(error))})
        return
    channel.send({})


def _parts(tensors: Sequence[TensorData]) -> Parts:
    return [(t.name, t.datatype, t.shape, [t.data]) for t in tensors]


def main(connection: socket.socket) -> None:
    """Serve on ``connection`` until the server closes it."""
    with connection, suppress(EOFError, ConnectionError):
        serve(WorkerChannel(connection))
