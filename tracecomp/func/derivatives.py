"""Derivatives as functions of functions: ``grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.autograd.forward_ad import gradients, push_forward, without
from tracecomp.eager.modes import enable_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.func.vmap import vmap
from tracecomp.functional import names as T
from tracecomp.functional.primitives import prim
from tracecomp.record.pytree import flatten, unflatten

Func = Callable[..., Any]
Argnums = int | tuple[int, ...]


class _Level:
    """The inputs of one derivative: fresh tensors in the place of ``values``, whose history stays reachable."""

    def __init__(self, value: object) -> None:
        self.given: list[Any] = []
        self.structure = flatten(value, self.given)
        self.inputs: list[Tensor] = []
        self.fresh: set[Tensor] = set()  # which are held: no other leaf may be taken for one of them
        for x in self.given:
            if not isinstance(x, Tensor):
                raise TypeError(f"expected tensors to differentiate with respect to, got {type(x).__name__}")
            if x.requires_grad:
                self.inputs.append(prim.reshape(x, shape=tuple(x.shape)))
            else:
                self.inputs.append(x.detach().requires_grad_())
                self.fresh.add(self.inputs[-1])

    @property
    def value(self) -> Any:
        return unflatten(self.structure, self.inputs)

    def results(self, what: str, func: Func, has_aux: bool) -> tuple[list[Any], Any, Any]:
        """Run ``func`` on the fresh inputs; return its tensors, their structure, and its aux value."""
        output = func(*self.value)
        output, aux = output if has_aux else (output, None)
        outs: list[Any] = []
        structure = flatten(output, outs)
        for out in outs:
            if not isinstance(out, Tensor):
                raise RuntimeError(
                    f"{what}: expected f(*primals) to return only tensors, got unsupported type {type(out)}"
                )
        return outs, structure, aux

    def shaped(self, found: Sequence[Tensor | None]) -> Any:
        """Gradients in the structure of the inputs, zeros where there is none."""
        filled = [T.zeros_like(x) if g is None else g for x, g in zip(self.inputs, found, strict=True)]
        return unflatten(self.structure, [self.without(g) for g in filled])

    def without(self, t: Tensor) -> Any:
        """``t`` detached, unless its history leads to a tensor that someone else differentiates."""
        return without(t, self.fresh)


def _chosen(argnums: Argnums, args: tuple[object, ...]) -> Any:
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
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
        with enable_grad():
            level = _Level(_chosen(argnums, args))
            output = func(*_replaced(argnums, args, level.value), **kwargs)
            output, aux = output if has_aux else (output, None)
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
            gradient = level.shaped(gradients([output], level.inputs, [None]))
        value = level.without(output)
        return gradient, ((value, _cut_off(level, aux)) if has_aux else value)

    return run


def _cut_off(level: _Level, value: object) -> Any:
    leaves: list[Any] = []
    structure = flatten(value, leaves)
    return unflatten(structure, [level.without(x) for x in leaves])


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
    with enable_grad():
        level = _Level(primals)
        outs, structure, aux = level.results("vjp(f, *primals)", func, has_aux)

    def vjp_fn(*cotangents: Any) -> Any:
        given: list[Any] = []
        if flatten(cotangents[0] if len(cotangents) == 1 else cotangents, given) != structure:
            raise RuntimeError("vjp_fn: expected cotangents of the same structure as the outputs")
        with enable_grad():
            found = level.shaped(gradients(outs, level.inputs, given))
        return found

    value = unflatten(structure, [level.without(o) for o in outs])
    return (value, vjp_fn, _cut_off(level, aux)) if has_aux else (value, vjp_fn)


def jvp(func: Func, primals: tuple[object, ...], tangents: tuple[object, ...], *, has_aux: bool = False) -> Any:
    """``(func(*primals), J @ tangents)``, by differentiating the vector-Jacobian product in its vector."""
    if not isinstance(primals, tuple):
        raise RuntimeError(f"jvp(f, primals, tangents): Expected primals to be a tuple, got {type(primals)}")
    given: list[Any] = []
    if flatten(tangents, given) != flatten(primals, []):
        raise RuntimeError("jvp(f, primals, tangents): Expected primals and tangents to have the same structure")
    with enable_grad():
        level = _Level(primals)
        outs, structure, aux = level.results("jvp(f, primals, tangents)", func, has_aux)
        pushed = [level.without(t) for t in _pushed(level, outs, given)]
    value = unflatten(structure, [level.without(o) for o in outs])
    tangent = unflatten(structure, pushed)
    return (value, tangent, _cut_off(level, aux)) if has_aux else (value, tangent)


def _pushed(level: _Level, outs: Sequence[Tensor], tangents: Sequence[object]) -> list[Tensor]:
    """Tangents of the outputs."""
    found, vectors = push_forward(outs, level.inputs, tangents)
    level.fresh.update(vectors)
    return [T.zeros_like(o) if g is None else g for o, g in zip(outs, found, strict=True)]


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
    """``(func(*primals), jvp_fn)``: ``jvp_fn(*tangents)`` is the linear map at ``primals``."""
    with enable_grad():
        level = _Level(primals)
        output = func(*level.value)
        outs: list[Any] = []
        structure = flatten(output, outs)

    def jvp_fn(*tangents: Any) -> Any:
        given: list[Any] = []
        if flatten(tangents, given) != flatten(primals, []):
            raise RuntimeError("linearize: expected tangents of the same structure as the primals")
        with enable_grad():
            pushed = _pushed(level, outs, given)
        return unflatten(structure, [level.without(t) for t in pushed])

    return unflatten(structure, [level.without(o) for o in outs]), jvp_fn
