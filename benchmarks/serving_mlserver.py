"""MLServer's runtime for ``benchmarks.serving_rivals``; ``RIVAL_MODEL`` is the folder of the model."""

import os
from pathlib import Path

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.serving_rivals import program


class Rival(MLModel):
    async def load(self) -> bool:
        self.model = program(Path(os.environ["RIVAL_MODEL"]))[1]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        y = self.model(NumpyCodec.decode_input(payload.inputs[0]))
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
