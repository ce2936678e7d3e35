"""``python -m tests.replay check`` replays every recorded graph, ``check --update`` writes a new reference.

``record FILES`` rewrites the corpus from the output of ``pytest -p tests.replay.recorder`` in FILES (see
``recorder.py``). A few graphs are kept for each combination of operators.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.replay import corpus, digests
from tests.replay.corpus import Recorded
from tracecomp.base.errors import VerifyError
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.parser import parse_graph

ENOUGH = 1
"""A graph is kept if it has a way of joining two operators that fewer graphs than this have."""
LARGE = 4096
"""Elements."""


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="compare with the reference; 1 if anything differs")
    check.add_argument("--update", action="store_true", help="write what was found as the reference")
    check.add_argument("--programs", action="store_true", help="loop programs only: nothing is compiled and run")
    check.add_argument("-k", default="", metavar="TEXT", help="only graphs whose names contain TEXT")
    record = commands.add_parser("record", help="make the corpus anew")
    record.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(args)
    return _record(given.files) if given.command == "record" else _check(given.update, not given.programs, given.k)


def _check(update: bool, bits: bool, text: str) -> int:
    graphs = [g for g in corpus.load() if text in g.name]
    reference = corpus.load_reference()
    start, different = time.perf_counter(), Counter[str]()
    for number, graph in enumerate(graphs, 1):
        try:
            found = digests.of(graph, bits)
        except (AssertionError, ValueError, VerifyError) as error:  # not well formed, or not read back
            different["form"] += 1
            print(f"{graph.name}: {error}")
            continue
        known = reference.get(graph.name, {})
        wrong = [kind for kind in found if found[kind] != known.get(kind)]
        different.update(wrong)
        if wrong:
            print(f"{graph.name}: {', '.join(wrong)}")
            reference[graph.name] = {**known, **found}
        if number % 100 == 0:
            print(f"{number} of {len(graphs)}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if update:
        kept = {g.name for g in corpus.load()}
        corpus.save_reference({name: found for name, found in reference.items() if name in kept})
    counts = ", ".join(f"{kind} {n}" for kind, n in different.items()) or "none"
    print(f"{len(graphs)} graphs in {time.perf_counter() - start:.0f} s; different: {counts}")
    return int(bool(different) and not update)


def _record(files: Iterable[Path]) -> int:
    kept = list(_kept(_named(line for file in files for line in file.read_text(encoding="utf-8").splitlines())))
    corpus.save(kept)
    print(f"{len(kept)} graphs, {corpus.GRAPHS.stat().st_size} bytes")
    return 0


def _named(lines: Iterable[str]) -> Iterator[Recorded]:
    """Yield the graphs, each under a unique name."""
    names = Counter[str]()
    for line in lines:
        found = Recorded.from_json(line)
        names[found.name] += 1
        yield replace(found, name=f"{found.name} {names[found.name]}") if names[found.name] > 1 else found


def _kept(graphs: Iterable[Recorded]) -> Iterator[Recorded]:
    """Those that bring something new."""
    counts = Counter[tuple[str, ...]]()
    for recorded in graphs:
        ways = {(*way, *map(str, recorded.settings)) for way in _ways(parse_graph(recorded.graph))}
        if any(counts[w] < ENOUGH for w in ways):
            counts.update(ways)
            yield recorded


def _ways(graph: Graph) -> set[tuple[str, ...]]:
    """Return the combinations of operators: each with its operands, by types, and large or small."""
    found = set[tuple[str, ...]]()
    for node in graph.live_nodes():
        found |= {(_sort(node), _sort(v.node), f"operand {n}") for n, v in enumerate(node.inputs)}
        for attr in node.attrs.values():
            if isinstance(attr, Graph):
                found |= {("inside", *way) for way in _ways(attr)}
    return found


def _sort(node: Node | None) -> str:
    if node is None:
        return "input"
    value = node.outputs[0]
    size = "large" if value.type.numel >= LARGE else "small"
    return f"{node.op.name} {value.dtype.short} {min(value.ndim, 4)} {size}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
