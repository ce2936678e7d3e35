"""A served model inside one's own program: a worker process and batching, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tracecomp.base.errors import TracecompError
from tracecomp.serve.engine import Inference, ModelVersion
from tracecomp.serve.errors import Unavailable
from tracecomp.serve.metrics import Metrics
from tracecomp.serve.repository import Entry
from tracecomp.serve.settings import Settings
from tracecomp.serve.signature import TensorSpec
from tracecomp.serve.tensors import TensorData, of_array

T = TypeVar("T")


class Model:
    """A model in a separate process. Calls from any number of threads are batched, with the bits of single calls.

    Use it in WSGI applications (Flask, Django), scripts and tests; close it at the end, or use it in a ``with`` block.

    Args:
        path: a program file, exported program or ONNX model.
        settings: how it is loaded and batched; see ``Settings``.

    Raises:
        TracecompError: the file cannot be served.
    """

    def __init__(self, path: str | PathLike[str], settings: Settings | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tracecomp.serve", daemon=True)
        self._thread.start()
        entry = Entry(Path(path).stem, "1", Path(path), settings or Settings())
        self._version = self._call(_started(entry)).result()
        try:
            self._call(self._version.settled()).result()
            if not self._version.is_ready:
                raise TracecompError(f"{path}: {self._version.process.failure}")
        except BaseException:
            self.close()
            raise

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Names, datatypes and shapes of the inputs; -1 is an open size."""
        return self._version.signature.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Names, datatypes and shapes of the outputs; -1 is an open size."""
        return self._version.signature.outputs

    def infer(
        self, inputs: Mapping[str, npt.ArrayLike], *, priority: int = 0, timeout: float | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return the outputs for ``inputs``, both by name.

        Args:
            inputs: an array for each input, of its dtype and shape.
            priority: 1 is computed first, 0 last.
            timeout: seconds until DeadlineExceeded.

        Raises:
            ServeError: the inputs do not fit, the deadline has passed or too many requests wait.
        """
        return _outputs(self._submit(inputs, priority, timeout).result())

    async def infer_async(
        self, inputs: Mapping[str, npt.ArrayLike], *, priority: int = 0, timeout: float | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """``infer`` for coroutines. A cancelled call leaves the queue."""
        return _outputs(await asyncio.wrap_future(self._submit(inputs, priority, timeout)))

    def close(self) -> None:
        """End the process. Waiting calls raise Unavailable."""
        if self._loop.is_closed():
            return
        self._call(self._version.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(
        self, inputs: Mapping[str, npt.ArrayLike], priority: int, timeout: float | None
    ) -> Future[Sequence[TensorData]]:
        tensors = [of_array(name, np.asarray(array)) for name, array in inputs.items()]
        if self._loop.is_closed():
            raise Unavailable("the model is closed")
        request = Inference(tensors, (), priority, timeout)
        work: Coroutine[None, None, Sequence[TensorData]] = self._version.infer(request)
        return self._call(work)

    def _call(self, work: Coroutine[None, None, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _started(entry: Entry) -> ModelVersion:
    made = ModelVersion(entry, Metrics())
    made.start()
    return made


def _outputs(tensors: Sequence[TensorData]) -> dict[str, npt.NDArray[Any]]:
    return {tensor.name: tensor.array() for tensor in tensors}
