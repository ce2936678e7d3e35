"""Which of the examples in docstrings pytest runs by itself."""

from __future__ import annotations

import pytest
from _pytest.doctest import DoctestItem


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave composed help texts to tests/surface/test_reference.py, which runs their examples here and in PyTorch."""
    composed = [i for i in items if isinstance(i, DoctestItem) and "\n    Example:\n" in (i.dtest.docstring or "")]
    left = {id(item) for item in composed}
    items[:] = [item for item in items if id(item) not in left]
