"""Write ``tracecomp/aten/schemas.txt``: PyTorch's schemas of the operators of ``aten``.

    python -m tests.library.write_schemas

Each line is the schema of an overload without its namespace.
"""

from __future__ import annotations

import re
from pathlib import Path

import tracecomp

PATH = Path(tracecomp.__file__).parent / "aten" / "schemas.txt"


def lines() -> list[str]:
    """The schemas, in alphabetical order."""
    import torch

    found = []
    dispatched = set(torch._C._dispatch_get_all_op_names())  # not the operators of TorchScript alone
    for schema in torch._C._jit_get_all_schemas():
        name = f"{schema.name}.{schema.overload_name}".rstrip(".")
        if name in dispatched and re.match(r"aten::(?!__)", name):
            found.append(str(schema).removeprefix("aten::"))
    return sorted(found)


if __name__ == "__main__":
    PATH.write_text("".join(f"{line}\n" for line in lines()))
    print(f"wrote {PATH}")
