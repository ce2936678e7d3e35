"""``__torch_dispatch__``: the operators that arrive, histories above it, wrapper subclasses, make_fx, fake tensors."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest

import tracecomp
from tracecomp._subclasses import FakeTensor, FakeTensorMode
from tracecomp.fx.experimental.proxy_tensor import make_fx
from tracecomp.library import ops
from tracecomp.utils import _python_dispatch as ours
from tracecomp.utils._pytree import tree_map

torch = pytest.importorskip("torch")
from torch.fx.experimental.proxy_tensor import make_fx as make_fx_of_torch  # noqa: E402
from torch.utils import _python_dispatch as theirs  # noqa: E402

SAME_NAMES = [
    "(a * b).exp().sum()", "a @ b.t()", "a - 2 * b", "1 - a", "a / b", "P.where(a > 0, a, b)", "P.cat([a, b], 1)",
    "a.sum(0)", "a.amax(1)", "a[None].transpose(1, 2)", "a.view(6)", "a[:, 1:]", "a.clone()", "a.to(P.float64)",
    "a.tanh().sigmoid()", "P.maximum(a, b)", "P.bmm(a[None], b.t()[None])", "a.relu().neg().abs()", "a == b",
    "a.expand(2, 2, 3)", "a[None].permute(2, 0, 1)", "a.detach()", "P.full((2,), 3.0)", "a.cumsum(0)", "a.gather(1, i)",
    "a.index_select(0, j)", "a ** b", "a > 1", "P.nn.functional.conv1d(a[None], b[None, :, :2])",
]  # fmt: skip


def logging(P: Any, module: Any) -> Any:
    """A mode that runs every operator and remembers its name."""

    class Log(module.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Log()


def operands(P: Any) -> dict[str, Any]:
    a = P.arange(6.0).reshape(2, 3) - 2.5
    return {"P": P, "a": a, "b": a * 0.5 + 1, "i": P.zeros(2, 3, dtype=P.int64), "j": P.tensor([1, 0])}


# torch makes intermediate views that are not primitives here, and reports more of functions that are several.
_BETWEEN = {"aten.unsqueeze.default", "aten.view.default", "aten.alias.default", "aten.squeeze.dim", "aten.select.int"}


@pytest.mark.parametrize("expression", SAME_NAMES)
def test_the_operators_that_arrive_are_those_of_torch(expression: str) -> None:
    found = []
    for P, module in ((torch, theirs), (tracecomp, ours)):
        given, log = operands(P), logging(P, module)
        with log:
            eval(expression, given)
        between = _BETWEEN if "view" not in expression else set()
        found.append([name for name in log.seen if name not in between])
    assert found[1] == found[0]


def test_overloads_are_objects_of_their_own() -> None:
    add = ops.aten.add
    assert add.Tensor is ops.aten.add.Tensor and add.Tensor is not add.Scalar and add.Tensor.overloadpacket is add
    for name in ("aten.add.Tensor", "aten.mm.default", "aten.copy_.default"):
        space, packet, overload = name.split(".")
        mine = getattr(getattr(getattr(ops, space), packet), overload)
        other = getattr(getattr(getattr(torch.ops, space), packet), overload)
        assert (str(mine), repr(mine), mine.name(), mine.__name__) == (
            str(other), repr(other), other.name(), other.__name__,
        )  # fmt: skip
        assert mine._schema.is_mutable == other._schema.is_mutable and mine.namespace == other.namespace


def model(P: Any) -> Any:
    P.manual_seed(0)
    return P.nn.Sequential(P.nn.Linear(3, 4), P.nn.Tanh(), P.nn.LayerNorm(4), P.nn.Linear(4, 2))


def test_the_backward_pass_is_seen_and_gradients_stay_the_same() -> None:
    x, plain, seen = tracecomp.randn(5, 3), model(tracecomp), model(tracecomp)
    plain(x).pow(2).sum().backward()
    log = logging(tracecomp, ours)
    with log:
        loss = seen(x).pow(2).sum()
        forward = len(log.seen)
        loss.backward()
    assert log.seen.count("aten.mm.default") == 5 and "aten.mm.default" in log.seen[forward:]
    for mine, other in zip(seen.parameters(), plain.parameters(), strict=True):
        assert mine.grad.equal(other.grad)
    with log:
        pass
    assert not tracecomp.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_histories_are_kept_above_whatever_a_mode_returns() -> None:
    class Constant(ours.TorchDispatchMode):
        """Returns earlier results, as selective checkpointing does."""

        def __init__(self, kept: list[Any]) -> None:
            self.kept = kept

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.kept.pop(0)

    x = tracecomp.tensor([1.0, 2.0], requires_grad=True)
    with Constant([tracecomp.tensor([10.0, 20.0]), tracecomp.tensor(5.0)]):
        y = x.exp()
        total = y.sum()
    assert total.item() == 5.0 and y.grad_fn is not None
    total.backward()
    assert x.grad.tolist() == [10.0, 20.0]  # the result that the formula of exp reads is the one it was given


def wrapper(P: Any, pytree: Any) -> Any:
    """A class of tensors that wrap others, and count the operators called on them."""

    class Wrapped(P.Tensor):
        elem: Any
        __torch_function__ = P._C._disabled_torch_function_impl
        calls: ClassVar[list[str]] = []

        @staticmethod
        def __new__(cls, elem: Any) -> Any:
            return P.Tensor._make_wrapper_subclass(
                cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, requires_grad=elem.requires_grad
            )

        def __init__(self, elem: Any) -> None:
            self.elem = elem.detach()

        def __repr__(self) -> str:
            return f"Wrapped({self.elem})"

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.calls.append(str(func))
            args, kwargs = pytree((lambda t: t.elem if isinstance(t, cls) else t), (args, kwargs or {}))
            found = func(*args, **kwargs)
            return pytree((lambda t: cls(t) if isinstance(t, P.Tensor) else t), found)

    return Wrapped


def test_wrapper_subclasses_compute_and_differentiate() -> None:
    results = []
    for P, pytree in ((tracecomp, tree_map), (torch, torch.utils._pytree.tree_map)):
        Wrapped = wrapper(P, pytree)
        values = P.arange(6.0).reshape(2, 3) / 6
        w, b = Wrapped(values.clone().requires_grad_()), P.ones(2, 3, requires_grad=True)
        y = ((w * b).exp() @ w.t()).softmax(-1)
        (y * P.arange(4.0).reshape(2, 2)).sum().backward()
        assert type(y) is Wrapped and type(w.grad) is Wrapped and type(b.grad) is Wrapped
        assert w.device.type == "cpu" and not w.is_meta and y.stride() == (2, 1)
        results.append([t.elem for t in (y.detach(), w.grad, b.grad, w.detach()[0], w.clone().add_(1))])
        assert Wrapped.calls[0] == "aten.mul.Tensor"
    for mine, other in zip(*results, strict=True):
        assert tuple(mine.shape) == tuple(other.shape)
        assert abs(mine.numpy() - other.numpy()).max() < 1e-6


def test_wrappers_are_parameters_and_give_numbers() -> None:
    Wrapped = wrapper(tracecomp, tree_map)
    p: Any = tracecomp.nn.Parameter(Wrapped(tracecomp.ones(4, 3)))
    assert type(p) is Wrapped and isinstance(p, tracecomp.nn.Parameter) and p.requires_grad
    layer = tracecomp.nn.Linear(3, 4, bias=False)
    layer.weight = p
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    layer(tracecomp.ones(2, 3)).sum().backward()
    assert type(p.grad) is Wrapped and p.grad.elem.tolist() == [[2.0] * 3] * 4
    assert p.sum().item() == 12.0 and bool(p.sum() > 0)
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
        tracecomp.Tensor._make_wrapper_subclass(type("Plain", (tracecomp.Tensor,), {}), (2,))


def test_operators_that_nobody_implements_are_refused() -> None:
    for P in (torch, tracecomp):

        class Refusing(P.Tensor):  # type: ignore[name-defined]
            __torch_function__ = P._C._disabled_torch_function_impl

            @classmethod
            def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return NotImplemented

        with pytest.raises(TypeError, match="all __torch_dispatch__ handlers returned NotImplemented"):
            P.exp(P.Tensor._make_wrapper_subclass(Refusing, (2,)))


@pytest.mark.parametrize("expression", ["a.sin() * b", "(a @ b.t()).relu().sum()", "P.cat([a, b], 1)"])
def test_make_fx_writes_the_code_of_torch(expression: str) -> None:
    codes = []
    for P, trace in ((torch, make_fx_of_torch), (tracecomp, make_fx)):
        program, given = eval(f"lambda a, b: {expression}", {"P": P}), operands(P)
        graph = trace(program)(given["a"], given["b"])
        codes.append(str(graph.code))
        assert graph(given["b"], given["a"]).tolist() == program(given["b"], given["a"]).tolist()
    assert codes[1].split() == codes[0].split()


def test_make_fx_writes_backward_passes_and_decomposes() -> None:
    net = model(tracecomp)

    def gradient(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return tracecomp.autograd.grad(net(x).square().sum(), x)[0]

    x = tracecomp.randn(5, 3)
    for mode in ("real", "fake"):
        graph = make_fx(gradient, tracing_mode=mode)(x)
        assert graph(x + 1).equal(gradient(x + 1))

    def exp_by_parts(x: Any) -> Any:
        return x.sinh() + x.cosh()

    graph = make_fx(lambda x: x.exp(), decomposition_table={ops.aten.exp.default: exp_by_parts})(x)
    targets = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.sinh.default", "aten.cosh.default", "aten.add.Tensor"]
    with pytest.raises(ValueError, match="Unexpected tracing type"):
        make_fx(gradient, tracing_mode="other")


def test_fake_tensors_have_shapes_and_no_elements() -> None:
    with FakeTensorMode() as mode:
        x = mode.from_tensor(tracecomp.ones(2, 3, requires_grad=True))
        y: Any = x @ tracecomp.ones(3, 5, device="cpu")
        assert tuple(y.shape) == (2, 5) and y.device.type == "cpu" and y.requires_grad and x.requires_grad
        total = y.sum()
        assert isinstance(y, FakeTensor) and isinstance(tracecomp.zeros(2), FakeTensor)
        total.backward()
        assert tuple(x.grad.shape) == (2, 3)
        with pytest.raises(RuntimeError):
            total.item()
    assert not isinstance(tracecomp.ones(2), FakeTensor) and tracecomp.ones(2).tolist() == [1.0, 1.0]


GOING_ON = [
    "F.conv2d(x, w, padding=1)", "F.conv_transpose2d(x, w.transpose(0, 1)[:4], stride=2)", "F.max_pool2d(x, 2)",
    "F.scaled_dot_product_attention(x, x, x)", "F.cross_entropy(x[0, :, :, 0], P.tensor([0, 1, 2, 3]))", "F.gelu(x)",
    "F.batch_norm(x, None, None, None, None, True)", "P.einsum('nchw,ncij->nhwij', x, x)", "x.topk(2)[0]",
    "x.sort(1)[1]", "x[:, P.tensor([0, 1])]", "F.embedding(P.tensor([[0, 1]]), w[:, 0, 0])", "P.linalg.svdvals(x)",
    "P.linalg.inv(x + 10 * P.eye(8))", "P.fft.fft(x).abs()", "F.pad(x, (1, 2, 3, 4))", "x.prod(2)", "(x > 0).any(1)",
    "F.interpolate(x, scale_factor=2, mode='bilinear')", "x.std(1)", "x.argmax(1)", "F.unfold(x, 2)", "x @ x.mT",
    "x.scatter_add(1, P.zeros(2, 1, 8, 8, dtype=P.long), x)", "x[0, 0] @ x[0, 0, 0]", "x[0, 0, 0] @ x[0, 0, 1]",
    "P.outer(x[0, 0, 0], x[0, 0, 1])", "2 ** x", "2 / x", "(x * 10).int().sum()", "P.nn.LSTM(8, 3)(x[0])[0]",
    "P.rand(3) + P.randn(3)", "x.clone().add_(x).relu_()",
]  # fmt: skip


@pytest.mark.parametrize("expression", GOING_ON)
def test_a_mode_that_goes_on_with_everything_changes_nothing(expression: str) -> None:
    tracecomp.manual_seed(1)
    given = {"P": tracecomp, "F": tracecomp.nn.functional, "x": tracecomp.randn(2, 4, 8, 8)}
    given["w"] = tracecomp.randn(6, 4, 3, 3)
    log, found = logging(tracecomp, ours), []
    for context in (nullcontext(), log):
        tracecomp.manual_seed(2)
        with context:
            found.append(eval(expression, given))
    assert log.seen
    plain, seen = (t.detach().numpy() for t in found)
    np.testing.assert_allclose(seen, plain, rtol=1e-5, atol=1e-6)
