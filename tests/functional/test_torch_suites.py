"""Cases of torch's test files that no other test here has, against torch."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp
from tests.autograd.doubled import Double
from tests.functional.reference import same

torch = pytest.importorskip("torch")

PROGRAMS = {
    "complex linspace": lambda T: T.linspace(0, 1 + 2j, 5),
    "complex logspace": lambda T: T.logspace(0, 1 + 1j, 3),
    "complex linspace into floats": lambda T: T.linspace(0, 1 + 2j, 5, dtype=T.float32),
    "complex eye": lambda T: T.eye(2, dtype=T.complex128, out=T.zeros(0, dtype=T.complex128)),
    "no blocks": lambda T: T.block_diag(),
    "a block that is no tensor": lambda T: T.block_diag(3),
    "nothing joined along any dim": lambda T: T.cat([T.zeros(0), T.zeros(0)], 1),
    "strides without elements": lambda T: [T.empty(s).stride() for s in ((0, 3), (2, 0, 3), (3, 1, 0, 2))],
    "strides of a sum of nothing": lambda T: T.zeros(0, 1, 2).sum(1).stride(),
    "negative strides": lambda T: T.empty_strided((2, 3, 4), (-2, 4, 6)),
    "more elements than memory": lambda T: T.empty(2**63 - 1, 2**63 - 1),
    "a legacy tensor elsewhere": lambda T: T.Tensor(2, 3, device="meta"),
    "legacy ints elsewhere": lambda T: T.LongTensor(device="cuda"),
    "scaled truth": lambda T: T.add(T.tensor([True]), True, alpha=2),
    "a truth value as a scale": lambda T: T.add(T.tensor([1]), 1, alpha=True),
    "a complex scale of floats": lambda T: T.add(T.tensor([1.0]), 1, alpha=1j),
    "zero to a complex power": lambda T: T.pow(T.tensor([0j, 0j]), T.tensor([2 + 0j, 1 + 1j])),
    "zero to a negative power": lambda T: T.pow(T.tensor([0j]), T.tensor([-1 + 0j])).abs().isinf(),
    "ints as a window": lambda T: T.hann_window(5, dtype=T.int64),
    "a sparse window": lambda T: T.hann_window(5, layout=T.sparse_coo),
    "coefficients of a window": lambda T: T.hamming_window(5, True, 0.5, 0.4),
    "indices behind the last offset": lambda T: T.nn.functional.embedding_bag(
        T.tensor([1, 2, 0]), T.arange(6.0).reshape(3, 2), T.tensor([0, 2, 2]), include_last_offset=True
    ),
    "a bag behind the indices": lambda T: T.nn.functional.embedding_bag(
        T.tensor([1, 2, 0]), T.arange(6.0).reshape(3, 2), T.tensor([0, 4])
    ),
    "indices before the first bag": lambda T: T.nn.functional.embedding_bag(
        T.tensor([1, 2, 0]), T.arange(6.0).reshape(3, 2), T.tensor([1, 2])
    ),
    "an index of no embedding": lambda T: T.nn.functional.embedding_bag(T.tensor([[-1]]), T.ones(3, 2)),
    "convolution with time first": lambda T: T.nn.functional.conv_tbc(
        T.arange(30.0).reshape(5, 2, 3), T.arange(24.0).reshape(2, 3, 4), T.ones(4), 1
    ),
    "reflected transposed convolution": lambda T: T.nn.ConvTranspose2d(3, 3, 3, padding_mode="reflect"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_and_refusals_are_those_of_torch(name: str) -> None:
    same(PROGRAMS[name])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_of_half_types(window: str, dtype: str) -> None:
    def program(T: Any) -> Any:
        return getattr(T, f"{window}_window")(9, dtype=getattr(T, dtype)).float()

    same(program, atol=0.02)


@pytest.mark.parametrize("steps", [11, 401, 1991])
def test_linspace_of_half_types_is_rounded_once(steps: int) -> None:
    for dtype in (tracecomp.float16, tracecomp.bfloat16):
        wide = tracecomp.linspace(10, 2000, steps)
        assert tracecomp.equal(tracecomp.linspace(10, 2000, steps, dtype=dtype), wide.to(dtype))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
def test_complex_convolutions_and_their_gradients(name: str, rank: int) -> None:
    def program(T: Any) -> Any:
        def numbers(*shape: int) -> Any:
            n = T.zeros(shape).numel()
            x = T.arange(n, dtype=T.float64).reshape(shape)
            return T.complex(x.sin(), (x * 2).cos()).requires_grad_()

        x, weight, bias = numbers(2, 4, *[5] * rank), numbers(4, 2, *[3] * rank), numbers(4)
        out = getattr(T.nn.functional, f"{name}{rank}d")(x, weight, bias, stride=2, padding=1, groups=2)
        out.abs().sum().backward()
        return out, x.grad, weight.grad, bias.grad

    same(program)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_convolutions_by_name(rank: int) -> None:
    def program(T: Any) -> Any:
        x = T.arange(2.0 * 6**rank).sin().reshape(1, 2, *[6] * rank)
        weight = T.arange(2.0 * 3**rank).cos().reshape(2, 1, *[3] * rank)
        how = {"stride": 2, "padding": 1, "groups": 2}
        out = getattr(T.nn.functional, f"conv{rank}d")(x, weight, **how)
        of_input = getattr(T.nn.grad, f"conv{rank}d_input")(x.shape, weight, out, **how)
        return of_input, getattr(T.nn.grad, f"conv{rank}d_weight")(x, weight.shape, out, **how)

    same(program, atol=1e-4)


def test_gradcheck_looks_at_forward_mode_too() -> None:
    x = tracecomp.tensor([0.5, 1.5], dtype=tracecomp.float64, requires_grad=True)
    z = tracecomp.tensor([0.5 + 1j, 1.5], dtype=tracecomp.complex128, requires_grad=True)
    check = tracecomp.autograd.gradcheck
    assert check(lambda x: x.sin() * x, x, check_forward_ad=True)
    assert check(lambda z: z.sin() * z.conj(), z, check_forward_ad=True, check_backward_ad=False)
    assert tracecomp.autograd.gradgradcheck(lambda x: x.sin() * x, x, check_fwd_over_rev=True)


def test_gradcheck_by_forward_mode_finds_a_wrong_derivative() -> None:
    class Forward(Double):
        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * 3

    x = tracecomp.tensor([0.5, 1.5], dtype=tracecomp.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        tracecomp.autograd.gradcheck(Forward.apply, x, check_forward_ad=True, check_backward_ad=False)
