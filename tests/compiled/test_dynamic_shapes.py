"""``compile(fn, dynamic=True)``: one recording for every first size of the arguments, and what each size must give."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import by_numpy, numpy_reference
from tracecomp import nn
from tracecomp.nn import functional as F

Program = Callable[..., Any]
SIZES = (9, 6, 7, 17, 13, 40, 6, 31)
FEW = (9, 6, 17, 40, 6)
"""For programs whose every size takes a second to compile."""


def classifier(*layers: Any) -> Callable[[], Program]:
    def make() -> Program:
        model = nn.Sequential(*(layer() for layer in layers))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            out = model(x)
            loss = F.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            return loss, out, (out.argmax(1) == y).float().mean()

        return step

    return make


def gpt() -> Program:
    embed, place, head = nn.Embedding(30, 32), nn.Embedding(16, 32), nn.Linear(32, 30)
    block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    parameters = [p for m in (embed, place, block, head) for p in m.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step(x: Any, y: Any) -> Any:
        batch, length = x.shape
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        out = head(block(embed(x) + place(torch.arange(length)), src_mask=mask))
        loss = F.cross_entropy(out.view(batch * length, -1), y.view(batch * length))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    return step


def rows(width: int) -> Callable[[int, np.random.Generator], list[Any]]:
    return lambda n, g: [g.standard_normal((n, width)).astype(np.float32)]


def labelled(*shape: int) -> Callable[[int, np.random.Generator], list[Any]]:
    return lambda n, g: [g.standard_normal((n, *shape)).astype(np.float32), g.integers(0, 5, n)]


def tokens(n: int, g: np.random.Generator) -> list[Any]:
    return [g.integers(0, 30, (n, 11)), g.integers(0, 30, (n, 11))]


def statistics(x: Any) -> Any:
    n = x.shape[0]
    values, places = x.max(0)
    return (
        x.sum() / n, x.var(0), x.std(), values, places, x.cumsum(0), x.mean(), x[1:] - x[:-1], x.softmax(0), x.norm(),
        torch.arange(n), n * 2, x.logsumexp(0), x.amin(), x.argmin(0), x.flatten().mean(), (x > 0).any(0),
        (x > -9).all(), x.prod(0), x.numel(), x.sum() / x.numel(), x.nanmean(0), x.t() @ x / (n - 1),
    )  # fmt: skip


WEIGHTS = np.random.default_rng(3).standard_normal((7, 4)).astype(np.float32)


def indexing(x: Any, y: Any) -> Any:
    n = x.size(0)
    table = torch.tensor(WEIGHTS)
    added = torch.zeros(5, 3).index_add(0, y, x)
    return (
        x[torch.arange(n), y % 3], table[y], x.gather(1, (y % 3)[:, None]), x[y], F.nll_loss(x, y % 3),
        added, torch.cat([x, x], 1), torch.stack([x, x], 1), x.sort(1)[0], x.topk(2, 1)[0], x.flip(1), F.pad(x, (1, 2)),
        x.repeat(1, 2), x.reshape(n, 3, 1).expand(n, 3, 4) + 1, x.index_select(0, y),
    )  # fmt: skip


DYNAMIC: dict[str, tuple[Callable[[], Program], Any, int]] = {
    "mlp": (classifier(lambda: nn.Linear(20, 33), nn.ReLU, lambda: nn.Linear(33, 5)), labelled(20), 2),
    "batch norm": (
        classifier(lambda: nn.Linear(20, 33), lambda: nn.BatchNorm1d(33), nn.ReLU, lambda: nn.Linear(33, 5)),
        labelled(20), 2,
    ),
    "dropout": (
        classifier(lambda: nn.Linear(20, 32), lambda: nn.Dropout(0.5), lambda: nn.Linear(32, 5)), labelled(20), 2,
    ),
    "cnn": (
        classifier(
            lambda: nn.Conv2d(1, 8, 3, padding=1), lambda: nn.BatchNorm2d(8), nn.ReLU, lambda: nn.MaxPool2d(2),
            lambda: nn.Conv2d(8, 16, 3, stride=2), nn.ReLU, lambda: nn.AdaptiveAvgPool2d(1), nn.Flatten,
            lambda: nn.Linear(16, 5),
        ),
        labelled(1, 12, 12), 2,
    ),
    "gpt": (gpt, tokens, 2),
    "statistics": (lambda: statistics, rows(3), 2),
    "indexing": (lambda: indexing, labelled(3), 2),
}  # fmt: skip


def run_both(make: Callable[[], Program], data: Any, sizes: tuple[int, ...]) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the compiled function, its results and eager results, for calls of ``sizes``."""
    generator = np.random.default_rng(0)
    calls = [[torch.tensor(a) for a in data(n, generator)] for n in sizes]
    torch.manual_seed(0)
    eager = make()
    state = torch.get_rng_state()
    expected = [by_numpy(eager)(*call) for call in calls]
    torch.manual_seed(0)
    compiled = torch.compile(make(), dynamic=True)
    torch.set_rng_state(state)
    return compiled, [(e, compiled(*call)) for e, call in zip(expected, calls, strict=True)]


