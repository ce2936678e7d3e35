"""Convolutions and scans that are called often are served by programs, with the same bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.eager_kernels.test_bits import same_bits
from tracecomp import nn
from tracecomp.eager_kernels import background, programs
from tracecomp.eager_kernels.convolutions import _for_any_shape
from tracecomp.ir.op import OPS


def steps(layer: nn.Module, x: tc.Tensor) -> list[list[tc.Tensor]]:
    """Results and gradients of some calls; before the last ones programs are ready."""
    found = []
    background.finish()  # requests of earlier tests may fill the queue
    for number in range(programs.AFTER + 3):
        if number == programs.AFTER:
            background.finish()
        out = layer(x)
        out = out[0] if isinstance(out, tuple) else out
        found.append([out.detach(), *tc.autograd.grad((out * out).sum(), [x, *layer.parameters()])])
    return found


def test_calls_have_the_same_bits_before_and_after_there_is_a_program() -> None:
    cases = (
        (nn.Conv2d(12, 16, 3, padding=1), tc.randn(2, 12, 11, 13, requires_grad=True), "conv_weight"),
        (nn.GRU(9, 11), tc.randn(6, 3, 9, requires_grad=True), "scan"),
    )
    for layer, x, name in cases:
        first, *others = steps(layer, x)
        assert any(key[0] == name and program.run for key, program in programs._programs.items())
        assert all(same_bits(a.numpy(), b.numpy()) for found in others for a, b in zip(first, found, strict=True))


def test_a_program_with_other_bits_is_not_put_to_use() -> None:
    x, w = np.ones((1, 2, 5), np.float32), np.ones((3, 2, 2), np.float32)
    attrs: dict[str, Any] = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    right, wrong = programs._Program(), programs._Program()

    def eager(given: Sequence[Any]) -> tuple[Any, ...]:
        return (_for_any_shape(OPS["conv"], given[0], given[1], attrs),)

    right.make(OPS["conv"], [x, w], attrs, eager)
    wrong.make(OPS["conv"], [x, w], attrs, lambda given: (np.nextafter(eager(given)[0], np.float32(9)),))
    assert right.run is not None and wrong.run is None


LATE = """
import threading

import tracecomp
from tracecomp.eager_kernels import background

x, begun = tracecomp.ones(3), threading.Event()

def work():
    begun.set()
    threading.main_thread().join()
    made = tracecomp.compile(lambda x: x * 2 + 1)
    print(made(x).tolist(), made(x).tolist(), flush=True)

background.begin("late", work)
begun.wait()
"""


def test_code_that_is_made_while_a_process_ends_leaves_it_quietly() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"{[3.0] * 3} {[3.0] * 3}\n"


def test_a_program_is_asked_for_again_when_there_was_too_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(background, "begin", lambda name, work: asked.append(name))
    monkeypatch.setattr(programs, "_programs", {})
    x = np.ones((2, 2), np.float32)
    for _ in range(3 * programs.AFTER):
        assert programs.served(OPS["neg"], [x], {}, lambda arrays: (-arrays[0],)) is None
    assert asked == ["neg"] * 3
