"""``autograd.Function``: operations with derivatives written by the user."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType, ModuleType
from typing import Any

from tracecomp.eager.aliasing import attach
from tracecomp.eager.device import use
from tracecomp.eager.foreign import check_takes
from tracecomp.eager.grad_fn import FREED, Packed, SavedOut, modified
from tracecomp.eager.modes import grad_enabled, modes, no_grad
from tracecomp.eager.tangents import has_tangent, held_tangents, set_tangent, tangent, without_levels
from tracecomp.eager.tensor import Tensor, create, gradient_edge
from tracecomp.eager.tensor_base import Edge, Grads, Node, TensorBase
from tracecomp.ir.types import from_numpy_dtype

_HELD_LIMIT = 10_000
"""Most objects searched for tensors: a closure may lead to the whole program."""


class FunctionCtx:
    """Data that ``forward`` stores for ``backward``."""

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._for_jvp: tuple[Any, ...] | None = None
        self._dirty: tuple[Tensor, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save ``tensors`` for backward, which reads them from ``saved_tensors``."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Keep ``tensors`` for ``jvp``, which follows ``forward`` at once and gets them as ``saved_tensors``."""
        self._for_jvp = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._for_jvp is not None:
            return self._for_jvp
        if self._saved is None:
            raise RuntimeError(FREED)
        return tuple(_unpack(s) for s in self._saved)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Declare the inputs that ``forward`` wrote to; they must be returned."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Declare the outputs without gradients."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether missing gradients reach ``backward`` as zeros (the default) or as None."""
        self._materialize = value


class FunctionNode(Node):
    """``grad_fn`` of the outputs of a user's Function."""

    __slots__ = ("ctx", "function", "inputs")
    takes_nothing = True

    def __init__(
        self, function: type[Function], ctx: FunctionCtx, edges: tuple[Edge, ...], inputs: int, outs: Sequence[Any]
    ) -> None:
        types = tuple((t._data.dtype, t._data.shape) if isinstance(t, Tensor) else None for t in outs)
        super().__init__(edges, types)  # type: ignore[arg-type]
        self.function = function
        self.ctx = ctx
        self.inputs = inputs

    def __getattr__(self, name: str) -> Any:
        if name == "_metadata":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def release(self) -> None:
        if self.ctx._to_save or self.ctx._saved:
            self.ctx._saved = None
        self.ctx._to_save = ()

    def spent(self) -> bool:
        saved = self.ctx._saved
        return saved is None or any(map(_overwritten, saved))

    def held(self) -> list[Tensor]:
        return tensors_within(self.ctx.__dict__)

    def backward(self, grads: Grads) -> Grads:
        given: list[Any] = list(grads)
        if self.ctx._materialize:
            for i, (g, pair) in enumerate(zip(grads, self.out_types, strict=True)):
                if g is None and pair is not None:
                    given[i] = _zeros(pair)
        found = self.function._derivative()(self.ctx, *given)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) < self.inputs or any(g is not None for g in found[self.inputs :]):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {self.inputs}, got "
                f"{len(found)})"
            )
        for i, g in enumerate(found):
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(
                    f"function {self.name()} returned an invalid gradient at index {i} - expected Tensor or None, "
                    f"but got {type(g).__name__}"
                )
        return found[: self.inputs]


def tensors_within(start: object) -> list[Tensor]:
    """Tensors reachable from ``start`` through containers, closures and attributes of objects other than modules."""
    return [v for v in values_within(start) if isinstance(v, Tensor)]


def values_within(start: object) -> list[Any]:
    """The tensors and numbers reachable from ``start``, as for ``tensors_within``.

    A number that a recording follows refers to the recorder, which refers to every tensor of the call. The search
    therefore ends at numbers.
    """
    found: list[Any] = []
    seen: set[int] = set()
    stack = [start]
    while stack and len(seen) < _HELD_LIMIT:
        value = stack.pop()
        if id(value) in seen or isinstance(value, type | ModuleType | Node) or hasattr(value, "_parameters"):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor | int | float):
            found.append(value)
        elif isinstance(value, FunctionType):
            stack.extend(value.__closure__ or ())
        elif isinstance(value, dict):  # from Python 3.13 on, the collector finds an object's attributes at the object
            stack += [*dict.keys(value), *dict.values(value)]
        else:
            stack.extend(gc.get_referents(value))
    return found