def compare(pairs: list[tuple[Any, Any]]) -> None:
    for expected, found in pairs:
        several = isinstance(expected, tuple)
        for e, f in zip(expected if several else [expected], found if several else [found], strict=True):
            if isinstance(e, torch.Tensor):
                assert (f.shape, f.dtype) == (e.shape, e.dtype)
                np.testing.assert_allclose(f.detach().numpy(), e.detach().numpy(), rtol=2e-5, atol=2e-5)
            else:
                assert type(f) is type(e) and f == e


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", DYNAMIC)
def test_one_recording_serves_every_size(name: str) -> None:
    make, data, recordings = DYNAMIC[name]
    compiled, pairs = run_both(make, data, FEW)
    compare(pairs)
    assert compiled.recordings == recordings, compiled.misses
    assert "any size" in compiled.explain().text(everything=True)


BY_SIZE: dict[str, Program] = {
    "branch": lambda x: x * 2 if x.shape[0] > 10 else x + 1,
    "branch on a part": lambda x: x * 2 if x.shape[0] // 2 > 5 else x + 1,
    "branch on numel": lambda x: x * 2 if x.numel() > 30 else x + 1,
    "branch on len": lambda x: x * 2 if len(x) > 10 else x + 1,
    "branch on a float": lambda x: x * 2 if x.shape[0] * 0.5 > 5 else x + 1,
    "even": lambda x: x * 2 if x.shape[0] % 2 == 0 else x + 1,
    "head": lambda x: x[:10] * 2,
    "tail": lambda x: x[-3:] * 2,
    "last": lambda x: x[-1] * 2,
    "steps": lambda x: x[::2] * 2,
    "half": lambda x: x[: x.shape[0] // 2] * 2,
    "chunks": lambda x: x.chunk(2)[1] * 2,
    "split": lambda x: x.split(4)[-1] * 2,
    "loop": lambda x: sum(x[i] for i in range(x.shape[0])),
    "pairs": lambda x: torch.cdist(x, x),
    "reversed": lambda x: x.flip(0) * 2,
    "joined": lambda x: torch.cat([x, x]) * 2,
    "sorted": lambda x: x.sort(0)[0],
    "median": lambda x: x.median(0)[0],
    "unfold": lambda x: x.unfold(0, 4, 3) * 2,
    "square": lambda x: x * (x.shape[0] * x.shape[0]),
    "root": lambda x: x / x.shape[0] ** 0.5,
    "scaled": lambda x: x * (0.5 * x.shape[0]),
    "min": lambda x: x * min(x.shape[0], 12),
    "linspace": lambda x: torch.linspace(0, 1, x.shape[0]),
    "padded": lambda x: F.pad(x, (0, 0, 2, 1)),
    "rolled": lambda x: x.roll(1, 0),
    "pooled": lambda x: F.avg_pool1d(x.t()[None], 3),
    "interpolated": lambda x: F.interpolate(x.t()[None], scale_factor=2.0),
    "cumulated": lambda x: x.flip(0).cumsum(0).flip(0),
    "outer": lambda x: torch.outer(x[:, 0], x[:, 1]).sum(),
    "transposed": lambda x: (x.t().contiguous().reshape(-1) * 2)[:5],
    "diagonal": lambda x: torch.eye(x.shape[0])[:3].sum(),
    "list": lambda x: torch.tensor([1.0] * x.shape[0]),
    "any": lambda x: torch.ones(3) if bool((x > 2).any()) else torch.zeros(3),
    "only the size": lambda x: torch.ones(x.shape[0], 3) * 2,
    "mask": lambda x: x[x[:, 0] > 0].sum(0),
}


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", BY_SIZE)
def test_what_depends_on_the_size_is_right_at_every_size(name: str) -> None:
    # How many rows a mask takes is new at every call: after three recordings the line is a graph break, which is said.
    said: Any = pytest.warns(UserWarning, match="graph break in") if name == "mask" else nullcontext()
    with said:
        _, pairs = run_both(lambda: BY_SIZE[name], rows(3), (*SIZES, 8, 16, 5, 4, 12, 64))
    compare(pairs)


def test_gradients_taken_outside() -> None:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(11, 33), nn.BatchNorm1d(33), nn.Tanh(), nn.Linear(33, 5))
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, dynamic=True)
    generator = np.random.default_rng(0)
    for n in FEW:
        x, y = (torch.tensor(a) for a in labelled(11)(n, generator))
        gradients = []
        for m, reference in ((eager, numpy_reference()), (compiled, nullcontext())):
            given = x.clone().requires_grad_()
            with reference:
                m.zero_grad()
                F.cross_entropy(m(given), y).backward()
            gradients.append([given.grad, *(p.grad.clone() for p in m.parameters())])
        compare(list(zip(*gradients, strict=True)))
    compare([(a, b) for a, b in zip(eager.buffers(), model.buffers(), strict=True)])
    assert compiled.recordings == 2, compiled.explain()
    for m in (eager, compiled):  # a size without a recording, and the gradients differentiated in turn
        loss = m(torch.ones(12, 11, requires_grad=True)).sin().sum()
        found = torch.autograd.grad(loss, list(m.parameters()), create_graph=True)
        gradients.append([g.detach() for g in torch.autograd.grad(sum(g.sum() for g in found), list(m.parameters()))])
    compare(list(zip(*gradients[-2:], strict=True)))


