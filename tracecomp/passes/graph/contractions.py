"""Normal form of contractions, so that the scheduler sees few shapes of loop nest.

Permuted and repeated operands become labels of the spec (transposed operands are free). Labels of size 1 are dropped,
and labels that are always adjacent are merged. The result's last label belongs to the right operand, and labels are
renamed. Without a summed label a contraction is a product. With a vector operand it is a product and a sum: row and
column sums run at memory speed, and a register tile would reuse nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from string import ascii_letters

from tracecomp.ir.graph import Value
from tracecomp.ir.types import Shape, float32, float64
from tracecomp.passes.graph.axis_orders import reshape_parts
from tracecomp.passes.graph.rewrite import Application, Replacement, Rewriter, Rules, made_by

RULES = Rules()

SHORT_ROW = 8
"""Least contiguous elements of a result: shorter runs cost more than one more copy of the result."""
MANY_TERMS = 1024
"""Least terms of a sum that takes much longer than any store of its result."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The labels of a contraction: ``lhs,rhs->out``."""

    lhs: str
    rhs: str
    out: str

    @staticmethod
    def parse(text: str) -> Spec:
        operands, out = text.split("->")
        lhs, rhs = operands.split(",")
        return Spec(lhs, rhs, out)

    def __str__(self) -> str:
        return f"{self.lhs},{self.rhs}->{self.out}"

    @property
    def summed(self) -> str:
        """The summed labels in the order of the sum."""
        return "".join(sorted(c for c in self.lhs if c not in self.out))

    def own(self, side: int) -> str:
        """The labels of one operand that the other lacks."""
        return "".join(c for c in self.terms[side] if c not in self.terms[1 - side])

    @property
    def terms(self) -> tuple[str, str, str]:
        return (self.lhs, self.rhs, self.out)


def spec_of(a: Application) -> Spec:
    return Spec.parse(a.attrs["spec"])


def extents(a: Application) -> dict[str, int]:
    """The size of each label."""
    spec = spec_of(a)
    sizes: dict[str, int] = {}
    for labels, value in zip((spec.lhs, spec.rhs), a.inputs, strict=True):
        sizes.update(zip(labels, value.shape, strict=True))
    return sizes


def contract(g: Rewriter, x: Value, y: Value, spec: Spec) -> Value:
    return g.apply("contract", x, y, spec=str(spec))


@RULES.on("contract")
def contract_with_vector(g: Rewriter, a: Application) -> Replacement:
    """ "mk,k->m" -> sum(x * y, axis of k). Not in half precision, where a contraction sums without rounding"""
    spec = spec_of(a)
    lonely_left, lonely_right = spec.own(0), spec.own(1)
    # A product of half precisions rounds before the sum, which the contraction does not.
    if (lonely_left and lonely_right) or a.type.dtype not in (float32, float64):
        return None
    matrix, vector = (0, 1) if lonely_left else (1, 0)
    labels = (spec.lhs, spec.rhs)[matrix]
    other = _aligned(g, a.inputs[vector], (spec.lhs, spec.rhs)[vector], labels)
    axes = tuple(d for d, c in enumerate(labels) if c in spec.summed)
    total = g.apply("sum", _product_as_it_lies(g, a.inputs[matrix], other), axes=axes)
    return _aligned(g, total, "".join(c for c in labels if c in spec.out), spec.out)


def _product_as_it_lies(g: Rewriter, matrix: Value, other: Value) -> Value:
    """Return ``matrix * other``; for a permuted matrix the permuted product, whose sum may stay in memory order."""
    turned = made_by(matrix, "permute")
    if turned is None:
        return g.apply("mul", matrix, other)
    dims = turned.attrs["dims"]
    back = tuple(dims.index(d) for d in range(len(dims)))
    product = g.apply("mul", turned.inputs[0], g.apply("permute", other, dims=back))
    return g.apply("permute", product, dims=dims)


def _aligned(g: Rewriter, value: Value, labels: str, target: str) -> Value:
    """``value`` with its axes in the order of ``target`` and axes of size 1 for labels it lacks."""
    # Target order first, then axes of size 1 for missing labels: broadcasting does the rest.
    order = sorted(range(len(labels)), key=lambda d: target.index(labels[d]))
    permuted = g.apply("permute", value, dims=tuple(order))
    sizes = dict(zip(labels, value.shape, strict=True))
    return g.reshape(permuted, tuple(sizes.get(c, 1) for c in target))


@RULES.on("contract")
def contract_of_permuted(g: Rewriter, a: Application) -> Replacement:
    """contract(permute(x), y, "mk,kn->mn") -> contract(x, y, "km,kn->mn")"""
    spec = spec_of(a)
    values, terms = list(a.inputs), [spec.lhs, spec.rhs]
    for side, value in enumerate(a.inputs):
        node = made_by(value, "permute")
        if node:
            values[side] = node.inputs[0]
            # An axis takes the label of the axis that the permutation moved.
            order = sorted(range(value.ndim), key=node.attrs["dims"].__getitem__)
            terms[side] = "".join(terms[side][d] for d in order)
    if tuple(values) == a.inputs:
        return None
    return contract(g, values[0], values[1], Spec(terms[0], terms[1], spec.out))


