"""The lines of random programs in a changing environment, and the module around them (``ambient.py``).

``x`` and ``y`` are tensors of one dtype and shape (rows, columns), or rows of those under ``vmap``. ``n`` is a number,
``s`` an object with attributes, and ``out`` is returned.
"""
# ruff: noqa: E501  a line of a program is one line

from __future__ import annotations

SETUP = """
from types import SimpleNamespace
F, func = torch.nn.functional, torch.func
LOG = []

class Scaled(torch.autograd.Function):
    generate_vmap_rule = True
    @staticmethod
    def forward(x, k=2.0):
        return x * k
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)
        ctx.k = inputs[1]
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * 5 + a * 0.5 + b * 0, None
    @staticmethod
    def jvp(ctx, t, _):
        return t * ctx.k

class Own(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x + 1
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = tuple(inputs[0].shape)
    @staticmethod
    def backward(ctx, g):
        return g * len(ctx.shape)
    @staticmethod
    def vmap(info, in_dims, x):
        LOG.append((info.batch_size, in_dims))
        return Own.apply(x) + info.batch_size, in_dims[0]

def inner(v):
    return (v * v).sum()

def two(v):
    return v * 2, v.sum()
"""

LINES = [
    # transforms inside
    "out.append(func.grad(lambda v: (v.sin() * y).sum())(x))",
    "out.append(func.vmap(lambda v: v * v.sum())(x))",
    "out.append(func.vmap(func.grad(inner))(x))",
    "out.append(func.grad(lambda v: func.vmap(lambda u: u.tanh().sum())(v).sum())(x))",
    "out.append(func.jvp(lambda v: v.sin() * 2, (x,), (y,))[1])",
    "out.append(func.jacrev(lambda v: (v * v).sum(-1))(x))",
    "out.append(func.jacfwd(lambda v: (v * y).sum(-1))(x))",
    "out.append(func.hessian(lambda v: (v ** 3).sum())(x[:1]))",
    "out += list(func.vmap(two, in_dims=-1, out_dims=(0, 0))(x))",
    "out.append(func.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, y.mT))",
    "z = x * 1\nfunc.vmap(lambda v: v.mul_(2))(z)\nout.append(z)",
    "func.vmap(lambda v: v.add_(1), in_dims=-1)(x)",
    "v, pull = func.vjp(lambda a: a * a, x)\nout += [v, pull(y)[0]]",
    "out.append(func.linearize(lambda v: v * v, x)[1](y))",
    "out.append(Scaled.apply(x))",
    "out.append(func.vmap(Scaled.apply)(x))",
    "out.append(func.vmap(lambda v: Scaled.apply(v, 3.0).sum())(x))",
    "out.append(func.grad(lambda v: func.vmap(Scaled.apply)(v).sum())(x))",
    "out.append(func.vmap(func.grad(lambda v: Scaled.apply(v).sum()))(x))",
    "out.append(func.vmap(Own.apply)(x))",
    "out.append(func.grad(lambda v: func.vmap(Own.apply)(v).sum())(x))",
    "out.append(func.vmap(lambda v: Own.apply(v.sum()) * v)(x))",
    "out.append(torch.cond(x.sum() > 1.5, lambda a: a * 2, lambda a: a - 1, (x,)))",
    "out.append(torch.cond(x.sum() > 0, lambda a: torch.cond(a.sum() > 2.5, lambda b: b * 2, lambda b: b, (a,)), lambda a: -a, (x,)))",
    "a = x.detach().requires_grad_()\nwith torch.enable_grad():\n    g, = torch.autograd.grad((a * a).sum(), a)\nout.append(g)",
    "a = x.detach().requires_grad_()\nwith torch.enable_grad():\n    (a * y).sum().backward()\nout.append(a.grad)",
    "with torch.autograd.forward_ad.dual_level():\n    d = torch.autograd.forward_ad.make_dual(x, y)\n    out.append(torch.autograd.forward_ad.unpack_dual(d.sin()).tangent)",
    # ambient state
    "out += [torch.ones(2), torch.get_default_dtype(), torch.is_grad_enabled()]",
    "out.append(x @ y.mT)",
    "out.append(F.linear(x, y) + torch.zeros(()))",
    "out.append(torch.tensor([1.5, n]))",
    "out.append(x / 2 + torch.arange(3.0).sum())",
    "out += [torch.rand(2), torch.randn(1)]",
    "out.append(torch.randint(0, 9, (n,)))",
    "out.append(F.dropout(x, 0.5, True))",
    "out.append(torch.rand_like(x))",
    "out.append(x * 2 if torch.is_grad_enabled() else x * 3)",
    "out.append(x * 2 if torch.is_autocast_enabled('cpu') else x * 3)",
    "out.append(x.sum() if torch.get_default_dtype() is torch.float32 else x.mean())",
    "out.append(x.sum() * torch.get_num_threads() * 0)",
    "out += [(x * 2).requires_grad, torch.is_inference_mode_enabled(), x.is_inference()]",
    "out.append(torch.full((2,), 1.5) + x.sum())",
    "out.append(torch.linspace(0, 1, 3))",
    "out.append(x.softmax(-1))",
    "out.append(F.layer_norm(x, x.shape[-1:]))",
    "out.append(x.float().exp().sum())",
    # settings inside
    "with torch.no_grad():\n    out.append(x * 2)",
    "with torch.enable_grad():\n    out.append(x * 2)",
    "before = torch.is_grad_enabled()\ntorch.set_grad_enabled(False)\nout.append(x * 3)\ntorch.set_grad_enabled(before)",
    "torch.set_grad_enabled(n != 2)\nout.append(x * 3)",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    out.append(x @ y.mT)",
    "with torch.autocast('cpu', enabled=False):\n    out.append(x @ y.mT)",
    "torch.manual_seed(n)\nout.append(torch.rand(2))",
    "before = torch.get_default_dtype()\ntorch.set_default_dtype(torch.float64)\nout.append(torch.ones(2))\ntorch.set_default_dtype(before)",
    "with torch.inference_mode():\n    out.append((x * 2).sum())",
    "with torch.device('cpu'):\n    out.append(torch.zeros(n))",
    "with torch.random.fork_rng():\n    torch.manual_seed(5)\n    a = torch.rand(2)\nout += [a, torch.rand(1)]",
    "state = torch.get_rng_state()\na = torch.rand(2)\ntorch.set_rng_state(state)\nout += [a, torch.rand(2)]",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):\n    out.append((x * y).sum())",
    # attributes of arguments
    "out.append(x * s.k)",
    "s.k += 0.5\nout.append(y * s.k)",
    "s.t = s.t + x\nout.append(s.t.sum())",
    "s.t.mul_(2)\nout.append(s.t * 1)",
    "s.items.append(x.sum())\nout.append(len(s.items))",
    "s.count += n\nout.append(x + s.count)",
    "s.new = x * 2",
    "del s.items",
    "out.append(getattr(s, 'extra', 7) + x)",
    "x.mark = n\nout.append(x * x.mark)",
    "out.append(x * getattr(x, 'mark', 3.0))",
    "y.mark = x.sum()\nout.append(y.mark * 2)",
    "setattr(s, 'k', float(n))\nout.append(y + s.k)",
    "out.append(sum(v for v in vars(s).values() if isinstance(v, float)))",
    "s.inner = SimpleNamespace(t=x)\nout.append(s.inner.t + 1)",
    # in-place changes of shape
    "z = x * 1\nz.unsqueeze_(0)\nout.append(z * 2)",
    "z = x * 1\nz.t_() if z.dim() == 2 else z.unsqueeze_(0)\nout.append(z + 1)",
    "z = x.clone()\nz.transpose_(0, -1)\nz.mul_(2)\nout += [z, z.shape[0]]",
    "z = x[:1] * 1\nz.squeeze_(0)\nout.append(z)",
    "z = x * 1\nw = z[0]\nz.unsqueeze_(-1)\nw.add_(1)\nout += [z, w]",
    "z = torch.zeros(2, dtype=x.dtype)\nz.resize_(3)\nz.fill_(n)\nout.append(z)",
    "z = x * 1\nz.swapaxes_(0, -1)\nz.squeeze_()\nout.append(z.sum(0))",
    "y.unsqueeze_(0)\nout.append(y * 2 + x)",
    "z = y * 1\nz.data = x * 2\nout.append(z + 1)",
    "z = x * 1\nz.resize_as_(y[:1])\nout.append(z)",
    "z = x.detach().clone()\nz.requires_grad_()\nout.append(z * 2)",
    # sizes in data
    "out.append(torch.tensor([x.shape[0], n]) + x.shape[-1])",
    "out.append(torch.full((x.shape[0],), x.shape[-1]))",
    "out.append(torch.from_numpy(np.array([x.shape[0], 2])))",
    "out.append(torch.arange(x.shape[0]) * x.shape[-1])",
    "out.append(x.sum() / x.shape[0])",
    "out.append(torch.zeros(x.shape[0], n) + len(x))",
    "out.append(x.reshape(-1)[: x.shape[0]] * x.numel())",
    "h = x.shape[0] // 2\nout += [x[:h], h]",
    "out.append(torch.eye(x.shape[-1]) * x.size(0))",
    "out.append(x.new_full((1, x.shape[-1]), x.shape[0]))",
    "out.append([x.shape[0] * i for i in range(n)])",
    "out.append(F.interpolate(x.reshape(1, 1, -1), size=x.shape[0] * 2, mode='linear'))",
    "out.append(F.pad(x, (0, x.shape[-1] % 3)))",
    "out.append({'rows': x.shape[0], 'mean': x.sum() / max(x.numel(), 1)})",
    "out.append(x.sum() if x.shape[0] > 2 else x.prod())",
    # operators of other dtypes
    "out.append(x + y)",
    "out.append(x * 2 - y)",
    "out.append((x > 1).sum())",
    "out.append(x.sum(0))",
    "out.append(torch.where(x == y, x, y * 2))",
    "out.append(x.to(torch.float32) / 3)",
    "out.append(x.to(torch.int64) % 3)",
    "out.append(x.to(torch.bfloat16).sum())",
    "out.append(x.to(torch.complex64) * 1j)",
    "out.append(x.to(torch.uint8) + 250)",
    "out.append(x.abs())",
    "out.append(-x)",
    "out.append(x & y)",
    "out.append(~x)",
    "out.append(x.cumsum(-1))",
    "out.append(x.sort(-1).values)",
    "out.append(x.max())",
    "out.append(torch.cat([x, y]).flip(0))",
    "out.append(x.masked_fill(x > 1, 2))",
    "x.add_(y)",
    "x[0] = y[0] * 2",
    "out.append(x.view(torch.uint8).sum())",
    "out.append(torch.complex(x, y).abs())",
    "out.append(x.mean())",
    "out.append(x.pow(2).sqrt())",
    "out.append(torch.view_as_real(x.to(torch.complex64)).sum(-1))",
    "out.append(x.conj() * y)",
    "out.append(x.any())",
    "out.append(x // 2)",
    "out.append(x << 1)",
    "out.append(x.clamp(0, 2))",
    "out.append(x.item() if x.numel() == 1 else x.tolist())",
    "try:\n    out.append(torch.linalg.inv(x))\nexcept RuntimeError:\n    LOG.append('singular')",
    "try:\n    x.mul_(1.5)\nexcept RuntimeError:\n    out.append(x * 2)",
]
