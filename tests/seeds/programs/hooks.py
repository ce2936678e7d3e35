"""Hooks on tensors and modules."""

import functools

import tracecomp as torch
from tests.seeds.harness import normal, program
from tracecomp import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.pool1 = nn.MaxPool2d(2, 2)

    def forward(self, x):
        return self.pool1(self.conv1(x))


def make():
    net = Net()
    net.conv1.weight[0].detach().fill_(1)
    net.conv1.weight[1].detach().fill_(2)
    net.conv1.bias.data.detach().zero_()
    return net


class SumNet(nn.Module):
    def forward(self, a, b, c):
        return a + b + c


@program("000:402-433")
def seeing_a_gradient(run):
    w, x = torch.tensor([1.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)
    a_grad = []

    def step(w, x):
        a, b = torch.add(w, x), torch.add(w, 1)
        y = torch.mul(a, b)
        seen = []
        handle = a.register_hook(seen.append)
        grads = torch.autograd.grad(y, [w, x])
        handle.remove()
        return seen, grads

    a, b = torch.add(w, x), torch.add(w, 1)
    y = torch.mul(a, b)
    handle = a.register_hook(a_grad.append)
    y.backward()
    handle.remove()
    assert w.grad.item() == 5 and x.grad.item() == 2 and a_grad[0].item() == 2
    return run(step, w, x)


@program("000:437-461")
def changing_a_gradient(run):
    def step():
        w, x = torch.tensor([1.0], requires_grad=True), torch.tensor([2.0], requires_grad=True)
        y = torch.mul(torch.add(w, x), torch.add(w, 1))

        def grad_hook(grad):
            grad *= 2
            return grad * 3

        handle = w.register_hook(grad_hook)
        y.backward()
        handle.remove()
        return w.grad

    result = run(step)
    assert result.item() == 30
    return result


@program("004:40-63")
def order_of_hooks(run):
    def step():
        a, b, d = (torch.tensor(v, requires_grad=True) for v in (2.0, 3.0, 4.0))
        c = a * b
        c.retain_grad()
        e = c * d
        order = []
        c.register_hook(lambda g: (order.append("first"), g + 2)[1])
        c.register_hook(lambda g: order.append("second"))
        d.register_hook(lambda g: g + 100)
        removed = c.register_hook(lambda g: g * 1000)
        removed.remove()
        e.backward()
        assert order == ["first", "second"]
        return a.grad, b.grad, c.grad, d.grad

    return run(step)


@program("000:471-525")
def forward_hook(run):
    net = make()
    fmap_block, input_block = [], []

    def hook(module, data_input, data_output):
        fmap_block.append(data_output)
        input_block.append(data_input)

    handle = net.conv1.register_forward_hook(hook)
    fake_img = torch.ones((1, 1, 4, 4))
    output = net(fake_img)
    assert output.shape == (1, 2, 1, 1) and output.flatten().tolist() == [9, 18]
    assert fmap_block[0].shape == (1, 2, 2, 2) and torch.equal(input_block[0][0], fake_img)
    handle.remove()
    net.conv1.register_forward_hook(lambda m, i, o: o * 2)
    return run(lambda x: net(x).detach(), fake_img)


@program("000:527-538, 004:64-70")
def forward_pre_hook(run):
    net = SumNet()
    seen = []

    def pre_hook(module, inputs):
        a, b, c = inputs
        seen.append(a.item())
        return a + 10, b, c

    handle = net.register_forward_pre_hook(pre_hook)
    a, b, c = torch.tensor(1.0), torch.tensor(2.0), torch.tensor(3.0)
    assert net(a, b, c).item() == 16 and seen == [1.0]
    handle.remove()
    net.register_forward_pre_hook(lambda m, inputs: (inputs[0] * 5, *inputs[1:]))
    return run(net, a, b, c)


@program("000:556-619, 004:70-79")
def backward_hooks(run):
    net = make()
    seen, order = [], []
    net.conv1.register_forward_pre_hook(lambda m, i: order.append("pre"))
    net.conv1.register_forward_hook(lambda m, i, o: order.append("forward"))

    def backward_hook(module, grad_input, grad_output):
        order.append("backward")
        seen.append((grad_input, grad_output))

    net.conv1.register_full_backward_hook(backward_hook)
    fake_img = torch.ones((1, 1, 4, 4), requires_grad=True)
    loss = nn.L1Loss()(torch.full((1, 2, 1, 1), 50.0), net(fake_img))
    loss.backward()
    assert order == ["pre", "forward", "backward"]
    (grad_input, grad_output) = seen[0]

    net = make()
    net.conv1.register_full_backward_hook(lambda m, grad_input, grad_output: (grad_input[0] * 3,))

    def gradient(x):
        return torch.autograd.grad(nn.L1Loss()(torch.full((1, 2, 1, 1), 50.0), net(x)), x)

    return grad_input, grad_output, run(gradient, fake_img)


@program("000:632-669", compiles=False)
def calling_a_module_by_hand(run):
    calls = []

    class Traced(nn.Linear):
        def __call__(self, *input, **kwargs):
            for hook in self._forward_pre_hooks.values():
                result = hook(self, input)
                if result is not None:
                    input = result if isinstance(result, tuple) else (result,)
            result = self.forward(*input, **kwargs)
            for hook in self._forward_hooks.values():
                hook_result = hook(self, input, result)
                if hook_result is not None:
                    result = hook_result
            if len(self._backward_hooks) > 0:
                for hook in self._backward_hooks.values():
                    wrapper = functools.partial(hook, self)
                    functools.update_wrapper(wrapper, hook)
                    result.grad_fn.register_hook(wrapper)
            return result

    layer = Traced(3, 2)
    layer.register_forward_pre_hook(lambda m, i: calls.append("pre"))
    layer.register_forward_hook(lambda m, i, o: calls.append("forward"))
    layer.register_backward_hook(lambda m, gi, go: calls.append("backward"))
    layer(torch.from_numpy(normal(4, 3))).sum().backward()
    return calls
