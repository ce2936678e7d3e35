"""``grouped_mm`` gives PyTorch's results, gradients and errors; rows of no group are not defined there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")

OFFS = [4, 4, 12]
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "rows": ((16, 32), (3, 32, 24)), "columns": ((3, 8, 32), (32, 16)), "summed": ((8, 16), (16, 24)),
    "batches": ((3, 8, 32), (3, 32, 24)),
}  # fmt: skip
_ALL, _ROWS, _COLUMNS = np.s_[:], np.s_[: OFFS[-1]], np.s_[:, : OFFS[-1]]
DEFINED: dict[str, tuple[Any, ...]] = {
    "rows": (_ROWS, _ROWS, _ROWS, _ALL), "columns": (_COLUMNS, _COLUMNS, _ALL, _COLUMNS),
    "summed": (_ALL, _ALL, _COLUMNS, _ROWS), "batches": (_ALL,) * 4,
}  # fmt: skip
"""Parts of the result, the same again, and the gradients that belong to a group."""


def results(module: Any, form: str, dtype: str) -> list[Any]:
    """The product, twice, and its gradients."""
    rng = np.random.default_rng(0)
    a, b = (
        module.tensor(rng.standard_normal(shape).astype(np.float32)).to(getattr(module, dtype)).requires_grad_()
        for shape in SHAPES[form]
    )
    offs = None if form == "batches" else module.tensor(OFFS, dtype=module.int32)
    out = module.nn.functional.grouped_mm(a, b, offs=offs)
    again = module._grouped_mm(a, b, offs)
    grad = module.tensor(rng.standard_normal(tuple(out.shape)).astype(np.float32)).to(out.dtype)
    found = (out, again, *module.autograd.grad(out, (a, b), grad))
    return [x.detach().float().numpy()[part] for x, part in zip(found, DEFINED[form], strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("form", SHAPES)
def test_results_and_gradients(form: str, dtype: str) -> None:
    bound = 1e-5 if dtype == "float32" else 3e-2
    for ours, theirs in zip(results(tc, form, dtype), results(torch, form, dtype), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=bound, atol=bound)


def calls(module: Any) -> list[Any]:
    """Calls that both refuse."""

    def made(*shape: int, dtype: str = "float32") -> Any:
        return module.ones(shape, dtype=getattr(module, dtype))

    def ends(*numbers: float, dtype: str = "int32") -> Any:
        return module.tensor(numbers, dtype=getattr(module, dtype))

    f, offs = module.nn.functional.grouped_mm, ends(*OFFS)
    a, b = made(16, 32), made(3, 32, 24)
    return [
        lambda: f(a, b), lambda: f(b.transpose(1, 2), b, offs=offs), lambda: f(a, b, offs=ends(*OFFS, dtype="int64")),
        lambda: f(a, b, offs=ends(4, 12)), lambda: f(a, b, offs=offs[None]), lambda: f(a, made(3, 16, 24), offs=offs),
        lambda: f(a, made(3, 32, 24, dtype="bfloat16"), offs=offs), lambda: f(a[None, None], b, offs=offs),
        lambda: f(a, b[0, 0], offs=offs), lambda: f(a, b, offs=offs, bias=made(24)),
        lambda: f(a, b, offs=offs, out_dtype=module.bfloat16), lambda: f(made(2, 8, 32), b),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(12))
def test_errors(number: int) -> None:
    messages = []
    for module in (tc, torch):
        with pytest.raises(RuntimeError) as raised:
            calls(module)[number]()
        messages.append(str(raised.value).split(" (in ")[0].split(" (at ")[0].splitlines()[0])
    assert messages[0] == messages[1]
