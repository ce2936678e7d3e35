"""``python -m tracecomp env``: versions, machine and settings for bug reports."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tracecomp.base import config
from tracecomp.passes.cost import processor, rates
from tracecomp.passes.cost.machine import Machine, host
from tracecomp.passes.cost.predicted import predicted
from tracecomp.passes.cost.tuning import Tuning
from tracecomp.runtime import compiler, peaks
from tracecomp.runtime.threads import available_cores

PACKAGES = ("numpy", "llvmlite", "networkx")
"""Required packages."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``env`` to the command line."""
    line = "print versions, the machine and the settings, for bug reports"
    parser = commands.add_parser("env", help=line, description=line)
    parser.add_argument(
        "--measure", action="store_true", help="measure the machine; keep the results in the cache folder"
    )
    parser.set_defaults(run=run_env)


def run_env(options: argparse.Namespace) -> int:
    """Print the description; with ``--measure``, measure first."""
    if options.measure:
        path = rates.record(str(config.cache_directory()), _measured())
        print(f"measured, and stored in {path}\n")
    print(environment())
    return 0


def _measured() -> rates.Rates:
    """All rates of this machine; takes about half a second."""
    return rates.Rates(
        multiply_adds=peaks.flops() / 2,
        divisions=peaks.divisions(),
        gathers=peaks.gathers(),
        load_bytes=peaks.load_bytes(),
        bandwidth=peaks.bandwidth(),
        wake_seconds=peaks.wake_seconds(),
    )


def environment() -> str:
    """The description, one line for each fact."""
    return "\n".join((*_versions(), "", *_machine(), "", "settings:", config.describe()))


def _versions() -> Iterator[str]:
    own_version = sys.modules["tracecomp"].__version__
    yield _line("tracecomp", f"{own_version} in {Path(__file__).parents[1]}")
    for package in PACKAGES:
        yield _line(package, _version(package))
    yield _line("Python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield _line("system", platform.platform())
    yield _line("compiler", compiler.compiler_version())
    yield _line("command line", sys.executable)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _machine() -> Iterator[str]:
    target, machine = compiler.host_target(), host()
    yield _line("processor", processor.read().name)
    yield _line("target", f"{target.triple}, {target.cpu}, vectors of {target.vector_bits} bits")
    yield _line("threads", f"{available_cores()} processors may be used")
    yield _line("caches", _caches(machine))
    yield _line("registers", f"{machine.registers} of {machine.vector_bytes} bytes{', in halves' * machine.in_halves}")
    try:
        folder = str(config.cache_directory())
    except FileNotFoundError as error:
        yield _line("cache folder", f"none: {error}")
    else:
        yield _line("cache folder", folder)
        source = "predicted from public documents" if predicted(processor.read().name) else "reference values"
        measured = rates.recorded(folder) is not None
        yield _line("rates", "measured" if measured else f"not measured (--measure does); {source}")
    for field in fields(machine.rates):
        yield _line(f"  {field.name}", f"{getattr(machine.rates, field.name):.3g}")
    changed = [f.name for f in fields(Tuning) if getattr(machine.tuning, f.name) != getattr(Tuning(), f.name)]
    yield _line("tuning", f"changed: {', '.join(changed)}" if changed else "as shipped")


def _caches(machine: Machine) -> str:
    sizes = (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes)
    text = ", ".join(f"{size >> 10} KB" for size in sizes)
    found = ", ".join(map(str, sorted(processor.read().caches))) or "none"
    return f"{text}; lines of {machine.line_bytes} bytes, {machine.l2_ways} ways in the second, the last for " + (
        f"{machine.l3_sharers} processors; cache levels reported by the system: {found}"
    )


def _line(name: str, value: str) -> str:
    return f"{name:<16} {value}"
