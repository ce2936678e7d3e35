"""Boxes and rows: each node once, edges downwards, in every graph."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tracecomp.inspect.report.layers import WIDEST, boxes


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, ...]]]:
    count = draw(st.integers(1, 30))
    inputs = [sorted(draw(st.sets(st.integers(0, max(n - 1, 0)), max_size=3 if n else 0))) for n in range(count)]
    path = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)
    return inputs, [draw(path) for _ in range(count)]


@given(graphs())
def test_every_node_and_box_stands_in_one_row(graph: tuple[list[list[int]], list[tuple[str, ...]]]) -> None:
    inputs, paths = graph
    found = boxes(inputs, paths)
    items = [item for box in found for row in box.rows for item in row]
    assert sorted(items) == [*range(1 - len(found), 0), *range(len(inputs))] or sorted(items) == sorted(
        [*(-1 - n for n in range(1, len(found))), *range(len(inputs))]
    )
    assert all(len(row) <= WIDEST for box in found for row in box.rows)
    names: dict[int, tuple[str, ...]] = {0: ()}
    for n, box in enumerate(found):
        for item in (i for row in box.rows for i in row if i < 0):
            names[-1 - item] = (*names.get(n, ()), found[-1 - item].name)
    for n, box in enumerate(found):
        for item in (i for row in box.rows for i in row if i >= 0):
            assert names[n] == paths[item]


@given(graphs())
def test_edges_within_a_box_lead_down(graph: tuple[list[list[int]], list[tuple[str, ...]]]) -> None:
    inputs, _ = graph
    (box,) = boxes(inputs, [()] * len(inputs))
    row = {item: n for n, items in enumerate(box.rows) for item in items}
    assert all(row[m] < row[n] for n, read in enumerate(inputs) for m in read)
