"""Backward passes, grad, Function, in-place rules, Variables."""

import tracecomp as torch
import tracecomp.nn.functional as F
from tests.seeds.harness import normal, program
from tracecomp.autograd import Variable
from tracecomp.autograd.function import Function, once_differentiable


def leaves():
    return torch.tensor([1.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)


def graph(w, x):
    a = torch.add(w, x)
    b = torch.add(w, 1)
    return a, b, torch.mul(a, b)


def message(fn):
    try:
        fn()
    except RuntimeError as error:
        return str(error).split(". ")[0].split(" Saved")[0].splitlines()[0]
    raise AssertionError("an error was expected")


@program("003:441-473")
def leaves_and_gradients(run):
    w, x = leaves()
    a, b, y = graph(w, x)
    a.retain_grad()
    y.backward()
    assert [t.is_leaf for t in (w, x, a, b, y)] == [True, True, False, False, False]
    assert w.grad_fn is None and x.grad_fn is None and a.grad.item() == 2
    names = [t.grad_fn.name() if t.grad_fn else None for t in (a, b, y)]

    def compiled(w, x):
        return torch.autograd.grad(graph(w, x)[2], [w, x])

    return w.grad, x.grad, names, run(compiled, w, x)


@program("002:978-1006, 002:4671-4694")
def walking_the_graph(run):
    x = torch.ones(2, 2, requires_grad=True)
    y = x + 2
    z = y * y * 3
    out = z.mean()
    texts = [str(x), str(y), str(z)]
    out.backward()
    c, d = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    e = c * d
    functions = [f.name() for f, _ in e.grad_fn.next_functions]
    assert functions == ["torch::autograd::AccumulateGrad"] * 2 or functions == ["AccumulateGrad"] * 2
    return texts, x.grad, e.grad_fn.name(), run(lambda x: torch.autograd.grad((3 * (x + 2) ** 2).mean(), x), x)


@program("003:518-556")
def second_pass(run):
    w, x = leaves()
    y = graph(w, x)[2]
    y.backward(retain_graph=True)
    first = w.grad.clone()
    y.backward()

    def twice(w, x):
        y = graph(w, x)[2]
        y.backward(retain_graph=True)
        y.backward()
        result = w.grad.clone()
        w.grad = None
        x.grad = None
        return result

    w2, x2 = leaves()
    return first, w.grad, message(y.backward), run(twice, w2, x2)


@program("003:558-581, 002:1447-1469, 002:1511-1513")
def vector_jacobian_products(run):
    w, x = leaves()
    a, b, y0 = graph(w, x)
    loss = torch.cat([y0, torch.add(a, b)], dim=0)
    loss.backward(gradient=torch.tensor([1.0, 2.0]))
    assert w.grad.item() == 9

    def of_q(a, b):
        Q = 3 * a**3 - b**2
        return torch.autograd.grad(Q, [a, b], grad_outputs=torch.tensor([1.0, 1.0]))

    a, b = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([6.0, 4.0], requires_grad=True)
    (3 * a**3 - b**2).backward(gradient=torch.tensor([1.0, 1.0]))
    assert bool((9 * a**2 == a.grad).all()) and bool((-2 * b == b.grad).all())
    inp = torch.eye(5, requires_grad=True)
    (inp + 1).pow(2).backward(torch.ones_like(inp), retain_graph=True)
    return w.grad, run(of_q, a, b), inp.grad


@program("003:508-581, 002:992-1005")
def backward_of_chosen_inputs(run):
    w, x = leaves()
    torch.autograd.backward([graph(w, x)[2]], inputs=[w])
    assert x.grad is None

    def loss(x, y, w, b):
        z = torch.matmul(x, w) + b
        return torch.autograd.grad(F.binary_cross_entropy_with_logits(z, y), [w, b])

    weight = torch.from_numpy(normal(5, 3)).requires_grad_()
    bias = torch.from_numpy(normal(3, seed=1)).requires_grad_()
    return w.grad, run(loss, torch.ones(5), torch.zeros(3), weight, bias)


@program("003:596-609, 003:582-592")
def higher_derivatives(run):
    x = torch.tensor([3.0], requires_grad=True)

    def derivatives(x):
        (first,) = torch.autograd.grad(torch.pow(x, 2), x, create_graph=True)
        (second,) = torch.autograd.grad(first, x)
        return first.detach(), second

    y = torch.tensor([1.0], requires_grad=True)
    unused = torch.autograd.grad(x * 2, [x, y], allow_unused=True)
    grad_1 = torch.autograd.grad(torch.pow(x, 2), x, create_graph=True)
    assert str(grad_1).startswith("(tensor([6.], grad_fn=<")
    return run(derivatives, x), unused[1]


@program("002:1434-1440, 004:29-34")
def jacobians(run):
    x = torch.from_numpy(normal(3))

    def f(x):
        return torch.stack([x.prod(), (x**2).sum(), x[0] * x[1]])

    jacobian = run(lambda x: torch.autograd.functional.jacobian(f, x), x)
    hessian = run(lambda x: torch.autograd.functional.hessian(lambda x: x.prod(), x), x)
    _, product = torch.autograd.functional.jvp(f, x, torch.ones(3))
    assert torch.allclose(jacobian @ torch.ones(3), product, atol=1e-5)
    _, product = torch.autograd.functional.vjp(f, x, torch.ones(3))
    return jacobian, hessian, product


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class GradCoeff(Function):
    @staticmethod
    def forward(ctx, x, coeff):
        ctx.coeff = coeff
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return ctx.coeff * grad_output, None


class LegendrePolynomial3(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 0.5 * (5 * x**3 - 3 * x)

    @staticmethod
    def backward(ctx, grad_output):
        (ret,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * ret**2 - 1)


class MyConv2D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, weight):
        ctx.save_for_backward(X, weight)
        return F.conv2d(X, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        X, weight = ctx.saved_tensors
        grad_weight = F.conv2d(X.transpose(0, 1), grad_out.transpose(0, 1)).transpose(0, 1)
        return F.conv_transpose2d(grad_out, weight), grad_weight


@program("003:625-747")
def own_functions(run):
    x = torch.tensor([1.0], requires_grad=True)
    y = Exp.apply(x)
    assert "ExpBackward" in str(y)
    y.backward()
    z = torch.tensor([2.0], requires_grad=True)
    ret = GradCoeff.apply(z, -0.1) ** 2
    ret.backward()

    def compiled(x, z, p):
        y = Exp.apply(x) + GradCoeff.apply(z, -0.1) ** 2 + 1 + 2 * LegendrePolynomial3.apply(1 + 2 * p)
        return torch.autograd.grad(y.sum(), [x, z, p])

    p = torch.tensor([1.0], requires_grad=True)
    polynomial = 1 + 2 * LegendrePolynomial3.apply(1 + 2 * 1)
    assert polynomial == 127.0
    return x.grad, z.grad, ret.detach(), run(compiled, x, z, p)


@program("003:748-799")
def own_convolution(run):
    weight = torch.from_numpy(normal(2, 3, 3, 3)).double().requires_grad_()
    X = torch.from_numpy(normal(2, 3, 5, 5, seed=1)).double().requires_grad_()
    assert torch.autograd.gradcheck(MyConv2D.apply, (X, weight))
    label = torch.from_numpy(normal(2, 2, 3, 3, seed=2)).double()

    def gradients(X, weight, label):
        return torch.autograd.grad(F.mse_loss(MyConv2D.apply(X, weight), label), [X, weight])

    return run(gradients, X, weight, label)


@program("003:808-827, 003:830-845, 002:1575")
def gradients_accumulate(run):
    w, x = leaves()
    flags = [t.requires_grad for t in graph(w, x)]

    def step():
        graph(w, x)[2].backward()

    once = run.compile(step)
    seen = []
    for _ in range(4):
        once()
        seen.append(w.grad.clone())
    w.grad.zero_()
    once()
    seen.append(w.grad.clone())
    return seen, flags


@program("003:846-887, 002:628-633", compiles=False)
def in_place_rules(run):
    a = torch.ones((1,))
    before = id(a)
    a += torch.ones((1,))
    assert id(a) == before and id(a + 1) != before
    version = a._version
    a.add_(1)
    a.mul_(2)
    assert a._version == version + 2
    w, x = leaves()
    y = graph(w, x)[2]
    messages = [message(lambda: w.add_(1))]
    a, _b, y = graph(w, x)
    a.add_(1)
    messages.append(message(y.backward)[:90])
    return messages


@program("003:888-910, 002:1489-1506, 002:2880-2904")
def detach_and_no_grad(run):
    w, x = leaves()
    graph(w, x)[2].backward()
    w_detach = w.detach()
    w_detach.data[0] = 999

    def under(x):
        with torch.no_grad():
            y = x * 2
        z = (x * y).detach()
        return y, z, x.clone()

    @torch.no_grad()
    def without(x):
        return x * 2

    with torch.inference_mode():
        q = w * 2
    with torch.no_grad(), torch.enable_grad():
        r = w * 2
    flags = [t.requires_grad for t in (w.clone(), w.detach(), without(w), q, r)]
    return w, str(w), flags, run(under, x.detach())


@program("002:1517-1577, 003:50-59")
def variables(run):
    x = Variable(torch.ones(2, 2), requires_grad=False)
    temp = Variable(torch.zeros(2, 2), requires_grad=True)
    y = (x + temp + 2).mean()
    y.backward()
    assert x.grad is None and isinstance(x, Variable) and type(x) is torch.Tensor
    v = Variable(torch.ones(2, 2), requires_grad=True)
    v.sum().backward()
    first = v.grad.clone()
    v.grad.data.zero_()
    return temp.grad, first, v.grad, torch.cos(v.data), run(lambda v: torch.cos(v), v.detach())


@program("003:476-495, 002:1031-1033, 002:4617")
def control_flow(run):
    def step(x, n):
        for _ in range(n):
            x = x * 2 if bool(x.sum() > 0) else x - 1
        return x

    stepped = run.compile(step)
    inputs = [torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 0.5]), torch.tensor([3.0, -1.0])]
    return [stepped(x, n) for n in (1, 3) for x in (*inputs, *inputs)]
