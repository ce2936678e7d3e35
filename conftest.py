"""Which of the examples in docstrings pytest runs by itself, and how processes share the work of the suite."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestItem

# Tests start some hundred processes, and pytest-xdist its workers. Where bytecode is not kept, each compiles the whole
# package again: more than a second before the first line of a test runs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

collect_ignore = []  # modules with examples are imported
if find_spec("tensorboard") is None:
    collect_ignore.append("tracecomp/utils/tensorboard")
if not all(map(find_spec, ("starlette", "uvicorn", "grpc", "pydantic", "prometheus_client"))):
    collect_ignore.append("tracecomp/serve")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than there are processors: a fifth of the time tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process, in their order: what they share, programs of three processes under two
    libraries for one, is made once and not in every process, and what fails does so again when its file is run alone.
    """
    from xdist.scheduler import LoadFileScheduling  # only where there are several processes

    if config.getvalue("dist") != "load":
        return None
    config.option.loadscopereorder = False  # files of few tests are not the short ones: they would come last
    return LoadFileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave composed help texts to tests/surface/test_reference.py, which runs their examples here and in PyTorch."""
    doctests = [i for i in items if isinstance(i, DoctestItem)]
    if doctests:
        from tracecomp.base.reference import examples  # loads the package, as do the modules with doctests

        folder = Path(__file__).parent / "tracecomp" / "base" / "examples"
        tables = [examples(path.stem) for path in folder.glob("*.txt") if path.stem != "arguments"]
        texts = {text for table in tables for text in table.values()}
        composed = {id(i) for i in doctests if (i.dtest.docstring or "").rpartition("\n    Example:\n")[2] in texts}
        items[:] = [item for item in items if id(item) not in composed]
