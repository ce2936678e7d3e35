"""Writes at run-time positions go into the memory of a state that nothing else reads, without a copy of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy


def kernels(step: Callable[..., Any], bank: Any, *args: Any) -> list[str]:
    """The kernels of ``step``, which writes into ``bank``; compiled calls leave there what eager ones do."""
    first, left = bank.clone(), []
    run = tracecomp.compile(step)
    for way in (by_numpy(step), step, run):
        bank.copy_(first)
        for _ in range(3):
            way(*args)
        left.append(bank.numpy().copy())
    np.testing.assert_array_equal(left[2], left[1])
    np.testing.assert_allclose(left[2], left[0], rtol=1e-5, atol=1e-6)
    return [call.kernel.name for call in run.entries[0].plan.forward.steps()]


def at(*positions: int) -> Any:
    return tracecomp.tensor(list(positions))


@pytest.mark.parametrize(
    "write",
    [
        lambda bank, x, i: bank.index_copy_(0, i, x),
        lambda bank, x, i: bank.index_add_(0, i, x),
        lambda bank, x, i: bank.__setitem__(i, x),
        lambda bank, x, i: bank.scatter_(0, i[:, None].expand(2, 3), x),
    ],
)
def test_nothing_is_copied(write: Callable[..., Any]) -> None:
    bank = tracecomp.arange(300.0).reshape(100, 3)
    found = kernels(lambda x, i: (write(bank, x, i), x.sum())[1], bank, tracecomp.ones(2, 3), at(5, 98))
    assert not any("copy" in name for name in found), found


def test_what_is_still_read_is_copied_first() -> None:
    bank = tracecomp.arange(300.0).reshape(100, 3)

    def from_itself(i: Any) -> Any:
        bank.index_copy_(0, i, bank[1:3])

    def before_and_after(i: Any) -> Any:
        before = bank[5:7] * 1
        bank.index_copy_(0, i, before + 1)
        return before + bank[5:7]

    def old_value_returned(i: Any) -> Any:
        before = bank.clone()
        bank.index_add_(0, i, bank[:2])
        return before

    for step in (from_itself, before_and_after, old_value_returned):
        kernels(step, bank, at(2, 1))


W = tracecomp.tensor(np.random.default_rng(1).standard_normal((5, 5)).astype(np.float32))
COMPUTED: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: x.tanh() * 2,
    "product": lambda x: (x @ W).tanh(),
    "product by rows": lambda x: (x @ W).softmax(1),
    "transposed": lambda x: x.T.contiguous().T.exp(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("name", COMPUTED)
def test_a_result_reads_the_state_that_its_own_kernel_overwrites(name: str, rows: int) -> None:
    """``new`` takes the state's memory in the kernel that also computes how far it is from the old values."""
    make = COMPUTED[name]

    def step(state: Any, other: Any, x: Any) -> Any:
        new = make(x)
        moved = (new - state).abs()
        state.copy_(new)
        return moved, moved.max()

    def apart(state: Any, other: Any, x: Any) -> Any:
        new = make(x)
        moved = (new - state).abs()
        state.copy_(new)
        return moved, moved

    def swapped(state: Any, other: Any, x: Any) -> Any:
        a, b = state + make(x), other - x
        state.copy_(b * 2)
        other.copy_(a * 3)
        return a * b, a.sum()

    for program in (step, apart, swapped):
        run = tracecomp.compile(program)
        pairs = [[tracecomp.zeros(rows, 5), tracecomp.ones(rows, 5)] for _ in range(2)]
        for call in range(4):
            x = tracecomp.tensor(np.random.default_rng(call).standard_normal((rows, 5)).astype(np.float32))
            want, found = by_numpy(program)(*pairs[0], x), run(*pairs[1], x)  # type: ignore[call-arg]
            for a, b in zip((*found, *pairs[1]), (*want, *pairs[0]), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)


def moment(p: Any, m: Any, x: Any, axis: int) -> Any:
    """An optimizer's step on a summed gradient."""
    gradient = x.sum(axis)
    m.mul_(0.9).add_(gradient, alpha=0.1)
    p.sub_(0.1 * m / (m.abs().sqrt() + 0.5))
    return gradient.mean()


def summed_too(p: Any, m: Any, x: Any, axis: int) -> Any:
    """The sum reads the state that its result replaces."""
    gradient = (x * p.unsqueeze(axis)).sum(axis)
    p.sub_(gradient * 0.1)
    return m.add_(gradient).sum()


def read_in_two_passes(p: Any, m: Any, x: Any, axis: int) -> Any:
    """Results of a first and of a second sum read one state, which the first replaces."""
    mean = x.mean(axis)
    spread = (x - mean.unsqueeze(axis)).square().sum(axis)
    m.copy_(p * spread)
    p.sub_(mean)
    return p.sum()


def exchanged(p: Any, m: Any, x: Any, axis: int) -> Any:
    total = x.sum(axis)
    first, second = p + total, m - total
    p.copy_(second)
    m.copy_(first)
    return total.sum()


def shown(p: Any, m: Any, x: Any, axis: int) -> Any:
    """The old state is a result, too."""
    old = p * 1
    p.copy_(p * 0.5 + x.sum(axis))
    return old.sum(), old + m.add_(x.amax(axis))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("others", [1, 2, 7, 300])
