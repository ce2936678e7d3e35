"""Options and marks of the whole suite.

``-m smoke`` is a cross-section in seconds. ``-m peers`` runs the tests that need PyTorch or another package beyond the
``test`` extra. ``--no-missing`` fails if a package or program is missing. ``--update`` writes golden files.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

os.environ.setdefault("TRACECOMP_WAIT", "1")  # which calls run compiled depends on no clock

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None,
    print_blob=False,
)  # fmt: skip
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False, print_blob=True
)
settings.load_profile("any machine")  # the same examples at each run; ``--hypothesis-profile=explore`` draws others
# Hypothesis also tries constants from the source of loaded modules, so examples would depend on the tests before.
vars(providers)["_get_local_constants"] = lambda: providers._local_constants

_EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PEERS = frozenset(line.partition(">")[0].replace("pillow", "PIL") for line in _EXTRAS["peers"])
"""Packages that some tests compare with and that the ``test`` extra does not install."""
NEEDS_PEER = re.compile(f"could not import '({'|'.join(sorted(PEERS))})\\b")
MISSING = re.compile("could not import|not installed|needs |no chromium")
"""Reasons of skips that a machine with everything installed does not have."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files anew instead of comparing with them")
    parser.addoption("--no-missing", action="store_true", help="fail instead of skipping what is not installed")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m smoke``, read only files that hold such tests: reading all takes longer than running those."""
    if config.option.markexpr == "smoke" and collection_path.suffix == ".py":
        return "mark.smoke" not in collection_path.read_text(encoding="utf-8")
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by ``-m``
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a peer. Names must be the same in every process: workers of pytest-xdist compare them, and people
    select by them."""
    for item in items:
        if isinstance(item, pytest.Function) and (_holds_peer(item.module) or _asks_for_peer(item.function)):
            item.add_marker("peers")
    moving = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if moving:
        raise pytest.UsageError(f"names of tests hold addresses, give the parameters ids: {', '.join(moving[:4])}")
    _thin_out(items)


def _thin_out(items: list[pytest.Item]) -> None:
    """Mark all but one case in k of each test that is marked ``sampled(k)`` as slow."""
    cases: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % mark.args[0]:
                item.add_marker("slow")
            cases[name] += 1


def _holds_peer(module: ModuleType) -> bool:
    """Whether a module of tests, or a helper that it takes names from, cannot be imported without a peer."""
    names = {getattr(value, "__module__", None) for value in vars(module).values()}
    helpers = [sys.modules[name] for name in names if isinstance(name, str) and name.startswith("tests.")]
    modules = (value for m in (module, *helpers) for value in vars(m).values() if isinstance(value, ModuleType))
    return any(_is_peer(m.__name__) for m in modules)


def _asks_for_peer(function: Any) -> bool:
    """Whether a test's own body calls ``pytest.importorskip`` with a peer's name."""
    code = inspect.unwrap(function).__code__
    return "importorskip" in code.co_names and any(_is_peer(c) for c in code.co_consts if isinstance(c, str))


def _is_peer(name: str) -> bool:
    return name.partition(".")[0] in PEERS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A test that is skipped without a peer but is not selected by ``-m peers`` would run nowhere."""
    report = yield
    reason = str(report.longrepr)
    if report.skipped and NEEDS_PEER.search(reason) and not item.get_closest_marker("peers"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} needs a peer: mark it pytest.mark.peers"
    elif report.skipped and item.config.getoption("--no-missing") and MISSING.search(reason):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} must run here: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Modules that are skipped as a whole obey ``--no-missing``, too."""
    report = yield
    if report.skipped and collector.config.getoption("--no-missing") and MISSING.search(str(report.longrepr)):
        report.outcome, report.longrepr = "failed", f"{collector.nodeid} must run here: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _free_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording and compiling cost nothing, so how many there are depends on no clock."""
    if budget := sys.modules.get("tracecomp.compiled.budget"):
        monkeypatch.setattr(budget, "clock", lambda: 0.0)


@pytest.fixture
def served_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread that makes machine code for frequent calls does not rest, and has no work of earlier tests."""
    # Most tests need none of this, so their files import tracecomp themselves.
    from tests.eager.unheard import Unheard
    from tracecomp.eager.device import use
    from tracecomp.eager_kernels import background

    monkeypatch.setattr(background, "REST", 0.0)
    monkeypatch.setattr(use, "begun", Unheard())
    background.finish()
    yield
    background.finish()
