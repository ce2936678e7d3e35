"""``torch._foreach_*`` return the results of PyTorch's, for lists, numbers and tensors as second operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

reference = pytest.importorskip("torch")

NAMES = [name for name in dir(reference) if name.startswith("_foreach_")]
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "clamp_max", "clamp_min")
THREE = ("addcmul", "addcdiv")


def lists(torch: Any) -> tuple[list[Any], list[Any]]:
    first = [torch.tensor([0.5, 0.25]), torch.tensor([[0.75], [0.125]])]
    return first, [torch.tensor([0.5, 2.0]), torch.tensor([[0.3], [1.5]])]


def calls(torch: Any, name: str) -> list[Any]:
    """Return the function's results for each way of calling it."""
    fn = getattr(torch, name)
    base = name.removeprefix("_foreach_").rstrip("_")
    found = []

    def note(*args: Any, **kwargs: Any) -> None:
        given, _ = lists(torch)
        result = fn(given, *args, **kwargs)
        found.append([x.tolist() for x in (result if not name.endswith("_") else given)])

    _, other = lists(torch)
    if base in BINARY:
        for second in (2.0, [2.0, 3.0], other):
            note(second)
    elif base in THREE:
        note(other, other)
        note(other, other, value=2.0)
        note(other, other, [1.0, 2.0])
        note(other, other, torch.tensor([1.0, 2.0]))
    elif base == "lerp":
        for weight in (0.5, [0.5, 0.25], other):
            note(other, weight)
    elif base == "copy":
        note(other)
    elif base == "mm":
        found.append([x.tolist() for x in fn([torch.ones(2, 2)], [torch.ones(2, 3)])])
    elif base == "powsum":
        note(2)
    else:
        note()
    if name in ("_foreach_add", "_foreach_sub_"):
        note(other, alpha=2.0)
    if name == "_foreach_norm":
        note(1)
    if name == "_foreach_pow":
        found.append([x.tolist() for x in fn(2.0, other)])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_list_function_gives_pytorchs_numbers(name: str) -> None:
    ours, theirs = calls(tracecomp, name), calls(reference, name)
    for a, b in zip(ours, theirs, strict=True):
        for x, y in zip(a, b, strict=True):
            reference.testing.assert_close(
                reference.tensor(x), reference.tensor(y), rtol=1e-6, atol=1e-6, equal_nan=True
            )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t._foreach_add(lists(t)[0], [1.0]),
        lambda t: t._foreach_add(lists(t)[0], [t.ones(1)]),
        lambda t: t._foreach_add([], 1),
        lambda t: t._foreach_add(t.ones(1), 1),
    ],
)
def test_lists_that_do_not_fit_are_refused(wrong: Callable[[Any], Any]) -> None:
    errors = []
    for torch in (tracecomp, reference):
        with pytest.raises((RuntimeError, TypeError)) as caught:
            wrong(torch)
        errors.append(type(caught.value))
    assert errors[0] is errors[1]


def test_list_functions_have_gradients_and_are_captured() -> None:
    x = tracecomp.ones(3, requires_grad=True)
    y = tracecomp.ones(2, requires_grad=True)
    a, b = getattr(tracecomp, "_foreach_mul")([x, y], [2.0, 3.0])  # noqa: B009
    (a.sum() + b.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2] and y.grad is not None and y.grad.tolist() == [3, 3]
    lerp: Any = getattr(tracecomp, "_foreach_lerp")  # noqa: B009
    step = tracecomp.compile(lambda a, b: lerp([a, b], [b, a], 0.25))
    with tracecomp.no_grad():
        for _ in range(3):
            found = step(tracecomp.zeros(2), tracecomp.ones(2))
    assert [t.tolist() for t in found] == [[0.25, 0.25], [0.75, 0.75]]
