"""Combination of two arrays in a reduction, and the order for many.

Floats are added along one binary tree over the *leaves* of a reduction. Its left part has the largest power of two of
leaves that leaves some for the right. The tree is the same for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
Value = TypeVar("Value")
Node = tuple[int, int]
"""The leaves ``range(*node)``."""


class ReduceOp(Enum):
    """How a reduction over processes combines values. Members behave like ``torch.distributed.ReduceOp``."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    @property
    def RedOpType(self) -> type[ReduceOp]:
        return ReduceOp

    def __call__(self) -> ReduceOp:
        return self


_ARITHMETIC: Mapping[ReduceOp, Any] = {
    ReduceOp.SUM: np.add, ReduceOp.AVG: np.add, ReduceOp.PRODUCT: np.multiply, ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum, ReduceOp.BAND: np.bitwise_and, ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}  # fmt: skip
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def check(op: ReduceOp, dtype: np.dtype[Any]) -> None:
    """RuntimeError when the reduction does not support ``dtype``."""
    if op not in _ARITHMETIC:
        raise RuntimeError(f"ReduceOp.{op.name} is not supported. Multiply before the reduction")
    if op in _BITS and dtype.kind not in "biu":
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {dtype.name}: its elements are not integers")
    if op in (ReduceOp.MIN, ReduceOp.MAX) and dtype.kind == "c":
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {dtype.name}: complex numbers are not ordered")
    if op is ReduceOp.AVG and dtype.kind in "biu":
        raise RuntimeError(f"Cannot use ReduceOp.AVG with {dtype.name}: the mean is not an integer")


def combined(op: ReduceOp, a: Array, b: Array) -> Array:
    """Left operand ``a``, right operand ``b``: a new array."""
    with np.errstate(all="ignore"):
        result: Array = np.asarray(_ARITHMETIC[op](a, b), a.dtype)
    return result


def finished(op: ReduceOp, array: Array, leaves: int) -> Array:
    """The final operation after the tree: the division of a mean."""
    if op is not ReduceOp.AVG or leaves == 1:
        return array
    with np.errstate(all="ignore"):
        result: Array = np.asarray(array / array.dtype.type(leaves), array.dtype)
    return result


def children(node: Node) -> tuple[Node, Node]:
    """Left and right part of a node of several leaves."""
    low, high = node
    middle = low + (1 << ((high - low - 1).bit_length() - 1))
    return (low, middle), (middle, high)


def parts(leaves: int, own: Node) -> list[Node]:
    """The largest nodes of the tree over ``range(leaves)`` within ``own``, from left to right."""
    found: list[Node] = []
    stack: list[Node] = [(0, leaves)]
    while stack:
        node = stack.pop()
        if own[0] <= node[0] and node[1] <= own[1]:
            found.append(node)
        elif node[0] < own[1] and own[0] < node[1]:
            stack.extend(reversed(children(node)))
    return found


def evaluated(op: ReduceOp, node: Node, known: Mapping[Node, Array]) -> Array:
    """The value of ``node`` from values of nodes below it."""
    return folded(lambda a, b: combined(op, a, b), node, known)


def folded(join: Callable[[Value, Value], Value], node: Node, known: Mapping[Node, Value]) -> Value:
    """The value of ``node`` from values of nodes below it, of which ``join`` combines two neighbours."""
    if node in known:
        return known[node]
    left, right = children(node)
    return join(folded(join, left, known), folded(join, right, known))


def of_leaves(values: Sequence[Value], first: int = 0) -> Mapping[Node, Value]:
    """Nodes of single leaves, from the leaf ``first`` on."""
    return {(first + i, first + i + 1): value for i, value in enumerate(values)}


def alone(op: ReduceOp, leaves: Sequence[Array]) -> Array:
    """All ``leaves`` combined by one process; a new array."""
    check(op, leaves[0].dtype)
    result = finished(op, evaluated(op, (0, len(leaves)), of_leaves(leaves)), len(leaves))
    return result.copy() if result is leaves[0] else result


def share(leaves: int, rank: int, size: int) -> Node:
    """The leaves of one of ``size`` processes: contiguous, and equal in number up to one."""
    return rank * leaves // size, (rank + 1) * leaves // size
