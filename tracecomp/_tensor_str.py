"""Names that libraries import from ``torch._tensor_str``: parts of tensor printing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.printing import contents_text as _tensor_str
from tracecomp.functional.printing import options as PRINT_OPTS
from tracecomp.functional.printing import set_printoptions, tensor_text
from tracecomp.functional.printing import with_suffixes as _add_suffixes

__all__ = ["PRINT_OPTS", "_add_suffixes", "_tensor_str", "printoptions", "set_printoptions"]


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """A context with temporary ``set_printoptions``."""
    before = replace(PRINT_OPTS)
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        vars(PRINT_OPTS).update(vars(before))


def _str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of ``repr``; ``tensor_contents`` replaces the numbers."""
    return tensor_text(inp, tensor_contents)
