"""Random ONNX operators against onnxruntime: ``python -m tests.fuzz.onnx_operators --minutes 10 --seed 0``."""

from __future__ import annotations

import sys
import warnings

from tests.fuzz.command import by_command
from tests.onnx.test_random_operators import difference

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(by_command(__doc__ or "", "operators", difference))
