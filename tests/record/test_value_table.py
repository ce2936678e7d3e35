"""The table of traced values, with a recorder that only makes inputs: equal values after writes and views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import above
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.interpret import interpret
from tracecomp.ir.op import OPS
from tracecomp.ir.types import TensorType, float32
from tracecomp.record.traced_value import Predicate, TracedValue
from tracecomp.record.value_table import ValueTable

ROW = OPS["slice"], {"starts": (1, 0), "stops": (2, 3), "steps": (1, 1)}
TURNED = OPS["permute"], {"dims": (1, 0)}


class Capturing:
    """Makes inputs of what the table asks for, and nothing else."""

    def __init__(self) -> None:
        self.graph = Graph("g")
        self.predicates: list[Predicate] = []
        self.values = ValueTable(self, self.graph)
        self.captured: list[Tensor] = []

    def depend(self, predicates: Sequence[Predicate]) -> None:
        self.predicates += predicates

    def above(self, t: Tensor) -> Tensor | None:
        found = above(t)
        assert found is None or isinstance(found, Tensor)
        return found

    def capture(self, t: Tensor) -> TracedValue:
        self.captured.append(t)
        cell = TracedValue(
            self, self.graph.add_input(TensorType(float32, t._data.shape), f"s{len(self.captured)}", "state")
        )
        self.values.keep(t, cell)
        return cell

    def resized(self, t: Tensor, before: tuple[int, ...]) -> Value:
        raise RuntimeError(f"{before} became {tuple(t.shape)}")

    def negated(self, value: Value) -> Value:
        return self.graph.add(OPS["neg"], (value,), {}, [value.type])[0]

    def row(self, value: Value) -> Value:
        op, attrs = ROW
        return self.graph.add(op, (value,), attrs, [TensorType(float32, (1, 3))])[0]

    def computed(self, value: Value) -> np.ndarray:
        self.graph.add_output(value)
        (*_, found) = interpret(self.graph, [t._data for t in self.captured])
        return found


@pytest.fixture
def recorder() -> Capturing:
    return Capturing()


def numbers(*shape: int) -> Tensor:
    return Tensor._wrap(np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape))


def test_a_tensor_from_outside_becomes_an_input_once(recorder: Capturing) -> None:
    x = numbers(2, 3)
    assert recorder.values.value(x) is recorder.values.value(x)
    assert recorder.captured == [x] and not recorder.values.is_made(x)


def test_a_view_from_outside_is_a_view_of_the_value_of_its_base(recorder: Capturing) -> None:
    x = numbers(2, 3)
    found = recorder.values.value(x[1:])
    assert len(recorder.captured) == 1 and recorder.captured[0] is x
    np.testing.assert_array_equal(recorder.computed(found), [[4, 5, 6]])


def test_a_write_through_a_view_is_seen_by_the_base_and_by_views_made_before(recorder: Capturing) -> None:
    x, values = numbers(2, 3), recorder.values
    row, turned = x[1:], x.t()
    before = values.value(turned)
    values.set(row, recorder.negated(values.value(row)))
    expected = np.array([[1, 2, 3], [-4, -5, -6]])
    assert values.value(turned) is not before
    np.testing.assert_array_equal(recorder.computed(values.value(x)), expected)
    np.testing.assert_array_equal(recorder.computed(values.value(turned)), expected.T)
    np.testing.assert_array_equal(recorder.computed(values.value(row)), expected[1:])


def test_what_is_made_in_the_call_is_worth_its_value_until_the_table_forgets(recorder: Capturing) -> None:
    x, values = numbers(2, 3), recorder.values
    y, view = numbers(2, 3), numbers(1, 3)
    values.add(y, recorder.negated(values.value(x)), None, None, 0)
    values.add(view, recorder.row(values.value(y)), values.look_of(y, ROW), None, 7)
    assert values.is_made(y) and values.root(view) == (y, (ROW,))
    values.set(view, values.value(x[:1]))
    np.testing.assert_array_equal(recorder.computed(values.value(y)), [[-1, -2, -3], [1, 2, 3]])
    assert [(made.ref(), made.line) for made in values.made] == [(y, 0), (view, 7)]
    values.forget()
    assert not values.is_made(y) and view._look is None and not values.outside


def test_places_that_a_view_takes_from_tensors_bind_the_recording_when_it_is_written(recorder: Capturing) -> None:
    x, values = numbers(2, 3), recorder.values
    values.value(x)
    place = Predicate(values.value(x), 1, None, 0)
    view = numbers(1, 3)
    looks = values.look_of(x, ROW)._replace(numbers=(place,))
    values.add(view, recorder.row(values.value(x)), looks, None, 0)
    assert values.follows(view) and not recorder.predicates
    values.set(view, values.value(view))
    assert recorder.predicates == [place] and not values.follows(view)


def test_memory_that_tensors_share_has_one_value(recorder: Capturing) -> None:
    root, values = numbers(2, 3), recorder.values
    a, b = Tensor._wrap(root._data[1:]), Tensor._wrap(root._data.T)
    values.share(a, root, (ROW,))
    values.share(b, root, (TURNED,))
    values.set(a, recorder.negated(values.value(a)))
    np.testing.assert_array_equal(recorder.computed(values.value(b)), [[1, -4], [2, -5], [3, -6]])
    assert values.shared() == [a, b]


def test_another_shape_than_before_is_told(recorder: Capturing) -> None:
    x = numbers(2, 3)
    recorder.values.value(x)
    x._data = x._data.reshape(3, 2)
    with pytest.raises(RuntimeError, match=r"\(2, 3\) became \(3, 2\)"):
        recorder.values.value(x)
