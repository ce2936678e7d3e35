"""``python -m tests.onnx.architectures.out FOLDER NAME...``: export on tracecomp, by onnxruntime and back."""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def exported(name: str) -> dict[str, Any]:
    """Export one architecture with dynamic sizes, which checks it by onnx and onnxruntime, and load it again."""
    import tracecomp as tc
    from tests.onnx.architectures.models import build
    from tracecomp.onnx import export, load

    made = build(name)
    start = time.perf_counter()
    proto = export(made.model, tuple(made.arguments.values()), input_names=[*made.arguments], dynamic_axes=made.axes)
    seconds = time.perf_counter() - start
    with tc.no_grad():
        wanted = made.model(*made.arguments.values()).numpy()
        found = load(proto)(*made.arguments.values()).numpy()
    same = wanted.tobytes() == found.tobytes()
    gap = float(np.max(np.abs(wanted - found)) / np.max(np.abs(wanted)))
    return {"nodes": len(proto.model_proto.graph.node), "seconds": seconds, "same": same, "gap": gap}


def main() -> None:
    import tracecomp

    tracecomp.as_torch()
    warnings.simplefilter("ignore")
    for name in sys.argv[2:]:
        try:
            found = exported(name)
        except Exception as error:  # any failure is the figure of this model; the others continue
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        Path(sys.argv[1], f"{name} out.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
