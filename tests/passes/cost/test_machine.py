"""Facts read from the processor, figures measured on it, and the command that prints both."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tracecomp.__main__ import main
from tracecomp.base import config
from tracecomp.passes.cost import machine as machine_module
from tracecomp.passes.cost import processor, rates
from tracecomp.passes.cost.machine import Machine, _with_caches, host, on
from tracecomp.passes.cost.parallel import parallel_kind
from tracecomp.passes.cost.predicted import PREDICTED, predicted
from tracecomp.passes.cost.processor import Cache
from tracecomp.passes.cost.rates import Rates


def described(folder: Path, *caches: dict[str, str]) -> Path:
    """A folder like Linux's, with these files for each cache."""
    for n, files in enumerate(caches):
        (folder / f"index{n}").mkdir()
        for name, text in files.items():
            (folder / f"index{n}" / name).write_text(text + "\n")
    return folder


def test_caches_of_a_sapphire_rapids(tmp_path: Path) -> None:
    """Instructions have a separate cache, and processors are listed in runs."""
    line, both = {"coherency_line_size": "64"}, {"shared_cpu_list": "0,56"}
    folder = described(
        tmp_path,
        {"level": "1", "type": "Data", "size": "48K", "ways_of_associativity": "12"} | line | both,
        {"level": "1", "type": "Instruction", "size": "32K"} | line | both,
        {"level": "2", "type": "Unified", "size": "2048K", "ways_of_associativity": "16"} | both,
        {"level": "3", "type": "Unified", "size": "107520K", "ways_of_associativity": "15", "shared_cpu_list": "0-111"},
    )
    found = processor._from_sysfs(folder)
    assert found[1] == Cache(48 << 10, 12, 64, 2)
    assert found[2] == Cache(2 << 20, 16, 0, 2)
    assert found[3].nbytes == 105 << 20 and found[3].sharers == 112
    machine = _with_caches(Machine(64, 32), found)
    assert (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes) == (48 << 10, 2 << 20, 105 << 20)
    assert (machine.l2_ways, machine.line_bytes, machine.l3_sharers) == (16, 64, 112)


def test_a_description_with_holes_keeps_defaults(tmp_path: Path) -> None:
    folder = described(
        tmp_path,
        {"level": "1", "type": "Data", "size": "many", "shared_cpu_list": "0"},
        {"level": "2", "type": "Unified", "size": "512K", "shared_cpu_list": "0"},
        {"level": "9", "type": "Unified", "size": "1G", "shared_cpu_list": "0"},
        {"type": "Data"},
    )
    found = processor._from_sysfs(folder)
    assert set(found) == {2}
    machine = _with_caches(Machine(32, 16), found)
    assert machine.l1_bytes == 32 << 10 and machine.l2_bytes == 512 << 10 and machine.l2_ways == 8
    assert machine.l3_bytes == 512 << 10, "without a third cache the second is the last"
    assert processor._from_sysfs(tmp_path / "nowhere") == {}
    assert _with_caches(Machine(32, 16), {}) == Machine(32, 16)


N1 = {"CPU implementer": "0x41", "CPU part": "0xd0c", "CPU variant": "0x3", "CPU revision": "1"}
EMULATED = {"model name": "AMD EPYC", "flags": "avx2 avx512f avx512vl avx512bw avx512dq"}


def described_as(cpu: dict[str, str], caches: dict[int, Cache], machine: str, patch: pytest.MonkeyPatch) -> Machine:
    """The machine that Linux describes so."""
    patch.setattr(processor, "_cpuinfo", lambda: cpu)
    patch.setattr(processor, "_caches", lambda: caches)
    patch.setattr(platform, "machine", lambda: machine)
    processor.read.cache_clear()
    try:
        return machine_module.described()
    finally:
        processor.read.cache_clear()


def test_known_arm_processors_have_predicted_rates_and_the_caches_that_the_system_hides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported = {2: Cache(512 << 10, 8, 64)}
    found = described_as(N1, reported, "aarch64", monkeypatch)
    assert (found.vector_bytes, found.registers) == (16, 32)
    assert (found.l1_bytes, found.l2_bytes, found.l3_bytes, found.l3_sharers) == (64 << 10, 512 << 10, 32 << 20, 64)
    assert found.rates == PREDICTED["Neoverse N1"].rates and found.rates.work_of_a_wake == 0.5
    other = described_as({**N1, "CPU part": "0xfff"}, {}, "aarch64", monkeypatch)
    assert other == Machine(16, 32)


