"""Values derived from weights and kept between calls (packed panels, transformed windows) follow every change of the
weights."""

from __future__ import annotations

import copy
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.collecting import collect
from tests.references import by_numpy
from tracecomp import nn
from tracecomp.base import config
from tracecomp.compiled.function import Compiled
from tracecomp.compiled.replay import Plan

Change = Callable[[nn.Module], Any]


def layers() -> nn.Module:
    """Linear layers whose weights are packed for batches."""
    tc.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 40)).requires_grad_(False)


def images() -> nn.Module:
    """A convolution whose windows are transformed, and one whose are packed."""
    tc.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 8, 3, stride=2))
    return conv.requires_grad_(False)


INPUT = {layers: lambda: tc.randn(24, 48), images: lambda: tc.randn(2, 32, 12, 12)}


def warm(net: Callable[..., Any], *args: Any, **kwargs: Any) -> Compiled:
    """``net`` compiled and called until calls repeat."""
    compiled: Compiled = tc.compile(net)
    for _ in range(5):
        compiled(*args, **kwargs)
    return compiled


def weight(net: Any) -> tc.Tensor:
    found: tc.Tensor = net[0].weight
    return found


def close(a: tc.Tensor, b: tc.Tensor) -> bool:
    return bool(tc.allclose(a, b, rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize("make", INPUT)
@pytest.mark.parametrize("named", [False, True])
def test_the_preparation_is_used_again(make: Callable[[], nn.Module], named: bool) -> None:
    """A change behind the library's back, which no program can make, is not seen."""
    net, x = make(), INPUT[make]()
    how: dict[str, Any] = {"args": (), "kwargs": {"input": x}} if named else {"args": (x,), "kwargs": {}}
    compiled = warm(net, *how["args"], **how["kwargs"])
    before = compiled(*how["args"], **how["kwargs"])
    weight(net)._data[:] *= 3
    assert close(compiled(*how["args"], **how["kwargs"]), before)
    with tc.no_grad():
        weight(net).mul_(1)
    assert close(compiled(*how["args"], **how["kwargs"]), by_numpy(net)(x)) and not close(net(x), before)


def _numpy(net: nn.Module) -> None:
    weight(net).numpy()[:] *= -2


def _storage(net: nn.Module) -> None:
    weight(net).storage()[3] = 5.0


def _trained(net: nn.Module) -> None:
    net.requires_grad_(True)
    step = tc.compile(_step)
    opt = tc.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(4):
        step(net, opt, tc.randn(8, 48) if weight(net).ndim == 2 else tc.randn(1, 32, 9, 9))
    net.requires_grad_(False)


def _step(net: nn.Module, opt: Any, x: tc.Tensor) -> tc.Tensor:
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()
    return loss


class Doubled(tc.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: tc.Tensor) -> tc.Tensor:
        x.numpy()[:] *= 2
        ctx.mark_dirty(x)
        return x


def _vector(net: nn.Module) -> None:
    vector = nn.utils.parameters_to_vector(net.parameters()) * 2
    nn.utils.vector_to_parameters(vector, net.parameters())


def _through_a_compiled_function(net: nn.Module) -> None:
    halve = tc.compile(lambda t: t.mul_(0.5))
    for _ in range(4):
        halve(weight(net))


CHANGES: dict[str, Change] = {
    "in place": lambda net: weight(net).mul_(2),
    "element": lambda net: weight(net)[0].fill_(1.5),
    "index": lambda net: weight(net).__setitem__((0, slice(None, 2)), 7.0),
    "data": lambda net: weight(net).data.mul_(2),
    "view of data": lambda net: weight(net).data.view(-1)[3:9].zero_(),
    "data of data": lambda net: weight(net).data.data.add_(1),
    "new data": lambda net: setattr(weight(net), "data", tc.randn(weight(net).shape)),
    "set_": lambda net: weight(net).set_(tc.randn(weight(net).shape)),
    "detach": lambda net: weight(net).detach().add_(1),
    "copy_": lambda net: weight(net).copy_(tc.randn(weight(net).shape)),
    "out": lambda net: tc.mul(weight(net), 3, out=weight(net)),
    "view as ints": lambda net: weight(net).view(tc.int32).bitwise_xor_(1 << 22),
    "numpy": _numpy,
    "numpy of a view": lambda net: weight(net)[0].numpy().fill(3.0),
    "numpy of data": lambda net: weight(net).data.numpy().fill(0.25),
    "array": lambda net: np.multiply(np.asarray(weight(net)), 2, out=np.asarray(weight(net))),
    "dlpack": lambda net: np.from_dlpack(weight(net)).fill(0.5),
    "buffer": lambda net: memoryview(weight(net).numpy()).cast("B").cast("f").__setitem__(0, 99.0),  # type: ignore[arg-type]
    "storage": _storage,
    "init": lambda net: nn.init.xavier_uniform_(weight(net)),
    "load_state_dict": lambda net: net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}),
    "assign": lambda net: net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()}, assign=True),
    "state_dict": lambda net: net.state_dict()["0.weight"].mul_(2),
    "new parameter": lambda net: setattr(net.get_submodule("0"), "weight", nn.Parameter(weight(net) * 2)),
    "apply": lambda net: net.double().float().apply(lambda m: m.weight.mul_(2) if hasattr(m, "weight") else None),
    "vector": _vector,
    "training": _trained,
    "compiled function": _through_a_compiled_function,
    "function": lambda net: Doubled.apply(weight(net)),
    "resize": lambda net: weight(net).resize_(weight(net).shape).fill_(0.1),
}


