"""Devices with an index: tensors are on the one CPU, or on the one place without memory, as PyTorch says."""

from __future__ import annotations

import pytest

import tracecomp as torch


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:1", "meta", "meta:0", "meta:1"])
def test_tensors_are_on_a_device_without_an_index(name: str) -> None:
    where = torch.device(name)
    assert str(where) == name
    sole = torch.device(where.type)
    assert torch.zeros(2, device=name).device == sole == torch.zeros(2).to(where).device
    assert torch.ones_like(torch.zeros(2), device=where).device == sole
    assert torch.nn.Linear(2, 2, device=name).weight.device == sole
    assert (torch.zeros(2, device=where) + torch.zeros(2, device=sole)).device == sole
    with where:
        assert torch.zeros(1).device == sole


@pytest.mark.parametrize("name", ["cpu:", "cpu:-1", "cpu:x", "meta:01", "cpu:0:0", "cpu:²"])
def test_odd_indices_are_errors(name: str) -> None:
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.device(name)
    with pytest.raises(RuntimeError, match="must not include an index"):
        torch.device("cpu:0", 1)


def test_all_devices_can_be_listed_by_making_tensors() -> None:
    """Libraries of the array API count indices up until a device comes again."""
    for kind in ("cpu", "meta"):
        seen = []
        for index in range(3):
            seen.append(torch.empty(0, device=torch.device(kind, index=index)).device)
        assert len(set(seen)) == 1


def test_modules_that_are_loaded_late_are_listed() -> None:
    """Libraries of the array API copy the names that ``dir`` lists."""
    assert {"special", "fft", "linalg", "nn", "zeros", "compile"} <= set(dir(torch))
