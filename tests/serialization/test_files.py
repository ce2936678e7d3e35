"""save and load: round trips, exchange with PyTorch, no code from files, whole files or none."""

from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tracecomp as tc
from tracecomp import nn, optim
from tracecomp.serialization import files, safetensors
from tracecomp.serialization.files import load, save


def model() -> nn.Module:
    tc.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def same(a: Any, b: Any) -> bool:
    return list(a) == list(b) and all(
        np.array_equal(x.detach().numpy(), y.detach().numpy()) for x, y in zip(a.values(), b.values(), strict=True)
    )


def test_state_dicts_and_checkpoints_round_trip(tmp_path: Path) -> None:
    net = model()
    adam = optim.Adam(net.parameters())
    net(tc.rand(5, 3)).sum().backward()
    adam.step()
    save({"epoch": 3, "model": net.state_dict(), "optimizer": adam.state_dict(), "note": "x"}, tmp_path / "a.pt")
    found = load(tmp_path / "a.pt")
    assert found["epoch"] == 3 and found["note"] == "x" and same(found["model"], net.state_dict())
    assert found["model"]._metadata == net.state_dict()._metadata  # type: ignore[attr-defined]
    other = optim.Adam(model().parameters())
    other.load_state_dict(found["optimizer"])
    assert np.array_equal(
        next(iter(other.state.values()))["exp_avg"].numpy(), next(iter(adam.state.values()))["exp_avg"].numpy()
    )


@pytest.mark.parametrize(
    "dtype", [tc.float64, tc.float32, tc.float16, tc.int64, tc.int32, tc.int16, tc.int8, tc.uint8, tc.bool]
)
def test_every_dtype(dtype: Any) -> None:
    file = io.BytesIO()
    t = tc.arange(6).reshape(2, 3).to(dtype)
    save([t, dtype, t.shape], file)
    back, kind, shape = load(io.BytesIO(file.getvalue()))
    assert back.dtype is dtype is kind and shape == t.shape and np.array_equal(back.numpy(), t.numpy())


def test_devices_sizes_and_dtypes_are_plain_values() -> None:
    values = [tc.device("cpu"), tc.device("cuda", 1), tc.device("meta"), tc.Size((2, 3)), tc.float16]
    file = io.BytesIO()
    tc.save(values, file)
    file.seek(0)
    assert tc.load(file) == values
    file.seek(0)
    found = pytest.importorskip("torch").load(file)
    assert [str(x) for x in found] == [str(x) for x in values]


def test_shared_memory_stays_shared_and_views_keep_their_layout() -> None:
    base = tc.arange(12.0).reshape(3, 4)
    file = io.BytesIO()
    save({"base": base, "view": base.t()[1:], "flipped": base.flip(0), "empty": tc.empty(0, 3), "0d": base[1, 2]}, file)
    found = load(io.BytesIO(file.getvalue()))
    assert found["view"].stride() == base.t()[1:].stride()
    assert np.array_equal(found["flipped"].numpy(), base.flip(0).numpy())
    assert tuple(found["empty"].shape) == (0, 3) and found["0d"].item() == 6.0
    found["base"].fill_(7.0)
    assert found["view"].tolist() == [[7.0] * 3] * 3


def test_requires_grad_and_parameters_are_kept() -> None:
    file = io.BytesIO()
    save([tc.ones(2, requires_grad=True), nn.Parameter(tc.ones(2)), nn.Parameter(tc.ones(2), False)], file)
    a, b, c = load(io.BytesIO(file.getvalue()))
    assert a.requires_grad and isinstance(b, nn.Parameter) and b.requires_grad and not c.requires_grad


