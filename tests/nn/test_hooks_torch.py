"""Hooks, lazy modules and parametrizations against PyTorch: the arguments of hooks, their order, and errors."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")
BOTH = (torch, tracecomp)


def shapes(grads: Any) -> list[Any]:
    return [None if g is None else tuple(g.shape) for g in grads]


def layers(T: Any) -> Any:
    T.manual_seed(0)
    return T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh())


def outcome(f: Any, T: Any) -> Any:
    """Return the result of ``f`` with one of the two libraries, or the class of its error."""
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = f(T)
        return found, sorted({w.category.__name__ for w in seen})
    except Exception as error:
        return type(error).__name__


def older_hooks(T: Any) -> Any:
    """They see the gradients of the module's last operation."""
    seen: list[Any] = []
    model = layers(T)
    model[1].register_backward_hook(lambda m, i, o: seen.append((shapes(i), shapes(o))))
    model(T.ones(2, 3, requires_grad=True)).sum().backward()
    return seen


def both_kinds(T: Any) -> Any:
    model = layers(T)[0]
    model.register_full_backward_hook(lambda m, i, o: None)
    model.register_backward_hook(lambda m, i, o: None)


def both_kinds_everywhere(T: Any) -> Any:
    from_all = T.nn.modules.module
    with from_all.register_module_full_backward_hook(lambda m, i, o: None):
        return from_all.register_module_backward_hook(lambda m, i, o: None)


def too_few(T: Any) -> Any:
    model = layers(T)[1]
    model.register_full_backward_hook(lambda m, i, o: ())
    model(T.ones(2, 3, requires_grad=True)).sum().backward()


def gradient_without_inputs(T: Any) -> Any:
    model = layers(T)[0]
    model.register_full_backward_hook(lambda m, i, o: (o[0],))
    model(T.ones(2, 3)).sum().backward()


