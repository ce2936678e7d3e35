"""A pytest plugin that writes each test's outcome to a file at once, so that an interrupted run keeps its outcomes.

``-p tests.ecosystem.outcomes --outcomes FILE``: lines of JSON with the test's id, its outcome and the last line of why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


class Writer:
    """Writes one line for every test, when its last phase that matters is over."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, test: str, outcome: str, why: str = "") -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"test": test, "outcome": outcome, "why": why[:400]}) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.note(report.nodeid, report.outcome, _reason(report))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.note(report.nodeid, "uncollected", _reason(report))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return text if report.failed else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="where each test's outcome is written")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes")
    if path is not None:
        config.pluginmanager.register(Writer(path))
