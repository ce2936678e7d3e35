"""Program files that take a range of sizes: the bits of each very size, and clear errors beyond the range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.test_program_files import elsewhere, network
from tests.compiled.test_varying_sizes import STEPS, WIDTH
from tracecomp import nn
from tracecomp.base.errors import CaptureError
from tracecomp_runtime import processor

pytestmark = pytest.mark.skipif(not processor.levels(), reason="program files hold code for x86-64 only")
KINDS = ("code", "graph")
BEST = processor.levels()[:1]


@dataclass
class Dim:
    """A size with a range, as ``torch.export.Dim`` is one."""

    __name__: str
    min: int | None = None
    max: int | None = None


def exact(fn: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a compilation for exactly these sizes."""
    compiled = torch.compile(fn, dynamic=False)
    compiled(*args)
    return compiled(*args)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "names"), [("code", [*STEPS][5::12]), ("graph", [*STEPS][::4])], ids=KINDS)
def test_every_size_of_the_range_has_the_bits_of_itself(tmp_path: Path, kind: str, names: list[str]) -> None:
    for name in names:
        fn, rng = STEPS[name], np.random.default_rng(0)

        def program(x: Any, fn: Any = fn) -> Any:
            return fn(x).clone()

        x = torch.tensor(rng.standard_normal((3, 5, WIDTH)).astype(np.float32))
        shapes = {"x": {1: Dim("length", min=2, max=12)}}
        how = {"levels": BEST} if kind == "code" else {}
        digest = torch.compile(program).save(tmp_path / "f.tcp", x, kind=kind, dynamic_shapes=shapes, **how)
        loaded = torch.load_program(tmp_path / "f.tcp", digest=digest)
        for length in (2, 3, 5, 12):
            x = torch.tensor(rng.standard_normal((3, length, WIDTH)).astype(np.float32))
            wanted = exact(program, x)
            for _ in range(2):  # the second call is the first that native code serves whole
                assert loaded(x).numpy().tobytes() == wanted.numpy().tobytes(), (name, length)


