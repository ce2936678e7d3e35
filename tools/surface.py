"""Write docs/surface.md: every torch name that tracecomp has, from the code itself.

    python tools/surface.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tracecomp
from tracecomp import functional
from tracecomp.ir.op import OPS
from tracecomp.tensor import Tensor

TARGET = Path(__file__).parent.parent / "docs" / "surface.md"

INTRODUCTION = """# The torch surface

Made by `tools/surface.py` from the code; not edited by hand. Every name works eagerly and inside `compile`, except
where the differences below say otherwise. *Primitive*: one operator record of that name; all others are composed of
primitives and differentiate through them. *Method*: also a method of `Tensor`; *in place*: with the form `name_`.

## Differences from torch

* There are no complex tensors: `fft` has the transforms from real to real, `linalg.eig` and `stft` are absent.
* `as_strided` gives a copy, not a view to write through.
* Decompositions of `linalg` are run by numpy's LAPACK, in compiled programs too.
* What has a data-dependent size (`nonzero`, `unique`, `masked_select`, a mask as index) is compiled per size seen.
* `poisson` and `binomial` draw through numpy and cannot be captured; all other samplers are compiled.
* `resize_` inside a compiled function is refused.
* Random numbers come from Philox streams of tracecomp's own; they are not torch's numbers for the same seed.
* `bfloat16` needs the extra `ml_dtypes`.
"""


def first_line(call: Any) -> str:
    text = (getattr(call, "__doc__", "") or "").strip().split("\n")[0]
    return text.replace("|", "\\|").replace(":func:", "")


def table(title: str, names: dict[str, Any], methods: bool) -> list[str]:
    head = "| name | kind | method | in place | meaning |" if methods else "| name | meaning |"
    lines = [f"\n## {title} ({len(names)})\n", head, "|" + "---|" * head.count(" |")]
    for name, call in sorted(names.items()):
        if not methods:
            lines.append(f"| `{name}` | {first_line(call)} |")
            continue
        kind = "primitive" if name in OPS else "composed"
        method = "yes" if hasattr(Tensor, name) else ""
        in_place = "yes" if hasattr(Tensor, f"{name}_") else ""
        lines.append(f"| `{name}` | {kind} | {method} | {in_place} | {first_line(call)} |")
    return lines


def text() -> str:
    functions = {n: c for n, c in functional.PUBLIC.items() if callable(c) and not n.endswith("_")}
    public = (n for n in dir(Tensor) if not n.startswith("_") and not n.endswith("_"))
    attached = {n: getattr(Tensor, n) for n in public if n not in functions}
    forms = {n: c for n, c in vars(tracecomp.nn.functional).items() if callable(c) and not n.startswith("_")}
    forms = {n: c for n, c in forms.items() if getattr(c, "__module__", "").startswith("tracecomp") and n.islower()}
    lines = [INTRODUCTION]
    lines += table("Functions", functions, True)
    lines += table("Further attributes and methods of Tensor", attached, False)
    for space, title in (("linalg", "linalg"), ("special", "special"), ("fft", "fft"), ("windows", "signal.windows"),
                         ("masked", "masked")):  # fmt: skip
        lines += table(title, functional.NAMESPACES[space], False)
    lines += table("nn.functional", forms, False)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
