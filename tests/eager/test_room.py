"""Tensors with room behind their elements behave like row-major tensors."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.eager.rooms import has_room, with_room
from tracecomp.eager.device import use

Look = Callable[[Any], Any]

SHAPES: dict[str, Look] = {
    "shape": lambda t: t.shape,
    "size": lambda t: t.size(-2),
    "ndim": lambda t: (t.ndim, t.dim(), len(t)),
    "numel": lambda t: t.numel(),
    "requires_grad": lambda t: (t.requires_grad, t.grad_fn, t.is_leaf),
    "device": lambda t: str(t.device),
}
"""Attributes that a decoding loop reads, without a copy."""

LOOKS: dict[str, Look] = {
    "stride": lambda t: t.stride(),
    "is_contiguous": lambda t: t.is_contiguous(),
    "storage_offset": lambda t: t.storage_offset(),
    "storage": lambda t: (t.untyped_storage().nbytes(), t.storage().tolist()),
    "storage of an alias": lambda t: t.detach().untyped_storage().nbytes(),
    "numpy": lambda t: (t.numpy().strides, t.numpy().flags.writeable, type(t.numpy())),
    "asarray": lambda t: (np.asarray(t).strides, type(np.asarray(t))),
    "dlpack": lambda t: np.from_dlpack(t).strides,
    "tolist": lambda t: t.tolist(),
    "repr": repr,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "save": lambda t: len(_saved(t)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "dtype": lambda t: t.dtype,
    "view": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(-1),
    "as_strided": lambda t: t.as_strided((3,), (2,), 1),
    "rows": list,
    "unbind": lambda t: t.unbind(1),
    "index": lambda t: t[:, 1:, 1],
    "transpose": lambda t: t.mT,
    "contiguous": lambda t: t.contiguous(),
    "clone": lambda t: t.clone(),
    "like": torch.empty_like,
    "data": lambda t: t.data,
    "detach": lambda t: t.detach(),
    "data of another": lambda t: _put_data(t),
    "set": lambda t: torch.empty(0).set_(t),
    "share": lambda t: t.share_memory_(),
    "write": lambda t: t.add_(1),
    "write an element": lambda t: t.__setitem__((0, 1), 2.0),
    "out": lambda t: torch.mul(t, 2, out=t),
    "resize": lambda t: t.resize_(2, 2),
    "squeeze in place": lambda t: t.unsqueeze_(0),
    "gradient": lambda t: torch.autograd.grad((t.requires_grad_() * 2).sum(), t),
    "saved": lambda t: _gradient_by(t),
    "foreach": lambda t: torch._foreach_add([t] * 20, 1),
    "foreach in place": lambda t: _foreach(t),
    "stack": lambda t: torch.stack([t, t]),
    "optimizer": lambda t: _step(t),
    "compiled": lambda t: torch.compile(lambda x: (x * 2, x.mT, x.view(-1)), wait=True)(t),
    "written by a compiled function": lambda t: torch.compile(lambda x: x.mul_(2), wait=True)(t),
    "vmap": lambda t: torch.vmap(lambda x: x.sum(-1))(t),
}


def _saved(t: Any) -> bytes:
    file = io.BytesIO()
    torch.save(t, file)
    return file.getvalue()


def _put_data(t: Any) -> Any:
    other = torch.zeros(1)
    other.data = t
    other.add_(1)
    return other


def _gradient_by(t: Any) -> Any:
    w = torch.ones(t.shape[-1], requires_grad=True)
    loss = (t * w).sum()
    loss.backward()
    return w.grad


def _foreach(t: Any) -> Any:
    multiply: Any = torch._foreach_mul_
    return multiply([t], 2)


def _step(t: Any) -> Any:
    t.requires_grad_().grad = torch.ones(t.shape)
    torch.optim.AdamW([t]).step()
    return t


def told(x: Any) -> Any:
    """The observable state of a value."""
    if isinstance(x, torch.Tensor):
        memory = [x.untyped_storage().nbytes(), x._is_view(), x._version] if x.numel() else []
        return x.tolist(), x.shape, x.stride(), x.storage_offset(), x.is_contiguous(), x.dtype, *memory
    return [*map(told, x)] if isinstance(x, list | tuple) else x


def tensor() -> Any:
    return torch.arange(24.0).reshape(2, 3, 4).clone()


@pytest.mark.parametrize("name", SHAPES)
def test_asking_for_shapes_keeps_the_room(name: str) -> None:
    t = with_room(tensor())
    assert SHAPES[name](t) == SHAPES[name](tensor())
    assert has_room(t)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", LOOKS)
def test_looks_are_those_of_row_major_memory(name: str, begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some tensors have no memory, so that functions check every argument."""
    monkeypatch.setattr(use, "begun", begun)
    look = LOOKS[name]
    ours, dense = with_room(tensor()), tensor()
    if name not in ("repr", "empty_like"):
        found, wanted = look(ours), look(dense)
        if name == "like":
            assert found.stride() == wanted.stride()
        else:
            assert told(found) == told(wanted)
    assert told(ours) == told(dense)


def test_views_follow_writes() -> None:
    """A view that is taken of a tensor with room shares its memory from then on."""
    t = with_room(tensor())
    rows, part, alias = list(t), t[:, 1:], t.detach()
    t.mul_(2)
    assert [r.tolist() for r in rows] == t.tolist() and part.tolist() == t[:, 1:].tolist()
    alias.zero_()
    assert t.sum() == 0


def test_memory_behind_the_elements_cannot_be_reached() -> None:
    t = with_room(tensor())
    room = t._data.room
    assert not t._data.flags.writeable
    t.add_(1)
    assert room.memory[:, 3:].sum() == 0 and not np.shares_memory(t.numpy(), room.memory)
