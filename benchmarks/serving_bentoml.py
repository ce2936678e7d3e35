"""BentoML's service for ``benchmarks.serving_rivals``; ``RIVAL_MODEL`` is the folder of the model."""

import os
from pathlib import Path

import bentoml
import numpy as np

from benchmarks.serving_rivals import ROWS, program


@bentoml.service(workers=1)
class Rival:
    def __init__(self) -> None:
        self.model = program(Path(os.environ["RIVAL_MODEL"]))[1]

    @bentoml.api(batchable=True, max_batch_size=ROWS, max_latency_ms=1000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.model(np.ascontiguousarray(x, np.float32))
