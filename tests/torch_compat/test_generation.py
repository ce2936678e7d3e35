"""``bench`` on the folder of a language model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tracecomp.__main__ import main

TRANSFORMERS = """
import torch
from types import SimpleNamespace

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=20)
        self.embed, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)

    def forward(self, ids):
        return self.head(self.embed(ids).cumsum(1))

    @torch.no_grad()
    def generate(self, ids, min_new_tokens, max_new_tokens, do_sample):
        assert min_new_tokens == max_new_tokens and not do_sample
        for _ in range(max_new_tokens):
            ids = torch.cat([ids, self.forward(ids)[:, -1:].argmax(-1)], 1)
        return ids

class AutoModelForCausalLM:
    @staticmethod
    def from_pretrained(folder, dtype):
        assert folder.endswith("model") and dtype == "auto"
        return Model()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of a model, with a stand-in for ``transformers``."""
    (tmp_path / "transformers.py").write_text(TRANSFORMERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "transformers", raising=False)
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "model").mkdir()
    return str(tmp_path / "model")


def test_bench_of_a_folder(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == 340 and found["weights"] == 1360
    assert all(found[name] > 0 for name in ("load", "first", "token", "eager_first", "eager_token", "peak"))


def test_bench_of_a_folder_takes_no_operands(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", folder, "--shape", "3"]) == 2
    assert "takes no operands" in capsys.readouterr().err


def test_bench_of_a_folder_needs_transformers(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["bench", folder]) == 2
    assert "needs transformers" in capsys.readouterr().err
