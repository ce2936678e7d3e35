"""``serve.Model`` as a deployment of Ray Serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import ROOT
from tracecomp import serve

pytestmark = pytest.mark.slow
ATTEMPTS = 5
"""Starts of Ray. A start fails where its agents take more than 15 fixed seconds (ray-project/ray#65983), which happens
on busy machines."""


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A running Ray of two processors, with Ray Serve."""
    ray, ray_serve = pytest.importorskip("ray"), pytest.importorskip("ray.serve")
    for limit in ("raylet_start_wait_time_s", "worker_register_timeout_seconds"):
        monkeypatch.setenv(f"RAY_{limit}", "300")
    runtime = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    for left in reversed(range(ATTEMPTS)):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=runtime)
            ray_serve.start()
            break
        except Exception:  # Ray raises bare ones
            ray.shutdown()
            if not left:
                raise
    yield ray
    ray_serve.shutdown()
    ray.shutdown()


def test_a_deployment_answers(ray: Any, models: Path) -> None:
    path = models / "scaled" / "3" / "model.tcp"

    class Triple:
        def __init__(self) -> None:
            self.model = serve.Model(path)

        async def __call__(self, x: Any) -> list[Any]:
            answer = await self.model.infer_async({"x": np.array(x, np.float32)})
            return answer["output_0"].tolist()

    handle = ray.serve.run(ray.serve.deployment(Triple).bind())
    answers = [handle.remote([[k] * 6]) for k in range(8)]
    assert [answer.result() for answer in answers] == [[[3.0 * k] * 6] for k in range(8)]