def test_arm_processors_have_different_records(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for change in ({}, {"CPU part": "0xd40"}, {"CPU part": "0xfff"}, {"CPU part": "0xffe"}, {"CPU revision": "2"}):
        with monkeypatch.context() as patch:
            patch.setattr(processor, "_cpuinfo", lambda change=change: {**N1, **change})
            patch.setattr(platform, "machine", lambda: "aarch64")
            processor.read.cache_clear()
            keys.add(processor.key())
    processor.read.cache_clear()
    assert len(keys) == 5


def test_an_emulator_may_describe_the_machine_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described_as(EMULATED, {}, "aarch64", monkeypatch) == Machine(16, 32)
    monkeypatch.delenv("TRACECOMP_CPU", raising=False)
    assert described_as(EMULATED, {}, "x86_64", monkeypatch).vector_bytes == 64


def test_predictions_are_by_family() -> None:
    assert predicted("Apple M1 Pro") == PREDICTED["Apple M1"] and predicted("Apple M1") is not None
    assert predicted("Apple M10") is predicted("AMD EPYC") is predicted("") is None
    for facts in PREDICTED.values():
        machine = _with_caches(Machine(16, 32), {**facts.caches})
        assert machine.l1_bytes <= machine.l2_bytes <= machine.l3_bytes and machine.l2_bytes % machine.l2_ways == 0


def test_the_host_has_caches_that_hold_something() -> None:
    machine = host()
    assert 8 << 10 <= machine.l1_bytes <= machine.l2_bytes <= machine.l3_bytes
    assert machine.l2_bytes % machine.l2_ways == 0 and machine.vector_bytes in (16, 32, 64)


def test_a_machine_is_handed_in_for_a_block() -> None:
    before, other = host(), Machine(16, 16)
    with on(other):
        assert host() is other
        with on(other.tuned(parallel_work=1)):
            assert parallel_kind(1.0, host()) == "parallel"
        assert host() is other
    assert host() == before
    with pytest.raises(TypeError, match="no_such_field"):
        other.tuned(no_such_field=1)


def test_measurements_are_kept_by_processor_and_change_the_worth_of_a_wake_in_powers_of_two(tmp_path: Path) -> None:
    folder = str(tmp_path / "new")
    assert rates.recorded(folder) is None
    fast = replace(Rates(), wake_seconds=4.3 * Rates().wake_seconds)
    path = rates.record(folder, fast)
    other = json.loads(path.read_text()) | {"another processor": asdict(Rates())}
    path.write_text(json.dumps(other))
    rates.record(folder, fast)
    assert set(json.loads(path.read_text())) == {processor.key(), "another processor"}
    assert rates.recorded(folder) == fast and fast.work_of_a_wake == 4.0
    assert Rates().work_of_a_wake == 1.0 and replace(Rates(), wake_seconds=0.0).work_of_a_wake == 1.0
    assert replace(Rates(), wake_seconds=1.0).work_of_a_wake == rates.STEPS[1]
    with config.override(cache_dir=folder):
        assert host().rates == fast and host().parallel_work == 4 * Machine(16, 16).parallel_work
    for damaged in ("", "[1]", json.dumps({processor.key(): {"multiply_adds": "fast"}})):
        path.write_text(damaged)
        assert rates.recorded(folder) is None
    rates.record(folder, fast)
    assert rates.recorded(folder) == fast


def test_env_prints_versions_the_machine_and_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override(cache_dir=str(tmp_path)):
        assert main(["env"]) == 0
        text = capsys.readouterr().out
        assert "not measured" in text and str(tmp_path) in text and "TRACECOMP_DUMP" in text
        for word in ("tracecomp", "numpy", "llvmlite", "processor", "threads", f"{host().l2_bytes >> 10} KB"):
            assert word in text
        assert main(["env", "--measure"]) == 0
        text = capsys.readouterr().out
        found = rates.recorded(str(tmp_path))
    assert "measured, and stored in" in text and "not measured" not in text
    assert found is not None and found.wake_seconds >= 0.0
    assert min(found.divisions, found.multiply_adds, found.gathers, found.load_bytes, found.bandwidth) > 0.0
