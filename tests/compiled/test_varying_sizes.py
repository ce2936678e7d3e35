"""Sizes that differ from call to call: found by the second call, along any axis, with the bits of each very size."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.references import by_numpy
from tracecomp import nn
from tracecomp.base.errors import CaptureError
from tracecomp.nn import functional as F

Program = Callable[..., Any]
WIDTH = 8
WEIGHT = torch.tensor(np.random.default_rng(3).standard_normal((WIDTH, WIDTH)).astype(np.float32))


def shifted(x: Any) -> Any:
    y = x.clone()
    y[:, 1:] = x[:, :-1] * 2
    return y


STEPS: dict[str, Program] = {
    "softmax along the length": lambda x: x.softmax(1),
    "sum along the length": lambda x: x + x.sum(1, keepdim=True),
    "sum along the batch": lambda x: x + x.sum(0, keepdim=True),
    "mean of all": lambda x: x - x.mean(),
    "variance of both": lambda x: x / (1 + x.var((0, 1))),
    "sum of the last two": lambda x: x + x.sum((1, 2), keepdim=True),
    "product": lambda x: x @ WEIGHT,
    "attention": lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x,
    "across": lambda x: (x.transpose(0, 1) @ x.permute(1, 2, 0)).relu().sum(-1).t()[:, :, None] + x,
    "flat product": lambda x: (x.reshape(-1, WIDTH) @ WEIGHT).reshape(x.shape),
    "flat": lambda x: (x.flatten() * 2).reshape(x.shape),
    "reversed": lambda x: x.flip(1) + x,
    "joined": lambda x: torch.cat([x, x[:, :2]], 1)[:, 2:],
    "joined batch": lambda x: torch.cat([x, x], 0)[: x.shape[0]],
    "last": lambda x: x + x[:, -1:],
    "running": lambda x: x.cumsum(1),
    "largest": lambda x: x - x.amax(1, keepdim=True),
    "padded": lambda x: F.pad(x, (0, 0, 1, 1))[:, 1:-1],
    "rolled": lambda x: x.roll(1, 1),
    "triangle": lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])) @ x,
    "places": lambda x: x + torch.arange(x.shape[1])[None, :, None],
    "halves": lambda x: torch.cat([x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1),
    "layer norm": lambda x: F.layer_norm(x, (WIDTH,)),
    "gathered": lambda x: x.gather(1, x.argmax(1, keepdim=True)).expand(x.shape) + x,
    "shifted": shifted,
    "windows": lambda x: x.unfold(1, 2, 1).sum(-1).sum(1, keepdim=True) + x,
    "turned and flat": lambda x: x.permute(1, 0, 2).reshape(x.shape[1], -1).sum(1)[None, :, None] + x,
    "deviation": lambda x: x * x.std(),
}  # fmt: skip


def program(names: Sequence[str], derivative: bool) -> Program:
    def forward(x: Any) -> tuple[Any, ...]:
        for name in names:
            x = STEPS[name](x)
        return x, x.sum(1), x.mean()

    def with_derivative(x: Any) -> tuple[Any, ...]:
        x = x.detach().requires_grad_()
        found = forward(x)
        (gradient,) = torch.autograd.grad((found[0] ** 2).sum() + found[2], x)
        return (*(t.detach() for t in found), gradient)

    return with_derivative if derivative else forward


def check(fn: Program, shapes: Sequence[tuple[int, int]], seed: int) -> Any:
    """Calls at ``shapes``: near eager results, laid out as they are, and the bits of a compilation for each shape."""
    compiled, exact = torch.compile(fn), torch.compile(fn, dynamic=False)
    generator = np.random.default_rng(seed)
    for batch, length in shapes:
        x = torch.tensor(generator.standard_normal((batch, length, WIDTH)).astype(np.float32))
        eager, found = by_numpy(fn)(x), compiled(x)
        exact(x)
        found, wanted = compiled(x), exact(x)
        for e, f, w in zip(eager, found, wanted, strict=True):
            assert (f.shape, f.stride(), f.dtype) == (e.shape, e.stride(), e.dtype)
            scale = float(np.abs(e.numpy()).max()) + 1
            np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=1e-3, atol=1e-3 * scale)
            np.testing.assert_array_equal(f.numpy(), w.numpy())
    return compiled


@pytest.mark.sampled(50)
@pytest.mark.parametrize("name", STEPS)
def test_any_axis_varies_and_no_bit_differs_from_the_exact_size(name: str) -> None:
    compiled = check(program([name], False), [(4, 5), (6, 9), (5, 11), (3, 20)], 0)
    assert compiled.recordings <= 3, compiled.misses


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["joined batch", "halves", "last", "padded", "triangle"])
def test_derivatives_of_parts_that_depend_on_a_size_are_those_of_the_exact_size(name: str) -> None:
    compiled = check(program([name], True), [(4, 5), (6, 9), (5, 11), (3, 20)], 0)
    assert compiled.recordings <= 3, compiled.misses


def random_program(seed: int) -> None:
    """A random program at random sizes of one or two axes; ``python -m tests.fuzz.varying_sizes`` runs many."""
    chooser = random.Random(seed)
    names = [chooser.choice(list(STEPS)) for _ in range(chooser.randint(1, 4))]
    pool = chooser.choice([[2, 3, 4, 5, 6, 7, 8, 9, 12], [5, 9, 15, 17, 20, 23, 31, 33], [60, 63, 64, 65, 70, 90, 100]])
    which, first = chooser.choice(["batch", "length", "both"]), (chooser.choice(pool), chooser.choice(pool))
    shapes = []
    for _ in range(5):
        batch, length = chooser.choice(pool), chooser.choice(pool)
        shapes.append((first[0] if which == "length" else batch, first[1] if which == "batch" else length))
    check(program(names, chooser.random() < 0.4), shapes, seed)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(5))
def test_random_programs_at_random_sizes(seed: int) -> None:
    random_program(seed)


NUMBERS: dict[str, Program] = {
    "made": lambda x, n: torch.zeros(n, WIDTH) + x[:n],
    "counted": lambda x, n: torch.arange(n) * 2,
    "from the end": lambda x, n: x[-n:] * n,
    "narrowed": lambda x, n: x.narrow(0, 1, n - 1).softmax(0),
    "padded": lambda x, n: F.pad(x, (0, n)),
    "half": lambda x, n: x[: n // 2 + 1] / n,
    "written": lambda x, n: x.clone().index_fill_(0, torch.arange(n), 2.0),
    "two": lambda x, n: torch.eye(n) @ x[:n],
    "a derivative": lambda x, n: torch.autograd.grad((w := x.detach().requires_grad_())[:n].pow(2).sum(), w)[0],
    "with the argument's own size": lambda x, n: x[:n].reshape(n, WIDTH) * x.shape[0],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NUMBERS)
def test_integers_among_the_arguments_are_sizes(name: str) -> None:
    fn, x = NUMBERS[name], torch.tensor(np.random.default_rng(1).standard_normal((12, WIDTH)).astype(np.float32))
    compiled = torch.compile(fn, backend="interpret")
    for n in (3, 5, 4, 7, 6, 9, 8, 3):
        given = x[:n] if "own" in name else x
        np.testing.assert_allclose(compiled(given, n).numpy(), fn(given, n).numpy(), rtol=1e-5)
    assert compiled.recordings <= 3, compiled.misses


PLAIN: dict[str, Callable[[Any], Any]] = {
    "a method": lambda n: n.bit_length(),
    "pickle": lambda n: pickle.dumps(n),
    "a copy": lambda n: copy.deepcopy(n) > 4,
    "an unbound method": lambda n: int.bit_length(n) + int.__add__(n, 1),
    "deque": lambda n: len(collections.deque([1, 2, 3, 4, 5, 6], n)),
    "permutations": lambda n: len(list(itertools.permutations("abc", n))),
    "range": lambda n: list(range(n)),
    "text": lambda n: f"{n:03d} {n}",
    "key": lambda n: {3: "a", 4: "b"}.get(n, "c"),
    "kind": lambda n: (type(n) is int, isinstance(n, int), n.__class__),
    "kinds": lambda n: (list(map(type, [n, n + 1])), functools.partial(type, n)()),
    "results": lambda n: (n, n + 1, [n], {"a": n}, divmod(n, 3), float(n), -n),
    "branch": lambda n: "small" if n < 5 else "large",
}
"""Operations of programs on an integer, other than using it as a size."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("of", ["an argument", "a shape"])
def test_what_is_asked_of_a_size_is_that_of_each_call(name: str, of: str) -> None:
    ask = PLAIN[name]

    def program(x: Any, n: int) -> Any:
        return x[:n] * 2, ask(n if of == "an argument" else x.shape[0])

    compiled = torch.compile(program, backend="interpret")
    for n in (3, 5, 4, 7, 6, 9, 2, 3):
        x = torch.arange(float(12 if of == "an argument" else n))
        (want, asked), (got, found) = program(x, n), compiled(x, n)
        assert got.tolist() == want.tolist()
        assert repr(found) == repr(asked)


