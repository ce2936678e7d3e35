"""docs/operators.md, generated from the operator records."""

from __future__ import annotations

import inspect
from itertools import groupby
from pathlib import Path

from tracecomp.ir.op import OPS, Op

PATH = Path(__file__).parents[2] / "docs" / "operators.md"

_HEAD = """\
# Operators

Graphs consist of these primitives; fusion, derivatives and code generation handle no others. Other functions are
compositions of them. [Adding an operator](adding-an-operator.md) describes the records. An elementwise operator without
named operands takes one or two tensors and broadcasts them. Generated from the records of `ops/` by
`python -m tests.surface`.
"""


def _call(op: Op) -> str:
    """The operator's name, its operands and static parameters, as far as the record names them."""
    parameters = inspect.signature(op.infer).parameters.values()
    return f"{op.name}({', '.join(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL)})".replace("()", "")


def _meaning(op: Op) -> str:
    return op.doc.replace("|", "\\|")


def operators() -> str:
    """The text of docs/operators.md."""
    parts = [_HEAD]
    for kind, group in groupby(sorted(OPS.values(), key=lambda op: (op.kind, op.name)), lambda op: op.kind):
        rows = "\n".join(f"| `{_call(op)}` | {_meaning(op)} |" for op in group)
        parts.append(f"## {kind}\n\n| operator | meaning |\n|---|---|\n{rows}\n")
    return "\n".join(parts)
