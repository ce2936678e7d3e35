"""``python -m tracecomp``: trace, compare, explain, schedule, env, demo, run, torch."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from tracecomp import __version__
from tracecomp.base import config
from tracecomp.base.errors import TracecompError, is_user_file
from tracecomp.demo import demo
from tracecomp.inspect import environment, scheduling
from tracecomp.inspect.command import UsageError, subcommands
from tracecomp.torch_compat import command as torch_compat


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 when all is well, 1 when something differs, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m tracecomp",
        description="Look into programs that tracecomp compiles.",
        epilog="environment:\n" + config.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tracecomp {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    subcommands(commands)
    environment.add_command(commands)
    scheduling.add_command(commands)
    torch_compat.subcommands(commands)
    commands.add_parser("demo", help="train two networks on handwritten digits, eagerly and compiled", add_help=False)
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["run"] and given[1:] not in (["-h"], ["--help"]):
        return torch_compat.run(list(given[1:]))  # all that follows is the program's
    options, rest = parser.parse_known_args(argv)
    if "run" not in options:
        return demo(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return int(options.run(options))
    except (UsageError, TracecompError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_file(f.filename)]
        print("".join(traceback.format_list(frames)), end="", file=sys.stderr)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
