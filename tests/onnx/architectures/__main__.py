"""``python -m tests.onnx.architectures [NAME ...]``: architectures both ways; ``--write``: the table in docs/onnx.md.

Needs torchvision and transformers, and a Python that has PyTorch too (``--torch``), for its exporter and its training.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.onnx.architectures.models import ARCHITECTURES

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file())
PAGE = ROOT / "docs" / "onnx.md"
BEGIN, END = "<!-- architectures: begin -->", "<!-- architectures: end -->"
HEAD = """| architecture | nodes | export | round trip | from torch: script | dynamo |
|---|---|---|---|---|---|
"""


def run(python: str, module: str, folder: str, names: Sequence[str]) -> None:
    """Run one of the three programs, in a separate process."""
    command = [python, "-m", f"tests.onnx.architectures.{module}", folder, *names]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=False)


def told(folder: str, name: str, what: str) -> dict[str, Any]:
    """Return the results of a program; nothing if it ended earlier."""
    path = Path(folder, f"{name} {what}.json")
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"error": ""}
    return found


def _short(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")[:90]


def went_in(found: dict[str, Any]) -> str:
    """Return a verdict on an imported model: its answer and its ten losses compared with PyTorch's."""
    if found.get("error") == "":
        return "not run"
    if "error" in found:
        return f"**no**: {_short(found['error'])}"
    if "refused" in found:
        return f"torch: {_short(found['refused'])}"
    good = found["gap"] < 1e-4 and found["losses"] < 1e-3
    return f"{'equal' if good else '**differs**'} ({found['gap']:.0e}, {found['losses']:.0e})"


def row(folder: str, name: str) -> str:
    out = told(folder, name, "out")
    if "error" in out:
        went_out = ["", f"**no**: {_short(out['error'])}", ""]
    else:
        went_out = [str(out["nodes"]), "equal", "same bits" if out["same"] else f"{out['gap']:.0e}"]
    return f"| {' | '.join([name, *went_out, *[went_in(told(folder, name, k)) for k in ('script', 'dynamo')]])} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.architectures")
    parser.add_argument("names", nargs="*", help="architectures, or parts of their names")
    parser.add_argument("--torch", metavar="PYTHON", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--folder", help="where files are left, or lie already with --table")
    parser.add_argument("--table", action="store_true", help="run nothing, read what the last run has left")
    parser.add_argument("--write", action="store_true", help="write the table into docs/onnx.md")
    options = parser.parse_args()
    wanted = [n for n in ARCHITECTURES if not options.names or any(part in n for part in options.names)]
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or made
        if not options.table:
            run(options.torch, "with_torch", folder, wanted)
            run(sys.executable, "into", folder, wanted)
            run(sys.executable, "out", folder, wanted)
        table = HEAD + "\n".join(row(folder, name) for name in wanted)
    print(table)
    if options.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
