"""Repositories and weights of others: nothing of theirs runs before the user has said so."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import hub


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses of requested repositories; each has an entry point."""
    asked: list[str] = []

    def download(url: str, dst: str, *_: Any) -> None:
        asked.append(url)
        with zipfile.ZipFile(dst, "w") as file:
            file.writestr("name-0/hubconf.py", "def entry(x):\n    'What it does.'\n    return x + 1\n")

    monkeypatch.setattr(hub, "download_url_to_file", download)
    monkeypatch.setattr(hub, "_folder", str(tmp_path / "hub"))
    return asked


def says(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))


@pytest.mark.parametrize("answer", ["n\n", "\n", "what\n", ""])
@pytest.mark.parametrize("call", [lambda: hub.load("owner/name", "entry", 1), lambda: hub.list("owner/name"),
                                  lambda: hub.help("owner/name", "entry"),
                                  lambda: hub.load("pytorch/vision", "entry", 1, trust_repo=False)])  # fmt: skip
def test_a_repository_that_nobody_trusts_is_not_fetched(
    call: Any, answer: str, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    says(answer, monkeypatch)
    with pytest.raises(RuntimeError, match=r"untrusted repository .*trust_repo=True"):
        call()
    assert not fetched


def test_a_repository_is_asked_about_once(fetched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    says("y\n", monkeypatch)
    assert hub.load("owner/name", "entry", 1) == 2
    says("", monkeypatch)
    assert hub.help("owner/name", "entry") == "What it does."
    assert hub.list("owner/name", force_reload=True) == ["entry"]
    assert hub.load("owner/name:other", "entry", 1) == 2  # another branch of a trusted repository
    assert len(fetched) == 3


def test_who_says_so_is_not_asked(fetched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    says("", monkeypatch)
    assert hub.load("owner/name", "entry", 1, trust_repo=True) == 2
    assert hub.load("pytorch/vision", "entry", 1) == 2


def test_weights_from_an_address_run_no_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    good, bad = tmp_path / "good.pt", tmp_path / "bad.pt"
    torch.save({"w": torch.ones(2)}, good)
    torch.save({"w": Evil()}, bad)
    folder = str(tmp_path / "kept")
    assert hub.load_state_dict_from_url(good.as_uri(), folder)["w"].sum().item() == 2
    with pytest.raises(pickle.UnpicklingError):
        hub.load_state_dict_from_url(bad.as_uri(), folder)
    assert not (tmp_path / "ran").exists()
