"""Results of comparisons with planted faults: ``python -m tests.faults [--only WORD] [--write]``.

Each fault is planted in a separate process, and ``compare`` runs a program in which it shows. ``--write`` updates
docs/reports/planted-faults.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.faults.planted import FAULTS
from tests.faults.planted_operators import MORE
from tests.faults.planted_stages import STAGES
from tests.faults.trying import Found, table, try_fault

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "planted-faults.md"


def main() -> int:
    """Try the faults; 1 if one is not flagged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose room, program or place contains this")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    parser.add_argument("--show", action="store_true", help="print what each comparison says")
    options = parser.parse_args()
    results: list[Found] = []
    for number, fault in enumerate((*FAULTS, *MORE, *STAGES)):
        if options.only not in f"{fault.room} {fault.program} {fault.what}":
            continue
        start = time.monotonic()
        found = try_fault(fault)
        results.append(found)
        took = time.monotonic() - start
        print(f"{number:3} {found.summary} {took:5.1f} s  {fault.room}, {fault.program}: {fault.what[:90]}", flush=True)
        if options.show or not found.right:
            print("      " + found.said.replace("\n", "\n      "), flush=True)
    text = table(results)
    print(text.splitlines()[-1] if text else "")
    if options.write:
        head = PAGE.read_text().split("| where | fault |")[0]
        PAGE.write_text(head + text)
    return not all(f.flagged for f in results)


if __name__ == "__main__":
    raise SystemExit(main())
