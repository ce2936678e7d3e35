"""Settings: environment, override, cache key."""

from __future__ import annotations

import threading

import pytest

from tracecomp.base import config


def test_environment_is_typed() -> None:
    given = {
        "TRACECOMP_VERIFY": "1",
        "TRACECOMP_SKIP": "constant_folding, split_reductions",
        "TRACECOMP_STOP_AFTER": "2",
    }
    settings = config.from_environment(given)
    assert (settings.verify, settings.skip_passes, settings.stop_after) == (
        True,
        ("constant_folding", "split_reductions"),
        2,
    )
    assert config.from_environment({}) == config.Settings()


@pytest.mark.parametrize(
    ("text", "accesses", "calls"), [("1", True, None), ("0", False, None), ("calls", False, 100), ("calls:7", False, 7)]
)
def test_one_variable_checks_accesses_or_calls(text: str, accesses: bool, calls: int | None) -> None:
    settings = config.from_environment({"TRACECOMP_CHECK": text})
    assert (settings.check, settings.check_calls) == (accesses, calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [("TRACECOMP_VERIFY", "maybe"), ("TRACECOMP_NUM_THREADS", "two"), ("TRACECOMP_CHECK", "calls:0"),
     ("TRACECOMP_CHECK", "callsign"), ("TRACECOMP_CHECK", "calls:")],
)  # fmt: skip
def test_unreadable_environment_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=name):
        config.from_environment({name: text})


def test_override_is_scoped_and_of_this_thread() -> None:
    before = config.current()
    seen: list[bool] = []
    with config.override(verify=not before.verify):
        assert config.current().verify is not before.verify
        thread = threading.Thread(target=lambda: seen.append(config.current().verify))
        thread.start()
        thread.join()
    assert config.current() == before and seen == [before.verify]


def test_override_of_no_setting() -> None:
    with pytest.raises(TypeError), config.override(verfy=True):
        pass


def test_only_settings_that_change_code_are_in_its_key() -> None:
    plain = config.code_key()
    with config.override(verify=True, dump="somewhere"):
        assert config.code_key() == plain
    with config.override(fusion=not config.current().fusion):
        assert config.code_key() != plain


def test_describe_lists_every_variable() -> None:
    text = config.describe()
    assert all(name in text for name in ("TRACECOMP_DUMP", "TRACECOMP_SKIP", "TRACECOMP_CACHE_DIR"))
