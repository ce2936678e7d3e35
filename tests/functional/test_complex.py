"""Complex tensors against torch: values, dtypes, printed text, gradients, views, refusals."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.functional.reference import same, same_text, torch

Z = "T.tensor([3+4j, 1j, -1.5, -4-1j])"
W = "T.tensor([0.5-1j, 2, 1+1j, -3j])"
M = "T.tensor([[1j, 2], [3, 4+1j]])"

TEXTS = [
    "T.tensor([1+2j, 3-1j])", "T.tensor(1.5-2.25j)", "T.zeros(2, 3, dtype=T.complex64)", "T.tensor([1e-5+1e5j, -3j])",
    "T.tensor([[1+1j, complex('nan')], [float('inf'), 2]])", "T.ones(3, dtype=T.complex128)",
    "T.arange(2000.).to(T.cfloat) * (1+1j)", "T.zeros(0, dtype=T.complex64)", "T.tensor([1j], requires_grad=True)",
    "T.linspace(0, 1, 40).to(T.cfloat) * (0.3-0.2j)", "T.complex64", "T.cdouble", "T.finfo(T.complex64)",
]  # fmt: skip

TYPES = [
    "T.promote_types(T.float64, T.complex64)", "T.promote_types(T.bfloat16, T.complex64)",
    "T.promote_types(T.int64, T.complex64)", "T.result_type(T.ones(2), 1j)", "T.result_type(T.ones(2).double(), 1j)",
    "T.result_type(T.ones(2, dtype=T.int64), 1j)",
    "T.result_type(T.ones(2).to(T.complex64), T.tensor(1.0).double())",
    "T.result_type(T.ones(2).to(T.complex64), T.ones(1).double())", "T.result_type(T.ones(2), T.tensor(1j).cdouble())",
    "[T.can_cast(a, b) for a in (T.float32, T.complex64) for b in (T.int64, T.float64, T.complex64)]",
    "T.complex64.is_complex", "T.complex64.is_floating_point", "T.complex64.itemsize", "T.complex64.to_real()",
    "T.float64.to_complex()", "T.tensor(1+2j).item()", "T.tensor([1+2j]).tolist()", "T.tensor([1+2j]).type()",
    "T.is_complex(T.tensor([1j]))", "T.ones(2).is_complex()", "T.tensor([1j]).conj().resolve_conj().is_conj()",
    "complex(T.tensor(1+2j))", "float(T.tensor(1+0j))", "float(T.tensor(1+2j))", "T.tensor([1j]).numpy().dtype.name",
]  # fmt: skip

VALUES = [
    "T.full((2,), 1j)", "T.full((2,), 1j, dtype=T.complex128)", "T.tensor([1, 2j])",
    "T.tensor([1.0, 2], dtype=T.cfloat)", "T.tensor([1., 2]).to(T.complex64)", "T.tensor([1., 2]).cdouble()",
    "T.ones(2).to(complex)", "T.eye(2, dtype=T.cfloat)", f"{Z} * 2j", "T.ones(2) * 2j", "T.ones(2).double() + 1j",
    "T.tensor([3, 1]) * 1j", "1j - T.tensor([3., 1])", f"{Z} + {W}", f"{Z} - {W}", f"{Z} * {W}", f"{Z} / {W}", f"-{Z}",
    f"1j / {Z}", f"{Z}.reciprocal()", f"{Z}.add(1, alpha=2j)", f"{Z} ** 2", f"{Z} ** 3", f"{Z} ** -2", f"{Z} ** 0.5",
    f"{Z} ** 1.5", f"{Z} ** {W}", f"2 ** {Z}", f"{Z} ** 0", f"{Z}.abs()", f"{Z}.angle()", f"{Z}.sgn()", f"{Z}.exp()",
    f"{Z}.log()", f"{Z}.sqrt()", f"{Z}.rsqrt()", f"{Z}.sin()", f"{Z}.cos()", f"{Z}.sinh()", f"{Z}.cosh()",
    f"{Z}.sigmoid()", f"{Z}.square()", f"{Z}.conj()", f"{Z}.conj_physical()", f"{Z}.real", f"{Z}.imag",
    "T.ones(2).imag", f"T.view_as_real({Z})", "T.view_as_complex(T.ones(3, 2))", "T.view_as_complex(T.ones(3))",
    "T.view_as_real(T.ones(3))", "T.polar(T.tensor([1., 2]), T.tensor([0., 1.]))",
    "T.complex(T.tensor([1., 2]), T.tensor([0., 1.]))", "T.complex(T.ones(2), T.ones(2).double())",
    "T.complex(T.tensor([1]), T.tensor([1]))", f"{Z}.sum()", f"{Z}.mean()", f"{Z}.cumsum(0)", f"{Z} == {W}",
    f"{Z} != 1j", f"T.where(T.tensor([True, False, True, False]), {Z}, 3.)",
    "T.where(T.tensor([True, False]), 1j, 3.)", f"T.allclose({Z}, {Z} + 1e-9)", f"T.isclose({Z}, {W})",
    f"T.equal({Z}, {Z})", "T.isclose(T.tensor([complex('nan')]), T.tensor([complex('nan')]), equal_nan=True)",
    "T.isnan(T.tensor([1j, complex('nan')]))", "T.isfinite(T.tensor([1j, complex('inf')]))", f"T.isreal({Z})",
    f"T.vdot({Z}, {W})", f"T.dot({Z}, {W})", f"T.linalg.vecdot({Z}, {W})", f"T.inner({Z}, {W})", f"T.outer({Z}, {W})",
    f"{M}.mH", f"{M}.H", f"{M}.adjoint()", f"{M} @ {M}", f"T.einsum('ij,jk->ik', {M}, {M})",
    f"{M}[None].bmm({M}[None])", f"T.matrix_power({M}, 3)", f"T.trace({M})", f"T.tril({M})", f"T.diag({Z})",
    f"T.kron({Z}, {W})", f"T.linalg.norm({Z})", f"T.norm({Z})", f"T.linalg.vector_norm({Z}, 1)", f"T.roll({Z}, 1)",
    f"{Z}.flip(0)", f"T.cat([{Z}, T.tensor([1.])])", f"T.stack([{Z}, {W}])", f"{Z}[[0, 2]]",
    f"{Z}[T.tensor([True, False, True, True])]", f"T.gather({Z}, 0, T.tensor([2, 1]))",
    f"{Z}.index_select(0, T.tensor([2, 1]))", f"{Z}.bool()", f"{Z}.to(T.float32)",
    f"{Z}.masked_fill(T.tensor([True, False, True, False]), 1j)", f"T.count_nonzero({Z})", f"T.any({Z})",
    "T.zeros(3, dtype=T.cfloat).index_add(0, T.tensor([1, 1]), T.tensor([1j, 1]))", f"{Z}.repeat_interleave(2)",
    f"T.addcmul({Z}, {Z}, {W}, value=1j)", f"T.nn.functional.linear({M}, {M}, T.tensor([1j, 1]))",
    f"T.nn.functional.pad({Z}, (1, 1))", f"T.diff({Z})", f"{Z}.unbind()", "T.rand(3, dtype=T.cfloat) * 0",
    "T.randn(3, dtype=T.cdouble).shape", f"T.zeros_like({Z})", f"{Z}.reshape(2, 2).T.contiguous()",
]  # fmt: skip

REFUSED = [
    "{z} < 1", "{z}.max()", "{z}.sort()", "{z}.argmax()", "T.clamp({z}, 0., 1.)", "T.relu({z})", "T.floor({z})",
    "T.maximum({z}, {z})", "{z} // 2", "{z} % 2", "T.nn.functional.mse_loss({z}, input={z})", "T.atan2({z}, {z})",
    "T.median({z})", "T.softmax({z}, 0)", "T.erf({z})", "T.unique({z})", "{z}.topk(1)", "T.round({z})",
    "T.nn.functional.gelu({z})", "T.sign({z})",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_printed(text: str) -> None:
    same_text(lambda T: eval(text, {"T": T}))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("program", TYPES + VALUES)
def test_values_and_types(program: str) -> None:
    same(lambda T: eval(program, {"T": T}))


@pytest.mark.parametrize("call", REFUSED)
def test_what_has_no_meaning_is_refused(call: str) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"not implemented|Complex|complex|dtype"):
        eval(call.format(z=Z), {"T": tracecomp})


def _real_written(T: Any) -> Any:
    x = T.zeros(3, dtype=T.cfloat)
    x.real[0] = 2.0
    x.imag.fill_(3.0)
    x.real += 1
    return x


def _assigned(T: Any) -> Any:
    x = T.zeros(3, dtype=T.cfloat)
    T.view_as_real(x)[1, 1] = 5
    x[2] = 1j
    x[0] = T.tensor(2.0)
    x.index_put_((T.tensor([0]),), T.tensor([1j]))
    return x


def _through_real_memory(T: Any) -> Any:
    x = T.zeros(3, 2)
    T.view_as_complex(x).mul_(2).add_(1 + 2j)
    return x


def _whole_parts(T: Any) -> Any:
    x = T.ones(3, dtype=T.cfloat)
    x.imag = T.ones(3) * 4
    x.real = 7
    return x


def _narrowed(T: Any) -> Any:
    x = T.zeros(3)
    x += 1j
    return x


def _stored_narrow(T: Any) -> Any:
    x = T.zeros(3)
    x[0] = 1j
    return x


@pytest.mark.parametrize(
    "program", [_real_written, _assigned, _through_real_memory, _whole_parts, _narrowed, _stored_narrow]
)
def test_writes_through_parts(program: Any) -> None:
    same(program)


LOSSES = [
    "(x * y).abs().sum()", "(x / (y + 2j)).real.sum()", "(x @ y.conj()).abs()", "T.view_as_real(x ** 3).cos().sum()",
    "T.view_as_real(x.exp() + x.log() + 1 / x + x.sin() + x.cosh() + x.sgn()).sin().sum()", "x.angle().sum()",
    "x.sqrt().real.sum()", "(x.real * 2 + x.imag).sum()", "T.cat([x, y])[[0, 1, 0]].abs().pow(2).sum()",
    "T.where(x.real > 0, x, y * 2j).abs().sum()", "T.view_as_complex(T.view_as_real(x) * 2).imag.exp().sum()",
    "T.polar(x.abs(), y.real).real.sum()", "T.complex(x.real, y.imag).abs().sum()", "T.linalg.norm(x - y)",
    "T.einsum('i,j->ij', x, y).abs().sum()", "(x.cumsum(0) * y.flip(0)).real.sum()", "x.mean().abs()", "x.sum()",
    "(T.tensor([1., 2, 3, 4]) * x).imag.sum()", "(x ** 1.5).real.sum()", "T.fft.fft(x * y).abs().sum()",
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients(loss: str) -> None:
    def program(T: Any) -> Any:
        x = eval(Z, {"T": T}).cdouble().requires_grad_()
        y = eval(W, {"T": T}).cdouble().requires_grad_()
        eval(loss, {"T": T, "x": x, "y": y}).backward()
        return x.grad, y.grad

    same(program)


def test_gradient_of_a_write_through_a_part() -> None:
    def program(T: Any) -> Any:
        x = T.tensor([1 + 1j, 2 - 1j], requires_grad=True)
        y = x * 1
        y.real.mul_(3.0)
        (y.abs() ** 2).sum().backward()
        return x.grad

    same(program)


def test_second_gradient() -> None:
    def program(T: Any) -> Any:
        x = T.tensor([3 + 4j, 1j], requires_grad=True)
        (g,) = T.autograd.grad((x**3).real.sum(), x, create_graph=True)
        g.imag.sum().backward()
        return x.grad

    same(program)


@pytest.mark.parametrize("seed", ["[1j, 2.]", "[1., 2.]"])
def test_gradients_of_outputs_are_complex_like_them(seed: str) -> None:
    def program(T: Any) -> Any:
        x = T.tensor([3 + 4j, 1j], requires_grad=True)
        return T.autograd.grad(x * 2, x, T.tensor(eval(seed)))[0]

    same(program)


def test_gradcheck_moves_both_parts() -> None:
    x = tracecomp.tensor([1 + 2j, -0.5j, 2.0], dtype=tracecomp.cdouble, requires_grad=True)
    y = tracecomp.tensor([0.5, 1.5, 1.0], dtype=tracecomp.float64, requires_grad=True)
    assert tracecomp.autograd.gradcheck(lambda a, b: (a * b, a.abs(), tracecomp.fft.irfft(a)), (x, y))
    assert tracecomp.autograd.gradgradcheck(lambda a, b: (a * b, tracecomp.fft.rfft(b)), (x, y))


def test_saved_and_copied() -> None:
    x = tracecomp.tensor([1j, 2.0], requires_grad=True)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert other.requires_grad and other.tolist() == [1j, 2 + 0j]
    file = io.BytesIO()
    tracecomp.save({"a": x.detach()}, file)
    file.seek(0)
    assert torch.load(file)["a"].tolist() == [1j, 2 + 0j]
    file = io.BytesIO()
    torch.save(torch.tensor([1j], dtype=torch.cdouble), file)
    file.seek(0)
    found = tracecomp.load(file)
    assert found.dtype is tracecomp.complex128 and found.tolist() == [1j]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax"])
def test_optimizers_move_both_parts(name: str) -> None:
    def program(T: Any) -> Any:
        p = T.tensor([1 + 2j, -0.5j, 3], requires_grad=True)
        optimizer = getattr(T.optim, name)([p])
        for _ in range(3):
            optimizer.zero_grad()
            ((p.abs() ** 2).sum() + (p * p).real.sum() + p.imag.sum()).backward()
            optimizer.step()
        return p, [v for v in optimizer.state[p].values() if getattr(v, "ndim", 0)]

    same(program)


def test_vmap() -> None:
    x = tracecomp.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(tracecomp.vmap(tracecomp.fft.fft)(x).numpy(), np.fft.fft(x.numpy()), rtol=1e-5)
    parts = tracecomp.vmap(lambda z: tracecomp.view_as_real(z * 1j).sum(0))(x.to(tracecomp.cfloat))
    np.testing.assert_allclose(parts.numpy(), np.stack([np.zeros(3), x.numpy().sum(1)], 1))
