"""Derivatives as functions of functions: ``grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.autograd.api import grad as gradients_of
from tracecomp.autograd.forward_ad import dual
from tracecomp.base.errors import type_name
from tracecomp.eager.grad_fn import AccumulateGrad
from tracecomp.eager.modes import differentiating, modes
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tangents import Level, apart, set_tangent, tangent
from tracecomp.eager.tensor import Tensor
from tracecomp.func.vmap import vmap
from tracecomp.functional import names as T
from tracecomp.functional.primitives import prim
from tracecomp.record.pytree import flatten, unflatten

Func = Callable[..., Any]
Argnums = int | tuple[int, ...]


def gradients(outs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Any]) -> list[Tensor | None]:
    """Vector-Jacobian products that can be differentiated; None where an input is not used."""
    used = [(o, c) for o, c in zip(outs, cotangents, strict=True) if o.requires_grad]
    if not used:
        return [None] * len(inputs)
    found = gradients_of(
        [o for o, _ in used], inputs, [c for _, c in used], create_graph=True, retain_graph=True, allow_unused=True
    )
    return list(found)


def _leads_elsewhere(t: Tensor, fresh: set[Tensor]) -> bool:
    """Whether the history of ``t`` leads to a leaf that is not ``fresh``."""
    if t.grad_fn is None:
        return t.requires_grad and t not in fresh
    seen, stack = set(), [(t.grad_fn, t.output_nr)]
    while stack:
        node, number = edge = stack.pop()
        if edge in seen:
            continue
        seen.add(edge)
        if isinstance(node, AccumulateGrad) and node.variable not in fresh:
            return True
        stack.extend(e for e in node.edges_of(number) if e is not None)
    return False


def _with_aux(what: str, output: Any, has_aux: bool) -> tuple[Any, Any]:
    """A function's output and its auxiliary output. RuntimeError if it should return both, and does not."""
    if not has_aux:
        return output, None
    if not (isinstance(output, tuple) and len(output) == 2):
        raise RuntimeError(f"{what}: with has_aux=True, f must return a pair (output, aux), got {type(output)}")
    return output


def _tensors(what: str, output: Any, has_aux: bool) -> tuple[list[Any], Any, Any]:
    """Return the tensors of a function's output, their structure, and its auxiliary output."""
    output, aux = _with_aux(what, output, has_aux)
    outs: list[Any] = []
    structure = flatten(output, outs)
    for out in outs:
        if not isinstance(out, Tensor):
            raise RuntimeError(f"{what}: expected f(*primals) to return only tensors, got unsupported type {type(out)}")
    return outs, structure, aux


class _Inputs:
    """The inputs of one derivative: fresh tensors that replace those of ``value``, whose history stays reachable."""

    def __init__(self, value: object) -> None:
        self.given: list[Any] = []
        self.structure = flatten(value, self.given)
        self.inputs: list[Tensor] = []
        self.fresh: set[Tensor] = set()  # which are held: no other leaf may be taken for one of them
        for x in self.given:
            if not isinstance(x, Tensor):
                raise ValueError(f"expected tensors to differentiate with respect to, got {type_name(x)}")
            if x.requires_grad:
                self.inputs.append(prim.reshape(x, shape=tuple(x.shape)))
            else:
                fresh = apart(x, False)
                fresh._inference = False
                self.inputs.append(fresh.requires_grad_())
                self.fresh.add(fresh)

    @property
    def value(self) -> Any:
        return unflatten(self.structure, self.inputs)

    def shaped(self, found: Sequence[Tensor | None]) -> Any:
        """Gradients in the structure of the inputs, zeros where there is none."""
        filled = [T.zeros_like(x) if g is None else g for x, g in zip(self.inputs, found, strict=True)]
        return unflatten(self.structure, [self.without(g) for g in filled])

    def without(self, t: Tensor) -> Any:
        """``t`` and its tangents without their history, unless that leads to a tensor that others differentiate."""
        if not isinstance(t, Tensor) or _leads_elsewhere(t, self.fresh):
            return t
        found = apart(t, False)
        for level in modes.levels:
            along = tangent(found, level)
            if along is not None and along.requires_grad:
                with level.outside():
                    along = self.without(along)
                set_tangent(found, level, along)
        return found


