"""The user's line of the first difference between a recording and the call that it should serve.

The call is recorded again. The new recording has the values that the old one has lost sight of: constants, operators
and values that Python read. The first of them that differs has a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from tracecomp.base.errors import Source, WrongResult
from tracecomp.compiled.sampled_verification import Verifier
from tracecomp.ir.graph import Graph, Value
from tracecomp.record.capture import Refusal, target_of
from tracecomp.record.guards.reads import Read
from tracecomp.record.recording import Recording


def first_difference(fn: Callable[..., Any], old: Recording, new: Recording | Refusal) -> Source | None:
    """The line where the recording ``new`` of a call of ``fn`` first differs from ``old``; None if none is known."""
    target = target_of(fn)
    code = None if target is None else target[0].__code__
    if isinstance(new, Refusal):
        return _source(code, min(new.lines, default=0))
    return _of_graphs(old.graph, new.graph) or _source(code, _of_reads(old, new))


def in_pieces(pieces: Sequence[Any], call: Callable[[], object]) -> Source | None:
    """The line in the first of ``pieces``, compiled functions that ``call`` calls, that differs from an eager call."""
    before = [p.__call__ for p in pieces]
    for p in pieces:
        p.__call__ = Verifier(p, 1, "raise")
        p.__call__.calls = 1  # the first call is not compared otherwise
    try:
        call()
    except WrongResult as wrong:
        return wrong.source
    except Exception:  # any exception of the program
        return None
    finally:
        for p, was in zip(pieces, before, strict=True):
            p.__call__ = was
    return None


def _source(code: CodeType | None, line: int) -> Source | None:
    return Source(code.co_filename, line, code.co_name) if code is not None and line else None


def _of_graphs(old: Graph, new: Graph) -> Source | None:
    """The line of the first node of ``new`` that ``old`` has not at its place."""
    expected = list(_described(old))
    for number, (node, described) in enumerate(zip(new.nodes, _described(new), strict=True)):
        if number >= len(expected) or expected[number] != described:
            return new.origin[node].source
    return None


def _described(graph: Graph) -> Iterator[tuple[Any, ...]]:
    """Operator, attributes and operands of each node; operands as numbers of nodes or names of inputs."""
    known: dict[Value, Any] = {}
    for given in graph.inputs:
        data = None if given.data is None else given.data.tobytes()
        known[given.value] = (given.role, given.name if data is None else data)
    for number, node in enumerate(graph.nodes):
        yield node.op.name, node.key, tuple(known.get(v) for v in node.inputs)
        known.update({v: (number, n) for n, v in enumerate(node.outputs)})


def _of_reads(old: Recording, new: Recording) -> int:
    """The first line that read a value that ``old`` lacks or has differently; 0 if there is no such line."""
    before = {read.path(): read for read in _reads(old)}
    lines = [r.line for r in _reads(new) if r.line and not _is_same(before.get(r.path()), r)]
    return min(lines, default=0)


def _reads(recording: Recording) -> Iterator[Read]:
    return (r for root in recording.guards.reads.roots() for r in root.walk() if r.step is not None)


def _is_same(old: Read | None, new: Read) -> bool:
    return old is not None and old.kind is new.kind and bool(old.seen == new.seen)
