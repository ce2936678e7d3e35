# PYTHON_ARGCOMPLETE_OK
"""``tracecomp`` and ``python -m tracecomp``: run, inspect, measure and compare programs."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tracecomp import __version__
from tracecomp.base import config, topics
from tracecomp.base.code_origin import is_user_file
from tracecomp.base.errors import TracecompError
from tracecomp.base.lazy_names import load_module

_GROUPS = {
    "inspect.command": "subcommands",
    "inspect.measuring": "add_commands",
    "inspect.scheduling": "add_command",
    "inspect.dump_commands": "add_command",
    "torch_compat.command": "subcommands",
    "torch_compat.doctor": "add_command",
    "serve.command": "add_command",
    "inspect.cache_command": "add_command",
    "inspect.environment": "add_command",
}
"""Modules and their functions that add commands, in the order of the help."""
_ALONE = {"doctor": "torch_compat.doctor", "serve": "serve.command"}
"""Commands that start without the modules of all others, whose import takes most of a second."""

_START = """\
First steps:
  tracecomp doctor train.py                                   list what a PyTorch program would miss
  tracecomp run train.py --epochs 3                           run it; "import torch" imports tracecomp
  tracecomp explain model.py:forward --shape 64,784           where the time goes, and what limits it
  tracecomp report model.py:step --inputs model.py:batch      the same as one HTML file
  tracecomp compare model.py:step --inputs model.py:batch     find the first operation that differs from eager

Exit codes: 0 success, 1 a difference or a missing name, 2 an error.
Completion in the shell: pip install argcomplete, then eval "$(register-python-argcomplete tracecomp)".
"""


def parser(command: str = "") -> argparse.ArgumentParser:
    """All commands with their options; only ``command`` if it is one that starts alone."""
    made = argparse.ArgumentParser(
        prog="tracecomp",
        description="Run PyTorch programs as compiled CPU code, and inspect what the compiler did.",
        epilog=f"{_START}\nEnvironment:\n{config.describe()}\n\n{topics.describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"tracecomp {__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for group in [_ALONE[command]] if command in _ALONE else _GROUPS:
        getattr(load_module(f"tracecomp.{group}"), _GROUPS[group])(commands)
    commands.add_parser("demo", help="train two networks on handwritten digits, eagerly and compiled", add_help=False)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 for success, 1 when something differs, 2 for wrong usage."""
    given = sys.argv[1:] if argv is None else argv
    commands = parser(*given[:1])
    with suppress(ImportError):
        import argcomplete  # an optional package for completion in shells

        argcomplete.autocomplete(commands)
    if given[:1] == ["run"] and given[1:] not in (["-h"], ["--help"]):
        if given[1:] and given[1].endswith(".ir"):
            return _done(lambda: int(load_module("tracecomp.inspect.dump_commands").run_file(given[1:])))
        return int(
            load_module("tracecomp.torch_compat.command").run([*given[1:]])
        )  # all further arguments are the program's
    options, rest = commands.parse_known_args(argv)
    if "run" not in options:
        return int(load_module("tracecomp.demo").demo(rest))
    if rest:
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    if given[:1] == ["bench"] and Path(options.target).is_dir():
        return _done(lambda: int(load_module("tracecomp.torch_compat.generation").run_bench(options)))
    return _done(lambda: int(options.run(options)))


def _done(run: Callable[[], int]) -> int:
    """Run a command; return its exit code, or 2 with one line for a user's mistake."""
    try:
        return run()
    except TracecompError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader closed the pipe
        sys.stderr.close()
        return 0
    except Exception as error:  # in the user's file: show its lines, not ours
        frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
