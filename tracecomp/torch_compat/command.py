"""``python -m tracecomp run`` and ``python -m tracecomp torch``."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracecomp.torch_compat import distribution
from tracecomp.torch_compat.activate import as_torch

_ACTIONS: dict[str, Callable[[Path | None], str]] = {
    "install": distribution.install, "uninstall": distribution.uninstall, "status": distribution.status,
}  # fmt: skip


def subcommands(commands: Any) -> None:
    """Add both to the parser's ``commands``."""
    program = commands.add_parser(
        "run", help="run a program written for PyTorch with its arguments, or a dump (file.ir)"
    )
    program.add_argument("-m", action="store_true", help="the program is a module")
    program.add_argument("program", help="a script, a dump (file.ir) or, with -m, a module, followed by its arguments")
    torch = commands.add_parser("torch", help="make 'import torch' import tracecomp in this environment, or undo it")
    torch.add_argument("action", choices=_ACTIONS, help="install or uninstall the replacement, or print its status")
    torch.add_argument("--folder", type=Path, help="the environment's site-packages (default: this one's)")
    torch.set_defaults(run=_torch)


def _torch(options: argparse.Namespace) -> int:
    try:
        print(_ACTIONS[options.action](options.folder))
    except FileExistsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(program: list[str]) -> int:
    """Run ``script.py ARGS`` or ``-m module ARGS`` as Python would; its exceptions and exit code are its own."""
    if not program or program == ["-m"]:
        print("error: run needs a script, or -m and a module", file=sys.stderr)
        return 2
    if program[0] != "-m" and not Path(program[0]).exists():
        print(f"error: no file {program[0]}", file=sys.stderr)
        return 2
    as_torch()
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path.insert(0, "")
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        sys.path[0:0] = [str(Path(program[0]).resolve().parent)]
        runpy.run_path(program[0], run_name="__main__")
    return 0