def named_result(T: Any) -> Any:
    from collections import namedtuple

    Pair = namedtuple("Pair", "a b")

    class Two(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return Pair(x * 2, x * 3)

    model, seen = Two(), []
    model.register_full_backward_hook(lambda m, i, o: seen.append((shapes(i), shapes(o))))
    out = model(T.ones(2, 2, requires_grad=True))
    (out.a.sum() + out.b.sum()).backward()
    return type(out).__name__, seen


def list_result(T: Any) -> Any:
    class Listed(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return [x * 2]

    model, seen = Listed(), []
    model.register_full_backward_hook(lambda m, i, o: seen.append(shapes(i)))
    model(T.ones(2, 2, requires_grad=True))[0].sum().backward()
    return seen


def order(T: Any) -> Any:
    """Hooks of all modules come first, prepended ones before the others; always-called ones when forward fails."""
    seen: list[str] = []
    from_all = T.nn.modules.module
    model = layers(T)[0]
    handles = [
        from_all.register_module_forward_pre_hook(lambda m, a: seen.append("all before")),
        from_all.register_module_forward_hook(lambda m, a, out: seen.append("all after"), always_call=True),
        model.register_forward_pre_hook(lambda m, a, kw: seen.append("before"), with_kwargs=True),
        model.register_forward_pre_hook(lambda m, a: seen.append("first"), prepend=True),
        model.register_forward_hook(lambda m, a, out: seen.append("after")),
        model.register_forward_hook(lambda m, a, out: seen.append("always"), always_call=True),
    ]
    model(T.ones(2, 3))
    try:
        model(T.ones(2, 5))
    except RuntimeError:
        seen.append("failed")
    tables = [len(model._forward_hooks_always_called), len(model._forward_pre_hooks_with_kwargs)]
    for handle in handles:
        handle.remove()
    left = [len(t) for t in (model._forward_hooks, model._forward_hooks_always_called, model._forward_pre_hooks)]
    return seen, tables, left


def registration(T: Any) -> Any:
    seen: list[str] = []
    names = T.nn.modules.module
    handles = [
        names.register_module_parameter_registration_hook(lambda m, name, p: seen.append(f"parameter {name}")),
        names.register_module_buffer_registration_hook(lambda m, name, b: seen.append(f"buffer {name}")),
        names.register_module_module_registration_hook(lambda m, name, c: seen.append(f"module {name}")),
    ]
    T.nn.Sequential(T.nn.Linear(2, 2), T.nn.BatchNorm1d(2))
    for handle in handles:
        handle.remove()
    T.nn.Linear(2, 2)
    return seen


def returned_as_it_is(T: Any) -> Any:
    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    y = Same.apply(T.ones(3, requires_grad=True))
    y += 1


def hook_of_a_node(T: Any) -> Any:
    y = T.ones(3, requires_grad=True) * 2
    y.grad_fn.register_hook(lambda i, o: ())
    y.sum().backward()


def lazy(T: Any) -> Any:
    """A mixin of the user's own."""

    class Plain(T.nn.Module):
        def forward(self, x: Any) -> Any:
            return x @ self.w

    class Lazy(T.nn.modules.lazy.LazyModuleMixin, Plain):
        cls_to_become = Plain

        def __init__(self) -> None:
            super().__init__()
            self.w = T.nn.UninitializedParameter()

        def initialize_parameters(self, x: Any) -> None:
            self.w.materialize((x.shape[-1], 2))

    model = Lazy()
    before = model.has_uninitialized_params(), type(model).__name__
    shape = tuple(model(T.ones(4, 3)).shape)
    return before, shape, type(model).__name__, len(model._forward_pre_hooks), len(model._load_state_dict_pre_hooks)


def lazy_arithmetic(T: Any) -> Any:
    return T.nn.UninitializedParameter() + 1


def lazy_into_ordinary(T: Any) -> Any:
    T.nn.Linear(2, 3).load_state_dict(T.nn.LazyLinear(3).state_dict())


def lazy_copy(T: Any) -> Any:
    model = copy.deepcopy(T.nn.LazyLinear(3))
    model(T.ones(2, 5))
    return tuple(model.weight.shape), type(model).__name__


def parametrized_pickle(T: Any) -> Any:
    return pickle.dumps(T.nn.utils.parametrizations.weight_norm(T.nn.Linear(2, 3)))


def parametrized_by(T: Any, forward: Any, right_inverse: Any = None, first: bool = True) -> Any:
    body = {"forward": forward} | ({"right_inverse": right_inverse} if right_inverse else {})
    made = type("Made", (T.nn.Module,), body)
    model = T.nn.Linear(2, 3)
    if not first:
        T.nn.utils.parametrize.register_parametrization(model, "weight", T.nn.Identity())
    T.nn.utils.parametrize.register_parametrization(model, "weight", made())
    return tuple(model.weight.shape)


PARAMETRIZATIONS = {
    "two results": lambda T, first: parametrized_by(T, lambda self, x: (x, x), None, first),
    "another type": lambda T, first: parametrized_by(T, lambda self, x: x.double(), None, first),
    "another shape": lambda T, first: parametrized_by(T, lambda self, x: x.sum(0), None, first),
    "inverse of nothing": lambda T, first: parametrized_by(T, lambda self, x: x, lambda self, x: None, first),
    "inverse of another type": lambda T, first: parametrized_by(T, lambda self, x: x, lambda self, x: x.bool(), first),
    "sound": lambda T, first: parametrized_by(T, lambda self, x: x * 2, lambda self, x: x / 2, first),
}


@pytest.mark.parametrize(
    "f",
    [
        older_hooks, both_kinds, both_kinds_everywhere, too_few, gradient_without_inputs, named_result, list_result,
        order, registration, returned_as_it_is, hook_of_a_node, lazy, lazy_arithmetic, lazy_into_ordinary, lazy_copy,
        parametrized_pickle,
    ],
)  # fmt: skip
def test_programs_agree(f: Any) -> None:
    theirs, ours = (outcome(f, T) for T in BOTH)
    if f is lazy or f is lazy_copy or f is lazy_into_ordinary:  # PyTorch warns that lazy modules may change
        theirs, ours = theirs if isinstance(theirs, str) else theirs[0], ours if isinstance(ours, str) else ours[0]
    assert ours == theirs


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_parametrizations_are_refused_alike(name: str, first: bool) -> None:
    theirs, ours = (outcome(lambda T: PARAMETRIZATIONS[name](T, first), T) for T in BOTH)
    assert ours == theirs


def test_weight_norm_loads_what_the_older_form_saved() -> None:
    nn = tracecomp.nn
    older = nn.utils.weight_norm(nn.Linear(4, 5))
    newer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    newer.load_state_dict(older.state_dict())
    x = tracecomp.randn(3, 4)
    np.testing.assert_array_equal(newer(x).detach().numpy(), older(x).detach().numpy())


def test_complex_tensors_are_filled() -> None:
    x = tracecomp.empty(20_000, dtype=tracecomp.complex64)
    parts = tracecomp.view_as_real(x.uniform_(2, 3)).numpy()
    assert parts.min() >= 2 and parts.max() < 3 and abs(np.corrcoef(parts.T)[0, 1]) < 0.05
    parts = tracecomp.view_as_real(x.normal_(1, 2)).numpy()
    assert np.allclose(parts.mean(0), [1, 0], atol=0.05) and np.allclose(parts.var(0), 2, atol=0.1)


def test_importing_a_module_leaves_the_function_of_its_name() -> None:
    import subprocess
    import sys

    program = (
        "import tracecomp; tracecomp.as_torch(); import torch; before = torch.autograd.gradcheck\n"
        "import torch.autograd.gradcheck\nassert callable(before) and torch.autograd.gradcheck is before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
