"""``python -m tests.onnx.architectures.with_torch FOLDER NAME...``: PyTorch exports the models, and trains them."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

STEPS, RATE = 10, 0.003


def trained(torch: Any, model: Any, arguments: Any) -> list[float]:
    """The losses of ten steps in evaluation mode, and the one after them."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE)
    losses = []
    for _ in range(STEPS + 1):
        found = model(*arguments)
        loss = ((found - 0.5) ** 2).mean()
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def main() -> None:
    torch = import_module("torch")
    torch.set_num_threads(1)
    try:
        import_module("torchvision")
    except RuntimeError:  # its own operators are built for one PyTorch; without them it only wants these declared
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    warnings.simplefilter("ignore")
    from tests.onnx.architectures.models import build

    for name in sys.argv[2:]:
        place = Path(sys.argv[1], name)
        errors = {}
        made = build(name)
        arguments = tuple(made.arguments.values())
        options: dict[str, Any] = {
            "script": {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False},
            "dynamo": {"dynamo": True, "optimize": False, "verbose": False},  # folded weights cannot be trained
        }
        for kind, more in options.items():
            try:
                more |= {"input_names": [*made.arguments], "opset_version": 18}
                torch.onnx.export(made.model, arguments, f"{place} {kind}.onnx", **more)
            except Exception as error:  # torch's own failure is a figure too
                errors[kind] = f"{type(error).__name__}: {error}"[:300]
                traceback.print_exc(limit=1)
        made.model.eval()
        with torch.no_grad():
            answer = made.model(*arguments).numpy()
        np.savez(f"{place}.npz", wanted=answer, **{k: v.numpy() for k, v in made.arguments.items()})
        losses = trained(torch, made.model, arguments)
        Path(f"{place} torch.json").write_text(json.dumps({"losses": losses, "errors": errors}))


if __name__ == "__main__":
    main()
