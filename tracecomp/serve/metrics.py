"""Counts and times of requests by model and version, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Limits of the histograms of times, in seconds."""
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Limits of the histogram of batches, in rows."""


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
        self.queue = Histogram(
            "tracecomp_queue_seconds", "Time that a request waits.", labels, registry=registry, buckets=_SECONDS
        )
        self.compute = Histogram(
            "tracecomp_compute_seconds", "Time of a batch.", labels, registry=registry, buckets=_SECONDS
        )
        self.rows = Histogram("tracecomp_batch_rows", "Rows of a batch.", labels, registry=registry, buckets=_ROWS)

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
        self._queue, self._compute = metrics.queue.labels(name, version), metrics.compute.labels(name, version)
        self._rows, self._starts = metrics.rows.labels(name, version), metrics.starts.labels(name, version)

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
        self._rows.observe(rows)
        self._compute.observe(seconds)
        for one in waited:
            self._queue.observe(one)

    def shadowed(self, result: str) -> None:
        """A copy of a request has been answered: with the ``same`` bits, ``different`` ones, or ``failed``."""
        self._metrics.shadows.labels(*self._labels, result).inc()