def test_paths_for_sizes_on_both_sides_of_a_bound_stay() -> None:
    compiled = torch.compile(lambda x: x * 2 if x.shape[0] > 10 else x.sum(0), backend="interpret")
    for n in (4, 5, 20, 21, 6, 22, 7, 23, 8):
        compiled(torch.ones(n, 3))
    assert compiled.recordings == 4, compiled.misses


class Attention(nn.Module):
    """A decoder's attention; its past keys are an argument, or an attribute."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.embed, self.inner, self.head = nn.Embedding(31, 16), nn.Linear(16, 48), nn.Linear(16, 31)
        self.place = nn.Embedding(400, 16)
        self.keeps = keeps
        self.past: Any = None

    def forward(self, ids: Any, past: Any = None) -> Any:
        past = self.past if self.keeps else past
        start = 0 if past is None else past[0].shape[2]
        x = self.embed(ids) + self.place(torch.arange(start, start + ids.shape[1]))
        q, k, v = (t.reshape(1, -1, 2, 8).transpose(1, 2) for t in self.inner(x).chunk(3, 2))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if self.keeps:
            self.past = (k, v)
        found = ((q @ k.transpose(2, 3)) / 8**0.5).softmax(3) @ v
        return self.head(found.transpose(1, 2).reshape(1, -1, 16)[:, -1]), (k, v)


def decoded(model: Any, count: int) -> list[int]:
    ids, past, found = torch.tensor([[1, 5, 2]]), None, []
    for _ in range(count):
        logits, past = model(ids) if model.keeps else model(ids, past)
        ids = logits.argmax(1, keepdim=True)
        found.append(int(ids.item()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [False, True], ids=["an argument", "an attribute"])
def test_decoding_with_a_cache_that_grows_takes_few_recordings(keeps: bool) -> None:
    torch.manual_seed(0)
    model = Attention(keeps)
    with torch.no_grad():
        expected = by_numpy(decoded)(model, 150)
        model.past = None
        compiled = torch.compile(model)
        assert decoded(compiled, 150) == expected
    assert compiled.recordings <= (4 if keeps else 3), compiled.misses


LONG_SUMS: dict[str, Program] = {
    "a matrix of one row": lambda k, p: (p @ k)[:, 0],
    "a matrix of one column": lambda k, p: k.transpose(1, 2) @ p.transpose(1, 2),
    "columns": lambda k, p: (k * p.transpose(1, 2)).sum(1),
    "a vector on the left": lambda k, p: p[0, 0] @ k[0],
    "a vector without labels": lambda k, p: torch.einsum("bnk,bn->bk", k, p[0]),
    "a matrix that lies the other way": lambda k, p: k[0].t() @ p[0, 0],
    "a reshaped permutation": lambda k, p: k.permute(2, 0, 1).reshape(80, -1) @ p[0, 0],
    "rows that lie as columns": lambda k, p: k.transpose(1, 2).sum(2),
    "products of rows that lie as columns": lambda k, p: (k.transpose(1, 2) * p).sum(2),
    "a copy": lambda k, p: k[0].t().contiguous() @ p[0, 0],
}  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", LONG_SUMS)
def test_sums_of_a_long_cache_have_the_stages_of_its_length(name: str) -> None:
    f = LONG_SUMS[name]
    compiled, exact = torch.compile(f), torch.compile(f, dynamic=False)
    generator = np.random.default_rng(0)
    for n in (1030, 1100, 1200, 1500):
        k, p = (torch.tensor(generator.standard_normal(s).astype(np.float32)) for s in ((1, n, 80), (1, 1, n)))
        compiled(k, p), exact(k, p)
        np.testing.assert_array_equal(compiled(k, p).numpy(), exact(k, p).numpy())
    assert compiled.recordings == 2, compiled.misses


def test_repeated_operands_of_a_product_are_multiplied_as_they_are() -> None:
    x, y = torch.randn(1, 30, 40), torch.randn(1, 40, 20)
    found = torch.compile(lambda x, y: x.expand(3, -1, -1) @ y.expand(3, -1, -1))(x, y)
    want = np.repeat(x.numpy().astype(np.float64) @ y.numpy().astype(np.float64), 3, 0)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_lengths_of_batches_in_training_give_the_losses_of_eager_mode() -> None:
    def losses(compiled: bool) -> tuple[list[float], Any]:
        torch.manual_seed(0)
        embed, cell, head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        parameters = [*embed.parameters(), *cell.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1)

        def step(ids: Any) -> Any:
            optimizer.zero_grad()
            x = head(torch.tanh(cell(embed(ids)).cumsum(1)))
            loss = F.cross_entropy(x[:, :-1].reshape(-1, 20), ids[:, 1:].reshape(-1))
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = torch.compile(step) if compiled else step
        generator = np.random.default_rng(0)
        shapes = [(int(b), int(t)) for b, t in zip(generator.integers(2, 9, 12), generator.integers(3, 30, 12))]  # noqa: B905
        return [run(torch.tensor(generator.integers(0, 20, s))).item() for s in shapes], run

    found, run = losses(True)
    assert found == pytest.approx(by_numpy(losses)(False)[0], rel=1e-4)
    assert run.recordings <= 4, run.misses


LEAKS: dict[str, Program] = {
    "a range": lambda x: sum((x[i] for i in range(x.shape[0] // 4)), x.sum(0)),
    "a range in steps": lambda x: sum((x[i] for i in range(0, x.shape[0], 4)), x.sum(0)),
    "a table": lambda x: x * {8: 2.0, 12: 3.0}.get(x.shape[0], 1.0),
    "a list": lambda x: x * [1.0, 2.0, 3.0, 4.0, 5.0][x.shape[0] // 4],
    "a set": lambda x: x * 2 if x.shape[0] in {4, 8, 13} else x,
    "a text": lambda x: x * len(str(x.shape[0])),
    "a repeated list": lambda x: x * sum([1.0] * (x.shape[0] // 3)),
    "len": lambda x: x * len(x),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_python_reads_of_a_size_behind_the_recording_is_right_at_every_size(name: str) -> None:
    fn = LEAKS[name]
    compiled = torch.compile(fn)
    for n in (9, 10, 11, 8, 12, 13, 4, 5, 16, 17):
        x = torch.arange(3.0 * n).reshape(n, 3)
        assert compiled(x).tolist() == fn(x).tolist(), n


def test_nothing_is_followed_where_sizes_do_not_differ_or_are_told_not_to() -> None:
    one, other = torch.compile(lambda x: x * 2), torch.compile(lambda x: x * 2, dynamic=False)
    for n in (3, 4, 5, 6):
        one(torch.ones(2, 3))
        other(torch.ones(n, 3))
    assert one.recordings == 1
    assert one.entries[0].recording.sizes is None
    assert other.recordings == 4


def test_marked_sizes_are_followed_from_the_first_recording_on() -> None:
    compiled = torch.compile(lambda x: x * 2)
    for n in (5, 7, 6, 12):
        x = torch.ones(n, 3)
        torch._dynamo.mark_dynamic(x, 0, min=4, max=10)
        if n > 10:
            with pytest.raises(ValueError, match="size 12 of dimension 0 is not between 4 and 10"):
                compiled(x)
        else:
            assert compiled(x).shape == (n, 3)
    assert compiled.recordings == 2
    assert compiled(torch.ones(3, 3)).shape == (3, 3)
    assert compiled.recordings == 3


def test_a_program_that_needs_a_marked_size_is_an_error() -> None:
    compiled = torch.compile(lambda x: x * float(x.shape[0]))
    x = torch.ones(5, 3)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    assert compiled(x)[0, 0] == 5
    y = torch.ones(6, 3)
    torch._dynamo.mark_dynamic(y, 0)
    with pytest.raises(CaptureError, match="dimension 0 of argument 0 was marked as dynamic, but the program needs"):
        compiled(y)


def test_a_size_marked_static_is_recorded_by_itself() -> None:
    compiled = torch.compile(lambda x: x * 2, dynamic=True)
    for n in (4, 5, 6, 7):
        x = torch.ones(n, 3)
        torch._dynamo.mark_static(x, 0)
        compiled(x)
    assert compiled.recordings == 4


RESULTS: dict[str, Program] = {
    "its shape": lambda x: x.shape,
    "shapes in containers": lambda x: ([x.shape], {"size": x.size()}, (x.shape[0], x * 2)),
    "numbers made of sizes": lambda x: (x.numel(), x.shape[0] // 2, x.shape[1] * 3 + 1),
    "strides": lambda x: (x.stride(), x.t().stride(0)),
    "part of a shape": lambda x: (x.shape[1:], x.shape[:1] + x.shape, x.sum(0).shape),
    "sizes and tensors": lambda x: (x.sum(0), x.shape, x[1:].shape[0]),
}


@pytest.mark.parametrize("name", RESULTS)
def test_sizes_are_results_as_plain_numbers(name: str) -> None:
    fn, follows = RESULTS[name], torch.compile(RESULTS[name])

    def said(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.tolist()
        if isinstance(value, list | tuple | dict):
            return type(value), [said(v) for v in (value.items() if isinstance(value, dict) else value)]
        return type(value), value

    for rows, columns in ((3, 4), (5, 4), (6, 9), (7, 2), (1, 3), (8, 8)):
        x = torch.ones(rows, columns)
        assert said(follows(x)) == said(fn(x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_ranks_differ_from_call_to_call(dynamic: bool | None) -> None:
    """A size of this call can equal one on an axis that an earlier call did not have."""
    draw = random.Random(17)
    call = torch.compile(lambda a, b: (a * 2).sum() + b.sum(), dynamic=dynamic)
    for _ in range(12):
        shapes = [[draw.randint(2, 4) for _ in range(draw.randint(1, 3))] for _ in range(2)]
        a, b = (torch.arange(float(np.prod(shape))).reshape(shape) for shape in shapes)
        assert call(a, b).item() == (a * 2).sum().item() + b.sum().item(), shapes
