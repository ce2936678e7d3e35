"""Dependences between kernels: exact after every merge, and found without a visit to unrelated kernels."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch
from tracecomp.passes.fusion.fuse import Fuser
from tracecomp.passes.fusion.groups import Group


def steps_of_parameters(count: int) -> Any:
    """The graph of an update with moving averages, in which each parameter's nodes depend on no other's."""
    weights = [torch.full((7,), float(n)) for n in range(count)]

    def step(x: Any) -> Any:
        results = []
        for w in weights:
            m = w * 0.9 + x * 0.1
            v = (w * x).sum() + (m * m).sum()
            results.append((w - m / v.sqrt()).softmax(0))
        return results

    return torch.trace(step, torch.ones(7))


def mixed() -> Any:
    """A graph with contractions, rows, sums and values read in several kernels."""
    a, b = torch.randn(24, 24), torch.randn(24, 24)

    def step(x: Any) -> Any:
        y = (x @ a).relu()
        z = (y @ b) + y
        s = z.softmax(1) * y.sum(0)
        return (s @ a).tanh() + s.cumsum(0), z.sum(), (y.T + s).sort(1)[0]

    return torch.trace(step, torch.randn(24, 24))


def reached(fuser: Fuser, group: Group) -> set[int]:
    """Ids of the kernels whose results ``group`` needs, found by a search."""
    found: set[int] = set()
    stack = [group]
    while stack:
        for node in stack.pop().nodes:
            for producer in fuser.readers.producers(node):
                other = fuser.group_of[producer]
                if other is not group and other.id not in found:
                    found.add(other.id)
                    stack.append(other)
    return found


@pytest.mark.parametrize("make", [lambda: steps_of_parameters(20), mixed])
def test_the_ancestors_of_a_kernel_are_those_it_needs(make: Any) -> None:
    fuser = Fuser(make())
    groups = fuser.run().groups
    assert len(groups) > 2
    for group in groups:
        ancestors = {n for n in range(group.ancestors.bit_length()) if group.ancestors >> n & 1}
        assert ancestors - {group.id} == reached(fuser, group)


def test_kernels_visited_by_merges_grow_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[int] = []
    dependents = Fuser._dependents

    def counted(self: Fuser, *args: Any) -> set[Group]:
        found = dependents(self, *args)
        visited.append(len(found))
        return found

    monkeypatch.setattr(Fuser, "_dependents", counted)
    totals = []
    for count in (10, 40):
        visited.clear()
        Fuser(steps_of_parameters(count)).run()
        totals.append((len(visited), sum(visited)))
    (few, found_few), (many, found_many) = totals
    assert few < many <= 4 * few + 40 and found_many <= 4 * found_few + 40
