"""Checkpoints of N processes read by M, and runs that continue after a death."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tests.distributed.gangs import Ended, gang, succeed
from tracecomp.distributed import checkpoint

SCRIPT = str(Path(__file__).with_name("resumed.py"))
STEPS = 8


def digest(ended: Sequence[Ended]) -> str:
    succeed(ended)
    found = {line for e in ended for line in e.text.splitlines() if line.startswith("digest")}
    assert len(found) == 1
    return found.pop()


@pytest.mark.slow
def test_a_run_that_died_twice_goes_on_with_fewer_processes_to_the_same_bits(tmp_path: Path) -> None:
    undisturbed = digest(gang(2, SCRIPT, str(tmp_path / "a"), str(STEPS)))
    folder, at_once, while_saving = str(tmp_path / "b"), "0", "-1"
    for size, steps, moment in ((3, 2, at_once), (2, 1, while_saving)):
        died = gang(size, SCRIPT, folder, str(STEPS), str(size - 1), str(steps), moment, seconds=100)
        assert died[-1].status == -9, died[-1].text
        for e in died[:-1]:
            assert e.status and f"rank {size - 1} died" in e.text, e.text
    assert digest(gang(1, SCRIPT, folder, str(STEPS))) == undisturbed


def some() -> dict[str, Any]:
    return {
        "weights": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)},
        "list": [torch.zeros(2), {"deep": torch.tensor(3)}],
        "number": 5,
        "text": "words",
    }


def test_what_was_saved_comes_back_in_place(tmp_path: Path) -> None:
    saved = some()
    checkpoint.save(saved, checkpoint_id=tmp_path)
    fresh = some()
    place = fresh["weights"]["a"].zero_()
    fresh["number"] = fresh["text"] = None
    checkpoint.load(fresh, checkpoint_id=tmp_path)
    assert fresh["weights"]["a"] is place and torch.equal(place, saved["weights"]["a"])
    assert fresh["number"] == 5 and fresh["text"] == "words" and fresh["list"][1]["deep"].item() == 3


def test_an_optimizer_without_state_gets_that_of_the_checkpoint(tmp_path: Path) -> None:
    def trained(steps: int) -> tuple[Any, Any]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for _ in range(steps):
            net(torch.ones(1, 3)).sum().backward()
            optimizer.step()
        return net, optimizer

    net, optimizer = trained(3)
    checkpoint.save({"net": net, "optimizer": optimizer}, checkpoint_id=tmp_path)
    other, fresh = trained(0)
    checkpoint.load({"net": other, "optimizer": fresh}, checkpoint_id=tmp_path)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(optimizer.state[a]["exp_avg"], fresh.state[b]["exp_avg"])


def test_a_failed_save_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoint.save({"x": torch.ones(2)}, checkpoint_id=tmp_path)
    with pytest.raises(Exception, match="pickle"):
        checkpoint.save({"x": torch.zeros(2), "bad": lambda: 0}, checkpoint_id=tmp_path)
    found = {"x": torch.zeros(2)}
    checkpoint.load(found, checkpoint_id=tmp_path)
    assert found["x"].tolist() == [1.0, 1.0]


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    with pytest.raises(checkpoint.CheckpointException, match="damaged checkpoint"):
        checkpoint.load({"x": torch.ones(1)}, checkpoint_id=tmp_path / "none")
    checkpoint.save({"x": torch.ones(2)}, checkpoint_id=tmp_path)
    with pytest.raises(checkpoint.CheckpointException, match="Missing key in checkpoint state_dict: y"):
        checkpoint.load({"y": torch.ones(2)}, checkpoint_id=tmp_path)
    with pytest.raises(checkpoint.CheckpointException, match=r"x: the checkpoint has \[2\] where \[3\]"):
        checkpoint.load({"x": torch.ones(3)}, checkpoint_id=tmp_path)


def test_states_have_names_with_and_without_a_wrapper() -> None:
    torch.distributed.init_process_group("mpi")
    try:
        net = torch.nn.Linear(2, 1)
        model = torch.nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        weights, states = checkpoint.state_dict.get_state_dict(model, optimizer)
        assert list(weights) == ["weight", "bias"] and list(states["state"]) == ["weight", "bias"]
        other = torch.nn.Linear(2, 1)
        fresh = torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9)
        checkpoint.state_dict.set_state_dict(other, fresh, model_state_dict=weights, optim_state_dict=states)
        assert torch.equal(other.weight, net.weight) and fresh.param_groups[0]["lr"] == 0.1
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "told",
    [
        [], {"format": 1}, {"format": 1, "entries": []}, {"format": 1, "entries": {"[1]": 5}},
        {"format": 1, "entries": {'["x"]': "../secret.pt"}}, {"format": 1, "entries": {'["x"]': "/SECRET"}},
        {"format": 1, "entries": {'["x"]': "rank0-00/../../secret.pt"}},
        {"format": 1, "entries": {'["x"]': "rank0-00.pt\n"}},
        {"format": 1, "entries": {}, "rows": {'["x"]': {"shape": [2], "parts": [["../secret.pt", 0, 2]]}}},
        {"format": 1, "entries": {}, "rows": {'["x"]': {"shape": [2], "parts": []}}},
        {"format": 1, "entries": {}, "rows": {'["x"]': {"shape": [-2], "parts": [["rank0-0.pt", 0, 2]]}}},
        {"format": 1, "entries": {}, "rows": {'["x"]': {"shape": [2], "parts": [["rank0-0.pt", None, 2]]}}},
        {"format": 1, "entries": {'[["x"]]': "rank0-00.pt"}}, {"format": 1, "entries": {"[[": "rank0-00.pt"}},
        {"format": 1, "entries": {f"{list(range(200))}": "rank0-00.pt"}},
        {"format": 1, "entries": {"7": "rank0-00.pt"}},
        {"format": 1, "entries": {'["x"]': "rank0-ab.pt"}},
    ],
)  # fmt: skip
def test_a_description_from_a_stranger_names_no_files_but_its_own(told: Any, tmp_path: Path) -> None:
    folder, secret = tmp_path / "checkpoint", tmp_path / "secret.pt"
    folder.mkdir()
    torch.save({'["x"]': torch.ones(2)}, secret)
    torch.save({'["y"]': torch.ones(2)}, folder / "rank0-ab.pt")
    (folder / "metadata.json").write_text(json.dumps(told).replace("/SECRET", str(secret)))
    with pytest.raises(checkpoint.CheckpointException):
        checkpoint.load({"x": torch.zeros(2)}, checkpoint_id=folder)
