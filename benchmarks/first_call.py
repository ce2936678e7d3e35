"""Processor time from the start of Python to compiled calls: ``python -m benchmarks.first_call TREE...``.

Each tree is a checkout of tracecomp. Fresh processes of all trees take turns, with an empty cache folder and then with
the filled one; the least time of each part counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

TURNS = 3
PARTS = ("import", "model", "call 1", "call 2", "in all")
PROGRAMS = {
    "inference, MLP": ("nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))", "torch.randn(8, 64)", ""),
    "training, MLP": (
        "nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))", "torch.randn(256, 64)",
        "torch.randint(0, 10, (256,))",
    ),
    "training, CNN": (
        "nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),"
        " nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10))",
        "torch.randn(16, 3, 16, 16)", "torch.randint(0, 10, (16,))",
    ),
}  # fmt: skip
"""Model, input, and labels of a training step."""

_INFERENCE = "f = torch.compile(lambda x: model(x).softmax(-1)); given = (x,)"
_TRAINING = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
@torch.compile
def f(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
given = (x, {labels})
"""
_PROCESS = """
import json, time
laps = [time.process_time()]
import tracecomp as torch
laps.append(time.process_time())
from tracecomp import nn
torch.set_num_threads(1)
model, x = {model}, {x}
{rest}
for _ in range(4):
    laps.append(time.process_time())
    f(*given)
laps.append(time.process_time())
print(json.dumps([b - a for a, b in zip(laps, laps[1:])][:4] + [laps[-1]]))
"""


def measured(tree: Path, program: str, cache: str) -> list[float]:
    """Seconds of ``PARTS`` in one process."""
    model, x, labels = PROGRAMS[program]
    rest = _TRAINING.format(labels=labels) if labels else _INFERENCE
    environment = os.environ | {"TRACECOMP_CACHE_DIR": cache, "PYTHONPATH": str(tree)}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"  # a recording shows lines, so the program has a file
        script.write_text(_PROCESS.format(model=model, x=x, rest=rest), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tree, env=environment, check=True, capture_output=True, text=True
        )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    trees = [Path(name).resolve() for name in sys.argv[1:]]
    print("| program | cache | tree |", " | ".join(PARTS), "|")
    for program in PROGRAMS:
        runs: defaultdict[tuple[str, str], list[list[float]]] = defaultdict(list)
        for turn in range(TURNS):
            for tree in trees[:: -1 if turn % 2 else 1]:
                with tempfile.TemporaryDirectory() as cache:
                    for state in ("empty", "filled"):
                        runs[state, tree.name].append(measured(tree, program, cache))
        for (state, name), rows in sorted(runs.items()):
            print(
                f"| {program} | {state} | {name} |", " | ".join(f"{min(c):.2f}" for c in zip(*rows, strict=True)), "|"
            )


if __name__ == "__main__":
    main()
