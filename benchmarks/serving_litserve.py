"""LitServe's server for ``benchmarks.serving_rivals``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import litserve
import numpy as np
from starlette.requests import Request

from benchmarks.serving_rivals import ROWS, Array, program


class Rival(litserve.LitAPI):
    folder: Path

    def setup(self, device: str) -> None:
        self.model = program(self.folder)[1]

    def decode_request(self, request: Request) -> Array:
        body: Any = request  # LitServe reads the annotation and passes the parsed JSON
        return np.array(body["x"], np.float32)

    def batch(self, inputs: Sequence[Array]) -> Array:
        return np.stack(inputs)

    def predict(self, x: Array) -> Array:
        return self.model(x)

    def unbatch(self, output: Array) -> list[Array]:
        return list(output)

    def encode_response(self, output: Array) -> dict[str, list[float]]:
        return {"y": output.tolist()}


def run(folder: Path, port: int) -> None:
    """Serve the only model in ``folder``."""
    api = Rival(max_batch_size=ROWS, batch_timeout=0.001)
    api.folder = folder
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False, log_level="error")
