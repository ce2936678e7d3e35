"""Small scripts for torch.distributed (``scripts.txt``), with the import changed and nothing else.

``python -m tests.distributed.scripts`` runs all of them in 2 and in 3 processes, under torch with gloo and under
tracecomp. It names those that wrote something else on some rank or ended otherwise; the status is then 1. As a process
of such a run: ``python scripts.py MODULE FOLDER PORT...``, a port for each script, in order.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.distributed.gangs import gang, succeed
from tracecomp.distributed.launching import reserved_port

Told = Mapping[str, str]
"""One process's output of each script, and the error that ended it."""
_kept: list[dict[str, object]] = []
"""Objects of scripts live on, as they would until a process ends: torch may hang when it frees a model."""


def scripts() -> dict[str, str]:
    """Scripts by name."""
    parts = Path(__file__).with_name("scripts.txt").read_text().split("### ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def with_import(text: str, module: str) -> str:
    """A script that imports ``module`` where it imported torch."""
    text = re.sub(r"^import torch$", f"import {module} as torch", text, flags=re.MULTILINE)
    return re.sub(r"^(import|from) torch\b(?!$)", rf"\1 {module}", text, flags=re.MULTILINE)


def told(text: str, name: str, module: str) -> str:
    """Run one script. Return its output, and the type of an error that ends it."""
    out = StringIO()
    names: dict[str, object] = {"__name__": "__main__"}
    _kept.append(names)
    with redirect_stdout(out):
        try:
            exec(compile(text, name, "exec"), names)
        except Exception as error:
            kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
            print(f"raises {kind}")
    if (dist := sys.modules[f"{module}.distributed"]).is_initialized():
        dist.destroy_process_group()
    return out.getvalue()


def run(module: str, size: int, count: int) -> list[Told]:
    """Return the output of every process for the first ``count`` scripts under ``torch`` or ``tracecomp``."""
    try:
        return _run(module, size, count)
    except subprocess.TimeoutExpired:
        if module != "torch":
            raise
        return _run(module, size, count)  # PyTorch's processes sometimes wait for each other for ever


def _run(module: str, size: int, count: int) -> list[Told]:
    with TemporaryDirectory() as folder, ExitStack() as reserved:
        ports = [str(reserved.enter_context(reserved_port())) for _ in range(count)]
        succeed(gang(size, __file__, module, folder, *ports, seconds=50))
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(size)]


def main() -> int:
    wrong = 0
    for size in (2, 3):
        expected, found = (run(module, size, len(scripts())) for module in ("torch", "tracecomp"))
        for rank in range(size):
            for name, text in expected[rank].items():
                if found[rank][name] != text:
                    wrong += 1
                    print(f"{name}, rank {rank} of {size}\n  torch: {text}\n  here:  {found[rank][name]}")
        print(f"{len(scripts())} scripts in {size} processes", flush=True)
    print(f"{wrong} outputs differ")
    return int(wrong > 0)


def child(module: str, folder: Path, *places: str) -> None:
    found = {}
    for (name, text), port in zip(scripts().items(), places, strict=False):
        print(name, flush=True)
        os.environ["MASTER_PORT"] = port
        found[name] = told(with_import(text, module), name, module)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:]:
        child(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
    else:
        sys.exit(main())
