"""The simulator against times that can be added up by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.distributed.simulate import Network, Part, Step, main, read, simulate, step_of, typical, write

NETWORK = Network(latency=1e-3, bandwidth=1e6, overhead=1e-4)


def code(seconds: float, *reads: int) -> Part:
    return Part("", 0, reads, seconds)


def total(nbytes: int, *reads: int) -> Part:
    return Part("all_reduce", nbytes, reads, 0.0)


def test_code_alone_takes_its_time_on_the_slowest_rank() -> None:
    step = Step((code(0.2), code(0.3, 0)), 100, 20)
    assert simulate(step, 5, NETWORK).seconds == pytest.approx(0.5)
    assert simulate(step, 5, NETWORK, slower=2.0).seconds == pytest.approx(1.0)
    slow = simulate(step, 50, NETWORK, straggling=0.5).seconds
    assert 0.5 < slow <= 0.75


def test_communication_is_hidden_behind_code_that_does_not_read_it() -> None:
    nbytes = 100_000
    takes = 2 * (1e-3 + 3 * 1e-4 + nbytes * 3 / 4 / 1e6)  # two rounds among four processes
    step = Step((code(0.1), total(nbytes, 0), code(0.1, 0), code(0.05, 1, 2)), 0, 0)
    found = simulate(step, 4, NETWORK)
    assert found.communication == pytest.approx(takes)
    assert found.seconds == pytest.approx(0.1 + max(takes, 0.1) + 0.05)
    assert found.hidden == pytest.approx(1 - (takes - 0.1) / takes)


def test_sums_of_one_group_follow_one_another() -> None:
    step = Step((total(4), total(4), code(0.0, 1)), 0, 0)
    small = 1e-3 + 7 * 1e-4 + 4 * 7 / 1e6
    assert simulate(step, 8, NETWORK).seconds == pytest.approx(2 * small)


def test_halving_takes_logarithmically_many_messages() -> None:
    step = Step((total(80_000),), 0, 0)
    expected = 2 * (10 * (1e-3 + 1e-4) + 80_000 * 1023 / 1024 / 1e6)
    assert simulate(step, 1024, NETWORK, way="halving").seconds == pytest.approx(expected)
    assert simulate(step, 1024, NETWORK).seconds > expected
    with pytest.raises(ValueError, match="way must be one of"):
        simulate(step, 2, NETWORK, way="pigeons")


def test_one_process_communicates_with_nobody() -> None:
    step = Step((code(0.1), total(80_000), code(0.1, 1)), 0, 0)
    assert simulate(step, 1, NETWORK, way="halving").seconds == pytest.approx(0.2)


def test_a_step_of_four_thousand_ranks_ends_when_the_slowest_does() -> None:
    step = Step((code(0.1), total(1000, 0), code(0.1, 1)), 0, 0)
    found = simulate(step, 4096, NETWORK, way="nodes", straggling=0.1)
    assert math.isclose(found.without, 0.22, rel_tol=1e-2) and found.seconds > found.without


@pytest.fixture
def alone() -> Iterator[None]:
    torch.distributed.init_process_group("mpi")
    yield
    torch.distributed.destroy_process_group()


def test_a_recorded_step_is_simulated(alone: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(40, 30))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(fullgraph=True)
    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step(torch.ones(5, 40))  # records
    steps = []
    for _ in range(3):
        step(torch.ones(5, 40))
        steps.append(step_of(step))
    found = typical(steps)
    assert [p.nbytes for p in found.parts if p.name == "all_reduce"] == [4 * (40 * 30 + 30)]
    assert found.state_bytes >= 4 * (40 * 30 + 30)
    write(found, tmp_path / "step.json")
    assert read(tmp_path / "step.json") == found
    main([str(tmp_path / "step.json"), "--ranks", "2", "16"])
    assert capsys.readouterr().out.count("|\n") == 2 + 2 * 3


def test_a_function_without_communication_is_no_step(alone: None) -> None:
    run = torch.compile(lambda x: x + 1)
    run(torch.ones(2))
    with pytest.raises(ValueError, match="recording with communication"):
        step_of(run)
