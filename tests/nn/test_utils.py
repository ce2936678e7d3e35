"""torch.nn.utils and torch.nn.init: clipping, vectors, packed sequences, reparametrisation, initial distributions."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp import nn

torch = pytest.importorskip("torch")
BOTH = (tracecomp, torch)
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(4, 5)).astype("float32")


def layer(library: Any, kind: str = "Linear", *args: int) -> Any:
    """A layer whose parameters are the same numbers in both libraries."""
    made = getattr(library.nn, kind)(*args)
    rng = np.random.default_rng(3)
    with library.no_grad():
        for p in made.parameters():
            p.copy_(library.tensor(rng.normal(size=tuple(p.shape)).astype("float32")))
    return made


def arrays(values: Any) -> list[Any]:
    return [np.asarray(v.detach()) if hasattr(v, "detach") else v for v in values]


def both(run: Callable[[Any], Any], rtol: float = 1e-5) -> Any:
    ours, theirs = (arrays(run(library)) for library in BOTH)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5) if isinstance(b, np.ndarray) else None
        assert isinstance(b, np.ndarray) or a == b
    return ours


@pytest.mark.parametrize("norm", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clip_grad_norm(norm: float, limit: float) -> None:
    def run(library: Any) -> Any:
        m = layer(library, "Linear", 5, 3)
        (m(library.tensor(DATA)) ** 2).sum().backward()
        total = library.nn.utils.clip_grad_norm_(m.parameters(), limit, norm)
        return [total, m.weight.grad, m.bias.grad]

    both(run)


def test_clip_grad_value_and_total_norm() -> None:
    def run(library: Any) -> Any:
        m = layer(library, "Linear", 5, 3)
        (m(library.tensor(DATA)) ** 2).sum().backward()
        total = library.nn.utils.get_total_norm([p.grad for p in m.parameters()])
        library.nn.utils.clip_grad_value_(m.parameters(), 1.5)
        return [total, m.weight.grad, m.bias.grad, library.nn.utils.clip_grad_norm_([], 1.0)]

    both(run)
    m = layer(tracecomp, "Linear", 5, 3)
    m.weight.grad = tracecomp.full((3, 5), math.inf)
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)


def test_parameters_as_a_vector() -> None:
    def run(library: Any) -> Any:
        m = layer(library, "Linear", 5, 3)
        vector = library.nn.utils.parameters_to_vector(m.parameters())
        library.nn.utils.vector_to_parameters(vector * 2, m.parameters())
        return [vector, m.weight, m.bias]

    both(run)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("ordered", [True, False])
def test_packed_sequences(kind: str, ordered: bool) -> None:
    lengths = [4, 3, 1] if ordered else [1, 4, 3]
    data = np.random.default_rng(2).normal(size=(4, 3, 2)).astype("float32")

    def run(library: Any) -> Any:
        rnn = library.nn.utils.rnn
        m = getattr(library.nn, kind)(2, 3, 2, bidirectional=True)
        rng = np.random.default_rng(3)
        with library.no_grad():
            for p in m.parameters():
                p.copy_(library.tensor(rng.normal(size=tuple(p.shape)).astype("float32")))
        x = library.tensor(data).requires_grad_()
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=ordered)
        out, state = m(packed)
        padded, sizes = rnn.pad_packed_sequence(out, total_length=5, padding_value=-1.0)
        padded.sum().backward()
        states = list(state) if kind == "LSTM" else [state]
        parts = rnn.unpack_sequence(out)
        return [out.data, out.batch_sizes, padded, sizes, x.grad, *states, *parts]

    both(run, rtol=1e-4)


def test_packed_elements_are_made_when_asked_for_and_may_be_written() -> None:
    lengths, rnn = tracecomp.tensor([2, 4, 1]), nn.utils.rnn
    x = tracecomp.arange(24.0).reshape(4, 3, 2).requires_grad_()
    packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    with tracecomp.no_grad():
        assert packed.data.requires_grad and next(iter(packed)) is packed[0] is packed.data
    data, sizes, order, back = packed
    assert data.shape == (7, 2) and sizes.tolist() == [3, 2, 1, 1]
    assert order.tolist() == [1, 0, 2] and back.tolist() == [1, 0, 2]
    again = pickle.loads(pickle.dumps(packed._replace(data=data.detach())))
    assert isinstance(again, rnn.PackedSequence) and tracecomp.equal(again.data, data)
    assert repr(again).startswith("PackedSequence(data=tensor(")
    m = nn.GRU(2, 3)
    before = m(rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))[1]
    assert tracecomp.equal(m(packed)[1], before)
    with tracecomp.no_grad():
        packed.data.mul_(2)
    wanted = m(rnn.pack_padded_sequence(x * 2, lengths, enforce_sorted=False))[1]
    assert tracecomp.equal(m(packed)[1], wanted) and not tracecomp.equal(wanted, before)


def test_padding_sequences() -> None:
    def run(library: Any) -> Any:
        rnn = library.nn.utils.rnn
        rows = [library.ones(n, 2) * n for n in (1, 3, 2)]
        packed = rnn.pack_sequence(rows, enforce_sorted=False)
        left = rnn.pad_sequence(rows, padding_side="left")
        padded = rnn.pad_sequence(rows, batch_first=True, padding_value=9.0)
        return [
            padded,
            left,
            packed.data,
            packed.sorted_indices,
            *rnn.unpad_sequence(padded, library.tensor([1, 3, 2]), True),
        ]

    both(run)
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        nn.utils.rnn.pack_padded_sequence(tracecomp.ones(3, 2, 1), [1, 3])
    with pytest.raises(RuntimeError, match="greater than 0"):
        nn.utils.rnn.pack_padded_sequence(tracecomp.ones(3, 2, 1), [1, 0])


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_by_hooks(dim: int | None) -> None:
    def run(library: Any) -> Any:
        m = library.nn.utils.weight_norm(layer(library, "Linear", 5, 3), dim=dim)
        m(library.tensor(DATA)).sum().backward()
        names = [n for n, _ in m.named_parameters()]
        grads = [m.weight_g.grad, m.weight_v.grad]
        library.nn.utils.remove_weight_norm(m)
        return [*grads, names, m.weight, [n for n, _ in m.named_parameters()]]

    both(run)


def test_spectral_norm_reaches_the_largest_singular_value() -> None:
    m = nn.utils.spectral_norm(layer(tracecomp, "Linear", 5, 3), n_power_iterations=50)
    assert sorted(m.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    m(tracecomp.tensor(DATA))
    assert math.isclose(np.linalg.norm(m.weight.detach().numpy(), 2), 1.0, rel_tol=1e-4)
    before = m.weight.detach().numpy().copy()
    nn.utils.remove_spectral_norm(m)
    np.testing.assert_allclose(m.weight.detach().numpy(), before, rtol=1e-4)
    p = nn.utils.parametrizations.spectral_norm(layer(tracecomp, "Linear", 5, 3), n_power_iterations=5)
    for _ in range(10):
        p(tracecomp.tensor(DATA))
    assert math.isclose(np.linalg.norm(p.weight.detach().numpy(), 2), 1.0, rel_tol=1e-4)


def test_parametrizations() -> None:
    def run(library: Any) -> Any:
        class Symmetric(library.nn.Module):
            def forward(self, x: Any) -> Any:
                return x.triu() + x.triu(1).transpose(-1, -2)

        parametrize = library.nn.utils.parametrize
        m = layer(library, "Linear", 3, 3)
        parametrize.register_parametrization(m, "weight", Symmetric())
        m(library.ones(1, 3)).sum().backward()
        grad = m.parametrizations.weight.original.grad
        text = [repr(m), list(m.state_dict()), parametrize.is_parametrized(m), type(m).__name__]
        with parametrize.cached():
            same = m.weight is m.weight
        parametrize.remove_parametrizations(m, "weight")
        return [grad, text, same, m.weight, repr(m), parametrize.is_parametrized(m), type(m).__name__]

    both(run)


def test_weight_norm_as_a_parametrization() -> None:
    def run(library: Any) -> Any:
        m = library.nn.utils.parametrizations.weight_norm(layer(library, "Linear", 5, 3))
        m(library.tensor(DATA)).sum().backward()
        entry = m.parametrizations.weight
        return [
            entry.original0,
            entry.original1,
            entry.original0.grad,
            entry.original1.grad,
            m.weight,
            list(m.state_dict()),
        ]

    both(run)


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("sizes", [(4, 4), (3, 5), (5, 3)])
def test_orthogonal_parametrization(kind: str, sizes: tuple[int, int]) -> None:
    m = nn.utils.parametrizations.orthogonal(layer(tracecomp, "Linear", *sizes), orthogonal_map=kind)
    w = m.weight.detach().numpy()
    product = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-5)
    (m(tracecomp.ones(2, sizes[0])) ** 2).sum().backward()
    assert m.parametrizations.weight.original.grad is not None


def test_orthogonal_weights_can_be_assigned() -> None:
    q = np.linalg.qr(RNG.normal(size=(5, 3)))[0].astype("float32")
    every: tuple[dict[str, Any], ...] = ({"use_trivialization": False}, {})
    for options in every:
        m = nn.utils.parametrizations.orthogonal(layer(tracecomp, "Linear", 3, 5), **options)
        m.weight = tracecomp.tensor(q)
        np.testing.assert_allclose(m.weight.detach().numpy(), q, atol=1e-5)


@pytest.mark.parametrize(("kind", "sizes", "shape"), [("Linear", (4, 3), (5, 4)), ("Conv2d", (2, 3, 3), (2, 2, 5, 5)),
                                                      ("ConvTranspose2d", (2, 3, 3), (2, 2, 5, 5))])  # fmt: skip
def test_batch_norm_folds_into_the_layer_before(kind: str, sizes: Any, shape: Any) -> None:
    first = layer(tracecomp, kind, *sizes).eval()
    norm = layer(tracecomp, "BatchNorm1d" if kind == "Linear" else "BatchNorm2d", 3).eval()
    (
        norm.running_mean.copy_(tracecomp.tensor([1.0, -2.0, 0.5])),
        norm.running_var.copy_(tracecomp.tensor([4.0, 0.5, 2.0])),
    )
    x = tracecomp.tensor(np.random.default_rng(1).normal(size=shape).astype("float32"))
    fuse = nn.utils.fuse_linear_bn_eval if kind == "Linear" else nn.utils.fuse_conv_bn_eval
    fused = fuse(first, norm, **({"transpose": True} if "Transpose" in kind else {}))
    np.testing.assert_allclose(fused(x).detach().numpy(), norm(first(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="only for eval"):
        fuse(first.train(), norm)


INITIALISERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("uniform_", (-2.0, 3.0), {}), ("normal_", (1.0, 2.0), {}), ("trunc_normal_", (), {"std": 2.0}),
    ("xavier_uniform_", (), {"gain": 2.0}), ("xavier_normal_", (), {}), ("kaiming_uniform_", (), {"a": 1.0}),
    ("kaiming_normal_", (), {"mode": "fan_out", "nonlinearity": "relu"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options"), INITIALISERS)
def test_random_initialisers_have_torchs_distribution(name: str, args: Any, options: dict[str, Any]) -> None:
    tracecomp.manual_seed(0), torch.manual_seed(0)
    ours, theirs = (
        getattr(library.nn.init, name)(library.empty(200, 50, 3, 3), *args, **options).numpy() for library in BOTH
    )
    scale = theirs.std()
    assert abs(ours.mean() - theirs.mean()) < 0.03 * scale and abs(ours.std() / scale - 1) < 0.02
    quantiles = np.linspace(0.02, 0.98, 25)
    np.testing.assert_allclose(np.quantile(ours, quantiles), np.quantile(theirs, quantiles), atol=0.04 * scale)


def test_exact_initialisers() -> None:
    def run(library: Any) -> Any:
        init = library.nn.init
        return [
            init.constant_(library.empty(2), 3.0), init.ones_(library.empty(2)), init.zeros_(library.empty(2)),
            init.eye_(library.empty(2, 3)), init.dirac_(library.empty(4, 2, 3)),
            init.dirac_(library.empty(4, 2, 3, 3), 2),
            init.calculate_gain("leaky_relu", 0.3), init.calculate_gain("tanh"),
        ]  # fmt: skip

    both(run)
    w = nn.init.orthogonal_(tracecomp.empty(4, 6), gain=2.0).numpy()
    np.testing.assert_allclose(w @ w.T, 4 * np.eye(4), atol=1e-4)
    assert (nn.init.sparse_(tracecomp.empty(10, 4), 0.3).numpy() == 0).sum(0).tolist() == [3] * 4
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.xavier_uniform_(tracecomp.empty(3))
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        nn.init.calculate_gain("nothing")


def test_every_function_of_torch_is_here() -> None:
    for theirs, ours in ((torch.nn.init, nn.init), (torch.nn.utils.rnn, nn.utils.rnn)):
        names = {
            n for n, f in vars(theirs).items()
            if inspect.isfunction(f) and f.__module__ == theirs.__name__ and not n.startswith("_")
        }  # fmt: skip
        assert {n for n in names if not hasattr(ours, n)} <= {"bind", "as_tensor"}
