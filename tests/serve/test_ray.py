"""``serve.Model`` as a deployment of Ray Serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import ROOT
from tracecomp import serve

pytestmark = pytest.mark.slow


def test_a_deployment_answers(models: Path) -> None:
    ray, ray_serve = pytest.importorskip("ray"), pytest.importorskip("ray.serve")
    path = models / "scaled" / "3" / "model.tcp"

    class Triple:
        def __init__(self) -> None:
            self.model = serve.Model(path)

        async def __call__(self, x: Any) -> list[Any]:
            answer = await self.model.infer_async({"x": np.array(x, np.float32)})
            return answer["output_0"].tolist()

    runtime = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=runtime)
    try:
        handle = ray_serve.run(ray_serve.deployment(Triple).bind())
        answers = [handle.remote([[k] * 6]) for k in range(8)]
        assert [answer.result() for answer in answers] == [[[3.0 * k] * 6] for k in range(8)]
    finally:
        ray_serve.shutdown()
        ray.shutdown()
