"""``torch._foreach_*``: a function of every tensor of a list, as used by optimizers of libraries.

All are derived in one way from the function of one tensor: list arguments are iterated with the tensors, others are
passed to each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.publish import publish

Fn = Callable[..., Any]

_BOTH_FORMS = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub",
    "tan", "tanh", "trunc",
)  # fmt: skip
_IN_PLACE_ONLY = ("copy_", "zero_")


def _each(name: str, fn: Fn, tensors: object, args: Sequence[object], kwargs: dict[str, object]) -> tuple[Any, ...]:
    """Apply ``fn`` to every tensor; RuntimeError unless all lists are equally long and not empty."""
    if not isinstance(tensors, list | tuple) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {_kind(tensors)}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for other in (*args, *kwargs.values()):
        if isinstance(other, list | tuple) and len(other) != len(tensors):
            if not isinstance(next(iter(other), 0), Tensor):
                raise RuntimeError("Tensor list must have same number of elements as scalar list.")
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
            )
    return tuple(
        fn(t, *[_at(a, i) for a in args], **{k: _at(v, i) for k, v in kwargs.items()}) for i, t in enumerate(tensors)
    )


def _at(value: object, i: int) -> Any:
    return value[i] if isinstance(value, list | tuple) else value


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {next(type(x).__name__ for x in value if not isinstance(x, Tensor))}"
    return type(value).__name__


def _by_value(fn: Fn) -> Fn:
    """``addcmul`` and ``addcdiv``, whose factor has a separate argument: a number for all, or one for each tensor."""

    def run(t: Tensor, a: Tensor, b: Tensor, value: object = 1) -> Any:
        return fn(t, a, b, value=value)

    return run


def _norm(t: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return T.norm(t.reshape(-1), p=ord, dtype=dtype)


def _powsum(t: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return t.abs().pow(ord).sum(dtype=dtype)


_SPECIAL: dict[str, Fn] = {
    "norm": _norm, "powsum": _powsum, "max": lambda t: t.max(),
    "clone": lambda t, memory_format=None: t.clone(memory_format=memory_format),
    "mm": lambda a, b: T.mm(a, b),
}  # fmt: skip


_OTHER_NAMES = {
    "maximum": "clamp_min", "maximum_": "clamp_min_", "minimum": "clamp_max", "minimum_": "clamp_max_"
}  # fmt: skip
"""Functions with a number and a tensor form, to their tensor functions."""


_IN_ORDER = ("other", "tensors1", "tensor1", "tensor2", "scalar", "scalars", "tensor", "weight", "weights", "value")
"""PyTorch's names of operands after the first, by their kind: a number, several, a tensor."""


def _function(name: str) -> Fn:
    """The function applied to one tensor."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    name = _OTHER_NAMES.get(name, name)
    found: Fn = getattr(Tensor if name.endswith("_") else T, name)
    return _by_value(found) if name.startswith(("addcmul", "addcdiv")) else found


def _publish(name: str) -> None:
    public = f"_foreach_{name}"

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        args += tuple(kwargs.pop(argument) for argument in _IN_ORDER if argument in kwargs)
        if name == "pow" and not isinstance(self, list | tuple):  # a number to the power of every tensor
            return _each(public, lambda t: T.pow(self, t), args[0], (), {})
        if name.startswith("addc"):
            args = (*args[:2], *(a.tolist() if isinstance(a, Tensor) else a for a in args[2:]))
        found = _each(public, _function(name), self, args, kwargs)
        return self if name.endswith("_") else found

    call.__name__ = call.__qualname__ = public
    call.__doc__ = f"``{name}`` of every tensor of a list."
    publish(call, f"torch.{public}")


for _name in (*_BOTH_FORMS, *(f"{name}_" for name in _BOTH_FORMS), *_SPECIAL, *_IN_PLACE_ONLY):
    _publish(_name)
