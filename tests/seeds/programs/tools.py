"""Examples of the documents about inspecting programs, plotting, and compiling."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tests.seeds.harness import normal, program, settle
from tracecomp import nn


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


@program("002:4460-4465", compiles=False)
def profiling(run):
    x = tensor(8, 8)
    with torch.autograd.profiler.profile(enabled=True) as profile:
        (x @ x).relu().sum()
    text = str(profile)
    return "CPU total" in text, "Self CPU time total" in text


@program("002:4467", compiles=False, torch=False)
def bottleneck(run):
    Path("main.py").write_text("import tracecomp as torch\nprint((torch.ones(3, 3) @ torch.ones(3, 3)).sum())\n")
    sys.modules.pop("tracecomp.utils.bottleneck", None)  # other tests of this process import every module
    module = runpy.run_module("tracecomp.utils.bottleneck", run_name="bottleneck")
    assert module["main"](["main.py"]) == 0 and module["main"]([]) == 2


@program("002:3266-3292, 002:3336", compiles=False)
def plotting(run):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    x = torch.linspace(0, 1, 100)
    y = torch.sin(2 * np.pi * x)
    plt.figure()
    (line,) = plt.plot(x, y, label="True function", color="g")
    plt.scatter(x, y + 0.05, edgecolor="b", s=20, label="Noisy samples")
    plt.legend()
    plt.tight_layout()
    found = line.get_ydata()
    plt.close("all")
    return np.asarray(found)


@program("002:2510-2525", compiles=False)
def pictures(run):
    image_module = pytest.importorskip("PIL.Image")
    tensor = torch.from_numpy(np.random.default_rng(0).random((3, 6, 5)).astype(np.float32))
    image = image_module.fromarray(torch.clamp(tensor * 255, min=0, max=255).byte().permute(1, 2, 0).cpu().numpy())
    image.save("figure.png")
    back = torch.from_numpy(np.array(image_module.open("figure.png"))).permute(2, 0, 1).float() / 255
    assert float((back - tensor).abs().max()) <= 1 / 255
    return back


@program("004:35-37, 003:476-495, 003:410-426", torch=False)
def a_fused_graph_that_can_be_looked_at(run):
    def chain(x, w):
        return ((x @ w).relu() * 2 + 1).sum(1)

    x, w = tensor(8, 4), tensor(4, 4, seed=1)
    compiled = run.compile(chain)
    dynamic, static = chain(x, w), [compiled(x, w) for _ in range(3)][-1]
    assert torch.allclose(dynamic, static, atol=1e-5)
    graph = torch.trace(chain, x, w)
    assert [n.op.name for n in graph.nodes if n.op.kind == "contraction"] == ["contract"]
    assert "contract" in str(graph) and len(graph.inputs) == 2 and len(graph.outputs) == 1
    return static


@program("002:4631, 002:4708")
def derivatives_inside_compiled_code(run):
    net = settle(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))

    def penalty(x):
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad((g**2).sum(), x)
        return g.detach(), h

    return run(penalty, tensor(5, 4))


@program("002:628-633, 002:2622-2629")
def mutation_inside_compiled_code(run):
    buffer, view_of = torch.zeros(4), torch.zeros(3, 4)

    @run.compile
    def step(x):
        buffer.add_(x)
        view_of[1] = buffer
        row = view_of[2]
        row += 1
        x.mul_(2)
        return buffer.sum() + view_of.sum()

    x = torch.ones(4)
    results = [step(x) for _ in range(4)]
    return results, buffer, view_of, x


@program("003:535-536, 002:4774-4778, 000:671", compiles=False)
def errors_name_shapes_and_limits(run):
    found = []
    for call in (
        lambda: tensor(3) + tensor(4), lambda: torch.mm(tensor(2, 3), tensor(2, 3)), lambda: tensor(2, 3).sum(5),
        lambda: tensor(2, 3).view(4), lambda: nn.Linear(3, 2)(tensor(2, 4)),
        lambda: nn.Conv2d(3, 2, 3)(tensor(1, 1, 5, 5)),
        lambda: torch.cat([tensor(2, 3), tensor(3, 4)]), lambda: tensor(2)[5],
    ):  # fmt: skip
        try:
            call()
        except Exception as error:
            found.append(type(error).__name__)
            assert any(c.isdigit() for c in str(error))
    return found