def test_arguments_must_keep_the_size_they_share() -> None:
    compiled = torch.compile(lambda x, y: x.sum() + y.sum() * x.shape[0], dynamic=True)
    for n in (5, 7, 9):
        compiled(torch.ones(n, 2), torch.ones(n))
    assert compiled.recordings == 2
    assert float(compiled(torch.ones(4, 2), torch.ones(6))) == 32
    assert compiled.recordings == 3


@pytest.mark.parametrize("fn", [lambda x: x - x.sum(0) / x.shape[0], lambda x: F.linear(x, torch.ones(8, 8))])
def test_a_size_may_be_that_of_another_axis(fn: Program) -> None:
    compiled = torch.compile(fn)
    for n in (5, 9, 8, 7, 8):
        x = torch.arange(8.0 * n).reshape(n, 8)
        np.testing.assert_array_equal(compiled(x).numpy(), fn(x).numpy())
    assert compiled.recordings == 2, compiled.misses


def test_an_index_beyond_the_size_of_the_call_is_an_error() -> None:
    compiled = torch.compile(lambda x, i: x[i], dynamic=True)
    for n in (5, 6, 7):
        compiled(torch.ones(n, 2), torch.tensor([0, n - 1, 1]))
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 5"):
        compiled(torch.ones(5, 2), torch.tensor([0, 5, 1]))


def test_not_a_number_in_padding_stays_there() -> None:
    compiled = torch.compile(lambda x: (x.sum(0), x.t() @ x, x.max(0)[0]), dynamic=True)
    for n in (5, 6):
        compiled(torch.ones(n, 2))
    x = torch.ones(7, 2)
    x[-1] = float("inf")
    total, product, most = compiled(x)
    assert torch.isinf(total).all() and torch.isinf(product).all() and torch.isinf(most).all()
    assert compiled(torch.ones(9, 2))[0].tolist() == [9, 9]


def test_an_explanation_says_why_a_size_was_compiled_by_itself() -> None:
    compiled = torch.compile(lambda x: x.sort(0)[0] * 2, dynamic=True)
    for n in (5, 6, 7):
        compiled(torch.ones(n, 2))
    why = "static sizes: elements are mixed along an axis whose size varies: sort of"
    assert why in compiled.explain().text(everything=True)