@RULES.on("permute")
def permute_of_contract(g: Rewriter, a: Application) -> Replacement:
    """permute(contract(x, y, "mk,kn->mn")) -> contract(x, y, "mk,kn->nm"), also with a reshape between them

    Not for contractions of windows, whose order of axes the layout chose, nor if too few elements of the result would
    remain contiguous.
    """
    value = a.inputs[0]
    between = made_by(value, "reshape")
    node = made_by(between.inputs[0] if between else value, "contract")
    # Shared values are stored anyway, and the layout chose the order of convolutions.
    if node is None or {value, node.outputs[0]} & g.shared or any(made_by(v, "windows") for v in node.inputs):
        return None
    spec = Spec.parse(node.attrs["spec"])
    found = _split_labels(spec, node.outputs[0].shape, value.shape)
    if found is None:
        return None
    lhs = dict(zip(spec.lhs, node.inputs[0].shape, strict=True))
    # Short rows make every store a single element; many terms hide that cost.
    if _row(a.type.shape) < SHORT_ROW <= _row(value.shape) and prod(lhs[c] for c in spec.summed) < MANY_TERMS:
        return None
    parts, axes = found
    terms = ["".join("".join(parts.get(c, {c: 0})) for c in term) for term in spec.terms]
    sizes = {label: n for part in parts.values() for label, n in part.items()}
    operands = []
    # A reshape between contraction and permutation splits or joins labels;
    # operands follow it, at no cost as they are dense.
    for operand, old, new in zip(node.inputs, (spec.lhs, spec.rhs), terms, strict=False):
        whole = dict(zip(old, operand.shape, strict=True))
        operands.append(g.reshape(operand, tuple(sizes.get(c, whole.get(c, 1)) for c in new)))
    # Labels of size 1 belong to no axis in particular.
    out = "".join(c for c in spec.out if c not in parts) + "".join(axes[d] for d in a.attrs["dims"])
    return g.reshape(contract(g, operands[0], operands[1], Spec(terms[0], terms[1], out)), a.type.shape)


def _row(shape: Shape) -> int:
    """Contiguous elements along the last axis; axes of size 1 are left out."""
    return next((n for n in reversed(shape) if n != 1), 1)


def _split_labels(spec: Spec, shape: Shape, wanted: Shape) -> tuple[dict[str, dict[str, int]], list[str]] | None:
    """Map each result label to the labels and sizes into which ``wanted`` splits it, and list the labels of each wanted
    axis.

    None if ``wanted`` does not split whole labels.
    """
    # Fresh letters, as cutting a label makes several.
    free = iter(c for c in ascii_letters if c not in spec.lhs + spec.rhs)
    parts: dict[str, dict[str, int]] = {}
    axes = [""] * len(wanted)
    if 0 in shape:
        return None
    for ins, outs in reshape_parts(shape, wanted):
        # A run of several axes that becomes another run of several does not split whole labels.
        if len(ins) > 1 and len(outs) > 1:
            return None
        for at in ins:
            split = outs if len(ins) == 1 else [outs[0]]
            parts[spec.out[at]] = {next(free): wanted[d] if len(ins) == 1 else shape[at] for d in split}
            for d, label in zip(split, parts[spec.out[at]], strict=True):
                axes[d] += label
    return parts, axes


@RULES.on("contract")
def contract_of_expanded(g: Rewriter, a: Application) -> Replacement:
    """contract(expand(x: [1,4,5]), y, "bmk,bkn->bmn") -> contract(x: [4,5], y, "mk,bkn->bmn")"""
    spec = spec_of(a)
    values, terms = list(a.inputs), [spec.lhs, spec.rhs]
    for side, value in enumerate(a.inputs):
        node = made_by(value, "expand")
        if node is None:
            continue
        x = node.inputs[0]
        source = (1,) * (value.ndim - x.ndim) + x.shape
        other = terms[1 - side]
        gone = [d for d, n in enumerate(source) if n != value.shape[d]]
        # The other operand has this label and it is not summed: a missing label means repetition. A summed one would
        # need a factor.
        if all(terms[side][d] in other and terms[side][d] in spec.out for d in gone):
            values[side] = g.reshape(x, tuple(n for d, n in enumerate(source) if d not in gone))
            terms[side] = "".join(c for d, c in enumerate(terms[side]) if d not in gone)
    if tuple(values) == a.inputs:
        return None
    return contract(g, values[0], values[1], Spec(terms[0], terms[1], spec.out))


