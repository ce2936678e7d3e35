"""``torch.Size``: a shape."""

from __future__ import annotations

import math
from typing import Any


class Size(tuple[int, ...]):
    """A tuple of sizes with ``numel()``."""

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, tuple(other)))

    def __mul__(self, times: Any) -> Size:
        return Size(tuple.__mul__(self, times))

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"
