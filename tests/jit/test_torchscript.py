"""Archives that PyTorch wrote with ``torch.jit.save`` give here what they give there, and train."""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")


def _models() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    nn, F, rand = torch.nn, torch.nn.functional, torch.randn

    class Attention(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.proj = nn.Linear(8, 24)
            self.norm = nn.LayerNorm(8)

        def forward(self, x):  # type: ignore[no-untyped-def]
            b, t, c = x.shape
            q, k, v = self.proj(self.norm(x)).view(b, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
            mask = torch.ones(t, t, dtype=torch.bool).tril()
            weights = (q @ k.transpose(-2, -1) * 0.5).masked_fill(~mask, float("-inf")).softmax(-1)
            return x + (weights @ v).transpose(1, 2).reshape(b, t, c)

    class Branches(nn.Module):  # type: ignore[name-defined]
        def forward(self, x, k: int = 3):  # type: ignore[no-untyped-def]
            found = [x]
            for i in range(k):
                if i % 2 == 0 and x.mean() > -10:
                    found.append(F.relu(found[-1]) + i)
                else:
                    found.append(found[-1].clamp(min=-1.0, max=float(i)))
            text = f"{len(found)} of {x.dtype == torch.float32}"
            sizes = [f.shape[0] for f in found]
            return torch.cat(found, dim=1)[:, 1:-1:2], text, sum(sizes), {"last": found[-1]}

    class Recurrent(nn.Module):  # type: ignore[name-defined]
        def __init__(self, kind: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.inner = kind(*args, **kwargs)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.inner(x)

    image = rand(2, 3, 8, 8)
    return {
        "convolutional": (nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(inplace=True),
            nn.MaxPool2d(2), nn.ConvTranspose2d(6, 4, 2, stride=2), nn.GroupNorm(2, 4), nn.SiLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5), nn.LogSoftmax(1)), (image,)),
        "upsampling": (nn.Sequential(nn.Upsample(scale_factor=2.0, mode="bilinear"), nn.InstanceNorm2d(3, affine=True),
                                     nn.Upsample(size=(5, 5)), nn.PReLU(), nn.Hardswish()), (image,)),
        "lstm": (Recurrent(nn.LSTM, 3, 4, num_layers=2, batch_first=True, bidirectional=True), (rand(2, 5, 3),)),
        "gru": (Recurrent(nn.GRU, 3, 4), (rand(5, 2, 3),)),
        "embedding": (nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 3), nn.ELU(), nn.Softplus()),
                      (torch.tensor([[0, 3], [6, 1]]),)),
        "attention": (Attention(), (rand(2, 5, 8),)),
        "transformer": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", norm_first=True),
                        (rand(5, 2, 8),)),
        "branches": (Branches(), (rand(2, 6),)),
    }  # fmt: skip


def _ours(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tracecomp.from_numpy(value.detach().numpy().copy())
    return value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [y for x in value for y in _flat(x)]
    return _flat([*value.values()]) if isinstance(value, dict) else [value]


def _check(theirs: Any, ours: Any) -> None:
    for a, b in zip(_flat(theirs), _flat(ours), strict=True):
        if isinstance(a, torch.Tensor):
            np.testing.assert_allclose(b.detach().numpy(), a.detach().numpy(), rtol=2e-5, atol=2e-6)
        else:
            assert a == b


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("name", _models())
def test_an_archive_computes_what_it_computes_in_pytorch(name: str, how: str) -> None:
    if (name, how) == ("branches", "trace"):
        pytest.skip("PyTorch's tracer refuses results that are no tensors")
    model, args = _models()[name]
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's tracer warns of sizes that it makes constants of
        made = torch.jit.script(model) if how == "script" else torch.jit.trace(model, args)
    file = io.BytesIO()
    torch.jit.save(made, file)
    file.seek(0)
    loaded = tracecomp.jit.load(file)
    assert {*loaded.state_dict()} == {*made.state_dict()}
    given = tuple(map(_ours, args))
    theirs, ours = made(*args), loaded(*given)
    _check(theirs, ours)
    _check(theirs, tracecomp.compile(loaded)(*given))
    if any(True for _ in made.parameters()):
        _first(theirs).square().sum().backward()
        _first(ours).square().sum().backward()
        for (key, p), (own, q) in zip(made.named_parameters(), loaded.named_parameters(), strict=True):
            assert key == own
            if p.grad is not None:
                np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=2e-4, atol=2e-5)


def _first(value: Any) -> Any:
    return _flat(value)[0]


def test_a_training_mode_is_part_of_an_archive_and_can_be_changed() -> None:
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(model), file)
    file.seek(0)
    loaded = tracecomp.jit.load(file)
    x = tracecomp.randn(8, 3)
    assert loaded.training and not tracecomp.equal(loaded(x), loaded(x))
    loaded.eval()
    assert tracecomp.equal(loaded(x), loaded(x))


def test_code_that_reaches_for_python_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "model.pt"
    torch.jit.script(torch.nn.ReLU()).save(str(file))
    for evil, said in {
        "__import__('os').system('true')": "__import__",
        "torch.__class__": "not supported",
        "open('/etc/passwd')": "open",
        "(input).data.__class__": "cannot read",
        "torch.load('x')": "not known|not supported",
    }.items():
        bad = tmp_path / "bad.pt"
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(bad, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                if name.endswith("activation.py"):
                    data = data.replace(b"input: Tensor) -> Tensor:\n", b"input: Tensor) -> Tensor:\n    a = " +
                                        evil.encode() + b"\n")  # fmt: skip
                    assert evil.encode() in data
                new.writestr(name, data)
        with pytest.raises((RuntimeError, AttributeError, NameError), match=said):
            tracecomp.jit.load(bad)(tracecomp.zeros(2))


def test_no_method_changes_what_a_module_is(tmp_path: Any) -> None:
    file, bad = tmp_path / "model.pt", tmp_path / "bad.pt"
    torch.jit.script(torch.nn.ReLU()).save(str(file))
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(bad, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("activation.py"):
                data = data.replace(
                    b"  def forward", b"  def __setattr__(self, name, value) -> int:\n    return 1\n  def forward"
                )
                assert b"__setattr__" in data
            new.writestr(name, data)
    with pytest.raises(RuntimeError, match="__setattr__"):
        tracecomp.jit.load(bad)


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Any) -> None:
    (tmp_path / "x.pt").write_bytes(b"no archive")
    with pytest.raises(pickle.UnpicklingError, match="zip archive"):
        tracecomp.jit.load(tmp_path / "x.pt")
    torch.save({"a": torch.zeros(2)}, tmp_path / "weights.pt")
    with pytest.raises(RuntimeError, match=r"torch\.load"):
        tracecomp.jit.load(tmp_path / "weights.pt")