class Function:
    """Base class of differentiable functions: define static methods ``forward(ctx, ...)`` (or ``forward(...)``,
    ``setup_context``) and ``backward``, or its other name ``vjp``. ``jvp`` is the forward derivative."""

    generate_vmap_rule = False
    """Whether ``vmap`` maps the methods. It calls the static method ``vmap`` otherwise."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    vjp = backward

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        """Return the output for all examples and its ``out_dims``; ``info`` has ``batch_size`` and ``randomness``."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, so you "
            "should invoke them on the class itself."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and make its outputs differentiable by ``backward``, dual by ``jvp``."""
        check_takes(f"{cls.__name__}.apply", map(type, args))
        separate = cls.setup_context is not Function.setup_context
        if separate:
            args, kwargs = _with_defaults(cls.forward, args, kwargs)
        dual = use.begun and modes.levels and has_tangent(args)
        ctx = FunctionCtx()
        edges = tuple(gradient_edge(a) if grad_enabled() and isinstance(a, Tensor) else None for a in args)
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        mapping = modes.recorder is not None and modes.recorder.maps_functions
        if mapping:
            output = modes.recorder.map_function(cls, args, kwargs)
        with no_grad(), without_levels() if dual else nullcontext():
            if not mapping:
                output = cls.forward(*args, **kwargs) if separate else cls.forward(ctx, *args, **kwargs)
            if separate:
                cls.setup_context(ctx, args, output)
        outs = output if isinstance(output, tuple) else (output,)
        if any(e is not None for e in edges):
            outs = _connect(cls, ctx, args, edges, outs)
        else:
            ctx._saved = ctx._to_save
        if dual:
            outs = _push(cls, ctx, args, outs)
        ctx._for_jvp = None
        return outs if isinstance(output, tuple) else outs[0]

    @classmethod
    def _derivative(cls) -> Callable[..., Any]:
        """Return ``backward``, which may be written under the name ``vjp``."""
        if cls.vjp is Function.vjp:
            return cls.backward
        if cls.backward is not Function.backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only "
                "implement one of them."
            )
        return cls.vjp


def _with_defaults(
    forward: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``forward`` with its defaults: ``setup_context`` and ``backward`` count all of them."""
    code = getattr(forward, "__code__", None)
    if code is not None and not kwargs and len(args) == code.co_argcount and not code.co_kwonlyargcount:
        return args, kwargs
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _connect(
    cls: type[Function], ctx: FunctionCtx, args: tuple[object, ...], edges: tuple[Edge, ...], outs: tuple[object, ...]
) -> tuple[Any, ...]:
    node = type(f"{cls.__name__}Backward", (FunctionNode,), {"__slots__": ()})(cls, ctx, edges, len(args), outs)
    if modes.recorder is not None:
        modes.recorder.function_ran(node, args)
        if modes.recorder.sized:
            modes.recorder.sizes.note_results(node, outs)
    if any(all(t is not out for out in outs) for t in ctx._dirty):
        raise RuntimeError(
            f"{cls.__name__}.forward(): mark_dirty() was given a tensor that is not returned. Return every input that "
            "it writes to"
        )
    results = []
    for i, out in enumerate(outs):
        if not isinstance(out, Tensor) or any(out is t for t in ctx._constant) or out._data.dtype.kind in "biu":
            results.append(out)
            continue
        if any(out is t for t in ctx._dirty):
            _check_dirty(out)
            out._shared_storage().wrote()
        elif any(out is a for a in args) or out.requires_grad:
            given, out = out, out.detach()
            attach(out, given, (), False)
        out._requires_grad = False
        out._linked = False
        out._grad_fn, out._output_nr = node, i
        if out._base is not None:
            out._unwritable = _WRITTEN_VIEW.format(number=i, name=node.name())
        results.append(out)
    ctx._saved = tuple(_pack(t, outs, results, node) for t in ctx._to_save)
    return tuple(results)