@pytest.mark.sampled(15)
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", INPUT)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_seen(change: str, make: Callable[[], nn.Module], named: bool) -> None:
    net, x = make(), INPUT[make]()
    kwargs = {"input": x} if named else {}
    args = () if named else (x,)
    compiled = warm(net, *args, **kwargs)
    before = compiled(*args, **kwargs)
    for n in range(3):
        CHANGES[change](net)
        assert n or not close(net(x), before), "the change must matter"
        assert close(compiled(*args, **kwargs), by_numpy(net)(x))
        assert close(compiled(*args, **kwargs), by_numpy(net)(x))


HELD: dict[str, Change] = {
    "numpy": lambda net: weight(net).numpy(),
    "row of numpy": lambda net: weight(net).numpy()[0],
    "data": lambda net: weight(net).data,
    "view": lambda net: weight(net)[0],
    "alias": lambda net: weight(net).detach(),
    "row of the state": lambda net: net.state_dict()["0.weight"][0],
    "ints": lambda net: weight(net).view(tc.int32),
    "dlpack": lambda net: tc.from_dlpack(weight(net)),
    "another parameter": lambda net: nn.Parameter(weight(net), False),
}


@pytest.mark.parametrize("holder", HELD)
def test_writes_through_what_was_held_before_the_first_call_are_seen(holder: str) -> None:
    net, x = layers(), INPUT[layers]()
    held = HELD[holder](net)
    compiled = warm(net, x)
    for value in (1, 2, 3):
        held[...] = value
        assert close(compiled(x), by_numpy(net)(x)) and close(compiled(x), by_numpy(net)(x))


@pytest.mark.parametrize("wrapped", ["from_numpy", "as_tensor", "asarray", "from_dlpack", "frombuffer", "Tensor"])
def test_a_weight_over_numpys_memory(wrapped: str) -> None:
    array = np.ones((64, 48), np.float32)
    options: dict[str, Any] = {"dtype": tc.float32} if wrapped == "frombuffer" else {}
    net, x = layers(), INPUT[layers]()
    net.get_submodule("0").weight = nn.Parameter(getattr(tc, wrapped)(array, **options).reshape(64, 48), False)
    compiled = warm(net, x)
    for value in (2, 3, 4):
        array[:] = value
        assert close(compiled(x), by_numpy(net)(x)) and close(compiled(x), by_numpy(net)(x))


