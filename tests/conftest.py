"""What holds for the whole suite: the option ``--update``, the quick ``-m smoke``, and names of tests that stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however busy the machine; --hypothesis-profile=explore tries new ones.
repeatable = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", repeatable)
settings.register_profile("explore", repeatable, derandomize=False)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden files anew instead of comparing with them")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m smoke``, read only files that hold such tests: reading all takes longer than running those."""
    if config.option.markexpr == "smoke" and collection_path.suffix == ".py":
        return "mark.smoke" not in collection_path.read_text(encoding="utf-8")
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by ``-m``
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Names must be the same in every process: workers of pytest-xdist compare them, and people select by them."""
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
