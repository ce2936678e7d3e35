"""Reading and writing by every kind of index, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.functional.reference import same


def cube(T: Any) -> Any:
    return T.arange(24.0).reshape(2, 3, 4)


READS: dict[str, Any] = {
    "integer": lambda T, x: x[0],
    "negative integer": lambda T, x: x[-1, -2],
    "column": lambda T, x: x[:, 1],
    "ellipsis": lambda T, x: x[..., 1],
    "ellipsis in the middle": lambda T, x: x[0, ..., 1],
    "two ellipses": lambda T, x: x[..., ..., 0, :],
    "two ellipses around None": lambda T, x: x[..., None, ...],
    "two ellipses and too many": lambda T, x: x[..., ..., 0],
    "none": lambda T, x: x[None, :, None, 1],
    "step": lambda T, x: x[::2, 1:, ::3],
    "slice beyond the end": lambda T, x: x[:, 1:100, 5:2],
    "list": lambda T, x: x[[1, 0]],
    "pair of lists": lambda T, x: x[[0, 1], [1, 2]],
    "list behind a slice": lambda T, x: x[:, [0, 2]],
    "lists apart": lambda T, x: x[[0, 1], :, [1, 2]],
    "broadcast lists": lambda T, x: x[[[0], [1]], [0, 2]],
    "tensor": lambda T, x: x[T.tensor([[1, 0], [0, 0]])],
    "0-d tensor": lambda T, x: x[T.tensor(1)],
    "negative tensor": lambda T, x: x[:, T.tensor([-1, 0])],
    "int32 tensor": lambda T, x: x[T.tensor([1], dtype=T.int32)],
    "integer and tensor": lambda T, x: x[0, T.tensor([1, -1]), 1:3],
    "tensor and None": lambda T, x: x[T.tensor([0, 1]), None, T.tensor([1, 2])],
    "0-d tensor counts as a number": lambda T, x: x[T.tensor(0), :, T.tensor([0, 1, 1])],
    "0-d tensors around": lambda T, x: x[T.tensor([0, 1, 1]), T.tensor(-1)],
    "0-d tensor of int16": lambda T, x: x[T.tensor(1, dtype=T.int16)],
    "tensor of int16": lambda T, x: x[T.tensor([1], dtype=T.int16)],
    "slice of floats": lambda T, x: x[0.0:1.0],
    "set": lambda T, x: x[{1}],
    "deleting": lambda T, x: x.__delitem__(0),
    "full mask": lambda T, x: x[x > 5],
    "leading mask": lambda T, x: x[T.tensor([True, False])],
    "mask of two dimensions": lambda T, x: x[T.tensor([[True, False, True], [False, False, True]])],
    "mask behind a slice": lambda T, x: x[:, T.tensor([True, False, True])],
    "mask and list": lambda T, x: x[T.tensor([True, True]), [0, 1]],
    "list of bools": lambda T, x: x[[True, False]],
    "True": lambda T, x: x[True].shape,
    "False": lambda T, x: x[False].shape,
    "empty list": lambda T, x: x[[]],
    "range": lambda T, x: x[0, range(2)],
    "too many": lambda T, x: x[0, 0, 0, 0],
    "out of range": lambda T, x: x[2],
    "list out of range": lambda T, x: x[:, [3]],
    "negative step": lambda T, x: x[::-1],
    "float": lambda T, x: x[T.tensor([0.5])],
    "wrong mask": lambda T, x: x[T.tensor([True, False, True])],
    "lists that do not broadcast": lambda T, x: x[[0, 1], [0, 1, 2]],
    "0-d": lambda T, x: T.tensor(1.0)[0],
    "0-d with ellipsis": lambda T, x: T.tensor(1.0)[...],
    "0-d with None": lambda T, x: T.tensor(1.0)[None],
    "0-d mask": lambda T, x: T.tensor(1.0)[T.tensor(True)],
}


@pytest.mark.parametrize("case", READS, ids=list(READS))
def test_read(case: str) -> None:
    same(lambda T: READS[case](T, cube(T)))


WRITES: dict[str, Any] = {
    "integer": lambda T, x: x.__setitem__(0, 7.0),
    "broadcast row": lambda T, x: x.__setitem__((0, slice(0, 2)), T.tensor([9.0, 8, 7, 6])),
    "column": lambda T, x: x.__setitem__((slice(None), 1), 5),
    "mask and number": lambda T, x: x.__setitem__(x > 4, 0.0),
    "mask and values": lambda T, x: x.__setitem__(x > 20, T.tensor([1.0, 2, 3])),
    "leading mask": lambda T, x: x.__setitem__(T.tensor([True, False]), 3.0),
    "leading mask and rows": lambda T, x: x.__setitem__(T.tensor([False, True]), T.ones(1, 3, 4)),
    "lists": lambda T, x: x.__setitem__(([0, 1], [1, 2]), T.ones(4)),
    "lists apart": lambda T, x: x.__setitem__(([0, 1], slice(None), [1, 2]), T.zeros(2, 3)),
    "list behind ellipsis": lambda T, x: x.__setitem__((Ellipsis, [0, 3]), T.zeros(2, 3, 2)),
    "of a view": lambda T, x: x[1].__setitem__((slice(None), [0]), -1.0),
    "integers are converted": lambda T, x: x.__setitem__((0, 0), T.tensor(3)),
    "through a 0-d tensor": lambda T, x: x[T.tensor(1)].fill_(7.0),
    "of a row of a 0-d tensor": lambda T, x: x[T.tensor(1), 0].__setitem__(2, 7.0),
    "no index tensors": lambda T, x: x.index_put_([], T.ones(2, 3, 5)),
    "wrong shape": lambda T, x: x.__setitem__(0, T.ones(7)),
    "wrong dtype": lambda T, x: x.__setitem__([0], T.ones(1, 3, 4, dtype=T.float64)),
    "0-d": lambda T, x: x[0, 0, 0].__setitem__((), 4.0),
}


@pytest.mark.parametrize("case", WRITES, ids=list(WRITES))
def test_write(case: str) -> None:
    def program(T: Any) -> Any:
        x = cube(T)
        WRITES[case](T, x)
        return x

    same(program)


@pytest.mark.parametrize(
    "read",
    ["x[0]", "x[:, [0, 0, 2]]", "x[x > 5]", "x[[0, 1, 1], :, [1, 2, 2]]", "x[..., None, 1]", "x[T.tensor([1, 1])]"],
)
def test_gradient_of_reading(read: str) -> None:
    def program(T: Any) -> Any:
        x = cube(T).requires_grad_()
        y = eval(read, {"x": x, "T": T})
        (y * T.arange(float(y.numel())).reshape(y.shape)).sum().backward()
        return x.grad

    same(program)


def test_gradient_of_writing() -> None:
    def program(T: Any) -> Any:
        x, v = cube(T).requires_grad_(), T.ones(2, 4).requires_grad_()
        y = x * 2
        y[:, 1] = v * 3
        y[[0, 1], [2, 2]] = v
        y[y > 30] = 0.0
        (y * y).sum().backward()
        return x.grad, v.grad

    same(program)


def test_filling_an_expanded_tensor_writes_its_memory_once() -> None:
    base = torch.ones(3, requires_grad=True)
    row = base * 1
    wide = row.expand(2, 3)
    wide.fill_(5)
    assert row.tolist() == [5, 5, 5]
    wide[:, 1].zero_()
    assert wide.tolist() == [[5, 0, 5], [5, 0, 5]]
    wide.sum().backward()
    assert base.grad.tolist() == [0, 0, 0]


def test_byte_masks_warn_at_the_line_that_uses_them() -> None:
    x, mask = torch.arange(3.0), torch.tensor([1, 0, 1], dtype=torch.uint8)
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated") as caught:
        assert x[mask].tolist() == [0, 2]
        x[mask] = 5.0
    assert [w.filename for w in caught] == [__file__, __file__]
    assert x.tolist() == [5, 1, 5]


@pytest.mark.parametrize(
    "key",
    [
        [slice(0, 1), slice(0, 2)], [slice(0, 1), 0], [[0, 1], [1, 0]], [None, 0], [..., 0], [0, [1, 0]],
        [np.array([0, 1]), 1],
    ],
    ids=str,
)  # fmt: skip
def test_a_short_list_of_more_than_numbers_indexes_as_the_tuple_does(key: Any) -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        found = x[key]
    assert torch.equal(found, x[tuple(key)])
    target = x.clone()
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        target[key] = 0.0
    expected = x.clone()
    expected[tuple(key)] = 0.0
    assert torch.equal(target, expected)


def test_a_list_of_numbers_or_a_long_list_is_positions() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    assert x[[0, 2]].shape == (2, 4)
    assert x[[[0, 1]] * 40].shape == (40, 2, 4)


@pytest.mark.parametrize("graded", [False, True])
def test_what_numpy_picks_and_puts_at_once_is_what_pytorch_does(graded: bool) -> None:
    """Masks, index tensors, numbers and slices, with wrong ones among them, read and written, also through views."""
    peer = pytest.importorskip("torch")
    keys: list[Callable[[Any], Any]] = [
        lambda t: t.tensor([1, -1, 0]), lambda t: t.tensor([[0, 1], [1, 1]]), lambda t: t.tensor([7]),
        lambda t: t.tensor([True, False]), lambda t: t.arange(6).reshape(2, 3) % 2 == 0,
        lambda t: t.tensor([True]), lambda t: t.tensor(1), lambda t: 1, lambda t: 5, lambda t: (slice(None), -1),
        lambda t: (..., 0), lambda t: (None, 1), lambda t: (slice(1, None), slice(None, None, 2)),
        lambda t: (slice(None, None, -1),), lambda t: (0, 0, 0), lambda t: t.tensor([], dtype=t.int64),
    ]  # fmt: skip
    values: list[Callable[[Any], Any]] = [
        lambda t: 2.5, lambda t: 7, lambda t: t.tensor(3.0), lambda t: t.full((1, 1, 1), 4.0),
        lambda t: t.arange(3.0), lambda t: t.arange(5.0), lambda t: t.arange(3), lambda t: True,
    ]  # fmt: skip
    for key in keys:
        for value in values:
            told = []
            for t in (torch, peer):
                base = t.arange(12.0).reshape(4, 3).clone().requires_grad_(graded)
                x = (base * 1.0)[1:3] if graded else base[1:3]
                found: list[Any] = []
                try:
                    picked = x[key(t)]
                    found += [picked.tolist(), picked.requires_grad]
                    x[key(t)] = value(t)
                except (RuntimeError, IndexError, ValueError) as error:
                    found.append(IndexError if isinstance(error, IndexError) else RuntimeError)
                told.append([*found, x.tolist(), x._version, base.tolist()])
            ours, theirs = told
            assert ours[:-2] == theirs[:-2], (key(peer), value(peer))
            assert ours[-1] == theirs[-1]
