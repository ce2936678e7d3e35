"""Run one program and write its results: ``python -m tests.ecosystem.child LIBRARY PROGRAM eager|compiled OUT``.

``torch`` is whatever the path says; with ``--tracecomp`` it is tracecomp.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np


def main() -> None:
    library, name, mode, out = sys.argv[1:5]
    if "--tracecomp" in sys.argv:
        import tracecomp

        tracecomp.as_torch()
    warnings.simplefilter("ignore")
    import torch

    from tests.ecosystem.kit import Kit
    from tests.ecosystem.programs import PROGRAMS

    kit = Kit(torch, mode == "compiled")
    torch.manual_seed(0)
    start = time.perf_counter()
    next(p for p in PROGRAMS[library] if p.__name__ == name)(kit)
    report = {"torch": str(torch.__version__), "seconds": time.perf_counter() - start, "graphs": kit.graphs}
    np.savez(out, report=json.dumps(report), **kit.results)


if __name__ == "__main__":
    main()