def _chosen(argnums: Argnums, args: tuple[object, ...]) -> Any:
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    if not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(f"argnums must be an int or a tuple of ints, got {argnums!r}")
    if len({n % max(len(args), 1) for n in numbers}) < len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    picked = tuple(args[n] for n in numbers)
    return picked if isinstance(argnums, tuple) else picked[0]


def _replaced(argnums: Argnums, args: tuple[object, ...], value: Any) -> tuple[Any, ...]:
    changed = list(args)
    pairs = zip(argnums, value, strict=True) if isinstance(argnums, tuple) else [(argnums, value)]
    for n, v in pairs:
        changed[n] = v
    return tuple(changed)


def grad_and_value(func: Func, argnums: Argnums = 0, has_aux: bool = False) -> Func:
    """The function that gives ``(gradient, value)`` of the scalar function ``func``; aux comes with the value."""

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        with differentiating(history=True):
            inputs = _Inputs(_chosen(argnums, args))
            output = func(*_replaced(argnums, args, inputs.value), **kwargs)
            output, aux = _with_aux("grad_and_value(f)(*args)", output, has_aux)
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a tensor, got an output of type "
                    f"{type(output)}"
                )
            if output.ndim != 0:
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                    f"{output.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            gradient = inputs.shaped(gradients([output], inputs.inputs, [None]))
        value = inputs.without(output)
        return gradient, ((value, _cut_off(inputs, aux)) if has_aux else value)

    return run


def _cut_off(inputs: _Inputs, value: object) -> Any:
    leaves: list[Any] = []
    structure = flatten(value, leaves)
    return unflatten(structure, [inputs.without(x) for x in leaves])


