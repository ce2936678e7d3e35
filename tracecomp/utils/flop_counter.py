"""Counting floating point operations of products and convolutions, under the names of ``torch.utils.flop_counter``.

Every operator whose record says that it is a sum of products says over which space, so no table of functions is needed:
a product and a sum for each point of that space, forward and backward, with memory or on the meta device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes, module_changes
from tracecomp.ir.op import Attrs, Bilinear, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.utils.hooks import register

__all__ = ["FlopCounterMode"]
_TOTAL = "Global"


def flops_of(op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> int:
    """Operations of one application: 2 for each product that is summed, 0 for operators that sum no products."""
    if op.name == "conv_transpose":  # the adjoint of a convolution by its input: the same products
        given, weight = operands
        sizes: tuple[int, ...] = (*given.shape, *weight.shape[1:])
        return 2 * math.prod(sizes)
    if not isinstance(op.loop, Bilinear):
        return 0
    types = [TensorType(from_numpy_dtype(x.dtype), x.shape) for x in operands if isinstance(x, np.ndarray)]
    result = op.result_types(types, attrs)[0]
    if "padding" in attrs:  # counts as elements do
        attrs = attrs | {"padding": tuple((0, 0) for _ in attrs["padding"])}
    form = op.loop.fn(types, result, **attrs)
    return 2 * math.prod(form.extents[name] for name in (*form.out, *form.reduce))


class FlopCounterMode:
    """``with FlopCounterMode() as counter:`` counts the operators that run inside, by the modules that run it.

    The backward pass counts for the whole only (``Global``). ``display`` prints the table at the end.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp.utils.flop_counter import FlopCounterMode
        >>> with FlopCounterMode(display=False) as counter:
        ...     loss = torch.nn.Linear(3, 4)(torch.ones(2, 3)).sum()
        >>> counter.get_total_flops()
        48
    """

    def __init__(self, mods: object = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode(): custom_mapping is not supported")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._path: list[str] = []
        self._parents: list[Any] = []

    def __enter__(self) -> FlopCounterMode:
        use.begin()
        self.flop_counts.clear()
        self._before, modes.watch = modes.watch, self._count
        tables: list[Any] = list(module_changes.global_hooks[:2])  # of all modules: before and after ``forward``
        self._hooks = [register(t, hook) for t, hook in zip(tables, (self._enter, self._leave), strict=False)]
        return self

    def __exit__(self, *error: object) -> None:
        modes.watch = self._before
        use.end()
        for hook in self._hooks:
            hook.remove()
        self._path.clear()
        self._parents.clear()
        if self.display:
            print(self.get_table(self.depth))

    def _enter(self, module: object, args: object) -> None:
        above = self._parents[-1] if self._parents else None
        name = next((n for n, m in (above.named_modules() if above is not None else ()) if m is module), None)
        own = f"{self._path[-1]}.{name}" if name else type(module).__name__
        self._path.append(own)
        self._parents.append(module)

    def _leave(self, module: object, args: object, result: object) -> None:
        if self._path:
            self._path.pop()
            self._parents.pop()

    def _count(self, op: Op, operands: Sequence[object], attrs: Attrs) -> None:
        if self._before is not None:
            self._before(op, operands, attrs)
        found = flops_of(op, operands, attrs)
        if found:
            for path in {_TOTAL, *self._path}:
                self.flop_counts[path][op.name] += found

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts[_TOTAL].values())

    def get_flop_counts(self) -> dict[str, dict[str, int]]:
        """Path of a module -> operator -> operations in the module and all below."""
        return {path: dict(found) for path, found in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, modules down to ``depth``."""
        limit = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        lines = [f"{'Module':<40} {'FLOP':>16} {'% Total':>8}"]
        for path in sorted(self.flop_counts, key=lambda p: (p != _TOTAL, p)):
            if path.count(".") < limit:
                count = sum(self.flop_counts[path].values())
                lines.append(f"{path:<40} {count:>16} {100 * count / total:>7.2f}%")
                lines += [f"  - {op:<36} {n:>16} {100 * n / total:>7.2f}%" for op, n in self.flop_counts[path].items()]
        return "\n".join(lines)