def test_whole_models_need_trust(tmp_path: Path) -> None:
    net = model().eval()
    save(net, tmp_path / "net.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"tracecomp\.nn\.containers\.Sequential"):
        load(tmp_path / "net.pt")
    found = load(tmp_path / "net.pt", weights_only=False)
    x = tc.rand(4, 3)
    assert np.array_equal(found(x).detach().numpy(), net(x).detach().numpy()) and not found.training


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, ("evil-was-here",)


class Harmless:
    pass


def test_no_code_runs_on_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(Evil(), "evil.pt")
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        load("evil.pt")
    assert not Path("evil-was-here").exists()
    save(Harmless(), "harmless.pt")
    with files.safe_globals([Harmless]):
        assert isinstance(load("harmless.pt"), Harmless)
    with pytest.raises(pickle.UnpicklingError):
        load("harmless.pt")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    save(1, path)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        save(lambda: 0, path)
    assert load(path) == 1 and [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(pickle.UnpicklingError, match="not a zip archive"):
        load(tmp_path / "text.pt")


def test_torch_reads_our_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = model()
    save({"model": net.state_dict(), "step": 2, "half": tc.ones(2).half(), "dtype": tc.int64}, tmp_path / "a.pt")
    found = torch.load(tmp_path / "a.pt")
    assert found["step"] == 2 and found["half"].dtype is torch.float16 and found["dtype"] is torch.int64
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    theirs.load_state_dict(found["model"])
    assert same(theirs.state_dict(), net.state_dict())


def test_we_read_torchs_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    adam = torch.optim.Adam(theirs.parameters())
    theirs(torch.rand(5, 3)).sum().backward()
    adam.step()
    weights = OrderedDict(theirs.state_dict())
    torch.save(
        {"m": theirs.state_dict(), "o": adam.state_dict(), "p": theirs[0].weight, "w": weights}, tmp_path / "t.pth"
    )
    found = load(tmp_path / "t.pth", map_location="cpu")
    net = model()
    assert str(net.load_state_dict(found["m"])) == "<All keys matched successfully>"
    assert same(net.state_dict(), theirs.state_dict()) and isinstance(found["p"], nn.Parameter)
    optim.Adam(net.parameters()).load_state_dict(found["o"])


def test_safetensors_round_trip(tmp_path: Path) -> None:
    state = {"a": tc.arange(6.0).reshape(2, 3).t(), "b": tc.tensor(True), "c": tc.empty(0, dtype=tc.int8)}
    safetensors.save_file(state, tmp_path / "x.safetensors", {"format": "pt"})
    assert same(safetensors.load_file(tmp_path / "x.safetensors"), state)
    data = (tmp_path / "x.safetensors").read_bytes()
    for damaged in (data[:5], data[:20], data[:-1]):
        with pytest.raises(ValueError, match="safetensors"):
            safetensors.load(damaged)


def test_safetensors_read_tensors_into_their_own_memory() -> None:
    """Loading takes as much memory as the tensors: the contents are never read as a whole."""

    class File(io.BytesIO):
        sizes: ClassVar[list[int | None]] = []

        def read(self, size: int | None = -1) -> bytes:
            self.sizes.append(size)
            return super().read(size)

    state = {"b": tc.ones(1000), "a": tc.arange(3), "c": tc.ones(5, dtype=tc.bfloat16)}
    data = safetensors.save(state)
    file = File(data)
    assert same(safetensors._read(file, len(data)), state)
    assert sum(size or 0 for size in file.sizes) == len(data) - sum(t.nbytes for t in state.values())


@pytest.mark.parametrize(
    ("tensors", "metadata"),
    [({"__metadata__": 0}, None), ({1: 0, "1": 0}, None), ({"c": 1j}, None), ({}, {"a": 1}), ({}, {1: "a"})],
)
def test_safetensors_that_could_not_be_loaded_are_not_written(tensors: Any, metadata: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="safetensors"):
        safetensors.save_file({k: tc.tensor(v) for k, v in tensors.items()}, tmp_path / "x", metadata)
    assert not (tmp_path / "x").exists()


def test_safetensors_of_the_reference_library(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy")
    reference.save_file({"w": np.arange(4, dtype="float32")}, tmp_path / "r.safetensors")
    assert safetensors.load_file(tmp_path / "r.safetensors")["w"].tolist() == [0.0, 1.0, 2.0, 3.0]
    safetensors.save_file({"v": tc.ones(2, 2)}, tmp_path / "o.safetensors")
    assert reference.load_file(tmp_path / "o.safetensors")["v"].shape == (2, 2)
