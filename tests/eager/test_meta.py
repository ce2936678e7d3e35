"""Tensors without memory: what they are, how they are made, what they refuse, and modules of them."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp import nn

reference = pytest.importorskip("torch")


def both(program: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return a program's result, or the type of its error, here and in PyTorch."""
    found = []
    for torch in (tracecomp, reference):
        try:
            found.append(program(torch))
        except Exception as error:
            found.append(type(error).__name__)
    return found[0], found[1]


MADE: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda t: t.zeros(2, 3, device="meta"),
    "in a context": lambda t: _inside(t, lambda: t.ones(3, dtype=t.int64)),
    "drawn in a context": lambda t: _inside(t, lambda: t.randn(3)),
    "random integers": lambda t: t.randint(5, (2,), device="meta"),
    "a permutation": lambda t: _inside(t, lambda: t.randperm(4)),
    "of data": lambda t: t.tensor([1.5, 2], device="meta"),
    "of data in a context": lambda t: _inside(t, lambda: t.tensor([[1], [2]])),
    "named otherwise in a context": lambda t: _inside(t, lambda: t.zeros(2, device="cpu")),
    "like a tensor elsewhere": lambda t: _inside(t, lambda: t.zeros_like(t.zeros(2, device="cpu"))),
    "of an array in a context": lambda t: _inside(t, lambda: t.from_numpy(np.zeros(2))),
    "like one": lambda t: t.empty_like(t.ones(2, 3, device="meta").half()),
    "with memory like one": lambda t: t.zeros_like(t.ones(2, device="meta"), device="cpu"),
    "strided": lambda t: t.empty_strided((2, 3), (1, 2), device="meta"),
    "moved": lambda t: t.ones(3, 2).T.to("meta"),
    "moved to another": lambda t: t.ones(3).to(t.ones(1, device="meta")),
    "printed": lambda t: repr(t.ones(2, 2, device="meta", dtype=t.int32)),
    "a view": lambda t: t.ones(4, 6, device="meta")[1:, ::2],
    "a view's place": lambda t: t.ones(4, 6, device="meta")[1:, 3].storage_offset(),
    "a reshape that copies": lambda t: t.ones(4, 6, device="meta").T.reshape(24),
    "a view that cannot be": lambda t: t.ones(4, 6, device="meta").T.view(24),
    "written in place": lambda t: t.ones(3, device="meta").add_(1).mul_(2.0),
    "written from memory": lambda t: t.ones(3, device="meta").copy_(t.ones(3)),
    "a number beside": lambda t: t.ones(3, device="meta") + t.tensor(1.0),
    "the default device": lambda t: _inside(t, lambda: str(t.get_default_device())),
    "a copy": lambda t: copy.deepcopy(t.ones(2, device="meta")),
    "a pickle": lambda t: pickle.loads(pickle.dumps(t.ones(2, 3, device="meta").T)),
    "a file": lambda t: _saved(t, t.ones(2, 3, device="meta")),
    "its address": lambda t: t.ones(2, device="meta").data_ptr(),
    "its storage": lambda t: t.ones(2, device="meta").untyped_storage().nbytes(),
    "flags": lambda t: (t.ones(1, device="meta").is_meta, t.ones(1, device="meta").is_cpu, t.ones(1).is_meta),
}


def _inside(torch: Any, fn: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return fn()


def _saved(torch: Any, x: Any) -> Any:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file)


def told(x: Any) -> Any:
    if hasattr(x, "stride"):
        return tuple(x.shape), str(x.dtype), x.stride(), str(x.device)
    return x


