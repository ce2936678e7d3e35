"""Processor time of calls of small compiled functions in several Pythons: ``python -m benchmarks.call_cost PYTHON...``.

Fresh processes of the interpreters take turns. The least time of each program counts, in microseconds. In parentheses
is its ratio to the first interpreter's time. The second number there is that ratio over the ratio of the first row, a
program without tracecomp: it shows how much of the difference is not the interpreter's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

TURNS = 3
PYTHON_ALONE = "Python alone: `__call__(*args)` makes an object"
PROCESS = """
import json, platform, time
import tracecomp as torch
from tracecomp import nn, optim

torch.set_num_threads(1)
x, vector = torch.ones(4, 8), torch.ones(8)

class Settings:
    scale = 2.0

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))

class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer(model.parameters())

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

class Compiled(Trainer):
    def __init__(self, *parts):
        super().__init__(*parts)
        self.step = torch.compile(self.step)

class Made:
    __slots__ = ("first", "second")

class Maker:
    def __call__(self, *args):
        made = Made()
        made.first, made.second = args
        return made

settings = Settings()
settings.scale = 2.0
adam = Trainer(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), optim.Adam)
adamw = Trainer(nn.Sequential(*[Block() for _ in range(30)]), optim.AdamW)
sgd = Compiled(nn.Linear(8, 1), lambda p: optim.SGD(p, lr=0.1))
programs = {
    PYTHON_ALONE: (Maker(), (vector, vector), 3000),
    "`a * b + a` of 8 elements": (torch.compile(lambda a, b: a * b + a), (vector, vector), 3000),
    "attribute of a global object": (torch.compile(lambda a: a * settings.scale), (vector,), 3000),
    "MLP 8-8-1, Adam step": (torch.compile(lambda x: adam.step(x)), (x,), 1000),
    "30 blocks, AdamW step": (torch.compile(lambda x: adamw.step(x)), (x,), 100),
    "bound `Trainer.step`, SGD": (sgd.step, (x,), 1000),
}
times = {}
for name, (call, given, count) in programs.items():
    for _ in range(40):
        call(*given)
    rounds = []
    for _ in range(8):
        start = time.process_time()
        for _ in range(count):
            call(*given)
        rounds.append((time.process_time() - start) / count)
    times[name] = 1e6 * min(rounds)
print(json.dumps([platform.python_version(), times]))
"""


def measured(python: str, cache: str) -> tuple[str, dict[str, float]]:
    """The version of an interpreter, and microseconds of each program in one process."""
    root = Path(__file__).parents[1]
    environment = os.environ | {"TRACECOMP_CACHE_DIR": cache, "PYTHONPATH": str(root)}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"  # a recording shows lines, so the program has a file
        script.write_text(f"PYTHON_ALONE = {PYTHON_ALONE!r}\n{PROCESS}", encoding="utf-8")
        done = subprocess.run([python, str(script)], env=environment, check=True, capture_output=True, text=True)
    version, times = json.loads(done.stdout.splitlines()[-1])
    return version, times


def ratios(times: Mapping[str, float], first: Mapping[str, float], name: str) -> str:
    """The ratio of a program's time to the first interpreter's, and over that of Python alone."""
    ratio = times[name] / first[name]
    alone = times[PYTHON_ALONE] / first[PYTHON_ALONE]
    return f"{ratio:.2f}" if name == PYTHON_ALONE else f"{ratio:.2f}, {ratio / alone:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.call_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pythons", metavar="PYTHON", nargs="*", help="an interpreter with tracecomp's dependencies; default: this one"
    )
    pythons: Sequence[str] = parser.parse_args().pythons or [sys.executable]
    for python in pythons:
        if shutil.which(python) is None:
            parser.error(f"{python} is not a program")
    least: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for turn in range(TURNS):
            for python in pythons[:: -1 if turn % 2 else 1]:
                version, times = measured(python, str(Path(cache) / str(pythons.index(python))))
                known = least.setdefault(version, times)
                least[version] = {name: min(known[name], times[name]) for name in times}
    first, *_ = least.values()
    print("| program |", " | ".join(least), "|")
    print("|---" * (len(least) + 1) + "|")
    for name in first:
        cells = [f"{times[name]:.2f} µs ({ratios(times, first, name)})" for times in least.values()]
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
