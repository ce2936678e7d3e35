"""Functions that draw random numbers, called often: machine code takes over, and nothing but time changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracecomp as torch
from tests.compiled.frequent_calls import CALLS, bits, data, needs_native_calls
from tracecomp.compiled import hot_calls
from tracecomp.eager_kernels import background
from tracecomp.nn import functional as F
from tracecomp.runtime.call import take_calls

Tensor = torch.Tensor
pytestmark = pytest.mark.usefixtures("served_at_once")


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


P = torch.linspace(0.05, 0.95, 12)
ROWS = P.reshape(3, 4)
X = data(3, 4)
SIGNED = torch.linspace(-1, 1, 12)
DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(16), "randn": lambda: torch.randn(3, 5), "rand one": lambda: torch.rand(1),
    "randint": lambda: torch.randint(0, 8, (2,)), "randint wide": lambda: torch.randint(-5, 1 << 40, (3,)),
    "randperm": lambda: torch.randperm(16), "rand_like": lambda: torch.rand_like(X),
    "rand_like float64": lambda: torch.rand_like(X, dtype=torch.float64), "randn_like": lambda: torch.randn_like(X),
    "randint_like": lambda: torch.randint_like(X, 3, 9), "normal": lambda: torch.normal(0.0, 2.0, (5,)),
    "normal of tensors": lambda: torch.normal(X.reshape(12), P), "bernoulli": lambda: torch.bernoulli(ROWS),
    "multinomial": lambda: torch.multinomial(ROWS, 2), "multinomial of one": lambda: torch.multinomial(P, 1),
    "multinomial again": lambda: torch.multinomial(ROWS, 3, True), "normal_": lambda: _zeros(7).normal_(),
    "normal_ by name": lambda: _zeros(7).normal_(mean=0.0, std=0.5), "uniform_": lambda: _zeros(2, 3).uniform_(-1, 2),
    "exponential_": lambda: _zeros(9).exponential_(2.0), "bernoulli_": lambda: _zeros(9).bernoulli_(0.3),
    "random_": lambda: _zeros(9, dtype=torch.int64).random_(3, 11), "geometric_": lambda: _zeros(9).geometric_(0.3),
    "dropout": lambda: F.dropout(X), "dropout of channels": lambda: F.dropout2d(X.reshape(1, 3, 2, 2)),
    "alpha_dropout": lambda: F.alpha_dropout(X, 0.3, True), "gumbel_softmax": lambda: F.gumbel_softmax(X),
    "rrelu": lambda: F.rrelu(X, training=True),
}  # fmt: skip
OWN = torch.Generator()
NAMED: dict[str, Callable[..., Any]] = {
    "rand": lambda **g: torch.rand(16, **g), "rand float64": lambda **g: torch.rand(4, dtype=torch.float64, **g),
    "randint": lambda **g: torch.randint(0, 8, (2,), **g), "randint size": lambda **g: torch.randint(8, size=(3,), **g),
    "randint int32": lambda **g: torch.randint(0, 8, (2,), dtype=torch.int32, **g),
    "randperm": lambda **g: torch.randperm(9, **g), "bernoulli": lambda **g: torch.bernoulli(ROWS, **g),
    "multinomial": lambda **g: torch.multinomial(ROWS, 2, **g), "normal_": lambda **g: _zeros(7).normal_(std=0.5, **g),
    "rand_like": lambda **g: torch.rand_like(X, **g), "uniform_": lambda **g: _zeros(7).uniform_(0, 3, **g),
    "rand size": lambda **g: torch.rand(**{"size": (2, 3), **g}),
    "device": lambda **g: torch.rand(3, device="cpu", **g),
    "requires_grad": lambda **g: torch.rand(3, requires_grad=True, **g),
}  # fmt: skip


def _stream(call: Callable[[], Any], count: int) -> list[Any]:
    """Results of ``count`` calls from one seed, the state after each, and how often it was written."""
    torch.manual_seed(7)
    version, found = torch.default_generator.state._version, []
    for _ in range(count):
        value = bits(call())
        found.append((value, bits(torch.get_rng_state()), torch.default_generator.state._version - version))
    return found


def _unserved(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], count: int) -> list[Any]:
    """The stream of a call that nothing serves: a recorded one is part of no machine code for eager calls."""
    with monkeypatch.context() as patch:
        patch.setattr("tracecomp.functional.warm.Warm._look", lambda self, args: None)
        return _stream(call, count)


def _served_calls() -> int:
    return sum(take_calls(record[0]) for known in hot_calls._records.values() for record in known.first)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", DRAWS)
def test_the_stream_its_bits_and_its_state_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = DRAWS[name]
    cold = _unserved(monkeypatch, call, 2 * CALLS)
    assert _stream(call, 2 * CALLS) == cold  # while the second thread tries machine code on copies of the state
    background.finish()
    assert _stream(call, 2 * CALLS) == cold


@needs_native_calls
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", DRAWS)
def test_machine_code_serves_the_whole_call(name: str) -> None:
    call = DRAWS[name]
    for _ in range(2):
        _stream(call, CALLS)
        background.finish()
    _served_calls()
    _stream(call, 5)
    assert _served_calls() == 5


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMED)
def test_a_generator_draws_the_numbers_that_the_default_one_would(name: str) -> None:
    torch.manual_seed(4)
    wanted = [bits(NAMED[name]()) for _ in range(3 * CALLS)]
    state, ended = torch.get_rng_state(), torch.default_generator.get_state()
    OWN.manual_seed(4)
    found = []
    for n in range(3 * CALLS):
        found.append(bits(NAMED[name](generator=OWN)))
        if n % CALLS == 0:
            background.finish()
    assert found == wanted
    assert torch.equal(OWN.get_state(), ended) and torch.equal(torch.get_rng_state(), state)


@needs_native_calls
def test_calls_with_keywords_are_served() -> None:
    for _ in range(2):
        for _ in range(CALLS):
            torch.bernoulli(ROWS, generator=OWN)
            torch.rand(5, dtype=torch.float64)
        background.finish()
    _served_calls()
    torch.bernoulli(ROWS, generator=OWN)
    torch.rand(5, dtype=torch.float64)
    assert _served_calls() == 2


def test_keywords_are_checked_and_overridden_as_before() -> None:
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return sorted(kwargs or {})

    sub = data(3, 4).as_subclass(Sub)
    for _ in range(CALLS):
        torch.bernoulli(ROWS, generator=OWN)
        torch.rand_like(X, generator=OWN, dtype=torch.float64)
    background.finish()
    assert torch.bernoulli(sub, generator=OWN) == ["generator"]
    assert torch.rand_like(sub, generator=OWN, dtype=torch.float64) == ["dtype", "generator"]
    with pytest.raises(TypeError, match="generator"):
        torch.bernoulli(ROWS, generator=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dtype"):
        torch.rand_like(X, generator=OWN, dtype=3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="p_in >= 0"):
        torch.bernoulli(ROWS + 1, generator=OWN)
    before = torch.get_rng_state()
    torch.rand(16)
    assert not torch.equal(torch.get_rng_state(), before)  # after an error, too


def _training_step() -> list[Tensor]:
    x = X.clone().requires_grad_()
    y = F.dropout(x, 0.4)
    (first,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    return [y, *torch.autograd.grad((first * first).sum() + y.sum(), x)]


def test_dropout_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = _unserved(monkeypatch, _training_step, CALLS)
    for _ in range(2):
        assert _stream(_training_step, CALLS) == cold
        background.finish()
    assert _stream(_training_step, CALLS) == cold


@needs_native_calls
def test_dropout_with_gradients_is_one_node() -> None:
    x = data(5, 3).requires_grad_()
    for _ in range(2):
        _stream(lambda: F.dropout(x, 0.25), CALLS)
        background.finish()
    assert type(F.dropout(x, 0.25).grad_fn).__module__ == "tracecomp.compiled.tracked_calls"


def _heat(name: str) -> None:
    for _ in range(2):
        _stream(DRAWS[name], CALLS)
        background.finish()


def test_another_generator_leaves_the_default_one() -> None:
    for name in ("rand", "bernoulli", "normal_"):
        _heat(name)
    generator = torch.Generator().manual_seed(7)
    before = torch.get_rng_state()
    found = [
        torch.rand(16, generator=generator), torch.bernoulli(ROWS, generator=generator),
        _zeros(7).normal_(generator=generator),
    ]  # fmt: skip
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(7)
    wanted = [DRAWS[name]() for name in ("rand", "bernoulli", "normal_")]
    assert bits(found) == bits(wanted)
    assert torch.equal(generator.get_state(), torch.get_rng_state())


def test_forks_and_restored_states() -> None:
    _heat("rand")
    torch.manual_seed(3)
    wanted = [torch.rand(16) for _ in range(3)]
    torch.manual_seed(3)
    with torch.random.fork_rng():
        torch.rand(16)
    state = torch.get_rng_state()
    assert torch.equal(torch.rand(16), wanted[0])
    torch.set_rng_state(state)
    assert bits([torch.rand(16) for _ in range(3)]) == bits(wanted)


@pytest.mark.parametrize("name", ["randn", "dropout", "multinomial", "uniform_"])
def test_recorded_calls_draw_the_same_numbers(name: str) -> None:
    _heat(name)
    compiled = torch.compile(DRAWS[name])
    assert _stream(compiled, 6) == _stream(DRAWS[name], 6)


def test_modes_decide() -> None:
    _heat("rand")
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.rand(16).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        assert torch.rand(16).is_inference()
    assert not torch.rand(16).is_inference()


def test_errors_stay_and_draw_nothing() -> None:
    for name in ("bernoulli", "multinomial", "normal of tensors", "normal_", "dropout"):
        _heat(name)
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="p_in >= 0"):
        torch.bernoulli(ROWS + 1)
    with pytest.raises(RuntimeError, match="contains either `inf`, `nan`"):
        torch.multinomial(ROWS - 1, 2)
    with pytest.raises(RuntimeError, match="invalid multinomial distribution"):
        torch.multinomial(ROWS * 0, 2)
    with pytest.raises(RuntimeError, match="std >= 0"):
        torch.normal(P, SIGNED)
    with pytest.raises(ValueError, match="dropout probability"):
        F.dropout(X, 1.5)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        torch.zeros(7, requires_grad=True).normal_()
    with torch.inference_mode():
        inferred = _zeros(7)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        inferred.normal_()


def test_a_view_is_filled_where_it_is() -> None:
    _heat("normal_")
    torch.manual_seed(1)
    wanted = _zeros(7).normal_()
    torch.manual_seed(1)
    whole = _zeros(3, 7)
    whole[1].normal_()
    assert torch.equal(whole[1], wanted) and not whole[0].any() and not whole[2].any()


def test_a_replaced_state_is_the_one_that_advances() -> None:
    _heat("rand")
    generator, own = torch.default_generator, torch.default_generator.state
    torch.manual_seed(5)
    wanted, before = torch.rand(16), torch.get_rng_state()
    generator.state = torch.tensor([5, 0])
    try:
        assert torch.equal(torch.rand(16), wanted)
        assert torch.equal(generator.state, before)
    finally:
        generator.state = own
    assert torch.equal(torch.get_rng_state(), before)
