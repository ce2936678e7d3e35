"""The native entry: one function of every program, which runs all its steps.

Its operands are the table of data pointers, the arena, the team of workers (null: none), and the place for the number
of a step whose check failed.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.threads.sync import RELEASE, TAKE

ENTRY = "tc_entry"


def head(name: str) -> str:
    """The first line of a function with the entry's operands."""
    return f"define void @{name}(ptr %table, ptr %arena, ptr %team, ptr %failed) #0"


HEAD = head(ENTRY)


def run_entry(a: Assembler, entry: str, table: str, arena: str, team: str, failed: str) -> None:
    """Call the entry that ``entry`` points to."""
    a.run(entry, f"ptr {table}", f"ptr {arena}", f"ptr {team}", f"ptr {failed}")


def run_unlocked(a: Assembler, entry: str, table: str, arena: str, failed: str, pool: str, threads: str) -> None:
    """Call it with the workers, and without the interpreter lock: until it returns no Python object is touched."""
    state = a.call("ptr", "@PyEval_SaveThread")
    # Null if another call has the workers: then loops run here, with the same results.
    team = a.call("ptr", f"@{TAKE}", f"ptr {pool}", f"i64 {threads}")
    run_entry(a, entry, table, arena, team, failed)
    a.run(f"@{RELEASE}", f"ptr {team}")
    a.run("@PyEval_RestoreThread", f"ptr {state}")