@pytest.mark.parametrize("name", MADE)
def test_meta_tensors_are_made_as_in_pytorch(name: str) -> None:
    ours, theirs = both(MADE[name])
    assert told(ours) == told(theirs)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "item": lambda t: t.ones((), device="meta").item(),
    "bool": lambda t: bool(t.ones((), device="meta")),
    "float": lambda t: float(t.ones((), device="meta")),
    "tolist": lambda t: t.ones(2, device="meta").tolist(),
    "numpy": lambda t: t.ones(2, device="meta").numpy(),
    "cpu": lambda t: t.ones(2, device="meta").cpu(),
    "to": lambda t: t.ones(2, device="meta").to("cpu"),
    "copy_": lambda t: t.ones(2).copy_(t.ones(2, device="meta")),
    "nonzero": lambda t: t.ones(2, device="meta").nonzero(),
    "a mask": lambda t: t.ones(2, device="meta")[t.ones(2, device="meta") > 0],
    "mixed": lambda t: t.ones(2) + t.ones(2, device="meta"),
    "data of another device": lambda t: setattr(t.ones(2), "data", t.ones(2, device="meta")),
    "a module's way back": lambda t: t.nn.Linear(2, 2, device="meta").to("cpu"),
    "no such device": lambda t: t.ones(2, device="cuda"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_elements_of_meta_tensors_cannot_be_read(name: str) -> None:
    ours, theirs = both(REFUSED[name])
    assert isinstance(ours, str) and ours == theirs


def test_a_model_without_memory_computes_shapes_and_gradients() -> None:
    with tracecomp.device("meta"):
        layer = nn.TransformerEncoderLayer(1 << 14, 16, 1 << 16, batch_first=True)
        model = nn.Sequential(nn.Embedding(1 << 20, 1 << 14), layer, nn.Linear(1 << 14, 1 << 20))
        optimizer = tracecomp.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    assert sum(p.numel() for p in model.parameters()) > 3e10  # of 120 GB, with gradients and momenta 360
    tokens = tracecomp.zeros(2, 8, dtype=tracecomp.int64, device="meta")
    logits = model(tokens)
    assert logits.shape == (2, 8, 1 << 20) and logits.is_meta
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    for p in model.parameters():
        assert p.grad is not None and p.grad.shape == p.shape and p.grad.is_meta


def test_drawing_for_meta_tensors_leaves_random_numbers_alone() -> None:
    tracecomp.manual_seed(3)
    want = tracecomp.randn(4)
    tracecomp.manual_seed(3)
    nn.Linear(8, 8, device="meta")
    nn.init.normal_(tracecomp.empty(3, device="meta"))
    assert tracecomp.equal(tracecomp.randn(4), want)


def test_modules_get_memory_and_lose_it() -> None:
    model = nn.Sequential(nn.Linear(3, 4, device="meta"), nn.BatchNorm1d(4))
    before = model[0].weight
    model.to_empty(device="cpu")
    assert model[0].weight is not before and not model[0].weight.is_meta and model[0].weight.requires_grad
    assert model.to("meta")[1].running_mean.is_meta
    donor = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with pytest.warns(UserWarning, match="which is a no-op"):
        model.load_state_dict(donor.state_dict())
    assert model[0].weight.is_meta
    model.load_state_dict(donor.state_dict(), assign=True)
    x = tracecomp.ones(2, 3)
    assert tracecomp.equal(model.eval()(x), donor.eval()(x))
    assert not nn.utils.skip_init(nn.Linear, 3, 4).weight.is_meta


def test_compiled_functions_run_eagerly_on_meta_tensors() -> None:
    double = tracecomp.compile(lambda x: x * 2)
    x = tracecomp.ones(4)
    for _ in range(4):
        double(x)
    assert double(x.to("meta")).is_meta
    layer = nn.Linear(4, 4)
    forward = tracecomp.compile(lambda x: layer(x))
    for _ in range(4):
        forward(x)
    layer.to("meta")
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        forward(x)


def test_files_are_loaded_without_memory_and_mapped(tmp_path: Any) -> None:
    path = tmp_path / "weights.pt"
    reference.save({"w": reference.arange(6.0).reshape(2, 3), "n": reference.arange(3)}, path)
    found = tracecomp.load(path, map_location="meta")
    assert told(found["w"]) == ((2, 3), "torch.float32", (3, 1), "meta")
    mapped = tracecomp.load(path, mmap=True)
    mapped["w"].add_(1)
    assert mapped["w"].tolist() == [[1, 2, 3], [4, 5, 6]] and mapped["n"].tolist() == [0, 1, 2]
    assert tracecomp.load(path)["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tracecomp.compile(lambda x: x * 2)(mapped["w"]).tolist() == [[2, 4, 6], [8, 10, 12]]
    with pytest.raises(ValueError, match="file path"):
        tracecomp.load(io.BytesIO(path.read_bytes()), mmap=True)
