"""Long epilogues as loops over a tile's rows: the same bits, with less text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.base import config
from tracecomp.codegen.kernels import program, rolling


def trained(rows: int, width: int, dtype: torch.dtype) -> list[bytes]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(width, 2 * width + 1), torch.nn.GELU(), torch.nn.Linear(2 * width + 1, 3))
    net.to(dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    x = torch.randn(rows, width, dtype=dtype)

    @torch.compile(fullgraph=True)
    def step() -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    found = [step() for _ in range(4)]
    return [t.detach().numpy(force=True).tobytes() for t in (*found, *net.parameters())]


@pytest.mark.parametrize(
    ("rows", "width", "dtype"), [(33, 37, torch.float32), (64, 64, torch.float64), (5, 130, torch.bfloat16)]
)
def test_loops_have_the_bits_of_unrolled_epilogues(
    rows: int, width: int, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[bytes]] = []
    lengths: list[int] = []
    emit = vars(program)["emit_kernel"]

    def measured(*args: Any) -> Any:
        code = emit(*args)
        lengths[-1] += len(code.text)
        return code

    monkeypatch.setattr(program, "emit_kernel", measured)
    for limit in (0, rolling.MOST_EXPRESSIONS, 10**9):
        lengths.append(0)
        monkeypatch.setattr(rolling, "MOST_EXPRESSIONS", limit)
        with config.override(cache_dir=str(tmp_path / str(limit))):
            found.append(trained(rows, width, dtype))
    assert found[0] == found[1] == found[2]
    assert lengths[0] < lengths[2] and lengths[1] < lengths[2]
