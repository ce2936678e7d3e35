"""Random ONNX graphs of many versions against onnxruntime: ``python -m tests.fuzz.onnx_graphs --minutes 9``."""

from __future__ import annotations

import sys
import warnings

from tests.fuzz.command import by_command
from tests.onnx.test_random_graphs import difference

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(by_command(__doc__ or "", "graphs", difference))