def grad(func: Func, argnums: Argnums = 0, has_aux: bool = False) -> Func:
    """The gradient of the scalar function ``func`` with respect to the arguments numbered ``argnums``."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return run


def vjp(func: Func, *primals: Any, has_aux: bool = False) -> Any:
    """``(func(*primals), vjp_fn)``: ``vjp_fn(cotangents)`` is the tuple of vector-Jacobian products."""
    with differentiating(history=True):
        inputs = _Inputs(primals)
        outs, structure, aux = _tensors("vjp(f, *primals)", func(*inputs.value), has_aux)

    def vjp_fn(*cotangents: Any) -> Any:
        given: list[Any] = []
        if flatten(cotangents[0] if len(cotangents) == 1 else cotangents, given) != structure:
            raise RuntimeError("vjp_fn: expected cotangents of the same structure as the outputs")
        with differentiating(history=True):
            found = inputs.shaped(gradients(outs, inputs.inputs, given))
        return found

    value = unflatten(structure, [inputs.without(o) for o in outs])
    return (value, vjp_fn, _cut_off(inputs, aux)) if has_aux else (value, vjp_fn)


def _check_tangents(what: str, primals: Sequence[object], tangents: Sequence[object]) -> None:
    """RuntimeError unless there are primals, all are tensors, and each has a tangent of its shape."""
    if not primals:
        raise RuntimeError(f"{what}: Expected primals to contain at least one Tensor")
    for x, t in zip(primals, tangents, strict=True):
        if not (isinstance(x, Tensor) and isinstance(t, Tensor)):
            bad = t if isinstance(x, Tensor) else x
            raise RuntimeError(f"{what}: Expected primals and tangents to contain only Tensors, got {type_name(bad)}")
        if tuple(x.shape) != tuple(t.shape):
            raise RuntimeError(f"{what}: a tangent of shape {list(t.shape)} is for a primal of shape {list(x.shape)}")


def jvp(func: Func, primals: tuple[object, ...], tangents: tuple[object, ...], *, has_aux: bool = False) -> Any:
    """``(func(*primals), J @ tangents)``: tangents pass through every operator that ``func`` applies."""
    if not isinstance(primals, tuple):
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to be a tuple, got {type(primals)}")
    leaves: list[Any] = []
    given: list[Any] = []
    structure = flatten(primals, leaves)
    if flatten(tangents, given) != structure:
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same structure")
    _check_tangents("jvp(f, primals, tangents)", leaves, given)
    with differentiating(history=False), Level() as level:
        duals = [dual(x, t, level) for x, t in zip(leaves, given, strict=True)]
        output = func(*unflatten(structure, duals))
        outs, structure, aux = _tensors("jvp(f, primals, tangents)", output, has_aux)
        pushed = [tangent(o, level) for o in outs]
        pushed = [T.zeros_like(o) if t is None else t for o, t in zip(outs, pushed, strict=True)]
    value = unflatten(structure, outs)
    found = unflatten(structure, pushed)
    return (value, found, aux) if has_aux else (value, found)


def _basis(like: Sequence[Tensor]) -> list[Tensor]:
    """For each tensor a batch of tensors, one per element of all of them together, that are 1 there and 0 elsewhere."""
    total = sum(t.numel() for t in like)
    found, start = [], 0
    for t in like:
        n = t.numel()
        block = T.eye(n, dtype=t.dtype)
        rows = [T.zeros((start, n), dtype=t.dtype), block, T.zeros((total - start - n, n), dtype=t.dtype)]
        found.append(T.cat(rows).reshape((total, *t.shape)))
        start += n
    return found


def jacrev(func: Func, argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None) -> Func:
    """The Jacobian by vector-Jacobian products, one per output element, mapped: ``output.shape + input.shape``."""

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        def of_chosen(value: object) -> Any:
            return func(*_replaced(argnums, args, value), **kwargs)

        output, pull, *aux = vjp(of_chosen, _chosen(argnums, args), has_aux=has_aux)
        outs: list[Any] = []
        structure = flatten(output, outs)

        def pull_one(*cotangents: Tensor) -> Any:
            return pull(unflatten(structure, list(cotangents)))[0]

        rows = vmap(pull_one, chunk_size=chunk_size)(*_basis(outs))
        leaves: list[Any] = []
        inner = flatten(rows, leaves)
        parts, start = [], 0
        for o in outs:
            n = o.numel()
            cut = [g[start : start + n].reshape((*o.shape, *g.shape[1:])) for g in leaves]
            parts.append(unflatten(inner, cut))
            start += n
        result = unflatten(structure, parts)
        return (result, aux[0]) if has_aux else result

    return run


def jacfwd(func: Func, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Func:
    """The Jacobian by Jacobian-vector products, one per input element, mapped: ``output.shape + input.shape``."""

    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen(argnums, args)
        ins: list[Any] = []
        structure = flatten(chosen, ins)

        def push(*tangents: Tensor) -> Any:
            def of_chosen(*values: Tensor) -> Any:
                return func(*_replaced(argnums, args, unflatten(structure, list(values))), **kwargs)

            found = jvp(of_chosen, tuple(ins), tangents, has_aux=has_aux)
            return found[1:] if has_aux else found[1]

        columns = vmap(push, randomness=randomness)(*_basis(ins))
        columns, aux = columns if has_aux else (columns, None)
        leaves: list[Any] = []
        outer = flatten(columns, leaves)
        result = unflatten(outer, [unflatten(structure, _by_input(c, ins)) for c in leaves])
        return (result, unflatten(*_first_of(aux))) if has_aux else result

    return run


def _by_input(column: Any, ins: Sequence[Any]) -> list[Any]:
    """Derivatives with one row per input element, as one Jacobian per input."""
    found, start = [], 0
    for x in ins:
        n = x.numel()
        part = column[start : start + n]
        found.append(part.movedim(0, -1).reshape((*part.shape[1:], *x.shape)))
        start += n
    return found


def _first_of(value: object) -> tuple[Any, list[Any]]:
    leaves: list[Any] = []
    structure = flatten(value, leaves)
    return structure, [x[0] for x in leaves]


def hessian(func: Func, argnums: Argnums = 0) -> Func:
    """Second derivatives of a function: the Jacobian of its Jacobian."""
    return jacfwd(jacrev(func, argnums), argnums)


def linearize(func: Func, *primals: Any) -> Any:
    """``(func(*primals), jvp_fn)``: ``jvp_fn(*tangents)`` is the linear map at ``primals``.

    It runs ``func`` again, which draws the same random numbers.
    """
    drawn = default_generator.state._data.copy()
    output = func(*primals)

    def jvp_fn(*tangents: Any) -> Any:
        if flatten(tangents, []) != flatten(primals, []):
            raise RuntimeError("linearize: expected tangents of the same structure as the primals")
        now = default_generator.state._data.copy()
        np.copyto(default_generator.state._data, drawn)
        try:
            _, pushed = jvp(func, primals, tangents)
        finally:
            np.copyto(default_generator.state._data, now)
        return pushed

    return output, jvp_fn
