"""What holds for the whole suite: the option ``--update``, the quick ``-m smoke``, names of tests that stay, and
``-m torch``: the tests that need PyTorch, which the others do without."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files anew instead of comparing with them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m smoke``, read only files that hold such tests: reading all takes longer than running those."""
    if config.option.markexpr == "smoke" and collection_path.suffix == ".py":
        return "mark.smoke" not in collection_path.read_text(encoding="utf-8")
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by ``-m``
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs torch. Names must be the same in every process: workers of pytest-xdist compare them, and people
    select by them."""
    for item in items:
        if isinstance(item, pytest.Function) and (_holds_torch(item.module) or _asks_for_torch(item.function)):
            item.add_marker("torch")
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


def _holds_torch(module: ModuleType) -> bool:
    """Whether a module of tests, or a helper that it takes names from, cannot be imported without torch."""
    names = {getattr(value, "__module__", None) for value in vars(module).values()}
    helpers = [sys.modules[name] for name in names if isinstance(name, str) and name.startswith("tests.")]
    torch: Any = sys.modules.get("torch")
    return torch is not None and any(value is torch for m in (module, *helpers) for value in vars(m).values())


def _asks_for_torch(function: Any) -> bool:
    """Whether a test's own body calls ``pytest.importorskip("torch")``."""
    code = inspect.unwrap(function).__code__
    return "importorskip" in code.co_names and "torch" in code.co_consts


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A test that is skipped without torch but is not selected by ``-m torch`` would run nowhere."""
    report = yield
    unseen = (
        report.skipped and "could not import 'torch" in str(report.longrepr) and not item.get_closest_marker("torch")
    )
    if unseen:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} needs torch: mark it so (pytest.mark.torch)"
    return report
