"""``python -m tests.onnx.architectures.into FOLDER NAME...``: PyTorch's files on tracecomp, trained as PyTorch did."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp as tc
from tests.onnx.architectures.with_torch import trained
from tracecomp.onnx import load


def imported(place: Path, kind: str) -> dict[str, Any]:
    """How far answers and losses are from PyTorch's, relative to the largest."""
    with np.load(f"{place}.npz") as held:
        arguments = [tc.from_numpy(held[k]) for k in held.files if k != "wanted"]
        answer = held["wanted"]
    model = load(f"{place} {kind}.onnx")
    with tc.no_grad():
        found = model(*arguments).numpy()
    wanted = json.loads(Path(f"{place} torch.json").read_text())["losses"]
    losses = trained(tc, model, arguments)
    apart = max(abs(a - b) for a, b in zip(losses, wanted, strict=True)) / max(map(abs, wanted))
    gap = float(np.max(np.abs(answer - found)) / np.max(np.abs(answer)))
    return {"gap": gap, "losses": apart, "moved": abs(wanted[-1] - wanted[0]) / abs(wanted[0])}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[2:]:
        place = Path(sys.argv[1], name)
        told = json.loads(Path(f"{place} torch.json").read_text())["errors"]
        for kind in ("script", "dynamo"):
            try:
                found = {"refused": told[kind]} if kind in told else imported(place, kind)
            except Exception as error:  # any failure is the figure of this model; the others continue
                found = {"error": f"{type(error).__name__}: {error}"[:300]}
            Path(f"{place} {kind}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