def test_weights_of_a_copy_are_its_own() -> None:
    net, x = layers(), INPUT[layers]()
    compiled = warm(net, x)
    before = compiled(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        weight(other).zero_()
        weight(other).numpy()[:] = 3
        assert close(compiled(x), before)


def test_saving_leaves_the_preparation_in_use(tmp_path: Any) -> None:
    net, x = layers(), INPUT[layers]()
    compiled = warm(net, x)
    before = compiled(x)
    tc.save(net.state_dict(), tmp_path / "net.pt")
    pickle.dumps(net)
    weight(net)._data[:] *= 3
    assert close(compiled(x), before)


def test_a_view_of_memory_that_a_weight_has_left_and_another_has_taken() -> None:
    one, other, x = layers(), layers(), INPUT[layers]()
    weight(other).data = weight(one).data
    row = weight(one)[0]
    compiled = warm(other, x)
    weight(one).data = tc.randn(64, 48)
    row.fill_(3.0)
    assert close(compiled(x), by_numpy(other)(x))


def test_two_shapes_and_two_threads() -> None:
    net = layers()
    small, large = tc.randn(8, 48), tc.randn(24, 48)
    compiled = tc.compile(net)
    for _ in range(5):
        compiled(small), compiled(large)
    wrong: list[Any] = []

    def ask(x: tc.Tensor) -> None:
        for _ in range(200):
            found, now = compiled(x), expected[id(x)]
            if not close(found, now):
                wrong.append(found)

    for factor in (2.0, 0.5, 3.0):
        weight(net).mul_(factor)
        expected = {id(x): by_numpy(net)(x) for x in (small, large)}
        threads = [threading.Thread(target=ask, args=(x,)) for x in (small, large, small)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def test_any_size() -> None:
    net = layers()
    compiled = tc.compile(net, dynamic=True)
    for n in range(30):
        x = tc.randn(8 + n % 13, 48)
        assert close(compiled(x), by_numpy(net)(x))
        if n % 3 == 0:
            weight(net).mul_(1.1)
    assert compiled.entries[0].plan.sized is not None
    before = compiled(x)
    weight(net)._data[:] *= 3
    assert close(compiled(x), before)


def test_a_weight_that_is_written_by_the_call_itself() -> None:
    w, x = tc.randn(64, 48), tc.randn(24, 48)

    def f(x: tc.Tensor) -> tc.Tensor:
        y = x @ w.t()
        w.mul_(0.5)
        return y + x @ w.t()

    kept = w.clone()
    compiled = warm(f, x)
    found = [compiled(x) for _ in range(3)]
    w.copy_(kept)
    assert all(close(a, b) for a, b in zip(found, [f(x) for _ in range(8)][5:], strict=True))


def test_what_follows_from_constants_alone_is_made_by_every_call() -> None:
    """Random training program 1000237: native calls read a value that depends on constants alone and that no input
    required."""
    net = nn.Linear(4, 4)

    def f(x: tc.Tensor) -> tc.Tensor:
        with tc.no_grad():
            net.weight[0].copy_(x[0])
        with tc.random.fork_rng():
            tc.manual_seed(9)
            return net(x) + tc.randn(4)

    compiled, x = tc.compile(f), tc.randn(3, 4)
    assert all(tc.equal(compiled(x), f(x)) for _ in range(5))


def test_an_index_that_fails_does_not_leave_a_false_preparation() -> None:
    table, net = tc.randn(10, 48), layers()

    def f(i: tc.Tensor) -> Any:
        return net(table[i])

    good, bad = tc.arange(24) % 10, tc.full((24,), 10)
    compiled = warm(f, good)
    for _ in range(3):
        weight(net).mul_(2)
        with pytest.raises(IndexError):
            compiled(bad)
        assert close(compiled(good), f(good))


def frozen(compiled: Compiled) -> list[tc.Tensor]:
    """Return the values that the only plan's preparation reads."""
    (entry,) = compiled.entries
    assert isinstance(entry.plan, Plan)
    return entry.plan.frozen


def test_what_training_reads_is_not_prepared() -> None:
    net, x = layers().requires_grad_(True), INPUT[layers]()
    assert not frozen(warm(net, x))
    opt = tc.optim.SGD(net.parameters(), lr=0.1)
    assert not frozen(warm(_step, net, opt, x))
    with tc.no_grad():
        assert frozen(warm(net, x))


def test_results_have_the_same_bits_with_and_without_preparation(tmp_path: Any) -> None:
    found = []
    for make in INPUT:
        net, x = make(), INPUT[make]()
        found.append((warm(net, x)(x), net, x))
    with config.override(cache_dir=str(tmp_path), skip_passes=("prepacking",)):
        for result, net, x in found:
            plain = warm(net, x)
            assert not frozen(plain)
            assert (plain(x).numpy() == result.numpy()).all()


def test_a_later_process_finds_the_preparation_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    net, x = layers(), INPUT[layers]()
    with config.override(cache_dir=str(tmp_path)):
        warm(net, x)
        monkeypatch.setattr("tracecomp.passes.build", None)
        again = warm(net, x)
    before = again(x)
    weight(net)._data[:] *= 3
    assert close(again(x), before)
    with tc.no_grad():
        weight(net).mul_(1)
    assert close(again(x), by_numpy(net)(x))


def test_old_weights_are_let_go() -> None:
    net, x = layers(), INPUT[layers]()
    compiled = warm(net, x)
    memory = weakref.ref(weight(net)._data)
    weight(net).data = tc.randn(64, 48)
    compiled(x)
    collect()
    assert memory() is None
