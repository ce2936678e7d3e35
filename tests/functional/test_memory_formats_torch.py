"""Memory formats: strides as PyTorch reports them, the same values, and compiled results with the strides of eager
ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp

torch = pytest.importorskip("torch")

CONVERSIONS = [
    "x.clone()", "x.double()", "x.float()", "x.half()", "x.long()", "x.contiguous()",
    "x.contiguous(memory_format=P.channels_last)", "c.contiguous(memory_format=P.channels_last)",
    "c.to(memory_format=P.channels_last)", "c.to(P.float64, memory_format=P.channels_last)",
    "x.to(memory_format=P.contiguous_format)", "x.to(P.float64, memory_format=P.contiguous_format)",
    "x.clone(memory_format=P.contiguous_format)", "c.clone(memory_format=P.channels_last)", "x[:, ::2].clone()",
    "c.permute(3,1,0,2).clone()", "c[:1].expand(2,4,6,5).clone()", "x[:,:1].expand(2,4,6,5).clone()",
    "P.zeros_like(x)", "P.ones_like(c, memory_format=P.channels_last)", "P.full_like(x, 2.)",
    "P.zeros_like(c.permute(1,0,3,2))", "x.type(P.float64)", "x.to(P.float64)", "x.detach()", "y.contiguous()",
    "d.contiguous(memory_format=P.channels_last_3d)", "c[:,:1].contiguous(memory_format=P.channels_last)",
    "c[:,:1].contiguous(memory_format=P.channels_last).relu()", "x.to(P.complex64)", "x.new_zeros(2,4,6,5)",
]  # fmt: skip

MADE = [
    "P.empty(2,4,6,5, memory_format=P.channels_last)", "P.empty_like(x)",
    "P.empty_like(x, memory_format=P.contiguous_format)", "P.rand_like(x)", "P.randn_like(x)", "P.randint_like(x,5)",
    "P.empty_like(x[:, ::2])", "P.empty_like(c[:1].expand(2,4,6,5))", "P.bernoulli(x.sigmoid())",
    "x.new_empty(2,4,6,5)",
]  # fmt: skip

OPERATIONS = [
    "x.exp()", "F.relu(x)", "x.sigmoid()", "x.abs()", "x.neg()", "x.sqrt()", "x.isnan()", "x.sign()", "x.tanh()",
    "x.erf()", "x.round()", "x.square()", "x.bool()", "x+1", "x+c", "c+x", "x*b", "b*x", "x*P.ones(5)",
    "x[:, ::2]-x[:, 1::2]", "c.permute(0,2,3,1)+c.permute(0,2,3,1)", "P.where(x>0, x, c)", "x>0", "x.clamp(0,1)",
    "P.addcmul(x,x,c)", "x**2", "P.maximum(c,x)", "x.masked_fill(x>0,1.)", "x.clone().add_(c)", "P.atan2(x,c)",
    "x[:, ::2].exp()", "x[:,:,:1]+x[:,:,:,:1]", "x+w1", "x[:,:,:1,:1]*2", "m.t()+m2", "m2+m.t()", "F.conv2d(x,w)",
    "F.conv2d(c,wcl)", "F.conv2d(x,wcl,None,2,1)", "F.conv2d(x,w,P.ones(3))", "F.conv2d(x,w11)",
    "F.conv_transpose2d(x,wT)", "F.conv2d(x,wd,groups=4)", "F.conv2d(c,w)", "F.max_pool2d(x,2)", "F.avg_pool2d(x,2)",
    "F.adaptive_avg_pool2d(x,2)", "F.adaptive_avg_pool2d(x,1)", "F.adaptive_max_pool2d(x,2)",
    "F.max_pool2d(x,2,return_indices=True)[1]", "F.lp_pool2d(x,2,2)", "F.batch_norm(x,P.zeros(4),P.ones(4))",
    "F.batch_norm(x,None,None,P.ones(4),P.zeros(4),True)", "F.group_norm(x,2)", "F.instance_norm(x)",
    "F.layer_norm(x,(5,))", "F.gelu(x)", "F.silu(x)", "F.hardswish(x)", "x.softmax(1)", "x.log_softmax(1)",
    "F.prelu(x,P.ones(4))", "F.leaky_relu(x)", "F.elu(x)", "F.softplus(x)", "F.hardtanh(x)", "F.mish(x)",
    "F.glu(x,1)", "F.interpolate(x,scale_factor=2)", "F.interpolate(x,scale_factor=2,mode='bilinear')",
    "F.interpolate(x,scale_factor=2,mode='bicubic')", "F.interpolate(x,size=(3,3),mode='area')", "F.pad(x,(1,1,1,1))",
    "F.pad(x,(1,1,1,1),mode='reflect')", "F.pad(x,(1,1,1,1),mode='replicate')", "F.pad(x,(1,1,1,1),mode='circular')",
    "P.cat([x,x],1)", "P.cat([x,c],1)", "P.cat([c,x],1)", "P.cat([x,x],0)", "P.stack([x,x])", "F.pixel_shuffle(x,2)",
    "F.pixel_unshuffle(x[:,:,:,:4],2)", "F.channel_shuffle(x,2)", "x.sum((2,3),keepdim=True)",
    "x.mean((2,3),keepdim=True)", "x.sum(1)", "x.sum(1,keepdim=True)", "x.amax(1)", "x.amax((2,3),keepdim=True)",
    "x.max(1)[0]", "x.var(1)", "x.mean(0)", "x.argmax(1)", "x.prod(1)", "x.norm(dim=1)", "(x>0).all(1)",
    "x.std((2,3),keepdim=True)", "x.logsumexp(1)", "x.cumsum(1)", "x.flip(2)", "x.roll(1,2)", "x.tril()",
    "x[P.tensor([0,1])]", "x.index_select(1,P.tensor([0,1]))", "x.gather(1,P.zeros(2,1,6,5,dtype=P.long))",
    "x.repeat(2,1,1,1)", "x.sort(1)[0]", "x.topk(2,1)[0]", "x.narrow(1,0,2)", "x[:1].squeeze(0)", "x.unsqueeze(0)",
    "x.flatten(1)", "x.reshape(2,-1)", "F.unfold(x,2)", "F.grid_sample(x,P.zeros(2,3,3,2),align_corners=False)",
    "x.mul(2).add(1)",
    "F.normalize(x)", "F.local_response_norm(x,2)", "F.mse_loss(x,c,reduction='none')",
    "F.binary_cross_entropy_with_logits(x,c.sigmoid(),reduction='none')", "F.smooth_l1_loss(x,c,reduction='none')",
    "P.empty(2,4,6,5).copy_(x)", "x.nan_to_num()", "y.relu()", "F.conv3d(y,w3)", "F.max_pool3d(y,2)",
    "F.avg_pool3d(y,2)", "F.adaptive_avg_pool3d(y,2)", "F.batch_norm(y,P.zeros(4),P.ones(4))",
    "F.interpolate(y,scale_factor=2)", "F.interpolate(y,scale_factor=2,mode='trilinear')",
    "F.conv2d(c[:,:1].contiguous(),w[:,:1])",
    "F.conv2d(P.ones(2,4,1,1).contiguous(memory_format=P.channels_last),w11)",
    "x*x.mean((2,3),keepdim=True).sigmoid()", "F.conv2d(x.mean((2,3),keepdim=True),w11)",
    "F.conv2d(F.adaptive_avg_pool2d(x,1),w11)", "P.complex(x,x)", "P.complex(x,x).abs()", "x@x.transpose(2,3)",
    "F.threshold(x,0.,0.)", "x.softmax(-1)", "x!=c", "(x>0)&(c>0)", "~(x>0)", "x//2", "x%2", "P.hypot(c,x)",
    "(x[:,:1].expand_as(x)+1)",
]  # fmt: skip

VALUES = np.random.default_rng(0).standard_normal((2, 4, 6, 5)).astype("f4")
VOLUMES = np.random.default_rng(1).standard_normal((2, 4, 3, 6, 5)).astype("f4")
CODE = {e: compile(e, e, "eval") for e in (*CONVERSIONS, *MADE, *OPERATIONS)}


def turned(P: Any, array: Any) -> Any:
    """A tensor whose channels are last in memory."""
    last = np.ascontiguousarray(np.moveaxis(array, 1, -1))
    return P.from_numpy(last).permute(0, array.ndim - 1, *range(1, array.ndim - 1))


def operands(P: Any) -> dict[str, Any]:
    """``x`` and ``y`` have channels last, ``c`` and ``d`` are row-major."""
    return {
        "x": turned(P, VALUES), "c": P.from_numpy(VALUES.copy()), "y": turned(P, VOLUMES),
        "d": P.from_numpy(VOLUMES.copy()), "b": P.ones(1, 4, 1, 1), "w": P.ones(3, 4, 3, 3), "w1": P.ones(4, 1, 1),
        "w11": P.ones(3, 4, 1, 1), "wd": P.ones(4, 1, 3, 3), "wT": P.ones(4, 3, 3, 3),
        "wcl": turned(P, np.ones((3, 4, 3, 3), "f4")), "m": P.ones(3, 4), "m2": P.ones(4, 3),
        "w3": P.ones(3, 4, 2, 2, 2),
    }  # fmt: skip


def value(expression: str, P: Any, given: dict[str, Any]) -> Any:
    return eval(CODE[expression], {"P": P, "F": P.nn.functional, **given})


@pytest.mark.parametrize("expression", [*CONVERSIONS, *OPERATIONS])
def test_strides_and_values_are_those_of_torch(expression: str) -> None:
    theirs, mine = (value(expression, P, operands(P)) for P in (torch, tracecomp))
    assert mine.stride() == theirs.stride()
    np.testing.assert_allclose(mine.numpy(force=True), theirs.numpy(force=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expression", MADE)
def test_new_tensors_have_the_strides_of_torch(expression: str) -> None:
    assert (
        value(expression, tracecomp, operands(tracecomp)).stride() == value(expression, torch, operands(torch)).stride()
    )


@pytest.mark.parametrize("expression", CONVERSIONS)
def test_conversions_keep_every_bit(expression: str) -> None:
    given = operands(tracecomp)
    found = value(expression, tracecomp, given)
    again = value(expression, tracecomp, {k: t.contiguous() for k, t in given.items()})
    assert found.numpy(force=True).tobytes() == again.numpy(force=True).tobytes()


def test_compiled_results_lie_as_eager_ones() -> None:
    names = [*CONVERSIONS, *OPERATIONS]
    arguments = f"P, F, {', '.join(operands(tracecomp))}"
    functions = [eval(f"lambda {arguments}: {e}") for e in names]  # a call of eval is not captured

    def run(given: dict[str, Any]) -> list[Any]:
        return [f(tracecomp, tracecomp.nn.functional, **given).detach() for f in functions]

    wanted = run(operands(tracecomp))
    compiled = tracecomp.compile(run, fullgraph=True)
    for _ in range(3):
        for name, mine, eager in zip(names, compiled(operands(tracecomp)), wanted, strict=True):
            assert mine.stride() == eager.stride(), name
            np.testing.assert_allclose(mine.numpy(), eager.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def network(P: Any, dtype: str) -> dict[str, Any]:
    """Strides met while a small network is trained."""
    P.manual_seed(0)
    kind = getattr(P, dtype)
    model = P.nn.Sequential(P.nn.Conv2d(4, 6, 3), P.nn.BatchNorm2d(6), P.nn.ReLU(), P.nn.MaxPool2d(2))
    model = model.to(memory_format=P.channels_last).to(kind)
    optimizer = P.optim.AdamW(model.parameters())
    found = {"weight": model[0].weight.stride()}
    for name, x in (("last", turned(P, VALUES)), ("row-major", P.from_numpy(VALUES.copy()))):
        x = x.to(kind).requires_grad_()
        optimizer.zero_grad()
        y = model(x)
        (y**2).sum().backward()
        optimizer.step()
        found |= {f"{name} y": y.stride(), f"{name} x": x.grad.stride(), f"{name} w": model[0].weight.grad.stride()}
    plain = P.nn.Conv2d(4, 6, 3).to(kind)
    plain(turned(P, VALUES).to(kind)).sum().backward()
    return found | {"state": optimizer.state[model[0].weight]["exp_avg"].stride(), "plain": plain.weight.grad.stride()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_and_gradients_lie_as_in_torch(dtype: str) -> None:
    assert network(tracecomp, dtype) == network(torch, dtype)


def test_a_compiled_step_of_a_channels_last_model_is_the_eager_one() -> None:
    def trained(compiled: bool) -> list[Any]:
        tracecomp.manual_seed(0)
        model = tracecomp.nn.Sequential(tracecomp.nn.Conv2d(4, 6, 3), tracecomp.nn.ReLU(), tracecomp.nn.Conv2d(6, 2, 2))
        model.to(memory_format=tracecomp.channels_last)
        optimizer = tracecomp.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            y = model(x)
            y.square().mean().backward()
            optimizer.step()
            return y

        run = tracecomp.compile(step) if compiled else step
        x = tracecomp.from_numpy(VALUES.copy()).contiguous(memory_format=tracecomp.channels_last)
        results = [run(x) for _ in range(4)]
        return [*results, *model.parameters(), *[p.grad for p in model.parameters()]]

    for mine, eager in zip(trained(True), trained(False), strict=True):
        assert mine.stride() == eager.stride()
        np.testing.assert_allclose(mine.numpy(force=True), eager.numpy(force=True), rtol=1e-4, atol=1e-6)


def test_indices_and_resizing() -> None:
    def run(P: Any) -> list[Any]:
        x, i = turned(P, VALUES), P.tensor([0, 1])
        resized = P.empty(2, 4, 6, 5).resize_(2, 4, 3, 5, memory_format=P.channels_last)
        out = P.add(x, x, out=P.empty(0))
        taken = x[:, i], x[:, :, i, i], x[i, :, i], x[None, i], x[:, P.tensor([[1, 0], [0, 1]])], x[i, i, i]
        return [t.stride() for t in (resized, out, *taken)]

    assert run(tracecomp) == run(torch)


def test_questions_about_formats() -> None:
    def run(P: Any) -> list[Any]:
        x, c = turned(P, VALUES), P.from_numpy(VALUES.copy())
        formats = P.contiguous_format, P.channels_last, P.channels_last_3d
        pixel, grey = x[:, :, :1, :1], c[:, :1]
        return [
            t.is_contiguous(memory_format=f) for t in (x, c, turned(P, VOLUMES), pixel, grey, x[0]) for f in formats
        ]

    assert run(tracecomp) == run(torch)


@pytest.mark.parametrize(
    "call",
    [
        "P.ones(3).contiguous(memory_format=P.channels_last)", "P.empty(2, 3, memory_format=P.channels_last_3d)",
        "P.ones(3, 2).t().contiguous(memory_format=P.preserve_format)",
        "P.ones(2, 2).clone(memory_format=P.channels_last)",
    ],
)  # fmt: skip
def test_refusals(call: str) -> None:
    messages = []
    for P in (torch, tracecomp):
        with pytest.raises(RuntimeError) as caught:
            eval(call, {"P": P})
        messages.append(str(caught.value).partition(" (at ")[0])
    assert messages[0] == messages[1]


def test_programs_from_files_ask_for_formats_too(tmp_path: Any) -> None:
    class Turned(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            last = x.contiguous(memory_format=torch.channels_last)
            return last, last.clone(memory_format=torch.contiguous_format), x.to(memory_format=torch.channels_last) * 2

    torch.jit.trace(Turned(), torch.ones(2, 4, 6, 5)).save(str(tmp_path / "turned.pt"))
    found = tracecomp.jit.load(str(tmp_path / "turned.pt"))(tracecomp.from_numpy(VALUES.copy()))
    assert [t.stride() for t in found] == [(120, 1, 20, 4), (120, 30, 5, 1), (120, 1, 20, 4)]


def test_tensors_without_memory_have_the_same_strides() -> None:
    x = turned(tracecomp, VALUES).to("meta")
    assert x.stride() == (120, 1, 20, 4) and (x * 2).stride() == x.stride()
    assert x.contiguous().contiguous(memory_format=tracecomp.channels_last).stride() == x.stride()
    weight = tracecomp.ones(3, 4, 3, 3, device="meta")
    assert tracecomp.nn.functional.conv2d(x, weight).stride() == (36, 1, 9, 3)
