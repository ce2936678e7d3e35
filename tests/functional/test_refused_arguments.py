"""Arguments that PyTorch refuses, with the same type of exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "clamp: tensor and number": lambda t, F, x: t.clamp(x, x, 1),
    "clamp: number and tensor": lambda t, F, x: x.clamp(1, x),
    "clamp_: tensor and number": lambda t, F, x: x.clamp_(x, 1),
    "clip: tensor and number": lambda t, F, x: t.clip(x, x, 1),
    "zeros: bool": lambda t, F, x: t.zeros(True),
    "zeros: tuple of bool": lambda t, F, x: t.zeros((True,)),
    "randn: tuple with bool": lambda t, F, x: t.randn((True, 2)),
    "full: tuple with bool": lambda t, F, x: t.full((True,), 1),
    "new_zeros: bool": lambda t, F, x: x.new_zeros(True),
    "reshape: bool": lambda t, F, x: x.reshape(True, 6),
    "view: bool": lambda t, F, x: x.view(True, 6),
    "expand: bool": lambda t, F, x: t.ones(1).expand(True),
    "repeat: bool": lambda t, F, x: x.repeat(True, True),
    "cross_entropy: int32": lambda t, F, x: F.cross_entropy(x, t.ones(2, dtype=t.int32)),
    "cross_entropy: probabilities of integers": lambda t, F, x: F.cross_entropy(x, t.ones(2, 3, dtype=t.int64)),
    "cross_entropy: float64 weight": lambda t, F, x: F.cross_entropy(
        x, t.ones(2, dtype=t.int64), weight=t.ones(3, dtype=t.float64)
    ),
    "nll_loss: int32": lambda t, F, x: F.nll_loss(x, t.ones(2, dtype=t.int32)),
    "binary_cross_entropy: integers": lambda t, F, x: F.binary_cross_entropy(x.sigmoid(), x.long()),
    "with_logits: integers": lambda t, F, x: F.binary_cross_entropy_with_logits(x, x.long()),
    "kl_div: integers": lambda t, F, x: F.kl_div(x, x.long(), reduction="sum"),
    "linear: bias": lambda t, F, x: F.linear(x, t.ones(2, 3), t.ones(2, dtype=t.float64)),
    "bilinear: inputs": lambda t, F, x: F.bilinear(x, x.double(), t.ones(1, 3, 3)),
}
NORMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "layer_norm": lambda F, x, w, b: F.layer_norm(x, (6,), w, b),
    "group_norm": lambda F, x, w, b: F.group_norm(x, 2, w, b),
    "batch_norm": lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "instance_norm": lambda F, x, w, b: F.instance_norm(x[..., None].expand(2, 6, 4), None, None, w, b),
}
DTYPES = ("float32", "float64", "bfloat16", "float16")


def outcome(call: Callable[..., Any], *arguments: Any) -> type | None:
    try:
        call(*arguments)
    except Exception as error:  # its type is compared
        return type(error)
    return None


def rows(t: Any) -> Any:
    return t.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("name", CALLS)
def test_the_exception_is_pytorchs(name: str) -> None:
    theirs = outcome(CALLS[name], torch, torch.nn.functional, rows(torch))
    assert theirs is not None
    assert outcome(CALLS[name], tracecomp, tracecomp.nn.functional, rows(tracecomp)) is theirs


@pytest.mark.parametrize("name", NORMS)
def test_mixed_dtypes_of_norms(name: str) -> None:
    for kinds in ((a, b, c) for a in DTYPES for b in (*DTYPES, None) for c in (*DTYPES, None)):
        found = []
        for t in (torch, tracecomp):
            x, *parameters = (None if k is None else t.ones((2, 6) if n == 0 else 6).to(getattr(t, k))
                              for n, k in enumerate(kinds))  # fmt: skip
            found.append(outcome(NORMS[name], t.nn.functional, x, *parameters))
        assert found[0] is found[1], kinds
