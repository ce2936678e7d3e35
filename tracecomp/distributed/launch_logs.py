"""Files with the output of each rank: the launcher's ``--log-dir``, ``--redirects`` and ``--tee``, as in torchrun."""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

OUT, ERR = 1, 2
"""Bits of the options: standard output and standard error."""
_NAMES = {OUT: "stdout.log", ERR: "stderr.log"}


def streams(option: str) -> Mapping[int, int]:
    """Return the bits of each local rank: ``"3"`` for all ranks, ``"0:1,1:2"`` for some. ValueError otherwise.

    >>> from tracecomp.distributed.launch_logs import streams
    >>> streams("3")[7], streams("0:1,2:3")[2], streams("0:1")[1]
    (3, 3, 0)
    """
    if re.fullmatch("[0-3]", option):
        bits = int(option)
        return defaultdict(lambda: bits)
    if re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", option):
        pairs = (part.split(":") for part in option.split(","))
        return defaultdict(int, {int(rank): int(bits) for rank, bits in pairs})
    raise ValueError(f"expected 0 to 3, or RANK:0 to RANK:3 separated by commas, got {option!r}")


@dataclass
class RankLogs:
    """The files and the console to which local ranks write.

    The files are ``<folder>/<run>_<random>/attempt_<n>/<local rank>/stdout.log``. Streams in ``redirects`` go to files
    only, those in ``tee`` go to both. The console shows the ranks in ``shown``; None shows all.
    """

    folder: str | None
    run_id: str
    redirects: Mapping[int, int]
    tee: Mapping[int, int]
    shown: frozenset[int] | None = None
    _run: Path | None = None
    _attempt: int = 0
    _files: dict[tuple[int, int], BinaryIO] = field(default_factory=dict)

    def begin(self, attempt: int, ranks: int) -> None:
        """Create the files of an attempt with so many local ranks."""
        self._attempt = attempt
        bits = {rank: self.redirects[rank] | self.tee[rank] for rank in range(ranks)}
        if self.folder is None and not any(bits.values()):
            return
        if self._run is None:
            self._run = self._create()
        for rank, wanted in bits.items():
            place = self._run / f"attempt_{attempt}" / str(rank)
            place.mkdir(parents=True)
            for stream, name in _NAMES.items():
                if wanted & stream:
                    self._files[rank, stream] = (place / name).open("wb", buffering=0)

    def _create(self) -> Path:
        if self.folder is None:
            made = Path(tempfile.mkdtemp(prefix=f"tracecomp-logs-{self.run_id}_"))
            print(f"tracecomp: output of ranks is in {made}", file=sys.stderr, flush=True)
            return made
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{self.run_id}_", dir=self.folder))

    def write(self, rank: int, stream: int, line: bytes) -> bool:
        """Write a line to its file, if it has one; return whether the console shows it."""
        file = self._files.get((rank, stream))
        if file is not None:
            file.write(line)
            if not self.tee[rank] & stream:
                return False
        return self.shown is None or rank in self.shown

    def end(self) -> None:
        """Close the files of an attempt."""
        for file in self._files.values():
            file.close()
        self._files.clear()
