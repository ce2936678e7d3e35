"""Tensors of PyTorch and those of this package: constructors take them, every other function says how to convert."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import nn

torch = pytest.importorskip("torch")
FOREIGN = r"\(\): an argument is a tensor of PyTorch.*from_dlpack|PyTorch's (Tensor|Parameter)"
FOREIGN = r"\(\): an argument is a tensor of PyTorch.*from_dlpack|PyTorch's (Tensor|Parameter)"
"""The error of a function that takes no tensors of PyTorch."""
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool", "complex64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", [tc.tensor, tc.as_tensor, tc.asarray, tc.from_dlpack], ids=lambda f: f.__name__)
def test_constructors_take_them(make: Any, dtype: str) -> None:
    x = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype)).t()
    made = make(x)
    assert isinstance(made, tc.Tensor) and str(made.dtype) == f"torch.{dtype}" and made.tolist() == x.tolist()
    shares = make is not tc.tensor
    with torch.no_grad():
        x[0, 0] = 1
    assert (complex(made[0, 0].item()) == 1) is shares


def test_lists_and_odd_ones() -> None:
    x = torch.ones(2, requires_grad=True)
    assert tc.tensor([x, x * 2]).tolist() == [[1, 1], [2, 2]] and tc.tensor([[x[0]]]).shape == (1, 1)
    assert not tc.tensor(x).requires_grad and tc.as_tensor(x).tolist() == [1, 1]
    assert tc.tensor(torch.tensor([1j]).conj()).tolist() == [-1j]
    assert tc.tensor(x, dtype=tc.float64).dtype is tc.float64 and tc.zeros(1).new_tensor(x).tolist() == [1, 1]
    with pytest.raises(BufferError, match=r"use tensor.detach\(\)"):
        tc.from_dlpack(x)
    with pytest.raises(TypeError, match="to_dense"):
        tc.tensor(torch.eye(2).to_sparse())
    assert tc.is_tensor(x) is False


@pytest.mark.parametrize(
    "call",
    [
        tc.exp, lambda x: tc.ones(3) + x, lambda x: x + tc.ones(3), lambda x: tc.ones(3) @ x, lambda x: tc.ones(3) == x,
        lambda x: tc.ones(3).mul_(x), lambda x: tc.ones(3).copy_(x), lambda x: tc.cat([tc.ones(3), x]), tc.zeros_like,
        nn.functional.relu, nn.Linear(3, 2), nn.Parameter, tc.compile(lambda x: tc.exp(x)), tc.Tensor.exp,
        lambda x: tc.where(x > 0, tc.ones(3), tc.ones(3)), lambda x: tc.ones(3).__setitem__(0, x[0]),
        lambda x: tc.ones(3).__setitem__(slice(None), x), lambda x: tc.ones(3).__setitem__(slice(None), [x[0]] * 3),
        lambda x: tc.ones(3)[x.long()], lambda x: tc.ones(3)[x[:1].long()], lambda x: tc.ones(3)[x[0].long() :],
        lambda x: tc.ones(3).__setitem__(x.long(), 1.0), lambda x: tc.ones(3, requires_grad=True).backward(x),
        lambda x: tc.autograd.grad(tc.ones(1, requires_grad=True), x),
        lambda x: tc.autograd.grad(tc.ones(3, requires_grad=True), tc.ones(3, requires_grad=True), x),
        tc.autograd.backward, nn.LSTM(3, 3), nn.Buffer, nn.init.zeros_, lambda x: nn.Module().register_buffer("a", x),
        lambda x: nn.Module().register_parameter("a", torch.nn.Parameter(x)), lambda x: nn.ParameterList([x]),
        lambda x: nn.ParameterDict({"a": x}), lambda x: setattr(nn.Linear(3, 3), "bias", torch.nn.Parameter(x)),
        lambda x: setattr(tc.ones(3), "data", x), lambda x: setattr(tc.ones(3, requires_grad=True), "grad", x),
        lambda x: tc.optim.SGD([x], 1.0), lambda x: tc.optim.SGD(nn.Linear(3, 2).parameters(), lr=x[0]),
        lambda x: nn.utils.rnn.pad_sequence([x, x]), lambda x: nn.utils.rnn.pack_padded_sequence(x, [1]),
        lambda x: tc.save({"a": x}, io.BytesIO()), lambda x: tc.utils.data.default_collate([x, x]),
        lambda x: tc.testing.assert_close(tc.ones(3), x), lambda x: Twice.apply(x),
    ],
)  # fmt: skip
def test_operators_refuse_them_by_name(call: Any) -> None:
    with pytest.raises(TypeError, match=FOREIGN):
        call(torch.ones(3))


class Twice(tc.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2


@pytest.mark.parametrize(
    "call",
    [tc.func.vmap(tc.sin), tc.func.grad(tc.sum), lambda x: tc.func.jvp(tc.sin, (tc.ones(3),), (x,)),
     lambda x: tc.distributions.Normal(0.0, 1.0).log_prob(x), tc.amp.GradScaler("cpu").scale,
     lambda x: x[0] in tc.ones(3)],
)  # fmt: skip
def test_errors_of_other_types_name_them_too(call: Any) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"PyTorch's Tensor \(convert it with tracecomp.from_dlpack"):
        call(torch.ones(3))


def test_modules_of_pytorch_are_refused_by_name() -> None:
    theirs: Any = torch.nn.ReLU()
    for call in (lambda: nn.Sequential(theirs), lambda: nn.ModuleList([theirs]), lambda: tc.jit.script(theirs)):
        with pytest.raises(TypeError, match="PyTorch's ReLU"):
            call()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_state_of_pytorch_is_taken(dtype: str) -> None:
    theirs, own = torch.nn.Linear(3, 2), nn.Linear(3, 2)
    theirs, own = theirs.to(getattr(torch, dtype)), own.to(getattr(tc, dtype))
    state: Any = theirs.state_dict()
    own.load_state_dict(state)
    assert own.weight.tolist() == theirs.weight.tolist()
    steps = []
    for library, net in ((torch, theirs), (tc, own)):
        optimizer = library.optim.Adam(net.parameters(), lr=0.1)
        net(library.ones(1, 3, dtype=getattr(library, dtype))).sum().backward()
        optimizer.step()
        steps.append(optimizer)
    steps[1].load_state_dict(steps[0].state_dict())
    moments = [[s["exp_avg"].tolist() for s in o.state.values()] for o in steps]
    assert moments[0] == moments[1]
    own(tc.ones(1, 3, dtype=getattr(tc, dtype))).sum().backward()
    steps[1].step()


@pytest.mark.parametrize(
    "call",
    [torch.exp, torch.nn.functional.relu, lambda x: torch.cat([x, x]), torch.nn.Linear(3, 2),
     tc.compile(torch.nn.Linear(3, 2)), lambda x: torch.ones(3).add(x)],
)  # fmt: skip
def test_functions_of_pytorch_refuse_ours(call: Any) -> None:
    with pytest.raises(TypeError, match="of PyTorch"):
        call(tc.ones(3))


@pytest.mark.parametrize("call", [lambda: tc.zeros(1, dtype=torch.float32), lambda: tc.ones(1).to(torch.float64),
                                  lambda: tc.zeros(1, device=torch.device("cpu"))])  # fmt: skip
def test_dtypes_and_devices_of_pytorch_are_named(call: Any) -> None:
    with pytest.raises(TypeError, match="not PyTorch's d"):
        call()


def test_arrays_are_refused_as_pytorch_refuses_them() -> None:
    for call in (lambda lib: lib.zeros(3).copy_(np.ones(3)), lambda lib: lib.exp(np.ones(3))):
        for lib in (tc, torch):
            with pytest.raises(TypeError, match="must be Tensor"):
                call(lib)


def test_dlpack_follows_the_array_api() -> None:
    t = tc.arange(3.0)
    for copy in (None, False, True):
        for made in (tc.from_dlpack(t, copy=copy, device="cpu"), torch.from_dlpack(t, copy=copy)):
            made[0] += 1
        assert float(t[0]) == (0.0 if copy else 2.0)
        t[0] = 0
    for options in ({}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}, {"copy": True}, {"stream": -1}):
        assert "dltensor" in repr(t.__dlpack__(**options))
    with pytest.raises(BufferError, match="dl_device must be"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="detach"):
        t.clone().requires_grad_().__dlpack__()
    with pytest.raises(TypeError, match="must have __dlpack__"):
        make_any: Any = tc.from_dlpack
        make_any([1])
    with pytest.raises(BufferError, match="must be cpu"):
        tc.from_dlpack(t, device="meta")
