"""Counts and times of requests by model and version, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Limits of the histograms of times, in seconds."""
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Limits of the histogram of batches, in rows."""


class Values:
    """Counts of values by range, and the sum of the values."""

    def __init__(self, limits: Sequence[float]) -> None:
        self._limits, self.sum = limits, 0.0
        self.counts = [0] * (len(limits) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._limits, value)] += 1
        self.sum += value


class _Histogram:
    """A histogram by model and version. It counts ten times as fast as the package's, which locks each bucket."""

    def __init__(self, name: str, text: str, limits: Sequence[float], registry: CollectorRegistry) -> None:
        self._name, self._text, self._limits = name, text, limits
        self._values: dict[tuple[str, str], Values] = {}
        registry.register(self)

    def values(self, name: str, version: str) -> Values:
        """The values of a version of a model."""
        return self._values.setdefault((name, version), Values(self._limits))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram as the package writes it."""
        family = HistogramMetricFamily(self._name, self._text, labels=("model", "version"))
        text: Callable[[float], str] = floatToGoString
        names = [text(limit) for limit in (*self._limits, float("inf"))]
        for labels, values in self._values.items():
            family.add_metric(labels, [*zip(names, accumulate(values.counts), strict=True)], values.sum)
        yield family


class Metrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ("model", "version")
        self.requests = Counter("tracecomp_requests", "Requests by status.", (*labels, "status"), registry=registry)
        self.starts = Counter("tracecomp_process_starts", "Starts of the model's process.", labels, registry=registry)
        self.shadows = Counter(
            "tracecomp_shadow_answers", "Copies of requests by result.", (*labels, "result"), registry=registry
        )
        self.queue = _Histogram("tracecomp_queue_seconds", "Time that a request waits.", _SECONDS, registry)
        self.compute = _Histogram("tracecomp_compute_seconds", "Time of a batch.", _SECONDS, registry)
        self.rows = _Histogram("tracecomp_batch_rows", "Rows of a batch.", _ROWS, registry)

    def text(self, accepted: str) -> tuple[bytes, str]:
        """All metrics, and their media type: OpenMetrics if ``accepted`` names it, else Prometheus's."""
        encode, media_type = choose_encoder(accepted)
        return encode(self._registry), media_type


class ModelMetrics:
    """The metrics of one version of a model."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self._metrics, self._labels = metrics, (name, version)
        self.answered_count = self.failed_count = self.start_count = 0
        self._requests: dict[int, Counter] = {}
        self._queue, self._compute = metrics.queue.values(name, version), metrics.compute.values(name, version)
        self._rows, self._starts = metrics.rows.values(name, version), metrics.starts.labels(name, version)

    def answered(self, status: int) -> None:
        """A request has been answered with an HTTP status."""
        if status == 200:
            self.answered_count += 1
        else:
            self.failed_count += 1
        if status not in self._requests:
            self._requests[status] = self._metrics.requests.labels(*self._labels, str(status))
        self._requests[status].inc()

    def started(self) -> None:
        """The model's process has been started."""
        self.start_count += 1
        self._starts.inc()

    def computed(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """A batch has been computed; its requests have ``waited`` so many seconds."""
        self._rows.add(rows)
        self._compute.add(seconds)
        for one in waited:
            self._queue.add(one)

    def shadowed(self, result: str) -> None:
        """A copy of a request has been answered: with the ``same`` bits, ``different`` ones, or ``failed``."""
        self._metrics.shadows.labels(*self._labels, result).inc()