@pytest.mark.parametrize("count", [1, 3, 17, 64, 257])
@pytest.mark.parametrize("program", [moment, summed_too, read_in_two_passes, exchanged, shown])
def test_results_of_sums_replace_state(program: Callable[..., Any], count: int, others: int, axis: int) -> None:
    shape = (others, count) if axis == 0 else (count, others)
    calls = [np.random.default_rng(n).standard_normal(shape).astype(np.float32) for n in range(4)]
    left = []
    runs = [by_numpy(program), program, *(tracecomp.compile(program, threads=n) for n in (1, 2))]
    for run in runs:
        p, m, found = tracecomp.linspace(-1, 1, count), tracecomp.linspace(2, 1, count), []
        for x in calls:
            result = run(p, m, tracecomp.tensor(x), axis)
            found += [t.numpy().copy() for t in ((*result, p, m) if isinstance(result, tuple) else (result, p, m))]
        left.append(found)
    for reference, eager, *compiled in zip(*left, strict=True):
        np.testing.assert_allclose(eager, reference, rtol=1e-3, atol=1e-4)
        for each in compiled:
            np.testing.assert_array_equal(each, eager)
    if program is moment:
        found = [call.kernel.name for call in runs[-1].entries[0].plan.forward.steps()]
        assert not any("copy" in name for name in found), found


@pytest.mark.parametrize("rows", [3, 40])
def test_a_carry_is_read_by_the_kernel_that_overwrites_it(rows: int) -> None:
    def solve(x: Any) -> Any:
        def advance(z: Any, gap: Any) -> Any:
            new = (z @ (W * 0.2) + x).tanh()
            return new, (new - z).abs().max()

        return tracecomp.while_loop(lambda z, gap: gap > 1e-4, advance, (tracecomp.zeros(rows, 5), tracecomp.ones(())))

    run = tracecomp.compile(solve)
    for call in range(4):
        x = tracecomp.tensor(np.random.default_rng(call).standard_normal((rows, 5)).astype(np.float32))
        for a, b in zip(run(x), by_numpy(solve)(x), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 130, 200])
def test_nothing_is_written_when_one_position_is_out_of_range(count: int) -> None:
    bank = tracecomp.zeros(300, 3)

    def step(x: Any, i: Any) -> Any:
        bank.index_add_(0, i, x)
        return x.sum()

    def other(x: Any, i: Any) -> Any:
        bank.scatter_(0, i[:, None].expand(count, 3), x)
        return x.sum()

    x, good = tracecomp.ones(count, 3), tracecomp.arange(count)
    for program in (step, other):
        run = tracecomp.compile(program)
        for _ in range(3):
            bank.zero_()
            run(x, good)
            assert bank.sum().item() == 3 * count
        bank.zero_()
        for wrong in {0, count // 2, count - 1} if count else set():
            bad = good.clone()
            bad[wrong] = 300
            with pytest.raises((IndexError, RuntimeError)):
                run(x, bad)
            assert bank.sum().item() == 0


def test_what_one_kernel_makes_another_changes_in_place() -> None:
    """A base without other readers gets no separate memory; one that is read later keeps its values."""

    def embedding_gradient(g: Any, i: Any) -> Any:
        return tracecomp.zeros(50, 3).index_add(0, i, g)

    def twice(g: Any, i: Any) -> Any:
        return (g.exp() * tracecomp.ones(4, 3)).index_add(0, i, g).index_copy(0, i, g).cumsum(0)

    def two_of_one_base(g: Any, i: Any) -> Any:
        return tracecomp.zeros(50, 3).index_add(0, i, g) + tracecomp.zeros(50, 3).index_add(0, i + 1, g * 2)

    def inside(g: Any, i: Any) -> Any:
        return (g.exp() @ W[:3, :3]).index_add(0, i, g) @ W[:3, :3]

    def read_later(g: Any, i: Any) -> Any:
        base = g.cumsum(0)
        return base.index_add(0, i, g), base.flip(0)

    def returned(g: Any, i: Any) -> Any:
        base = g.cumsum(0)
        return base, base.index_add(0, i, g), base.index_copy(0, i, g)

    def in_a_loop(g: Any, i: Any) -> Any:
        def body(n: Any, z: Any) -> Any:
            return n + 1, (z * 0.5).cumsum(0).index_add(0, i, g)

        return tracecomp.while_loop(lambda n, z: n < 3, body, (tracecomp.tensor(0), g.cumsum(0).index_add(0, i, g)))

    rng, i = np.random.default_rng(0), at(2, 0, 2, 1)
    for program in (embedding_gradient, twice, two_of_one_base, inside, read_later, returned, in_a_loop):
        run = tracecomp.compile(program)
        for _ in range(4):
            g = tracecomp.tensor(rng.standard_normal((4, 3)).astype(np.float32))
            found, want = run(g, i), by_numpy(program)(g, i)
            for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, want)), strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
        arena = run.entries[0].plan.forward.built.program.arena_bytes
        assert arena == {embedding_gradient: 0, twice: 64}.get(program, arena)
