"""``einsum`` in all of torch's forms, as a chain of pairwise contractions."""

from __future__ import annotations

import string
import typing
from collections.abc import Sequence
from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import ALL
from tracecomp.functional.linalg.matmul import contract
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import cast, result_dtype, same_scalar_type
from tracecomp.functional.publish import function
from tracecomp.functional.reductions.reduction import sum
from tracecomp.functional.shape.shaping import diagonal, in_new_memory, listed, to_shape
from tracecomp.ir.types import broadcast_shapes


def _from_sublists(args: Sequence[Any]) -> tuple[str, list[Tensor]]:
    """``einsum(x, [0, 1], y, [1, 2], [0, 2])`` as an equation and operands."""
    operands, terms = list(args[:-1:2] if len(args) % 2 else args[::2]), args[1::2]
    letters = string.ascii_letters

    def term(labels: Sequence[Any]) -> str:
        for x in labels:
            if x is not Ellipsis and not isinstance(x, int):
                raise TypeError(f"einsum(): labels in a list must be ints or Ellipsis, not {type_name(x)}")
        if any(x is not Ellipsis and not 0 <= x < len(letters) for x in labels):
            raise ValueError(f"einsum(): subscripts in a list must be in the range [0, {len(letters)})")
        return "".join("..." if x is Ellipsis else letters[x] for x in labels)

    equation = ",".join(map(term, terms))
    return (f"{equation}->{term(args[-1])}" if len(args) % 2 else equation), operands


def _parse(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str, tuple[int, ...]]:
    """Terms and output with the ellipsis replaced by unused labels, and the ellipsis shape."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise RuntimeError(
            f"einsum(): {'more' if len(terms) < len(operands) else 'fewer'} operands were provided than specified in "
            "the equation"
        )
    # The axes of the ellipsis, operand by operand: aligned at their right ends, as in broadcasting.
    shapes = []
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        named = term.replace("...", "", 1)
        if any(c not in string.ascii_letters for c in named):
            raise RuntimeError(f"einsum(): invalid subscript {named!r} in {equation!r}, subscripts must be in [a-zA-Z]")
        extra = x.ndim - len(named)
        if extra < 0 or (extra and "..." not in term):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(named)}) does not match the number of "
                f"dimensions ({x.ndim}) for operand {i} and no ellipsis was given"
            )
        shapes.append(tuple(x.shape[term.index("...") :][:extra]) if "..." in term else ())
    batch = broadcast_shapes(*shapes)
    # Letters that the equation does not use, so that only plain labels remain.
    hidden = [c for c in string.ascii_letters if c not in text][: len(batch)]
    spelled = []
    for term, shape in zip(terms, shapes, strict=True):
        spelled.append(term.replace("...", "".join(hidden[len(batch) - len(shape) :])))
    named = left.replace("...", "").replace(",", "")
    if arrow:
        out = right.replace("...", "".join(hidden))
        for c in out:
            if out.count(c) > 1:
                raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
            if not any(c in t for t in spelled) and c not in hidden:
                raise RuntimeError(
                    f"einsum(): output subscript {c} does not appear in the equation for any input operand"
                )
    else:
        # Without an arrow: labels that occur once, in alphabetical order, after the ellipsis (numpy's rule).
        out = "".join(hidden) + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    return spelled, out, batch


def _without_repeats(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Take diagonals for labels that occur twice in a term."""
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            i = term.index(label)
            j = term.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand but the sizes don't match, "
                    f"{x.shape[j]} != {x.shape[i]}"
                )
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + label
    return x, term


def _sizes(operands: Sequence[Tensor], terms: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for i, (x, term) in enumerate(zip(operands, terms, strict=True)):
        for label, n in zip(term, x.shape, strict=True):
            have = sizes.get(label, 1)
            if have != 1 and n not in (1, have):
                raise RuntimeError(
                    f"einsum(): operands do not broadcast with remapped shapes [original->remapped]: operand {i} has "
                    f"size {n} for subscript {label} which does not broadcast with previously seen size {have}"
                )
            sizes[label] = max(have, n) if 0 not in (have, n) else 0
    return sizes


def _drop_ones(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Dimensions of size 1 removed: they broadcast."""
    keep = [i for i, n in enumerate(x.shape) if n != 1]
    return to_shape(x, tuple(x.shape[i] for i in keep)), "".join(term[i] for i in keep)


def _sum_out(x: Tensor, term: str, needed: str) -> tuple[Tensor, str]:
    """Sum over labels that are not ``needed`` elsewhere."""
    axes = tuple(i for i, c in enumerate(term) if c not in needed)
    return (sum(x, axes), "".join(c for c in term if c in needed)) if axes else (x, term)


def _one_by_one(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands, if they were passed as one sequence."""
    listed_ones = len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], list | tuple)
    return (args[0], *args[1]) if listed_ones else args


@function(to="torch", takes=ALL, composite=True, prepare=_one_by_one)
def einsum(*args: str | Tensor | Sequence[Tensor] | Sequence[int]) -> Tensor:
    """Sums of products by Einstein's convention: ``einsum("bij,bjk->bik", x, y)`` or with lists of labels."""
    if not args:
        raise ValueError("einsum(): must specify the equation string and at least one operand")
    operands: list[Tensor]
    if isinstance(args[0], str):
        equation, given = args[0], typing.cast("tuple[Tensor | Sequence[Tensor], ...]", args[1:])
        operands = list(listed(given))
    else:
        equation, operands = _from_sublists(args)
    if not operands:
        raise ValueError("einsum(): must provide at least one operand")
    for n, x in enumerate(operands):
        if not isinstance(x, Tensor):
            raise TypeError(f"einsum(): operand {n} must be a Tensor, not {type(x).__name__}")
    terms, out, _ = _parse(equation, operands)
    if len(operands) == 2 and set(terms[0]) & set(terms[1]) - set(out):
        same_scalar_type(*operands)  # products that are summed do not promote, others do
    if len(operands) > 1:
        dtype = result_dtype(*operands)
        operands = [cast(x, dtype) for x in operands]
    pairs = [_without_repeats(x, t) for x, t in zip(operands, terms, strict=True)]
    sizes = _sizes([x for x, _ in pairs], [t for _, t in pairs])
    # Axes of size 1 broadcast against any size, so they are dropped and come back at the end.
    pairs = [_drop_ones(x, t) for x, t in pairs]
    result, term = pairs[0]
    # From left to right, as in PyTorch without a path: labels that nothing later needs are summed as soon as they can
    # be.
    for i, (x, labels) in enumerate(pairs[1:], 1):
        later = out + "".join(t for _, t in pairs[i + 1 :])
        result, term = _sum_out(result, term, labels + later)
        x, labels = _sum_out(x, labels, term + later)
        joined = term + "".join(c for c in labels if c not in term)
        kept = "".join(c for c in joined if c in later)
        result, term = contract(result, x, f"{term},{labels}->{kept}"), kept
    result, term = _sum_out(result, term, out)
    result = prim.permute(result, dims=tuple(term.index(c) for c in out if c in term))
    result = to_shape(result, tuple(sizes[c] if c in term else 1 for c in out))
    result = prim.expand(result, shape=tuple(sizes[c] for c in out))
    # Only an equation without sums gives a view.
    return result if len(operands) > 1 or set(terms[0]) <= set(out) else in_new_memory(result, operands[0])
