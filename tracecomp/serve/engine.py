"""All models of a server: their processes, their queues, and the requests to them.

The methods belong to the event loop that ``start`` ran in. Nothing here knows HTTP or gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from tracecomp.serve.batching import LOWEST_PRIORITY, Batcher
from tracecomp.serve.errors import InvalidRequest, NotFound, ServeError, Unavailable
from tracecomp.serve.metrics import Metrics, ModelMetrics
from tracecomp.serve.process import WorkerProcess
from tracecomp.serve.repository import Entry
from tracecomp.serve.signature import Signature
from tracecomp.serve.tensors import TensorData
from tracecomp.serve.traffic import Traffic

_DRAIN_SECONDS = 60
"""Seconds that an unloaded version has to answer the requests that it has accepted."""


@dataclass(frozen=True)
class Inference:
    """A request: inputs in any order, and the names of the wanted outputs (all if none are given).

    ``priority`` 1 is served first, 0 last. ``timeout`` is the number of seconds until DeadlineExceeded.
    """

    inputs: Sequence[TensorData]
    wanted: Sequence[str] = ()
    priority: int = 0
    timeout: float | None = None


class ModelVersion:
    """One version of a model: its process and its queue."""

    def __init__(self, entry: Entry, metrics: Metrics) -> None:
        self.entry = entry
        self.name, self.version = entry.name, entry.version
        self.metrics = ModelMetrics(metrics, entry.name, entry.version)
        self.process = WorkerProcess(entry, self._changed, self.metrics.started)
        settings = entry.settings
        run, delay = self.process.run, settings.max_delay_ms / 1000
        self.batcher = Batcher(run, delay, settings.max_queue, self.metrics.computed)
        self._signature: Signature | None = None
        self._settled = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the process runs and the model's first runs are done."""
        return self.process.signature is not None

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, once the model has been ready. Unavailable before."""
        if self._signature is None or self.process.is_given_up:
            raise Unavailable(f"model {self.name!r}, version {self.version}, is not ready: {self.process.failure}")
        return self._signature

    def start(self) -> None:
        """Start the process."""
        self.process.start()

    async def close(self) -> None:
        """End the process; waiting requests are refused."""
        self.batcher.close()
        await self.process.close()
        self._settled.set()

    async def settled(self) -> None:
        """Wait until the model is ready or cannot be loaded."""
        await self._settled.wait()

    async def infer(self, request: Inference) -> Sequence[TensorData]:
        """The outputs for a request. ServeError is the reason for none."""
        with _Counted(self.metrics):
            inputs = self._checked(request)
            priority, timeout = request.priority, request.timeout
            return await self.batcher.submit(inputs, request.wanted, priority=priority, timeout=timeout)

    async def stream(self, request: Inference) -> AsyncGenerator[Sequence[TensorData], None]:
        """The answers for a request, one after the other. ServeError may follow some of them."""
        with _Counted(self.metrics):
            inputs = self._checked(request)
            answers = self.batcher.stream(inputs, request.wanted, priority=request.priority, timeout=request.timeout)
            async with aclosing(answers):
                async for outputs in answers:
                    yield outputs

    def _checked(self, request: Inference) -> tuple[TensorData, ...]:
        """The inputs in the model's order."""
        signature = self.signature
        if request.wanted:
            signature.check_outputs(request.wanted)
        return signature.in_order(request.inputs)

    def _changed(self) -> None:
        signature = self.process.signature
        if signature is not None:
            self._signature = signature
            self.batcher.resume(signature.max_rows)
            self._settled.set()
            return
        self.batcher.pause()
        if self.process.is_given_up:
            self.batcher.refuse(self.process.failure)
            self._settled.set()


