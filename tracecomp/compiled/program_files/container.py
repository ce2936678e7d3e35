"""Writing program files, in the format of ``tracecomp_runtime.container``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import BinaryIO

from tracecomp.base.atomic import write_file
from tracecomp.base.errors import type_name
from tracecomp_runtime.container import FIXED, FORMAT, MAGIC, aligned, first


def write(
    f: str | os.PathLike[str] | BinaryIO, header: Mapping[str, object], sections: Mapping[str, bytes | memoryview]
) -> str:
    """Write a program to an open file, or in place of a path, whole or not at all; return its digest."""
    places, offset = {}, 0
    for name, data in sections.items():
        places[name] = {"offset": offset, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        offset += aligned(len(data))
    text = json.dumps({**header, "sections": places}, separators=(",", ":")).encode()
    found = hashlib.sha256(text).digest()

    def fill(file: BinaryIO) -> None:
        file.write(FIXED.pack(MAGIC, FORMAT, len(text), found))
        file.write(text.ljust(first(len(text)) - FIXED.size, b"\0"))
        for data in sections.values():
            file.write(data)
            file.write(b"\0" * (aligned(len(data)) - len(data)))

    if not (isinstance(f, str | os.PathLike) or hasattr(f, "write")):
        raise AttributeError(f"save(): f must be a path or a file that is open for writing, not {type_name(f)}")
    if isinstance(f, str | os.PathLike):
        write_file(f, fill)
    else:
        fill(f)
    return f"sha256:{found.hex()}"
