"""Programs of several modules: compiled in a second thread or in this one, joined when loaded, stored as one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.codegen.programs import elementwise, scalar_op
from tracecomp.base import config
from tracecomp.base.errors import CompileError
from tracecomp.codegen.kernels import program
from tracecomp.codegen.text import native
from tracecomp.codegen.text.modules import joined
from tracecomp.eager_kernels import background
from tracecomp.ir.program import CallStep, Program, Ref, Slot
from tracecomp.ir.types import float32
from tracecomp.runtime import compiling, threads
from tracecomp.runtime.executable import Executable
from tracecomp.runtime.image import Image
from tracecomp.runtime.images import image_of

SIZE = 100
OPS = ("sin", "cos", "exp", "sin")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(threads, "chosen", None)
    with config.override(cache_dir=str(tmp_path), num_threads=2):
        yield tmp_path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module for each kernel."""
    monkeypatch.setattr(program, "MODULE_LENGTH", 1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The threads that compile; what tests before have left to be compiled has been by then."""
    background.finish()
    found: list[Any] = []

    class Noted(threading.Thread):
        def start(self) -> None:
            found.append(self)
            super().start()

    monkeypatch.setattr(compiling, "Thread", Noted)
    return found


def several() -> Program:
    """Return the functions of ``OPS`` of one input, each with a different vector length."""
    source = Slot("x", "input", 0, 4 * SIZE)
    steps, outputs = [], []
    for n, op in enumerate(OPS):
        kernel = elementwise(scalar_op(op, float32), [float32], float32, SIZE, 16 + 8 * (n // 3)).steps[0].kernel
        outputs.append(Slot(f"y{n}", "output", n, 4 * SIZE))
        steps.append(CallStep(kernel, (Ref(source), Ref(outputs[-1])), op))
    return Program("several", (source,), tuple(outputs), 0, tuple(steps))


def results(executable: Executable) -> list[Any]:
    x = np.linspace(-3, 1e6, SIZE, dtype=np.float32) % 9.0 - 4
    outputs = [np.full(SIZE, np.nan, np.float32) for _ in OPS]
    executable.run([x], outputs)
    for op, y in zip(OPS, outputs, strict=True):
        np.testing.assert_allclose(y, getattr(np, op)(x.astype(np.float64)), rtol=1e-5, atol=1e-6)
    return [y.tobytes() for y in outputs]


def test_modules_call_each_other(short: None, started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    executable = Executable(several())
    assert len(executable.image.objects) == len(OPS)
    assert len(started) == 1 and not started[0].is_alive()
    monkeypatch.setattr(program, "MODULE_LENGTH", 2**30)
    whole = Executable(several())
    assert len(whole.image.objects) == 1 and len(started) == 1
    assert results(executable) == results(whole)


def test_one_thread_stays_alone(short: None, started: list[Any]) -> None:
    with config.override(num_threads=1):
        alone = Executable(several())
    assert not started
    assert alone.image.objects == Executable(several()).image.objects


def test_objects_do_not_depend_on_the_thread(short: None, started: list[Any], tmp_path: Path) -> None:
    objects = image_of(several()).objects
    with config.override(num_threads=1, cache_dir=str(tmp_path / "other")):
        assert image_of(several()).objects == objects
    assert len(started) == 1


def test_a_system_without_threads(short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    results(Executable(several()))


def test_the_modules_are_one_text(short: None) -> None:
    code = program.emit_program(several(), native.host_target())
    assert len(code.modules) == len(OPS)
    assert code.text == str(joined(code.modules)) and code.text.count("define void @tc_entry") == 1
    assert native.compile_object(code.text, native.host_target())[:4] == b"\x7fELF"
    assert "tc_entry" in Executable(several()).assembly


@pytest.mark.parametrize("length", [1, program.MODULE_LENGTH])
def test_calls_in_several_functions(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Executable(several())
    monkeypatch.setattr(program, "MODULE_LENGTH", length)
    monkeypatch.setattr(program, "MOST_CALLS", 2)
    with config.override(cache_dir=f"{config.current().cache_dir}/functions"):
        executable = Executable(several())
    text = program.emit_program(several(), native.host_target()).text
    assert [f"define void @steps{n}(" in text for n in range(4)] == [True, False, True, False]
    assert results(executable) == results(whole)
    outputs = [np.empty(SIZE, np.float32) for _ in OPS]
    assert [label for label, _ in executable.run_profiled([np.ones(SIZE, np.float32)], outputs)] == [*OPS]


def test_helper_functions_are_defined_once(short: None) -> None:
    texts = [str(m) for m in program.emit_program(several(), native.host_target()).modules]
    assert sum(t.count("define { double, i64 } @tc.reduce_angle") for t in texts) <= 1
    helpers = [line.split("(")[0] for t in texts for line in t.splitlines() if line.startswith("define <")]
    assert len(helpers) == len(set(helpers))


def test_an_image_of_several_objects(short: None) -> None:
    image = image_of(several())
    again = Image.from_bytes(image.to_bytes())
    assert again == image
    results(Executable(several, again))


def test_profiles(short: None) -> None:
    x, outputs = np.ones(SIZE, np.float32), [np.empty(SIZE, np.float32) for _ in OPS]
    assert [label for label, _ in Executable(several()).run_profiled([x], outputs)] == [*OPS]


@pytest.mark.parametrize("count", [1, 2])
def test_errors_of_a_module_are_raised(short: None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> bytes:
        raise CompileError("refused")

    monkeypatch.setattr(native, "compile_object", refuse)
    with config.override(num_threads=count), pytest.raises(CompileError, match="refused"):
        Executable(several())


def test_an_error_while_writing_ends_the_thread(
    short: None, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = vars(program)["emit_kernel"]

    def failing(kernel: Any, name: str, *rest: Any) -> Any:
        if name == "k3":
            raise CompileError("no such kernel")
        return emit(kernel, name, *rest)

    monkeypatch.setattr(program, "emit_kernel", failing)
    with pytest.raises(CompileError, match="no such kernel"):
        Executable(several())
    [thread] = started
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("calls", [3, program.MOST_CALLS])
def test_a_training_step_in_many_modules(short: None, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses() -> list[float]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(20, 33), torch.nn.GELU(), torch.nn.Linear(33, 5))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        x, y = torch.randn(16, 20), torch.randint(0, 5, (16,))

        @torch.compile
        def step() -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return [step().item() for _ in range(5)]

    with monkeypatch.context() as patch:
        patch.setattr(program, "MOST_CALLS", calls)
        cut = losses()
    monkeypatch.setattr(program, "MODULE_LENGTH", 2**30)
    with config.override(cache_dir=f"{config.current().cache_dir}/whole"):
        assert losses() == cut
    assert cut[-1] < cut[0]


def test_transposes_that_run_backwards(short: None) -> None:
    """The name of their helper function holds a negative distance: weights are packed last place first."""
    rng = np.random.default_rng(0)
    shapes = [(8, 24, 100), (24, 24, 7), (24, 24, 7)]
    x, v, w = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in shapes)

    def gradients(x: Any, v: Any, w: Any) -> Any:
        y = x
        for weight in (w, v, w):
            y = torch.nn.functional.conv1d(y, weight, dilation=2).relu()
        return torch.autograd.grad(y.square().sum(), [x, v, w])

    compiled = torch.compile(gradients)
    for _ in range(2):
        got = compiled(x, v, w)
    for a, b in zip(got, gradients(x, v, w), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-9 * float(b.abs().max()))
