"""Dumps of the stages of a compilation in a folder, under stable names.

A program called ``step`` dumps into ``<folder>/step``, the next one of that name into ``<folder>/step.2``. Files are
numbered in the order of the stages: ``01_recorded.ir``, ``02_simplify.ir``, ..., ``21_program.ir``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.locks import Lock

_lock = Lock()
_taken: dict[tuple[str, str], int] = {}


class Dump:
    """The folder of one program. Without the ``dump`` setting nothing is written."""

    def __init__(self, program: str, enabled: bool = True) -> None:
        self.folder: Path | None = None
        self._count = 0
        root = config.current().dump if enabled else ""
        if root:
            name = re.sub(r"[^\w.-]+", "_", program) or "graph"
            with _lock:
                count = _taken[root, name] = _taken.get((root, name), 0) + 1
            self.folder = Path(root) / (name if count == 1 else f"{name}.{count}")
            self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, stage: str, text: Callable[[], str], suffix: str = "ir") -> None:
        """Add the next stage; ``text`` is called only if there is a folder."""
        self._count += 1
        if self.folder is not None:
            (self.folder / f"{self._count:02d}_{stage}.{suffix}").write_text(text(), encoding="utf-8")

    def write_arrays(self, name: str, arrays: Callable[[], Mapping[str, Any]]) -> None:
        """Add a file ``name`` of arrays; ``arrays`` is called only if there is a folder."""
        if self.folder is not None:
            np.savez(self.folder / name, **arrays())
