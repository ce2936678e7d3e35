"""Wrong arguments of classes and functions other than operators: PyTorch's type of exception, and a sentence."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")

Call = Callable[[Any], Any]


def linear(t: Any) -> Any:
    return t.nn.Linear(2, 2)


def leaf(t: Any) -> Any:
    return t.ones(2, requires_grad=True)


def sgd(t: Any) -> Any:
    return t.optim.SGD([leaf(t)], lr=1.0)


def rows(t: Any) -> Any:
    return t.utils.data.TensorDataset(t.arange(6.0))


def dirty(t: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x * 1)
        return x * 2

    made = {"forward": staticmethod(forward), "backward": staticmethod(lambda ctx, g: g)}
    kind: Any = type("Dirty", (t.autograd.Function,), made)
    return kind.apply(leaf(t))


def without_rate(t: Any) -> None:
    optimizer = sgd(t)
    optimizer.param_groups[0]["params"][0].grad = t.ones(2)
    del optimizer.param_groups[0]["lr"]
    optimizer.step()


CALLS: dict[str, Call] = {
    "vmap: out_dims": lambda t: t.func.vmap(lambda x: x, out_dims=7)(t.ones(2)),
    "grad: no argnums": lambda t: t.func.grad(lambda x: x.sum(), argnums=())(t.ones(2)),
    "grad: argnums twice": lambda t: t.func.grad(lambda x: x.sum(), argnums=(0, 0))(t.ones(2)),
    "grad: argnums of a text": lambda t: t.func.grad(lambda x: x.sum(), argnums="a")(t.ones(2)),
    "grad: aux": lambda t: t.func.grad(lambda x: x.sum(), has_aux=True)(t.ones(2)),
    "grad: a text": lambda t: t.func.grad(lambda x: t.ones(()))("a"),
    "vjp: aux": lambda t: t.func.vjp(lambda x: x, t.ones(2), has_aux=True),
    "jvp: shape": lambda t: t.func.jvp(lambda x: x, (t.ones(2),), (t.ones(3),)),
    "jvp: ints": lambda t: t.func.jvp(lambda x: x, (3,), (3,)),
    "jvp: nothing": lambda t: t.func.jvp(lambda x: x, (), ()),
    "jvp: aux": lambda t: t.func.jvp(lambda x: x, (t.ones(2),), (t.ones(2),), has_aux=True),
    "linearize: shape": lambda t: t.func.linearize(lambda x: x, t.ones(2))[1](t.ones(3)),
    "functional_call: int": lambda t: t.func.functional_call(linear(t), 3, t.ones(2)),
    "autograd.grad: no inputs": lambda t: t.autograd.grad(leaf(t).sum(), []),
    "backward: inputs": lambda t: leaf(t).sum().backward(inputs=[3]),
    "jacobian: strategy": lambda t: t.autograd.functional.jacobian(lambda x: x, leaf(t), strategy="x"),
    "requires_grad_: text": lambda t: t.ones(2).requires_grad_("a"),
    "anomaly: text": lambda t: t.autograd.set_detect_anomaly("x"),
    "data: dtype": lambda t: setattr(leaf(t), "data", t.ones(2, dtype=t.int64)),
    "mark_dirty": dirty,
    "RNNBase: mode": lambda t: t.nn.RNNBase("nonsense", 2, 3),
    "GroupNorm: no groups": lambda t: t.nn.GroupNorm(0, 3),
    "Conv2d: text": lambda t: t.nn.Conv2d(3, 4, "a")(t.ones(1, 3, 5, 5)),
    "AdaptiveAvgPool2d: text": lambda t: t.nn.AdaptiveAvgPool2d("a")(t.ones(1, 1, 4, 4)),
    "Unflatten: int": lambda t: t.nn.Unflatten("a", 3),
    "TripletMarginLoss": lambda t: t.nn.TripletMarginLoss(margin=-1),
    "MultiMarginLoss": lambda t: t.nn.MultiMarginLoss(p=3),
    "set_submodule": lambda t: t.nn.Sequential(linear(t)).set_submodule("0", 3),
    "Module.to": lambda t: linear(t).to(nonsense=1),
    "ParameterDict.popitem": lambda t: t.nn.ParameterDict().popitem(),
    "pack_padded_sequence": lambda t: t.nn.utils.rnn.pack_padded_sequence("a", [3]),
    "pad_packed_sequence": lambda t: t.nn.utils.rnn.pad_packed_sequence(t.ones(2)),
    "pad_sequence: nothing": lambda t: t.nn.utils.rnn.pad_sequence([]),
    "pad_sequence: side": lambda t: t.nn.utils.rnn.pad_sequence([t.ones(2)], padding_side="x"),
    "clip_grad_norm_: int": lambda t: t.nn.utils.clip_grad_norm_([3], 1),
    "clip_grad_value_: text": lambda t: t.nn.utils.clip_grad_value_(linear(t).parameters(), "a"),
    "spectral_norm": lambda t: t.nn.utils.spectral_norm(linear(t), "nonsense"),
    "optimizer: group": lambda t: sgd(t).add_param_group({}),
    "optimizer: rate": without_rate,
    "optimizer: state": lambda t: sgd(t).load_state_dict({}),
    "optimizer: state of a group": lambda t: sgd(t).load_state_dict({"state": {}, "param_groups": [{}]}),
    "CyclicLR": lambda t: t.optim.lr_scheduler.CyclicLR(3, 0.1, 1.0),
    "SequentialLR": lambda t: t.optim.lr_scheduler.SequentialLR(sgd(t), [None], []),
    "DataLoader: generator": lambda t: list(t.utils.data.DataLoader(rows(t), shuffle=True, generator=3)),
    "TensorDataset: int": lambda t: t.utils.data.TensorDataset(3),
    "TensorDataset: a number": lambda t: t.utils.data.TensorDataset(t.tensor(1.0)),
    "collate: keys": lambda t: t.utils.data.default_collate([{"a": 1}, {"b": 2}]),
    "MixtureSameFamily": lambda t: t.distributions.MixtureSameFamily(t.ones(2), t.ones(2)),
    "TransformedDistribution": lambda t: t.distributions.TransformedDistribution(t.distributions.Normal(0.0, 1.0), 3),
    "finfo": lambda t: t.finfo("a"),
    "set_num_threads": lambda t: t.set_num_threads("a"),
    "deterministic": lambda t: t.use_deterministic_algorithms("a"),
    "add: 2**70": lambda t: t.ones(2, dtype=t.int64) + 2**70,
    "round: 2**70": lambda t: t.ones(2).round(decimals=2**70),
    "sum: 2**70": lambda t: t.ones(2).sum(2**70),
    "avg_pool1d: 2**70": lambda t: t.nn.functional.avg_pool1d(t.ones(1, 3, 3), 2, 2**70),
    "unfold: no stride": lambda t: t.nn.functional.unfold(t.ones(1, 1, 3, 3), 2, stride=0),
    "device of an int": lambda t: t.ones(2, device=3),
    "trace: int": lambda t: t.jit.trace(3, t.ones(2)),
    "trace: nothing": lambda t: t.jit.trace(linear(t)),
    "trace: a number": lambda t: t.jit.trace(lambda x: 3, t.ones(2)),
    "trace: keyword": lambda t: t.jit.trace(linear(t), t.ones(2), nonsense=1),
    "script: int": lambda t: t.jit.script(3),
    "freeze: function": lambda t: t.jit.freeze(len),
    "freeze: training": lambda t: t.jit.freeze(t.jit.script(linear(t))),
    "wait": lambda t: t.jit.wait(3),
    "jit.load: int": lambda t: t.jit.load(3),
    "jit.load: missing": lambda t: t.jit.load("/nowhere/at/all"),
    "jit.save: files": lambda t: t.jit.save(t.jit.script(linear(t)), io.BytesIO(), _extra_files={"a": 3}),
    "load: None": lambda t: t.load(None),
    "load: map_location": lambda t: t.load(saved(t), map_location=3),
    "load: device": lambda t: t.load(saved(t), map_location="cuda"),
    "load: keyword": lambda t: t.load(saved(t), nonsense=1),
    "load: pickle_module": lambda t: t.load(saved(t), pickle_module=pickle, weights_only=True),
    "hub: name": lambda t: t.hub.load("/nowhere", "model", source="nonsense"),
}


def saved(t: Any) -> Any:
    t.save({"a": t.arange(6.0)}, file := io.BytesIO())
    return io.BytesIO(file.getvalue())


def edited(data: bytes, changes: Callable[[str, bytes], bytes | None]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            if (changed := changes(name, old.read(name))) is not None:
                new.writestr(name, changed)
    return written.getvalue()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "cut by one byte": lambda data: data[:-1],
    "cut to its first bytes": lambda data: data[:4],
    "another archive": lambda data: edited(data, lambda name, x: x if name.endswith("version") else None),
    "without memory": lambda data: edited(data, lambda name, x: None if "data/" in name else x),
    "without a pickle": lambda data: edited(data, lambda name, x: None if name.endswith("data.pkl") else x),
}


def raised(call: Call, library: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # its type is compared
        call(library)
    return caught.value


@pytest.mark.parametrize("name", CALLS)
def test_types_of_exceptions(name: str) -> None:
    theirs, own = (raised(CALLS[name], library) for library in (torch, tracecomp))
    assert isinstance(own, type(theirs)), (theirs, own)
    assert " " in str(own), "no sentence"


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files(name: str) -> None:
    for options in ({"weights_only": True}, {"weights_only": False}):
        call = partial(loaded, name, options)
        theirs, own = (raised(call, library) for library in (torch, tracecomp))
        assert isinstance(own, type(theirs)) or isinstance(theirs, pickle.UnpicklingError), (theirs, own)
        assert str(own).startswith("load: the file: ")
    error = raised(lambda t: t.jit.load(io.BytesIO(DAMAGES[name](saved(t).getvalue()))), tracecomp)
    assert isinstance(error, RuntimeError) and str(error).startswith("jit.load: the file: ")


def loaded(name: str, options: dict[str, bool], library: Any) -> Any:
    return library.load(io.BytesIO(DAMAGES[name](saved(library).getvalue())), **options)
