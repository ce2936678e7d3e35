"""Printing of tensors: aligned columns, four digits, scientific form by range, summaries past a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracecomp.base import switches
from tracecomp.eager.meta import MetaArray
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.publish import publish
from tracecomp.ir.types import bool_, int64

Array = np.ndarray[Any, Any]


@dataclass
class PrintOptions:
    """The settings of ``set_printoptions``; ``sci_mode`` None means: by range."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


options = PrintOptions()
switches.register(vars(options))
_PROFILES: dict[str, tuple[int, float, int, int]] = {
    "default": (4, 1000, 3, 80), "short": (2, 1000, 2, 80), "full": (4, math.inf, 3, 80)
}  # fmt: skip


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set digits, summary threshold and size, line width; ``profile`` is ``default``, ``short`` or ``full``."""
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"set_printoptions(): profile must be default, short or full, got {profile!r}")
        options.precision, options.threshold, options.edgeitems, options.linewidth = _PROFILES[profile]
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems),
                        ("linewidth", linewidth)):  # fmt: skip
        if value is not None:
            setattr(options, name, value)
    options.sci_mode = sci_mode


class Formatter:
    """One width and one notation for all elements shown."""

    def __init__(self, shown: Array) -> None:
        self.floating = shown.dtype.kind == "f"
        self.whole = True
        self.scientific = False
        self.width = 1
        values = shown.reshape(-1)
        if not self.floating:
            self.width = max((len(str(v)) for v in values.tolist()), default=1)
            return
        values = values[np.isfinite(values) & (values != 0)].astype(np.float64)
        if values.size:
            self._measure(values)
        if options.sci_mode is not None:
            self.scientific = options.sci_mode

    def _measure(self, values: Array) -> None:
        sizes = np.abs(values)
        top, bottom = float(sizes.max()), float(sizes.min())
        self.whole = bool(np.all(values == np.ceil(values)))
        wide_range = top / bottom > 1000 or top > 1e8
        self.scientific = wide_range or (not self.whole and bottom < 1e-4)
        scientific = self.scientific if options.sci_mode is None else options.sci_mode
        if scientific:
            texts = [f"{v:.{options.precision}e}" for v in values.tolist()]
        elif self.whole:
            texts = [f"{v:.0f}." for v in values.tolist()]
        else:
            texts = [f"{v:.{options.precision}f}" for v in values.tolist()]
        self.width = max(map(len, texts))

    def text(self, value: Any) -> str:
        if not self.floating:
            shown = str(value)
        elif self.scientific:
            shown = f"{value:.{options.precision}e}"
        elif self.whole:
            shown = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            shown = f"{value:.{options.precision}f}"
        return shown.rjust(self.width)


class ComplexFormatter:
    """One width and notation for all real parts, one for all imaginary parts."""

    def __init__(self, shown: Array) -> None:
        self.real, self.imag = Formatter(shown.real), Formatter(shown.imag)
        self.width = self.real.width + self.imag.width + 1

    def text(self, value: complex) -> str:
        imag = self.imag.text(value.imag).lstrip() + "j"
        return self.real.text(value.real) + ("" if imag.startswith("-") else "+") + imag


def _edges(array: Array) -> Array:
    """The elements a summary shows."""
    for axis, n in enumerate(array.shape):
        if n > 2 * options.edgeitems:
            k = options.edgeitems
            array = np.take(array, [*range(k), *range(n - k, n)], axis)
    return array


AnyFormatter = Formatter | ComplexFormatter


def _vector(array: Array, indent: int, summarize: bool, formatter: AnyFormatter) -> str:
    per_line = max(1, (options.linewidth - indent) // (formatter.width + 2))
    k = options.edgeitems
    if summarize and not k:
        items = ["..."]
    elif summarize and array.size > 2 * k:
        head, tail = ([formatter.text(v) for v in part.tolist()] for part in (array[:k], array[-k:]))
        items = [*head, " ...", *tail]
    else:
        items = [formatter.text(v) for v in array.tolist()]
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(array: Array, indent: int, summarize: bool, formatter: AnyFormatter) -> str:
    if array.ndim == 0:
        return formatter.text(array.item())
    if array.ndim == 1:
        return _vector(array, indent, summarize, formatter)
    k = options.edgeitems
    rows = list(array)
    cut = summarize and len(rows) > 2 * k
    shown = rows[:k] + rows[len(rows) - k :] if cut else rows
    texts = [_nested(row, indent + 1, summarize, formatter) for row in shown]
    if cut:
        texts.insert(k, "...")
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(texts) + "]"


def _suffixes(x: Tensor) -> list[str]:
    found = []
    if isinstance(x._data, MetaArray):
        found += [f"device='{x._data.place}'", f"size={tuple(x.shape)}"]
        if x.dtype is not default_dtype():
            found.append(f"dtype={x.dtype}")
    elif x.numel() == 0:
        if x.ndim != 1:
            found.append(f"size={tuple(x.shape)}")
        if x.dtype is not default_dtype():
            found.append(f"dtype={x.dtype}")
    elif x.dtype not in (default_dtype(), default_dtype().to_complex(), int64, bool_):
        found.append(f"dtype={x.dtype}")
    grad_fn = x.grad_fn
    if grad_fn is not None:
        found.append(f"grad_fn=<{grad_fn.name()}>")
    elif x.requires_grad:
        found.append("requires_grad=True")
    return found


def contents_text(x: Tensor, indent: int) -> str:
    """The numbers, with ``indent`` columns before them."""
    array = x._data
    if isinstance(array, MetaArray):
        return "..."
    if array.size == 0:
        return "[]"
    if x.dtype.is_floating_point and x.dtype.itemsize == 2:
        array = array.astype(np.float32)
    summarize = array.size > options.threshold
    kind = ComplexFormatter if x.dtype.is_complex else Formatter
    return _nested(array, indent, summarize, kind(_edges(array) if summarize else array))


def with_suffixes(text: str, suffixes: Sequence[str], indent: int, force_newline: bool = False) -> str:
    """Append the suffixes after the numbers, and the closing parenthesis, to ``text``."""
    last = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or last + len(suffix) + 2 > options.linewidth:
            text += ",\n" + " " * indent + suffix
            last, force_newline = indent + len(suffix), False
        else:
            text += ", " + suffix
            last += len(suffix) + 2
    return text + ")"


def tensor_text(x: Tensor, contents: str | None = None) -> str:
    """The text of ``repr``; ``contents`` replaces the numbers."""
    prefix = "tensor(" if type(x) is Tensor or type(x).__name__ in ("Parameter", "Buffer") else f"{type(x).__name__}("
    body = contents_text(x, len(prefix)) if contents is None else contents
    return with_suffixes(prefix + body, _suffixes(x), len(prefix))


def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    if modes.recorder is not None:
        modes.recorder.shown()
    return tensor_text(self, tensor_contents)


def _format(self: Tensor, spec: str) -> str:
    if self.ndim == 0 and type(self) is Tensor:
        if modes.recorder is not None and self.dtype.is_floating_point | self.dtype.is_complex:
            modes.recorder.shown()
        # The text of a whole number, such as a count in a message, takes one path for each value.
        return format(self.item(), spec)
    return object.__format__(self, spec)


publish(_repr, "Tensor.__repr__")
publish(_format, "Tensor.__format__")
publish(set_printoptions, "torch.set_printoptions")
