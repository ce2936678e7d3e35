"""``fully_shard``: rows in place of parameters, the bits of data parallelism, memory below a limit."""

from __future__ import annotations

import copy
import io
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tests.distributed.gangs import gang, succeed
from tracecomp import nn
from tracecomp.distributed import checkpoint
from tracecomp.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

SCRIPT = str(Path(__file__).with_name("sharded.py"))


def lines(folder: Path, size: int, what: str) -> str:
    succeed(gang(size, SCRIPT, str(folder), what))
    return (folder / f"{what}-{size}.txt").read_text()


@pytest.mark.slow
def test_sharded_models_have_the_bits_of_whole_ones_for_any_number_of_processes(tmp_path: Path) -> None:
    """Each run compares itself with DistributedDataParallel; a checkpoint of three is read by two."""
    alone = lines(tmp_path, 1, "train")
    assert lines(tmp_path, 3, "train") == alone
    assert lines(tmp_path, 2, "resume") == alone


@pytest.mark.slow
def test_each_of_four_processes_keeps_a_quarter_and_few_whole_layers() -> None:
    """So a model beyond the memory of one trains on four, which ``python -m tests.distributed.memory`` measures.

    One of twelve layers is whole at a time; the transport may hold the arrays of two more messages.
    """
    ended = gang(4, "-m", "tests.distributed.memory", "count")
    succeed(ended)
    whole = 12 * (8 * 8 + 8)
    for e in ended:
        found = json.loads(e.text)
        assert found.pop("whole layers") <= 3
        assert found == {"parameters": whole // 4, "gradients": whole // 4, "moments": 2 * whole // 4}


@pytest.fixture
def alone() -> Iterator[None]:
    torch.distributed.init_process_group("mpi")
    yield
    torch.distributed.destroy_process_group()


def sharded(*layers: Any, **options: Any) -> Any:
    for layer in layers:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, **options)
    return fully_shard(nn.Sequential(*layers))


def test_a_sharded_module_gives_what_it_gave(alone: None) -> None:
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)]
    plain, x = nn.Sequential(*copy.deepcopy(layers)), torch.randn(5, 1, 8, 8)
    model = sharded(*layers)
    expected = plain(x)
    found = model(x)
    assert torch.equal(found, expected)
    for out in (expected, found):
        out.square().sum().backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert q.grad is not None and torch.equal(p.grad.full_tensor(), q.grad)
    assert issubclass(type(model), FSDPModule) and type(model[0]).__name__ == "FSDPConv2d"
    assert [*model.state_dict()] == [*plain.state_dict()]


def test_whole_parameters_are_gone_between_forward_and_backward(alone: None) -> None:
    seen = []

    class Watched(nn.Linear):
        def forward(self, x: Any) -> Any:
            seen.append(weakref.ref(self.weight))
            return super().forward(x)

    model = fully_shard(nn.Sequential(fully_shard(Watched(4, 4), reshard_after_forward=True), nn.Tanh()))
    out = model(torch.randn(2, 4, requires_grad=True))
    assert seen[0]() is None and model[0]._fsdp.buckets[0]._whole is None
    out.sum().backward()
    assert model[0].weight.grad is not None and model[0]._fsdp.buckets[0]._whole is None


def test_a_parameter_that_changes_between_forward_and_backward_is_an_error(alone: None) -> None:
    model = fully_shard(nn.Linear(3, 3), reshard_after_forward=True)
    out = model(torch.randn(2, 3, requires_grad=True))
    with torch.no_grad():
        model.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_add_up_without_synchronisation(alone: None) -> None:
    plain = nn.Linear(3, 2)
    model = fully_shard(copy.deepcopy(plain))
    for step in range(2):
        x = torch.randn(4, 3)
        plain(x).sum().backward()
        model.set_requires_gradient_sync(step == 1)
        model(x).sum().backward()
        assert (model.weight.grad is None) == (step == 0)
    torch.testing.assert_close(model.weight.grad.full_tensor(), plain.weight.grad)


def test_dtypes_follow_the_policy(alone: None) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    model = fully_shard(nn.Linear(3, 2), mp_policy=policy)
    seen: list[Any] = []
    model.register_forward_pre_hook(lambda m, args: seen.append((args[0].dtype, m.weight.dtype)))
    out = model(torch.randn(4, 3))
    out.sum().backward()
    assert seen == [(torch.bfloat16, torch.bfloat16)] and out.dtype is torch.float32
    assert model.weight.dtype is torch.float32 and model.weight.grad.dtype is torch.float32


def test_frozen_parameters_stay_without_gradients(alone: None) -> None:
    net = nn.Linear(3, 2)
    net.bias.requires_grad_(False)
    model = fully_shard(net)
    model(torch.randn(4, 3)).sum().backward()
    assert model.bias.grad is None and not model.bias.requires_grad and model.weight.grad is not None


def test_initialisers_draw_the_numbers_of_the_whole(alone: None) -> None:
    model = fully_shard(nn.Linear(5, 4))
    torch.manual_seed(2)
    model.reset_parameters()
    torch.manual_seed(2)
    plain = nn.Linear(5, 4)
    assert torch.equal(model.weight.full_tensor(), plain.weight) and torch.equal(model.bias.full_tensor(), plain.bias)


def test_a_model_on_meta_gets_memory_for_its_rows_alone(alone: None) -> None:
    with torch.device("meta"):
        net = nn.Linear(5, 4)
    model = fully_shard(net).to_empty(device="cpu")
    nn.init.ones_(model.weight)
    assert torch.equal(model.weight.full_tensor(), torch.ones(4, 5))


def test_what_sharding_cannot_do_is_said(alone: None) -> None:
    model = fully_shard(nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="cannot be saved by one of them"):
        torch.save(model.state_dict(), io.BytesIO())
    with pytest.raises(NotImplementedError, match="LBFGS needs whole parameters"):
        torch.optim.LBFGS(model.parameters())
    with pytest.raises(ValueError, match="containers"):
        fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(ValueError, match="scalar parameters"):
        scalar = nn.Module()
        scalar.p = nn.Parameter(torch.tensor(1.0))
        fully_shard(scalar)
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    fully_shard(tied[0])
    with pytest.raises(RuntimeError, match="already sharded"):
        fully_shard(tied)
    with pytest.raises(RuntimeError, match=r"without shards"):
        model.shard(torch.ones(2, 3))


def test_options_of_state_dicts_give_whole_tensors(alone: None) -> None:
    plain = nn.Linear(3, 2)
    model = fully_shard(copy.deepcopy(plain))
    options = checkpoint.state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    found = checkpoint.state_dict.get_model_state_dict(model, options=options)
    assert type(found["weight"]) is torch.Tensor and torch.equal(found["weight"], plain.weight)
    checkpoint.state_dict.set_model_state_dict(model, {k: v * 2 for k, v in found.items()}, options=options)
    assert torch.equal(model.weight.full_tensor(), plain.weight * 2)
