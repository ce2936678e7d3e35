"""``python -m tracecomp``: trace, compare, explain."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tracecomp import config
from tracecomp.errors import TracecompError
from tracecomp.inspect.command import subcommands


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 when all is well, 1 when something differs, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m tracecomp",
        description="Look into programs that tracecomp compiles.",
        epilog="environment:\n" + config.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    subcommands(commands)
    options = parser.parse_args(argv)
    try:
        return int(options.run(options))
    except (ValueError, TracecompError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
