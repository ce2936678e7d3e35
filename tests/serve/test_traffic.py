"""Weights of versions and shadow versions."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_management import Managed
from tests.serve.test_server import call
from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.traffic import Traffic


@pytest.fixture(scope="module")
def managed(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("traffic")
    shutil.copytree(models / "scaled", folder / "scaled")
    shutil.copytree(models / "scaled" / "3", folder / "scaled" / "4")
    made = Managed(folder)
    yield made
    assert made.stop() == 0


def test_each_round_has_exactly_the_weights() -> None:
    traffic = Traffic({"1": 5, "2": 2, "3": 1, "4": 0})
    for _ in range(3):
        chosen = [traffic.choose() for _ in range(8)]
        assert Counter(chosen) == {"1": 5, "2": 2, "3": 1}
        assert not any(a == b != "1" for a, b in pairwise(chosen))
    assert Traffic().choose() == ""
    assert traffic.without("1").weights == {"2": 2, "3": 1, "4": 0}
    assert Traffic({"1": 1, "2": 0}, "1").without("1") == Traffic()


@pytest.mark.parametrize("weights", [{"1": -1}, {"1": 0}, {"1": 10**7}, {"1": True}])
def test_wrong_weights(weights: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="weight"):
        Traffic(weights)


def test_requests_without_a_version_follow_the_weights(managed: Managed) -> None:
    told: dict[str, Any] = {"weights": {"1": 3, "3": 1}, "shadow": ""}
    assert managed.manage("PUT", "/traffic/scaled", told) == (200, told)
    assert Counter(managed.factor() for _ in range(20)) == {(200, 1.0): 15, (200, 3.0): 5}
    assert managed.factor("scaled/versions/3") == (200, 3.0)
    assert managed.manage("PUT", "/models/scaled/1/set-default")[0] == 200
    assert {managed.factor() for _ in range(4)} == {(200, 1.0)}
    for told, status in (({"weights": {"9": 1}}, 404), ({"shadow": "9"}, 404)):
        assert managed.manage("PUT", "/traffic/scaled", told)[0] == status
    wrong: Any
    for wrong in ({"weights": {"1": 0}}, {"weights": []}, {"weight": {}}, [], 1):
        assert managed.manage("PUT", "/traffic/scaled", wrong)[0] == 400
    assert managed.manage("PUT", "/traffic/none", {})[0] == 404
    assert managed.manage("GET", "/traffic/scaled") == (200, {"weights": {}, "shadow": ""})


def test_a_shadow_is_compared_and_never_answers(managed: Managed) -> None:
    assert managed.manage("PUT", "/models/scaled/3/set-default")[0] == 200
    for shadow, expected in (("4", "same"), ("1", "different")):
        assert managed.manage("PUT", "/traffic/scaled", {"shadow": shadow})[0] == 200
        assert {managed.factor() for _ in range(5)} == {(200, 3.0)}
        line = f'tracecomp_shadow_answers_total{{model="scaled",result="{expected}",version="{shadow}"}} 5.0'
        while line not in call(managed, "/metrics")[1].decode():
            pass
    assert managed.manage("DELETE", "/models/scaled/1")[0] == 200
    assert managed.manage("GET", "/traffic/scaled")[1]["shadow"] == ""
