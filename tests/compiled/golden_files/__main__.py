"""Write the program files of this release, once; a folder that is there is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import tracecomp as torch
from tracecomp import nn

HERE = Path(__file__).parent


def main() -> None:
    """Save one network in every kind of file, with an input and its results."""
    folder = HERE / torch.__version__
    folder.mkdir()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(1)).eval()
    x = torch.randn(5, 4)
    compiled = torch.compile(model)
    compiled(x)
    y = compiled(x)  # the first call may run eagerly
    digests = {kind: compiled.save(folder / f"{kind}.tcp", x, kind=kind) for kind in ("code", "graph")}
    torch.jit.script(model).save(folder / "script.tcp")
    np.savez(folder / "arrays.npz", x=x.numpy(), y=y.detach().numpy())
    (folder / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main()
