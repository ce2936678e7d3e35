"""The packages of the extra ``serve``."""

from __future__ import annotations

import pytest

SERVING = ("starlette", "uvicorn", "grpc", "pydantic", "prometheus_client")
"""Packages without which the server's tests cannot be imported."""


@pytest.mark.parametrize("name", SERVING)
def test_the_package_is_installed(name: str) -> None:
    """Without it, this is skipped, and the other tests of this folder are not collected."""
    pytest.importorskip(name)
