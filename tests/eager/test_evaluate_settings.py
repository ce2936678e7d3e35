"""Settings that a block overrides reach the kernels of eager operators, which run in separate contexts."""

from __future__ import annotations

from typing import Any

import pytest

from tracecomp.base import config
from tracecomp.eager import evaluate


def _seen() -> Any:
    return evaluate.quietly(config.current, (), {})


@pytest.mark.parametrize("changes", [{"num_threads": 3}, {"fast_math": True}, {"eager": "numpy"}])
def test_overridden_settings_hold_where_numpy_is_silent(changes: dict[str, Any]) -> None:
    before = config.current()
    with config.override(**changes) as settings:
        assert _seen() == settings
        with config.override(verify=True) as inner:
            assert _seen() == inner
        assert evaluate.quietly(_seen, (), {}) == settings
    assert _seen() == before
