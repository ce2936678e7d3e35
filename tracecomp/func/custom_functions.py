"""Users' ``autograd.Function``s under ``vmap``: the class's own rule, or one made from its methods.

``mapped`` (``mapped_trace``) runs a function of one example for all examples. It is passed in, because it calls this
module for the Functions that it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from tracecomp.autograd.function import Function, FunctionCtx
from tracecomp.eager.tensor import Tensor
from tracecomp.func.batching import Batch, whole
from tracecomp.ops.autodiff import sum_to
from tracecomp.record.pytree import flatten, unflatten

_GUIDE = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


class VmapInfo(NamedTuple):
    """The number of examples, and the ``randomness`` given to ``vmap``."""

    batch_size: int
    randomness: str


Mapped: TypeAlias = Callable[..., tuple[Any, list[Any]]]
"""``mapped(func, structure, leaves, axes, info)``: structure and leaves of the results."""


def check_mappable(function: type[Function], kwargs: Mapping[str, object]) -> None:
    """RuntimeError if the class has no rule for ``vmap``, or two."""
    if function.setup_context is Function.setup_context:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            f"override the setup_context staticmethod. {_GUIDE}"
        )
    own = function.vmap is not Function.vmap
    if own and function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden "
            "vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
            f"avoid ambiguity. {_GUIDE}"
        )
    if not own and not function.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it does not have vmap support. Please override and "
            f"implement the vmap staticmethod or set generate_vmap_rule=True. {_GUIDE}"
        )
    if any(isinstance(x, Tensor) for x in kwargs.values()):
        raise NotImplementedError(
            "Run vmap on autograd.Function with kwarg-only Tensor args. Please do not pass kwarg-only Tensors to "
            f"autograd.Function. Got: {kwargs}"
        )


def per_leaf(dims: Any, value: Any, name: str) -> list[int | None]:
    """``dims``, an axis or nested like ``value``, as one axis per leaf."""
    if dims is None or isinstance(dims, int):
        leaves: list[Any] = []
        flatten(value, leaves)
        return [dims] * len(leaves)
    if isinstance(value, dict):
        matched = isinstance(dims, dict) and dims.keys() == value.keys()
        pairs = [(dims[k], value[k]) for k in value] if matched else None
    else:
        matched = isinstance(dims, tuple | list) and isinstance(value, tuple | list) and len(dims) == len(value)
        pairs = list(zip(dims, value, strict=True)) if matched else None
    if pairs is None:
        raise ValueError(f"vmap: {name} {dims!r} is not compatible with the structure of its argument")
    return [d for part, v in pairs for d in per_leaf(part, v, name)]


def batched_call(
    mapped: Mapped, function: type[Function], info: VmapInfo, structure: object, leaves: Sequence[object],
    kwargs: Mapping[str, object],
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Structure and leaves of the output of ``function`` on leaves of which some are a ``Batch``."""
    args = unflatten(structure, [x.value if isinstance(x, Batch) else x for x in leaves])
    dims = [0 if isinstance(x, Batch) else None for x in leaves]
    found: list[Any] = []
    if all(d is None for d in dims):
        return flatten(function.apply(*args, **kwargs), found), found
    if function.generate_vmap_rule:
        output = _Rule(mapped, function, info, dims, kwargs).generated().apply(*args)
        output_structure = flatten(output, found)
        return output_structure, [Batch(x) if isinstance(x, Tensor) else x for x in found]
    output, out_dims = _pair(function.vmap(info, unflatten(structure, dims), *args, **kwargs))
    output_structure = flatten(output, found)
    axes = per_leaf(out_dims, output, "out_dims")
    return output_structure, [
        Batch(x if d == 0 else x.movedim(d, 0)) if isinstance(x, Tensor) and d is not None else x
        for x, d in zip(found, axes, strict=True)
    ]


def _pair(result: object) -> tuple[Any, Any]:
    expected = (
        "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible "
        "with the output. "
    )
    if not isinstance(result, tuple):
        raise RuntimeError(f"{expected}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{expected}Got {len(result)} returns instead")
    return result


class _Saved(NamedTuple):
    """The data of the context of one example. ``saved_tensors`` has the tensors among its leaves, at ``places``."""

    structure: object
    leaves: list[Any]
    places: tuple[int, ...]
    axes: list[int | None]
    shapes: list[tuple[int, ...] | None]

    def leaves_of(self, ctx: FunctionCtx) -> list[Any]:
        """The leaves, with the tensors of all examples."""
        found = list(self.leaves)
        for place, t in zip(self.places, ctx.saved_tensors, strict=True):
            found[place] = t
        return found


_PLAIN = frozenset(vars(FunctionCtx()))


