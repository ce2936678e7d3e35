"""Settings of PyTorch's code generator, which programs set before they compile."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch


def test_settings_are_taken_and_given_back() -> None:
    config: Any = torch._inductor.config
    assert not config.max_autotune
    with config.patch({"max_autotune": True, "triton.cudagraphs": True}, made_up=1):
        assert config.max_autotune and config.triton.cudagraphs and config.made_up == 1
    assert not config.max_autotune and not config.triton.cudagraphs and not hasattr(config, "made_up")
    with config.patch("freezing", True):
        assert config.freezing
    assert not config.freezing


def test_a_failing_block_gives_them_back() -> None:
    with pytest.raises(ZeroDivisionError), torch._inductor.config.patch(debug=True):
        raise ZeroDivisionError
    assert torch._inductor.config.debug is False


def test_a_setting_of_what_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nowhere"), torch._inductor.config.patch({"nowhere.x": 1}):
        pass