def convolutions() -> nn.Module:
    """Small windows (Winograd), strides, groups, dilations, transposed, pools, and few channels."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=4), nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
        nn.Conv2d(4, 4, 2, dilation=2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 4, 3),
    ).eval()  # fmt: skip


@pytest.mark.slow
def test_a_convolutional_network_takes_any_number_of_images(tmp_path: Path) -> None:
    """The order of its sums hangs on one image's sizes alone, so that few pieces of code serve long ranges."""
    model, images = convolutions(), torch.randn(70, 2, 12, 12)
    shapes = {"input": {0: Dim("batch", max=100)}}
    with torch.no_grad():
        digest = torch.compile(model).save(tmp_path / "m.tcp", images[:3], levels=BEST, dynamic_shapes=shapes)
        loaded = torch.load_program(tmp_path / "m.tcp", digest=digest)
        for count in (1, 2, 7, 70):
            wanted = exact(model, images[:count])
            assert loaded(images[:count]).numpy().tobytes() == wanted.numpy().tobytes(), count


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_long_sums_and_two_sizes_at_once(tmp_path: Path, kind: str) -> None:
    def fn(x: Any, y: Any) -> Any:
        return (x @ y).softmax(-1), (x.mean(0), y.sum(1))

    def given(rows: int, inner: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(rows)
        made = [rng.standard_normal(shape).astype(np.float32) for shape in ((rows, inner), (inner, 7))]
        return torch.tensor(made[0]), torch.tensor(made[1])

    inner = Dim("inner", min=60, max=70)
    shapes = ({0: Dim("rows", min=400, max=600), 1: inner}, {0: inner})
    how = {"levels": BEST} if kind == "code" else {}

    digest = torch.compile(fn).save(tmp_path / "f.tcp", *given(500, 65), kind=kind, dynamic_shapes=shapes, **how)
    loaded = torch.load_program(tmp_path / "f.tcp", digest=digest)
    for rows, size in ((400, 60), (511, 64), (513, 63), (600, 70)):
        x, y = given(rows, size)
        (a, (b, c)), (d, (e, f)) = loaded(x, y), exact(fn, x, y)
        for have, want in ((a, d), (b, e), (c, f)):
            assert have.numpy().tobytes() == want.numpy().tobytes(), (rows, size)
    with pytest.raises(TypeError, match=r"saved for \(float32\[rows, inner\].*inner from 60 to 70"):
        loaded(*given(500, 71))
    with pytest.raises(TypeError, match="saved for"):
        loaded(given(500, 60)[0], given(500, 61)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_views_of_open_sizes_and_marked_arguments(tmp_path: Path, kind: str) -> None:
    def fn(x: Any) -> Any:
        y = x * 2
        return {"turned": y.t()[1:].flip(1), "flat": (x + 1).reshape(-1, 2), "wide": (x - 1)[:, None].expand(-1, 3, -1)}

    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=9)
    how = {"levels": BEST} if kind == "code" else {}
    digest = torch.compile(fn).save(tmp_path / "f.tcp", x, kind=kind, **how)
    loaded = torch.load_program(tmp_path / "f.tcp", digest=digest)
    for n in (2, 3, 7, 9):
        x = torch.randn(n, 4)
        found, wanted = loaded(x), fn(x)
        for name in wanted:
            assert found[name].equal(wanted[name]) and found[name].stride() == wanted[name].stride(), (name, n)
    with pytest.raises(TypeError, match="from 2 to 9"):
        loaded(torch.randn(10, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("open", [False, True])
def test_sizes_are_results_of_saved_programs(tmp_path: Path, kind: str, open: bool) -> None:
    def fn(x: Any) -> Any:
        rows, columns = x.shape
        return {"twice": x * 2, "rows": rows, "half": [rows // 2, (rows * columns - 1, "text")]}

    shapes = {"dynamic_shapes": {"x": {0: Dim("rows", min=2, max=9)}}} if open else {}
    how = {"levels": BEST} if kind == "code" else {}
    digest = torch.compile(fn).save(tmp_path / "f.tcp", torch.ones(6, 4), kind=kind, **shapes, **how)
    loaded = torch.load_program(tmp_path / "f.tcp", digest=digest)
    for n in (2, 6, 7) if open else (6,):
        x = torch.randn(n, 4)
        found, wanted = loaded(x), fn(x)
        assert np.array_equal(found.pop("twice"), wanted.pop("twice"))
        assert repr(found) == repr(wanted)


@pytest.mark.slow
def test_a_training_step_takes_batches_of_any_size_with_numpy_alone(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled, x, y = torch.compile(step), torch.randn(8, 1, 6, 6), torch.randint(0, 5, (8,))
    for _ in range(2):
        compiled(x, y)
    x, y = x[:5].clone(), y[:5].clone()
    again = torch.compile(step, dynamic=False)
    for _ in range(2):  # a first call runs eagerly
        again(x, y)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    shapes = {"x": {0: Dim("batch", min=2, max=6)}, "y": {0: Dim("batch")}}
    digest = compiled.save(tmp_path / "step.tcp", x[:3], y[:3], levels=BEST, dynamic_shapes=shapes)
    assert all(before[name].equal(t) for name, t in model.state_dict().items())
    found = elsewhere(tmp_path / "step.tcp", x, y, digest)
    assert found["losses"].tolist() == [again(x, y).item() for _ in range(5)]
    for name, t in model.state_dict().items():
        assert found[name].tobytes() == t.numpy().tobytes(), name


def test_what_is_no_range_or_another_program_at_each_size_is_refused(tmp_path: Path) -> None:
    compiled, x = torch.compile(lambda x: x * 2), torch.ones(5, 3)
    path = tmp_path / "f.tcp"
    with pytest.raises(ValueError, match=r"size 'batch' needs an upper bound"):
        compiled.save(path, x, dynamic_shapes={"x": {0: "batch"}})
    with pytest.raises(ValueError, match="has no dimension 2"):
        compiled.save(path, x, dynamic_shapes={"x": {2: Dim("batch", max=4)}})
    with pytest.raises(ValueError, match="between 9 and 4"):
        compiled.save(path, x, dynamic_shapes={"x": {0: Dim("batch", min=9, max=4)}})
    with pytest.raises(ValueError, match="size 'n' is both 5 and 3"):
        compiled.save(path, x, dynamic_shapes={"x": {0: Dim("n", max=9), 1: Dim("n", max=9)}})
    with pytest.raises(
        CaptureError, match=r"more than 64 graphs \(the order of a sum depends on its size.*narrow them"
    ):
        both = {"x": {0: Dim("n", min=200, max=999), 1: Dim("m", min=200, max=999)}}
        torch.compile(lambda x: x.sum()).save(path, torch.ones(300, 400), dynamic_shapes=both)
    loops = torch.compile(lambda x: sum((row * k for k, row in enumerate(x)), x[0]))
    with pytest.raises(CaptureError, match="graph's structure depends on an input size"):
        loops.save(path, x, dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}})
    few = loops.save(path, x, kind="graph", dynamic_shapes={"x": {0: Dim("batch", min=2, max=4)}})
    for n in (2, 3, 4):
        x = torch.randn(n, 3)
        assert torch.load_program(path, digest=few)(x).equal(loops.fn(x))