class _Counted:
    """Counts a request by its status in the metrics."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self._metrics = metrics

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        left = 499  # the client has left
        self._metrics.answered(200 if error is None else error.status if isinstance(error, ServeError) else left)


class Engine:
    """The models of a folder, or given ones."""

    def __init__(self, models: Sequence[Entry]) -> None:
        self.entries = models
        self.metrics = Metrics()
        self.changed: Callable[[], None] = lambda: None
        """Called when versions, defaults or traffic have changed."""
        self._models: dict[str, dict[str, ModelVersion]] = {}
        self._defaults: dict[str, str] = {}
        self._traffic: dict[str, Traffic] = {}
        self._shadows: set[asyncio.Task[None]] = set()
        self._apart: set[ModelVersion] = set()  # processes that take no new requests: loading or draining

    async def start(self) -> None:
        """Start a process for each model, without waiting for them."""
        for entry in self.entries:
            made = ModelVersion(entry, self.metrics)
            self._insert(made)
            made.start()

    async def load(self, entry: Entry) -> ModelVersion:
        """Start a version, and return it when it answers requests. A loaded version of the same name is replaced.

        The version becomes the default if none is newer. InvalidRequest if it cannot be loaded; then nothing changes.
        """
        made = ModelVersion(entry, self.metrics)
        self._apart.add(made)
        try:
            made.start()
            await made.settled()
            if not made.is_ready:
                raise InvalidRequest(f"{entry.name}, version {entry.version}: {made.process.failure}")
            replaced = self._models.get(entry.name, {}).get(entry.version)
            self._insert(made)
        except BaseException:
            await made.close()
            raise
        finally:
            self._apart.discard(made)
        self.changed()
        if replaced is not None:
            await self._drain(replaced)
        return made

    async def unload(self, name: str, version: str = "") -> None:
        """Stop a version, the default one if none is named, after it has answered its requests.

        The newest remaining version replaces an unloaded default. NotFound if there is no such version.
        """
        model = self.find(name, version)
        versions = self._models[name]
        del versions[model.version]
        if name in self._traffic:
            self._traffic[name] = self._traffic[name].without(model.version)
        if not versions:
            del self._models[name], self._defaults[name]
            self._traffic.pop(name, None)
        elif self._defaults[name] == model.version:
            self._defaults[name] = [*versions][-1]
        self.changed()
        await self._drain(model)

    def set_default(self, name: str, version: str) -> None:
        """Let a version answer the requests that name none. NotFound, or InvalidRequest before it is ready."""
        self._find_ready(name, version)
        self._defaults[name] = version
        self._traffic.pop(name, None)
        self.changed()

    def set_traffic(self, name: str, traffic: Traffic) -> None:
        """Distribute the requests that name no version. NotFound, or InvalidRequest before a version is ready."""
        self.find(name)
        for version in (*traffic.weights, traffic.shadow):
            if version:
                self._find_ready(name, version)
        self._traffic[name] = traffic
        self.changed()

    def restore(self, name: str, default: str, traffic: Traffic) -> None:
        """Continue with a default version and traffic, as far as the engine has these versions, ready or not."""
        versions = self._models.get(name, {})
        if default in versions:
            self._defaults[name] = default
        for version in {*traffic.weights, traffic.shadow} - versions.keys():
            traffic = traffic.without(version)
        if versions:
            self._traffic[name] = traffic

    def traffic(self, name: str) -> Traffic:
        """How the requests that name no version are distributed."""
        return self._traffic.get(name) or Traffic()

    def _find_ready(self, name: str, version: str) -> None:
        model = self.find(name, version)
        if not model.is_ready:
            raise InvalidRequest(f"{name}, version {version}: {model.process.failure}")

    def route(self, name: str, version: str = "") -> ModelVersion:
        """The version that answers the next request: the named one, or one by the model's traffic."""
        if not version and name in self._traffic:
            version = self._traffic[name].choose()
        return self.find(name, version)

    async def infer(self, model: ModelVersion, request: Inference) -> Sequence[TensorData]:
        """The outputs of ``model``. The shadow version gets a copy of the request. ServeError is a reason for none."""
        traffic = self._traffic.get(model.name)
        outputs = await model.infer(request)
        if traffic is not None and traffic.shadow and traffic.shadow != model.version:
            shadow = self._models.get(model.name, {}).get(traffic.shadow)
            if shadow is not None:
                task = asyncio.get_running_loop().create_task(_shadow(shadow, request, outputs))
                self._shadows.add(task)
                task.add_done_callback(self._shadows.discard)
        return outputs

    def is_default(self, model: ModelVersion) -> bool:
        """Whether a version answers the requests that name none."""
        return self._defaults.get(model.name) == model.version

    def _insert(self, made: ModelVersion) -> None:
        name = made.name
        versions = {**self._models.get(name, {}), made.version: made}
        self._models[name] = dict(sorted(versions.items(), key=lambda item: item[1].entry.order))
        if name not in self._defaults or [*self._models[name]][-1] == made.version:
            self._defaults[name] = made.version

    async def _drain(self, model: ModelVersion) -> None:
        """End a version that takes no new requests."""
        self._apart.add(model)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(model.batcher.drain(), _DRAIN_SECONDS)
        finally:
            await model.close()
            self._apart.discard(model)

    async def close(self) -> None:
        """Stop all models."""
        models = [*self, *self._apart]
        self._models, self._defaults, self._traffic = {}, {}, {}
        await asyncio.gather(*[model.close() for model in models])

    async def settled(self) -> None:
        """Wait until every model is ready or cannot be loaded."""
        await asyncio.gather(*[model.settled() for model in self])

    def __iter__(self) -> Iterator[ModelVersion]:
        for versions in self._models.values():
            yield from versions.values()

    @property
    def models(self) -> Mapping[str, Mapping[str, ModelVersion]]:
        """Name -> version -> model, oldest version first."""
        return self._models

    @property
    def is_ready(self) -> bool:
        """Whether every model is ready."""
        return all(model.is_ready for model in self)

    def find(self, name: str, version: str = "") -> ModelVersion:
        """A version, the default one if none is named. NotFound if there is none."""
        versions = self._models.get(name)
        if not versions:
            raise NotFound(f"there is no model {name!r}")
        if version and version not in versions:
            raise NotFound(f"model {name!r} has no version {version!r}; it has {', '.join(versions)}")
        return versions[version or self._defaults[name]]


async def _shadow(model: ModelVersion, request: Inference, expected: Sequence[TensorData]) -> None:
    """Run a copy of a request behind all others, and count whether its answer has the same bits."""
    try:
        outputs = await model.infer(replace(request, priority=LOWEST_PRIORITY, timeout=None))
    except ServeError:
        model.metrics.shadowed("failed")
        return
    same = [(t.name, t.shape, bytes(t.data)) for t in outputs] == [(t.name, t.shape, bytes(t.data)) for t in expected]
    model.metrics.shadowed("same" if same else "different")