def _push(cls: type[Function], ctx: FunctionCtx, args: tuple[object, ...], outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs, with the tangents that ``jvp`` gives."""
    dirty = [id(t) for t in ctx._dirty]
    outs = tuple([t.detach() if any(t is a for a in args) and id(t) not in dirty else t for t in outs])
    for level in modes.levels:
        given = [tangent(x, level) for x in args]
        if all(t is None for t in given):
            continue
        with level.outside():
            if ctx._materialize:
                pairs = zip(given, args, strict=True)
                given = [_zeros_of(x) if t is None and isinstance(x, Tensor) else t for t, x in pairs]
            found = cls.jvp(ctx, *given)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(outs):
            raise RuntimeError(
                "Function's jvp returned an invalid number of forward gradients "
                f"(expected {len(outs)} but got {len(found)})"
            )
        for out, value in zip(outs, found, strict=True):
            if value is not None and isinstance(out, Tensor) and out.dtype.differentiable:
                _check_tangent(out, value)
                out._linked = False
                set_tangent(out, level, value)
    for saved, t in zip(ctx._saved or (), ctx._to_save, strict=False):
        if isinstance(saved, Packed):
            saved.tangents = held_tangents(t)
        elif isinstance(saved, tuple) and isinstance(saved[0], SavedOut):
            saved[0].tangents = outs[saved[2]]._tangents
    return outs


def _check_tangent(out: Tensor, value: Tensor) -> None:
    if value.shape != out.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(out.shape)} while the given forward gradient is of size "
            f"{list(value.shape)}."
        )


_WRITTEN_VIEW = (
    "Output {number} of {name} is a view and is being modified inplace. This view was created inside a custom Function "
    "(or because an input was returned as-is) and the autograd logic to handle view+inplace would override the custom "
    "backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can "
    "fix this by cloning the output of the custom Function."
)


def _check_dirty(out: Tensor) -> None:
    if out.is_leaf and out._requires_grad:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def _pack(t: Tensor | None, outs: Sequence[object], results: Sequence[Any], node: Node) -> Any:
    if t is None:
        return None
    if not isinstance(t, Tensor):
        raise TypeError(f"save_for_backward can only save variables, but argument is of type {type(t).__name__}")
    number = next((i for i, o in enumerate(outs) if o is t), None)
    if number is not None and results[number]._grad_fn is node:
        return (SavedOut(t), node, number)
    return Packed(t, gradient_edge(t)) if modes.save_hooks else (t, t._version)


def _unpack(saved: Any) -> TensorBase | None:
    if saved is None or isinstance(saved, Tensor):
        return saved
    if isinstance(saved, Packed):
        return saved.unpacked()
    if isinstance(saved[0], SavedOut):
        record, node, number = saved
        return record.restored(node, number)  # type: ignore[no-any-return]
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError(modified(tensor, version))
    return tensor  # type: ignore[no-any-return]


def _overwritten(saved: object) -> bool:
    if not isinstance(saved, tuple):
        return False
    return saved[0].overwritten() if isinstance(saved[0], SavedOut) else saved[0]._version != saved[1]


def _zeros_of(x: Tensor) -> Tensor:
    return create("full", value=0, shape=tuple(x.shape), dtype=x.dtype)


def _zeros(pair: tuple[Any, tuple[int, ...]]) -> Tensor:
    return create("full", value=0.0, shape=pair[1], dtype=from_numpy_dtype(pair[0]))


def once_differentiable(fn: Callable[..., object]) -> Callable[..., Any]:
    """Decorate ``backward``: differentiating its result again raises an error."""

    @functools.wraps(fn)
    def run(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            found = fn(ctx, *grads)
        if not modes.grad or not any(isinstance(g, Tensor) and g.requires_grad for g in grads):
            return found
        many = found if isinstance(found, tuple) else (found,)
        blocked = tuple(_Blocked.apply(g, *grads) if isinstance(g, Tensor) else g for g in many)
        return blocked if isinstance(found, tuple) else blocked[0]

    return run


class _Blocked(Function):
    """The identity, whose derivative is an error."""

    generate_vmap_rule = True

    @staticmethod
    def forward(result: Tensor, *grads: Tensor) -> Tensor:
        return result.detach()

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
