"""Custom operators with fake functions in compiled programs: the function runs at every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import library
from tracecomp.base.errors import CaptureError
from tracecomp.ops.opaque import STATIC
from tracecomp.ops.prim import prim


def operator(name: str, fn: Any, schema: str, fake: Any, mutates_args: Any = ()) -> Any:
    made = library.custom_op(f"opaque_tests::{name}", fn, mutates_args=mutates_args, schema=schema)
    made.register_fake(fake)
    return made


def agree(compiled: Any, fn: Any, *args: Any) -> None:
    """Same bits, or arguments changed alike."""
    own = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    assert torch.equal(compiled(*args), fn(*own))
    assert all(torch.equal(a, b) for a, b in zip(args, own, strict=True) if isinstance(a, torch.Tensor))


def groups(calls: list[int]) -> Any:
    """Rows of ``x`` by the matrix of their group: Python reads the sizes of groups."""

    def grouped(x: Any, w: Any, ends: Any) -> Any:
        calls.append(len(x))
        found, first = torch.zeros(x.size(0), w.size(2)), 0
        for n, end in enumerate(ends.tolist()):
            torch.mm(x[first:end], w[n], out=found[first:end])
            first = end
        return found

    def fake(x: Any, w: Any, ends: Any) -> Any:
        assert x.size(1) == w.size(1)
        return torch.empty(x.size(0), w.size(2))

    return operator(f"groups{id(calls)}", grouped, "(Tensor x, Tensor w, Tensor ends) -> Tensor", fake)


def test_values_that_python_reads_inside_of_an_operator_need_no_other_recording() -> None:
    calls: list[int] = []
    grouped = groups(calls)

    def f(x: Any, w: Any, ends: Any) -> Any:
        return (grouped(x * 2, w, ends) + 1).relu()

    compiled, w = torch.compile(f, fullgraph=True), torch.randn(3, 4, 5)
    for ends in ([1, 3, 6], [0, 6, 6], [2, 2, 6]):
        x = torch.randn(6, 4)
        before = len(calls)
        agree(compiled, f, x, w, torch.tensor(ends))
        assert len(calls) == before + 2
    assert compiled.recordings == 1 and len(compiled.graphs) == 1


def test_operands_of_dynamic_size_reach_the_function_without_padding() -> None:
    calls: list[int] = []
    grouped = groups(calls)

    def f(x: Any, w: Any, ends: Any) -> Any:
        return grouped(x.exp(), w, ends).sum(0)

    compiled, w = torch.compile(f, fullgraph=True), torch.randn(2, 4, 3)
    for n in (6, 7, 9, 11, 13, 6):
        agree(compiled, f, torch.randn(n, 4), w, torch.tensor([2, n]))
        assert calls[-2:] == [n, n]
    assert compiled.recordings == 2


def test_sizes_are_arguments() -> None:
    def first(x: Any, n: int) -> Any:
        return torch.tensor(x.numpy()[:n] * n)

    first = operator("first", first, "(Tensor x, int n) -> Tensor", lambda x, n: x.new_empty(n))

    def f(x: Any) -> Any:
        return first(x + 1, x.shape[0] - 2) * 2

    compiled = torch.compile(f, fullgraph=True)
    for n in (5, 6, 8, 9):
        agree(compiled, f, torch.arange(n) * 1.0)
    assert compiled.recordings == 2


def test_equal_calls_and_calls_on_constants_are_all_made() -> None:
    drawn = np.random.default_rng(0)
    noise = operator(
        "noise", lambda x: torch.tensor(x.numpy() + drawn.random()), "(Tensor x) -> Tensor", torch.empty_like
    )
    compiled = torch.compile(lambda x: noise(x) - noise(x) + noise(torch.ones(2, dtype=torch.float64)), fullgraph=True)
    found = [compiled(torch.zeros(2, dtype=torch.float64)).tolist()[0] for _ in range(3)]
    expected = np.random.default_rng(0).random(9).reshape(3, 3)
    np.testing.assert_allclose(found, expected[:, 0] - expected[:, 1] + expected[:, 2] + 1)


def test_gradients_are_those_of_the_formula() -> None:
    calls: list[str] = []

    def cubed(x: Any, scale: float = 1.0) -> Any:
        calls.append("forward")
        return torch.tensor(x.numpy() ** 3 * scale)

    def slope_of(x: Any, grad: Any) -> Any:
        calls.append("backward")
        return torch.tensor(3 * x.numpy() ** 2 * grad.numpy())

    cube = operator("cube", cubed, "(Tensor x, float scale=1.0) -> Tensor", lambda x, scale=1.0: torch.empty_like(x))
    slope = operator("slope", slope_of, "(Tensor x, Tensor grad) -> Tensor", lambda x, grad: torch.empty_like(x))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    cube.register_autograd(lambda ctx, grad: (slope(*ctx.saved_tensors, grad), None), setup_context=setup)
    weight = torch.tensor([1.0, 2.0], requires_grad=True)

    def step(x: Any) -> Any:
        loss = (cube(weight * x) * 2).sum()
        loss.backward()
        found, weight.grad = weight.grad, None
        return loss, found

    compiled = torch.compile(step, fullgraph=True)
    for k in range(4):
        x = torch.tensor([1.0, k + 0.5])
        calls.clear()
        for a, b in zip(compiled(x), step(x), strict=True):
            assert torch.equal(a, b)
        assert calls == ["forward", "backward"] * 2
    outside = torch.compile(lambda x: cube(x * 2).sum(), fullgraph=True)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        outside(x).backward()
        assert x.grad.tolist() == [24.0, 96.0]
        x.grad = None


def test_written_arguments_are_changed() -> None:
    def push(xs: Any, values: Any, by: Any) -> Any:
        values.numpy()[...] += by.numpy()
        for x in xs:
            x.mul_(2)
        return values.sum()

    push = operator(
        "push", push, "(Tensor(a!)[] xs, Tensor(b!) values, Tensor by) -> Tensor",
        lambda xs, values, by: values.new_empty(()), ("xs", "values"),
    )  # fmt: skip

    def f(a: Any, b: Any, by: Any) -> Any:
        c = b * 3
        total = push([a[1:], c], b, by.exp())
        return total + c.sum() + b.sum()

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        agree(compiled, f, torch.randn(3), torch.randn(3), torch.randn(3))
    assert compiled.recordings == 1


def test_an_operator_that_only_writes_returns_nothing() -> None:
    def clear(x: Any) -> None:
        x.zero_()

    zero = operator("zero", clear, "(Tensor(a!) x) -> ()", lambda x: None, ("x",))

    def f(x: Any) -> Any:
        zero(x)
        return x + 1

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        agree(compiled, f, torch.randn(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64, torch.int16, torch.bool])
def test_arguments_of_every_kind(dtype: Any) -> None:
    def mixed(xs: Any, at: Any, kind: Any, how: str, flag: bool, place: Any, sizes: Any) -> Any:
        assert how == "some" and flag and place == torch.device("cpu") and at is None and sizes == [2, 3]
        return [xs[0].clone(), xs[1].to(kind).reshape(sizes)]

    schema = "(Tensor[] xs, Tensor? at, ScalarType kind, str how, bool flag, Device place, SymInt[] sizes) -> Tensor[]"
    mixed = operator(
        f"mixed_{dtype}".replace(".", "_"), mixed, schema,
        lambda xs, at, kind, *rest: [torch.empty_like(xs[0]), torch.empty(2, 3, dtype=kind)],
    )  # fmt: skip

    def f(a: Any, b: Any) -> Any:
        first, second = mixed([a, b], None, torch.float64, "some", True, torch.device("cpu"), [2, 3])
        return torch.cat([first.reshape(-1).to(torch.complex128), second.reshape(-1).to(torch.complex128)])

    compiled = torch.compile(f, fullgraph=True)
    for k in range(3):
        agree(compiled, f, torch.tensor([k, 0, 1]).to(dtype), torch.arange(6.0) + k)


def test_the_mode_of_autocast_is_that_of_the_call() -> None:
    product = operator(
        "product", lambda x, w: (x @ w).float(), "(Tensor x, Tensor w) -> Tensor", lambda x, w: x.new_empty(3, 3)
    )

    def f(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = product(x, x)
        return low - product(x, x)

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 3)
        assert compiled(x).abs().max() > 0
        agree(compiled, f, x)


def test_a_fake_function_that_is_wrong_is_named() -> None:
    wrong = operator("wrong", lambda x: x.repeat(2), "(Tensor x) -> Tensor", torch.empty_like)
    with pytest.raises(RuntimeError, match=r"opaque_tests::wrong: its fake function returns f32\[2\], but .* f32\[4\]"):
        torch.compile(lambda x: wrong(x) + 1)(torch.ones(2))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calls_that_cannot_be_nodes_split_the_program() -> None:
    kept = operator(
        "kept", lambda x: x[x > 0].clone(), "(Tensor x) -> Tensor", lambda x: x.new_empty(library.get_ctx().n)
    )
    drawn = operator("drawn", lambda x: torch.rand(2) + x, "(Tensor x) -> Tensor", torch.empty_like)
    told: list[float] = []
    tell = operator("tell", lambda x: told.append(x.sum().item()), "(Tensor x) -> ()", lambda x: None)

    def f(x: Any) -> Any:
        tell(x)
        return kept(x + 1).sum() + drawn(x[:2]).sum()

    compiled = torch.compile(f)
    for k in range(3):
        x = torch.tensor([1.0, k - 3.0, 2.0])
        torch.manual_seed(k)
        found = compiled(x)
        torch.manual_seed(k)
        assert torch.equal(found, f(x))
    assert told == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    for why, op in (("size that depends on values", kept), ("random numbers", drawn), ("returns nothing", tell)):
        with pytest.raises(CaptureError, match=why):
            torch.compile(op, fullgraph=True)(torch.ones(2))


def test_without_memory_the_fake_function_is_called() -> None:
    def no(x: Any) -> Any:
        raise AssertionError("called")

    op = operator("no", no, "(Tensor x) -> Tensor", lambda x: torch.empty_like(x, dtype=torch.float64))
    found = op(torch.empty(2, 3, device="meta"))
    assert found.is_meta and found.dtype == torch.float64


def test_a_program_needs_the_operators_that_it_calls() -> None:
    with pytest.raises(RuntimeError, match=r"gone::op: the operator is not registered in this process"):
        prim.opaque(torch.ones(1), name="gone::op", arguments=(False, ("tensor",)), results=(), valid=STATIC)
