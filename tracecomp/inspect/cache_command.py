"""``tracecomp cache``: the compiled code on the disk."""

from __future__ import annotations

import argparse
import json
import time

from tracecomp.inspect.text_report import size
from tracecomp.runtime import object_cache


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``cache`` to the command line."""
    line = "list, verify or clear the compiled code in the cache"
    parser = commands.add_parser("cache", help=line, description=line)
    parser.add_argument("action", choices=("list", "verify", "clear"), nargs="?", default="list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_cache)


def run_cache(options: argparse.Namespace) -> int:
    """Run the command; 1 if an entry is damaged."""
    if options.action == "clear":
        count, nbytes = object_cache.clear()
        words = f"removed {count} files, {size(nbytes)}"
        print(json.dumps({"removed": count, "bytes": nbytes}) if options.json else words)
        return 0
    entries = object_cache.entries(verify=options.action == "verify")
    if options.json:
        print(json.dumps([e._asdict() for e in entries]))
        return 0 if all(e.good for e in entries) else 1
    folder = object_cache.folder_of_entries()
    for e in sorted(entries, key=lambda e: -e.used) if options.action == "list" else [e for e in entries if not e.good]:
        damaged = "" if e.good else "  damaged: it is ignored and will be replaced"
        print(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(e.used))}  {size(e.nbytes):>9}  {e.key[:16]}{damaged}")
    bad = sum(not e.good for e in entries)
    verified = f", {bad} damaged" if options.action == "verify" else ""
    whole = f"{size(sum(e.nbytes for e in entries))} of {size(object_cache.LIMIT_BYTES)}"
    print(f"{len(entries)} files, {whole} in {folder}{verified}")
    return 1 if bad else 0
