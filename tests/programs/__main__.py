"""``python -m tests.programs [NAME ...]``: run scripts natively; ``--write`` lists them in docs/reports/programs.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.programs.registry import Script
from tests.programs.running import report, shortly
from tests.programs.table import SCRIPTS

PATH = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file()) / "docs/reports/programs.md"
BEGIN, END = "<!-- scripts: begin -->", "<!-- scripts: end -->"
HEAD = "| script | what it is | recordings | runs as Python, and why |\n|---|---|---|---|\n"


def row(name: str, script: Script) -> tuple[str, str | None]:
    """Return the script's line of the table, and its differences from a run without compilation."""
    found = report(script)
    what = (script.__doc__ or "").splitlines()[0]
    why = "; ".join(dict.fromkeys(map(shortly, found.breaks)))
    return f"| {name.replace('_', ' ')} | {what} | {found.recordings} | {why} |", found.difference


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reports/programs.md")
    options = parser.parse_args()
    lines, wrong = [], 0
    for name in options.names or SCRIPTS:
        line, difference = row(name, SCRIPTS[name])
        lines.append(line)
        wrong += difference is not None
        print(line if difference is None else f"{line} DIFFERS: {difference}", flush=True)
    print(f"{len(lines)} scripts, {wrong} with a difference")
    if options.write and not wrong:
        text = PATH.read_text()
        before, rest = text.split(BEGIN)
        PATH.write_text(f"{before}{BEGIN}\n{HEAD}" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}")
    return wrong > 0


if __name__ == "__main__":
    raise SystemExit(main())
