"""Saved programs and the object cache across architectures: the right result, or an error that names the reason.

``save FOLDER`` writes files on one processor, and ``load FOLDER`` prints on another what becomes of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tracecomp as torch
from tests.aarch64.programs import digest, numbers
from tracecomp import nn

ARGUMENTS = numbers(3, 1, 8, 8)
LEVELS: dict[str, dict[str, Any]] = {
    "code for both": {"levels": ["x86-64-v2", "aarch64"]},
    "code for the architecture that saved it": {},
    "a graph": {"kind": "graph"},
}
"""Arguments of ``save``, by name."""


def functions() -> dict[str, Callable[..., Any]]:
    """The saved programs: inference, and a training step that changes its state."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(144, 5))
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {"functions": lambda x: (x.exp().half().float() + x.erf()).sum(1) + (x * 1e9).to(torch.int32), "step": step}


def save(folder: Path) -> None:
    """Write every program in every way, and ``files.json`` with the digests of files and of results."""
    described = []
    for name, fn in functions().items():
        for way, how in LEVELS.items():
            path = folder / f"{name}, {way}.tcp"
            compiled = torch.compile(fn)
            given = compiled.save(path, ARGUMENTS, **how)
            described.append({"path": path.name, "digest": given, "results": digest(compiled(ARGUMENTS))})
    (folder / "files.json").write_text(json.dumps(described))


def load(folder: Path) -> None:
    """Print for every file whether its results are those of the processor that saved it, or the error."""
    for described in json.loads((folder / "files.json").read_text()):
        try:
            program = torch.load_program(folder / described["path"], digest=described["digest"])
            same = digest(torch.from_numpy(np.asarray(program(ARGUMENTS.numpy())))) == described["results"]
            said = "the same bits" if same else "OTHER BITS"
        except ValueError as error:
            said = str(error).removeprefix(f"{folder}/")
        print(f"{described['path']}: {said}", flush=True)


def main(args: Sequence[str]) -> int:
    {"save": save, "load": load}[args[0]](Path(args[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
