"""Metrics of a server process, read by prometheus_client's own parser."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from tests.serve.conftest import Server
from tests.serve.test_server import body, call, post, rows


def samples(server: Server, accept: str) -> dict[tuple[str, str], float]:
    """Values of version 1 of "scaled" by name and status."""
    status, content = call(server, "/metrics", headers={"Accept": accept})
    assert status == 200
    read = openmetrics if "openmetrics" in accept else prometheus
    found = [sample for family in read(content.decode()) for sample in family.samples]
    wanted = [s for s in found if s.labels["model"] == "scaled" and s.labels["version"] == "1" and "le" not in s.labels]
    return {(s.name, s.labels.get("status", "")): s.value for s in wanted}


def test_requests_are_counted(server: Server) -> None:
    path = "/v2/models/scaled/versions/1/infer"
    before = samples(server, "text/plain")
    assert post(server, path, body(rows(3)))[0] == 200
    assert post(server, path, body(rows(3)[:, :5]))[0] == 400
    after = samples(server, "application/openmetrics-text; version=1.0.0")

    def more(name: str, status: str = "") -> float:
        return after[name, status] - before.get((name, status), 0)

    assert (more("tracecomp_requests_total", "200"), more("tracecomp_requests_total", "400")) == (1, 1)
    assert more("tracecomp_batch_rows_sum") == 3 and more("tracecomp_queue_seconds_count") == 1
    assert more("tracecomp_compute_seconds_count") == 1 and after["tracecomp_process_starts_total", ""] >= 1