@dataclass(frozen=True, slots=True)
class _Rule:
    """The methods of ``function``, mapped over operands with batches along ``axes`` (axis 0, or None)."""

    mapped: Mapped
    function: type[Function]
    info: VmapInfo
    axes: list[int | None]
    kwargs: Mapping[str, object]

    def generated(self) -> type[Function]:
        """The Function of all examples."""
        methods = {k: staticmethod(getattr(self, k)) for k in ("forward", "setup_context", "backward", "jvp")}
        return type(f"Vmapped{self.function.__name__}", (Function,), {**methods, "generate_vmap_rule": True})

    def forward(self, *args: Any) -> Any:
        return self._batched(*self._over(partial(self.function.forward, **self.kwargs), self.axes, *args))

    def setup_context(self, ctx: Any, inputs: tuple[object, ...], output: object) -> None:
        outs: list[Any] = []
        flatten(output, outs)
        constant: list[Tensor] = []

        def example(inputs: tuple[object, ...], output: object) -> dict[str, Any]:
            mine = self._context(ctx, inputs, output)
            examples: list[Any] = []
            flatten(output, examples)
            constant.extend(o for o, e in zip(outs, examples, strict=True) if any(e is t for t in mine._constant))
            own = {k: v for k, v in vars(mine).items() if k not in _PLAIN}
            return {"own": own, "saved": mine._to_save, "jvp": mine._for_jvp}

        axes = [*self.axes, *[0 if isinstance(x, Tensor) else None for x in outs]]
        structure, leaves = self._over(example, axes, inputs, output)
        places = tuple([i for i, x in enumerate(leaves) if isinstance(x, Batch | Tensor)])
        tensors = [x.value if isinstance(x, Batch) else x for x in map(leaves.__getitem__, places)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*constant)
        kept = [None if i in places else x for i, x in enumerate(leaves)]
        axes = [0 if isinstance(x, Batch) else None for x in leaves]
        ctx.mapped = _Saved(structure, kept, places, axes, _shapes(inputs, self.axes))

    def _context(self, ctx: Any, inputs: tuple[object, ...], output: object) -> FunctionCtx:
        """The context that ``setup_context`` prepares for one example."""
        mine = FunctionCtx()
        mine.needs_input_grad = ctx.needs_input_grad
        self.function.setup_context(mine, inputs, output)
        if mine._dirty:
            raise RuntimeError(
                f"vmap: {self.function.__name__} marks inputs as dirty, which generate_vmap_rule=True does not "
                "support. Write the vmap staticmethod instead."
            )
        ctx.set_materialize_grads(mine._materialize)
        return mine

    def backward(self, ctx: Any, *grads: Any) -> Any:
        def example(leaves: Any, grads: Any) -> Any:
            return self.function.derivative()(_restored(ctx, leaves, "saved"), *grads)

        axes = [*ctx.mapped.axes, *[None if g is None else 0 for g in grads]]
        structure, results = self._over(example, axes, ctx.mapped.leaves_of(ctx), grads)
        found = unflatten(structure, results)
        pairs = zip(found if isinstance(found, tuple) else (found,), ctx.mapped.shapes, strict=False)
        return tuple([_gradient(g, shape, self.info.batch_size) for g, shape in pairs])

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        def example(leaves: Any, tangents: Any) -> Any:
            return self.function.jvp(_restored(ctx, leaves, "jvp"), *tangents)

        axes = [None if t is None or s is None else 0 for t, s in zip(tangents, ctx.mapped.shapes, strict=True)]
        return self._batched(*self._over(example, [*ctx.mapped.axes, *axes], ctx.mapped.leaves_of(ctx), tangents))

    def _over(
        self, func: Callable[..., Any], axes: Sequence[int | None], *args: object
    ) -> tuple[Any, list[Any]]:  # fmt: skip
        leaves: list[Any] = []
        structure = flatten((args, {}), leaves)
        return self.mapped(func, structure, leaves, axes, self.info)

    def _batched(self, structure: object, leaves: Sequence[object]) -> Any:
        size = self.info.batch_size
        return unflatten(structure, [whole(size, x) if isinstance(x, Batch | Tensor) else x for x in leaves])


def _restored(ctx: Any, leaves: list[object], method: str) -> FunctionCtx:
    """The context of one example, with the tensors for ``method``."""
    state = unflatten(ctx.mapped.structure, leaves)
    mine = FunctionCtx()
    mine.__dict__.update(state["own"])
    mine.needs_input_grad = ctx.needs_input_grad
    mine._saved = state["saved"] if state[method] is None else state[method]
    return mine


def _shapes(inputs: tuple[object, ...], axes: Sequence[int | None]) -> list[tuple[int, ...] | None]:
    """The shape of an example of each batched input."""
    found: list[tuple[int, ...] | None] = []
    at = 0
    for x in inputs:
        leaves: list[Any] = []
        flatten(x, leaves)
        found.append(tuple(x.shape[1:]) if isinstance(x, Tensor) and axes[at] is not None else None)
        at += len(leaves)
    return found


def _gradient(g: Any, shape: tuple[int, ...] | None, size: int) -> Any:
    """The gradient of an input from those of its examples, whose shape is ``shape``; None: all share the input."""
    if shape is None:
        return g.value.sum(0) if isinstance(g, Batch) else g
    if g is None:
        return None
    value = whole(size, g)
    lead = value.ndim - 1 - len(shape)
    value = value if lead <= 0 else value.sum(tuple(range(1, lead + 1)))
    return sum_to(value, (size, *shape))