@RULES.on("contract")
def contract_without_ones(g: Rewriter, a: Application) -> Replacement:
    """Labels of size 1 are dropped; one stays of the summed ones, and of those that one operand alone has"""
    spec, sizes = spec_of(a), extents(a)
    # A window of size 1 is still a window; reads of windows need its position.
    windowed = {c for v, term in zip(a.inputs, (spec.lhs, spec.rhs), strict=True) for c in _windowed(v, term)}
    ones = [c for c in sizes if sizes[c] == 1 and c not in windowed]
    # One summed label stays, so that the sum still rounds. A matrix of one row stays a matrix: it is summed in the same
    # order as several rows.
    for labels in (spec.summed, spec.own(0), spec.own(1)):
        if labels and all(c in ones for c in labels):
            ones.remove(labels[0])
    if not ones:
        return None
    terms = ["".join(c for c in term if c not in ones) for term in spec.terms]
    x, y = (g.reshape(v, tuple(sizes[c] for c in term)) for v, term in zip(a.inputs, terms, strict=False))
    return g.reshape(contract(g, x, y, Spec(*terms)), a.type.shape)


@RULES.on("contract")
def contract_with_merged_labels(g: Rewriter, a: Application) -> Replacement:
    """ "bsk,kn->bsn" -> "mk,kn->mn": merges labels that are adjacent in every term that has one of them"""
    spec, sizes = spec_of(a), extents(a)
    # Operands that are views are strided; joining their axes would need a copy.
    fixed = "".join(t for v, t in zip(a.inputs, (spec.lhs, spec.rhs), strict=True) if not is_dense(v))
    pair = _mergeable(spec, fixed)
    if pair is None:
        return None
    first, second = pair
    terms = [term.replace(second, "") for term in spec.terms]
    merged = sizes | {first: sizes[first] * sizes[second]}
    x, y = (g.reshape(v, tuple(merged[c] for c in term)) for v, term in zip(a.inputs, terms, strict=False))
    return g.reshape(contract(g, x, y, Spec(*terms)), a.type.shape)


def is_dense(value: Value) -> bool:
    """Whether ``value`` is dense in row-major order, so that neighbouring axes merge for free."""
    # Reshapes of dense memory change no address.
    while (node := made_by(value, "reshape")) is not None:
        value = node.inputs[0]
    return value.node is None or value.node.op.kind != "view"


def _windowed(value: Value, labels: str) -> str:
    """Labels of windows or of positions in them."""
    node = made_by(value, "windows")
    return labels[node.inputs[0].ndim - len(node.attrs["sizes"]) :] if node else ""


def _mergeable(spec: Spec, fixed: str) -> tuple[str, str] | None:
    """A pair of neighbours, neither of them among the ``fixed`` labels."""
    summed = spec.summed
    for term in spec.terms:
        for first, second in pairwise(term):
            # Summed labels are joined in the order of the sum.
            if first in fixed or second in fixed or (first in summed and first + second not in summed):
                continue
            # Joined only if they are adjacent in every term: then they count as one index.
            if all((first + second in t) or (first not in t and second not in t) for t in spec.terms):
                return first, second
    return None


@RULES.on("contract")
def contract_without_sum(g: Rewriter, a: Application) -> Replacement:
    """ "m,n->mn" -> x[:, None] * y"""
    spec = spec_of(a)
    # See rules above; then there is no sum.
    if spec.summed:
        return None
    x, y = (_aligned(g, v, t, spec.out) for v, t in zip(a.inputs, (spec.lhs, spec.rhs), strict=True))
    return g.apply("mul", x, y)


@RULES.on("contract")
def contract_with_row_on_the_right(g: Rewriter, a: Application) -> Replacement:
    """The result's last label belongs to the right operand, whose rows then are vectors, as in ``A @ B``"""
    spec = spec_of(a)
    # Lanes run along the result's last label, so lanes load that operand's rows. Swapping the factors changes no
    # product.
    if spec.out and spec.out[-1] in spec.lhs and spec.out[-1] not in spec.rhs:
        return contract(g, a.inputs[1], a.inputs[0], Spec(spec.rhs, spec.lhs, spec.out))
    return None


@RULES.on("contract")
def contract_with_standard_labels(g: Rewriter, a: Application) -> Replacement:
    """Label letters by role: b in both operands and the result, m on the left, n on the right, k summed"""
    spec = spec_of(a)
    names: dict[str, str] = {}
    pools = {role: iter(letters) for role, letters in _LETTERS.items()}
    for c in spec.out + spec.summed:
        # Three bits: in the left operand, in the right one, in the result.
        role = (c in spec.lhs) + 2 * (c in spec.rhs) + 4 * (c in spec.out)
        letter = next(pools[role], None)
        # A role with that many labels is rare; they keep their names.
        if letter is None:
            return None
        names[c] = letter
    renamed = Spec(*("".join(names[c] for c in term) for term in spec.terms))
    # Equal contractions share a kernel, and a normal form leaves fewer loop nests to schedule.
    return None if renamed == spec else contract(g, a.inputs[0], a.inputs[1], renamed)


_LETTERS = {7: "bcdefBCDEF", 5: "mopqrMOPQR", 6: "nuvwxNUVWX", 3: "klstyz"}
"""Letters for labels, by a set of three bits: occurs in the first operand, the second, the result.

Letters of summed labels are in alphabetical order, which is the order of the sum.
"""
