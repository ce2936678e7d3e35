"""``compiled.profile()``: where the time of a call goes."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp as torch


def test_kernels_with_work_and_lines() -> None:
    w = torch.randn(64, 32)
    step = torch.compile(lambda x: torch.relu(x @ w).sum(), threads=1)
    x = torch.randn(128, 64)
    found = step.profile(x, calls=3)
    product = found.kernels[0]
    assert product.operations >= 2 * 128 * 64 * 32
    assert product.nbytes >= 4 * (128 * 64 + 64 * 32)
    assert "test_kernel_profile.py" in product.source
    assert 0 < product.seconds <= found.seconds
    assert product.share > 0
    assert product.title == "matmul + relu, test_kernel_profile.py:14" and product.title in str(found)
    assert product.name not in str(found) and 0 < product.fastest <= product.seconds


def test_nothing_outside_is_changed() -> None:
    total = torch.zeros(2)

    def step(x: Any) -> Any:
        total.add_(x)
        return total * 1

    c = torch.compile(step)
    c.profile(torch.ones(2), calls=5)  # not compiled yet: one call is made
    assert total.tolist() == [1, 1]
    c.profile(torch.ones(2), calls=5)
    assert total.tolist() == [1, 1]
    assert c(torch.ones(2)).tolist() == [2, 2]


def test_blocks_of_several_shapes_are_counted_once() -> None:
    """Whole and remaining rows and columns are parts of one loop, of which each block runs one."""
    product = torch.compile(lambda x, y: x @ y)
    found = product.profile(torch.randn(301, 520), torch.randn(520, 333))
    assert found.kernels[0].operations == pytest.approx(2 * 301 * 520 * 333, rel=0.02)


def test_loops_count_their_rounds() -> None:
    scan = torch.compile(lambda x: torch.cumsum(x, 0) * 2)
    assert scan.profile(torch.randn(50, 8)).seconds > 0


def test_what_is_not_native_is_refused() -> None:
    c = torch.compile(lambda x: x * 2, backend="interpret")
    with pytest.raises(RuntimeError, match="interpreter"):
        c.profile(torch.ones(2))
    host = torch.compile(lambda x: torch.linalg.eigvalsh(x))
    with pytest.raises(RuntimeError, match="host"):
        host.profile(torch.eye(2))
    eager = torch.compile(lambda x: x * 2, disable=True)
    with pytest.raises(RuntimeError, match="was not compiled"):
        eager.profile(torch.ones(2))


def test_a_name_of_an_attribute_is_no_global() -> None:
    space: dict[str, Any] = {"torch": torch, "t": torch.ones(1), "w": torch.ones(2, 3)}
    exec("def step(x):\n    return x @ w.t()\n", space)
    c = torch.compile(space["step"])
    for n in range(4):
        space["t"] = n
        assert c(torch.ones(1, 3)).tolist() == [[3, 3]]
    assert c.recordings == 1


@pytest.mark.slow  # compares times
def test_the_times_of_kernels_add_up_to_the_wall_clocks() -> None:
    def mlp(x: Any, a: Any, b: Any) -> Any:
        return torch.softmax(torch.tanh(x @ a) @ b, -1)

    operands = torch.randn(256, 256), torch.randn(256, 512), torch.randn(512, 256)
    compiled = torch.compile(mlp, threads=1)
    ratios = []
    for _ in range(8):  # other programs on this machine disturb some
        profile = compiled.profile(*operands, calls=8)
        ratios.append(profile.seconds / profile.wall)
        if abs(ratios[-1] - 1) <= 0.05:
            return
    raise AssertionError(f"sum of kernels over wall clock: {ratios}")
