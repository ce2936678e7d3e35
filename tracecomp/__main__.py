# PYTHON_ARGCOMPLETE_OK
"""``tracecomp`` and ``python -m tracecomp``: run, inspect, measure and compare programs."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from tracecomp import __version__
from tracecomp.base import config, topics
from tracecomp.base.errors import TracecompError, is_user_file
from tracecomp.demo import demo
from tracecomp.inspect import cache_command, dump_commands, environment, measuring, scheduling
from tracecomp.inspect.command import UsageError, subcommands
from tracecomp.serve import command as serve_command
from tracecomp.torch_compat import command as torch_compat
from tracecomp.torch_compat import doctor

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


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    made = argparse.ArgumentParser(
        prog="tracecomp",
        description="Run PyTorch programs as compiled CPU code, and inspect what the compiler did.",
        epilog=f"{_START}\nEnvironment:\n{config.describe()}\n\n{topics.describe()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action="version", version=f"tracecomp {__version__}")
    commands = made.add_subparsers(title="commands", required=True, metavar="COMMAND")
    subcommands(commands)
    measuring.add_commands(commands)
    scheduling.add_command(commands)
    dump_commands.add_command(commands)
    torch_compat.subcommands(commands)
    doctor.add_command(commands)
    serve_command.add_command(commands)
    cache_command.add_command(commands)
    environment.add_command(commands)
    commands.add_parser("demo", help="train two networks on handwritten digits, eagerly and compiled", add_help=False)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 for success, 1 when something differs, 2 for wrong usage."""
    commands = parser()
    with suppress(ImportError):
        import argcomplete  # an optional package for completion in shells

        argcomplete.autocomplete(commands)
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["run"] and given[1:] not in (["-h"], ["--help"]):
        if given[1:] and given[1].endswith(".ir"):
            return _done(lambda: dump_commands.run_file(given[1:]))
        return torch_compat.run(list(given[1:]))  # all further arguments are the program's
    options, rest = commands.parse_known_args(argv)
    if "run" not in options:
        return demo(rest)
    if rest:
        commands.error(f"unrecognized arguments: {' '.join(rest)}")
    return _done(lambda: int(options.run(options)))


def _done(run: Callable[[], int]) -> int:
    """Run a command; return its exit code, or 2 with one line for a user's mistake."""
    try:
        return run()
    except (UsageError, TracecompError) as error:
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
