"""Marks that exporters read, under the names of ``torch.onnx.symbolic_helper``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["parse_args", "quantized_args"]

F = TypeVar("F")


def parse_args(*arg_descriptors: str) -> Callable[[F], F]:
    """The function decorated; an exporter would read its arguments so."""
    return lambda fn: fn


def quantized_args(*arg_q_descriptors: bool, **options: object) -> Callable[[F], F]:
    """The function decorated; see ``parse_args``."""
    return lambda fn: fn
