"""A compiled program without its source: machine code and the data that calls need."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Image:
    """Machine code for ``arrays`` arrays per call, of which the first ``inputs`` are read, with its memory per call and
    per thread in bytes.

    ``prepared`` is the offset, in a call's memory, of the flag of its preparation (None without one), which reads the
    inputs ``frozen``. ``checked`` code runs in guarded memory; ``written`` are the inputs that it updates.
    """

    objects: tuple[bytes, ...]
    inputs: int
    arrays: int
    memory_bytes: int
    thread_bytes: int
    labels: tuple[str, ...]
    parallel: bool
    prepared: int | None = None
    frozen: tuple[int, ...] = ()
    checked: bool = False
    written: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        """Serialize to a header line of JSON, then the objects."""
        header = {k: v for k, v in asdict(self).items() if k != "objects"} | {"sizes": [*map(len, self.objects)]}
        return b"".join((json.dumps(header).encode(), b"\n", *self.objects))

    @staticmethod
    def from_bytes(data: bytes) -> Image:
        """Restore the result of ``to_bytes``."""
        header, _, rest = data.partition(b"\n")
        fields = json.loads(header)
        ends = [*accumulate(fields.pop("sizes"), initial=0)]
        objects = tuple(rest[start:end] for start, end in pairwise(ends))
        return Image(
            objects=objects, **{**fields, **{name: tuple(fields[name]) for name in ("labels", "frozen", "written")}}
        )
