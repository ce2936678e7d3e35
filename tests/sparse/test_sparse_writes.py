"""Writes to a sparse tensor change it, and functions that transpose one return the dense result: by every name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp.sparse.arithmetic import _KEEP_ZERO
from tracecomp.sparse.tensors import HANDLERS

SHAPE = (2, 2, 3)


def made(coalesced: bool = True) -> Any:
    x = tc.sparse_coo_tensor(tc.tensor([[0, 0, 1], [0, 1, 1], [1, 0, 2]]), tc.tensor([0.5, -0.25, 0.75]), SHAPE)
    return x.coalesce() if coalesced else x


@pytest.mark.parametrize("name", [n for n in _KEEP_ZERO if hasattr(tc.Tensor, n.rstrip("_") + "_")])
@pytest.mark.parametrize("coalesced", [True, False])
def test_a_function_that_writes_changes_its_tensor_or_says_why_not(name: str, coalesced: bool) -> None:
    name = name.rstrip("_")
    x = made(coalesced)
    try:
        with np.errstate(invalid="ignore"):
            result = getattr(x, name + "_")()
    except (NotImplementedError, RuntimeError, TypeError):
        np.testing.assert_array_equal(x.to_dense().numpy(), made().to_dense().numpy())
        return
    assert result is x
    np.testing.assert_array_equal(x.to_dense().numpy(), getattr(made(), name)().to_dense().numpy())


def test_no_name_that_writes_is_answered_by_one_that_does_not() -> None:
    places = {"transpose": (0, 2), "swapaxes": (0, 2), "swapdims": (0, 2), "unsqueeze": (0,)}
    for name in [n for n in dir(tc.Tensor) if n.endswith("_") and not n.startswith("_") and n not in HANDLERS]:
        if name[:-1] not in HANDLERS:
            continue
        x, at = made(), places.get(name[:-1], ())
        try:
            getattr(x, name)(*at)
        except (NotImplementedError, RuntimeError, TypeError):
            expected = made()
        else:
            expected = getattr(made(), name[:-1])(*at)
        np.testing.assert_array_equal(x.to_dense().numpy(), expected.to_dense().numpy(), err_msg=name)


@pytest.mark.filterwarnings("ignore:The use of .x.T. on tensors")
@pytest.mark.parametrize(
    "turn",
    ["mT", "T", "mH", "transpose(0, 2)", "movedim(0, 2)", "movedim((0, 1), (2, 0))", "permute(2, 0, 1)", "[..., 1]",
     "[None]", "[0, ..., 2]", "[:, None, 1]", "unbind(1)[1]", "adjoint()", "swapaxes(-1, -2)"],
)  # fmt: skip
def test_turned_as_dense(turn: str) -> None:
    dot = "" if turn.startswith("[") else "."
    x = made(False)
    found, expected = eval(f"x{dot}{turn}", {"x": x}), eval(f"x{dot}{turn}", {"x": x.to_dense()})
    np.testing.assert_array_equal(found.to_dense().numpy(), expected.numpy())


def test_t_is_for_matrices() -> None:
    with pytest.raises(RuntimeError, match="t\\(\\) expects a tensor with <= 2 sparse"):
        made().t()


@pytest.mark.parametrize("wrap", [lambda f: f, tc.compile])
def test_a_sparse_tensor_without_values_takes_another_shape(wrap: Any) -> None:
    resized = wrap(lambda x: x.new().resize_as_(x))
    for shape in ((3, 2), (4, 5), (3, 2, 2)):
        x = tc.sparse_coo_tensor(tc.tensor([[0, 2], [1, 0]]), tc.ones(2, *shape[2:]), shape)
        empty = resized(x)
        assert empty.shape == shape and empty._nnz() == 0 and empty.sparse_dim() == 2
        assert tc.equal((empty + x).to_dense(), x.to_dense())
        with pytest.raises(NotImplementedError, match="without values"):
            made().resize_as_(x)
