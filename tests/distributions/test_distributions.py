"""Densities, moments, entropies and divergences against torch; samples against moments; gradients; compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp import distributions as D

TRIL = [[1.0, 0.0], [0.3, 0.8]]

# name -> (arguments, a value)
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "Normal": ({"loc": [0.5, -1.0], "scale": [1.0, 2.0]}, [0.3, 2.0]),
    "Laplace": ({"loc": [0.5, -1.0], "scale": [1.0, 2.0]}, [0.3, 2.0]),
    "Cauchy": ({"loc": [0.5, -1.0], "scale": [1.0, 2.0]}, [0.3, 2.0]),
    "Gumbel": ({"loc": [0.5, -1.0], "scale": [1.0, 2.0]}, [0.3, 2.0]),
    "LogNormal": ({"loc": [0.5, -0.2], "scale": [0.5, 0.3]}, [0.3, 2.0]),
    "HalfNormal": ({"scale": [1.0, 2.0]}, [0.3, 2.0]),
    "HalfCauchy": ({"scale": [1.0, 2.0]}, [0.3, 2.0]),
    "Weibull": ({"scale": [0.5, 2.0], "concentration": [1.5, 3.0]}, [0.3, 2.0]),
    "Pareto": ({"scale": [0.2, 1.5], "alpha": [8.0, 9.0]}, [0.3, 2.0]),
    "InverseGamma": ({"concentration": [6.0, 8.0], "rate": [1.0, 2.0]}, [0.3, 2.0]),
    "NegativeBinomial": ({"total_count": 3, "probs": [0.3, 0.8]}, [1.0, 4.0]),
    "Multinomial": ({"total_count": 5, "probs": [[0.5, 0.2, 0.3]]}, [[1.0, 4.0, 0.0]]),
    "FisherSnedecor": ({"df1": [3.0, 9.0], "df2": [9.0, 12.0]}, [0.3, 2.0]),
    "Kumaraswamy": ({"concentration1": [1.5, 3.0], "concentration0": [2.0, 0.8]}, [0.3, 0.9]),
    "ContinuousBernoulli": ({"probs": [0.3, 0.5]}, [0.3, 0.9]),
    "VonMises": ({"loc": [0.5, -1.0], "concentration": [1.0, 7.0]}, [0.3, 2.0]),
    "LowRankMultivariateNormal": (
        {"loc": [[0.5, -1.0, 0.0]], "cov_factor": [[0.5], [1.0], [-0.3]], "cov_diag": [1.0, 0.5, 2.0]},
        [[0.3, 2.0, 1.0]],
    ),
    "Uniform": ({"low": [0.0, -1.0], "high": [1.0, 3.0]}, [0.3, 2.0]),
    "Exponential": ({"rate": [0.5, 2.0]}, [0.3, 2.0]),
    "Gamma": ({"concentration": [0.5, 3.0], "rate": [1.0, 2.0]}, [0.3, 2.0]),
    "Chi2": ({"df": [3.0, 4.0]}, [0.3, 2.0]),
    "Beta": ({"concentration1": [0.5, 3.0], "concentration0": [1.5, 2.0]}, [0.3, 0.9]),
    "StudentT": ({"df": [5.0, 9.0], "loc": [0.0, 1.0], "scale": [1.0, 2.0]}, [0.3, 2.0]),
    "Dirichlet": ({"concentration": [[0.5, 1.0, 2.0]]}, [[0.2, 0.3, 0.5]]),
    "Bernoulli": ({"probs": [0.3, 0.8]}, [1.0, 0.0]),
    "Binomial": ({"total_count": 5, "probs": [0.3, 0.8]}, [1.0, 4.0]),
    "Geometric": ({"probs": [0.3, 0.8]}, [1.0, 4.0]),
    "Poisson": ({"rate": [0.5, 4.0]}, [1.0, 3.0]),
    "Categorical": ({"logits": [[0.5, -1.0, 0.2], [0.0, 1.0, 2.0]]}, [2, 0]),
    "OneHotCategorical": ({"probs": [[0.5, 0.2, 0.3]]}, [[0.0, 1.0, 0.0]]),
    "MultivariateNormal": ({"loc": [[0.5, -1.0]], "scale_tril": TRIL}, [[0.3, 2.0]]),
}
OTHER: dict[str, dict[str, Any]] = {
    "Normal": {"loc": [0.0, 1.0], "scale": [2.0, 0.5]}, "Laplace": {"loc": [0.0, 1.0], "scale": [2.0, 0.5]},
    "LogNormal": {"loc": [0.0, 1.0], "scale": [2.0, 0.5]}, "Uniform": {"low": [-1.0, 0.0], "high": [2.0, 1.0]},
    "Exponential": {"rate": [1.0, 3.0]}, "Gamma": {"concentration": [1.5, 2.0], "rate": [2.0, 1.0]},
    "Beta": {"concentration1": [1.0, 2.0], "concentration0": [2.0, 2.0]},
    "Dirichlet": {"concentration": [[1.0, 1.5, 0.5]]}, "Bernoulli": {"probs": [0.5, 0.1]},
    "Binomial": {"total_count": 5, "probs": [0.5, 0.1]}, "Geometric": {"probs": [0.5, 0.1]},
    "Poisson": {"rate": [1.0, 2.0]}, "Categorical": {"logits": [[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]]},
    "OneHotCategorical": {"probs": [[0.1, 0.1, 0.8]]},
    "MultivariateNormal": {"loc": [[0.0, 0.0]], "scale_tril": [[2.0, 0.0], [0.1, 1.0]]},
}  # fmt: skip


RTOL = {"VonMises": 1e-5}  # torch has polynomials for the Bessel functions


def made(lib: Any, name: str, arguments: dict[str, Any], track: bool = False) -> tuple[Any, list[Any]]:
    tensors = {
        k: lib.tensor(v, dtype=lib.float64, requires_grad=track) if isinstance(v, list) else v
        for k, v in arguments.items()
    }
    return getattr(lib.distributions, name)(**tensors), [t for t in tensors.values() if hasattr(t, "shape")]


def close(a: Any, b: Any, rtol: float = 1e-7) -> None:
    assert tuple(a.shape) == tuple(b.shape) and str(a.dtype) == str(b.dtype)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_its_gradient(name: str) -> None:
    torch = pytest.importorskip("torch")
    arguments, value = CASES[name]
    found = []
    for lib in (tracecomp, torch):
        d, tensors = made(lib, name, arguments, track=True)
        kind = lib.int64 if name == "Categorical" else lib.float64
        log_prob = d.log_prob(lib.tensor(value, dtype=kind))
        found.append((log_prob, *lib.autograd.grad(log_prob.sum(), tensors)))
    for a, b in zip(*found, strict=True):
        close(a, b, RTOL.get(name, 1e-7))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("what", ["mean", "variance", "stddev", "mode", "entropy", "cdf", "icdf"])
def test_properties(name: str, what: str) -> None:
    torch = pytest.importorskip("torch")
    arguments, value = CASES[name]

    def ask(lib: Any) -> Any:
        d, _ = made(lib, name, arguments)
        if what == "entropy":
            return d.entropy()
        if what == "cdf":
            return d.cdf(lib.tensor(value, dtype=lib.float64))
        return d.icdf(lib.tensor([0.2, 0.7], dtype=lib.float64)) if what == "icdf" else getattr(d, what)

    try:
        expected = ask(torch)
    except NotImplementedError:
        pytest.skip("torch has none")
    if (what, name) == ("mode", "Kumaraswamy"):
        pytest.skip("torch takes the logarithm of negative numbers")
    if what == "icdf" and name in ("HalfNormal", "LogNormal"):
        pytest.skip("not offered")
    close(ask(tracecomp), expected, RTOL.get(name, 1e-7))


@pytest.mark.parametrize("name", OTHER)
def test_divergences(name: str) -> None:
    torch = pytest.importorskip("torch")
    results = []
    for lib in (tracecomp, torch):
        p, _ = made(lib, name, CASES[name][0])
        q, _ = made(lib, name, OTHER[name])
        results.append(lib.distributions.kl_divergence(p, q))
    close(*results)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("Cauchy", "HalfCauchy", "Categorical", "VonMises")])
def test_samples_have_the_moments(name: str) -> None:
    tracecomp.manual_seed(7)
    d, _ = made(tracecomp, name, CASES[name][0])
    n = 20000
    samples = d.sample((n,))
    assert tuple(samples.shape) == (n, *d.batch_shape, *d.event_shape) and not samples.requires_grad
    error = (samples.mean(0) - d.mean).abs() / (d.stddev / n**0.5)
    assert float(error.max()) < 5, error
    ratio = samples.var(0) / d.variance
    assert bool(((ratio > 0.85) & (ratio < 1.18)).all()), ratio


def test_categorical_samples_have_the_frequencies() -> None:
    tracecomp.manual_seed(3)
    d = D.Categorical(probs=tracecomp.tensor([0.1, 0.2, 0.7]))
    counts = tracecomp.bincount(d.sample((10000,)), minlength=3) / 10000
    assert float((counts - d.probs).abs().max()) < 0.02
    assert d.sample().shape == () and d.sample((2, 3)).shape == (2, 3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "moment"), [("Normal", 2), ("Gamma", 1), ("Gamma", 2), ("Beta", 1), ("Exponential", 2), ("Laplace", 2)]
)
def test_reparametrised_gradients_are_those_of_moments(name: str, moment: int) -> None:
    """d E[x**k] / d parameter, estimated through samples and known in closed form."""
    tracecomp.manual_seed(5)
    d, parameters = made(tracecomp, name, CASES[name][0], track=True)
    sampled = tracecomp.autograd.grad((d.rsample((40000,)) ** moment).mean(0).sum(), parameters)
    d, parameters = made(tracecomp, name, CASES[name][0], track=True)
    exact = d.mean if moment == 1 else d.variance + d.mean**2
    for a, b in zip(sampled, tracecomp.autograd.grad(exact.sum(), parameters), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0.08, atol=0.03)


def test_gradient_of_gamma_samples_is_implicit() -> None:
    torch = pytest.importorskip("torch")
    from tracecomp.distributions.gamma import StandardGamma

    alpha = tracecomp.tensor([0.3, 1.0, 4.0, 20.0], dtype=tracecomp.float64, requires_grad=True)
    z = StandardGamma.apply(alpha)
    (grad,) = tracecomp.autograd.grad(z.sum(), alpha)
    expected = torch._standard_gamma_grad(torch.tensor(alpha.detach().numpy()), torch.tensor(z.detach().numpy()))
    np.testing.assert_allclose(grad.numpy(), expected.numpy(), rtol=2e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: D.Normal(tracecomp.zeros(2), tracecomp.tensor([1.0, -1.0])),
        lambda: D.Bernoulli(probs=tracecomp.tensor(1.5)),
        lambda: D.Bernoulli(),
        lambda: D.Uniform(1.0, 0.0),
        lambda: D.Categorical(probs=tracecomp.tensor(0.5)),
        lambda: D.Exponential(1.0).log_prob(tracecomp.tensor(-1.0)),
        lambda: D.Bernoulli(0.5).log_prob(tracecomp.tensor(0.5)),
        lambda: D.MultivariateNormal(tracecomp.zeros(2)),
        lambda: D.Independent(D.Normal(0.0, 1.0), 1),
    ],
)
def test_bad_parameters_and_values(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


def test_unknown_divergence() -> None:
    with pytest.raises(NotImplementedError, match="Normal and q type Bernoulli"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Bernoulli(0.5))


def test_shapes_of_compositions() -> None:
    base = D.Normal(tracecomp.zeros(3, 4), tracecomp.ones(3, 4))
    d = D.Independent(base, 1)
    assert d.batch_shape == (3,) and d.event_shape == (4,) and d.log_prob(tracecomp.zeros(4)).shape == (3,)
    assert base.expand((2, 3, 4)).sample().shape == (2, 3, 4) and "Normal(loc: torch.Size([3, 4])" in repr(base)
    mixture = D.MixtureSameFamily(D.Categorical(probs=tracecomp.ones(4)), D.Normal(tracecomp.arange(4.0), 1.0))
    assert mixture.sample((5,)).shape == (5,) and mixture.log_prob(tracecomp.tensor(0.5)).shape == ()
    squashed = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(1.0, 2.0), D.TanhTransform()])
    x = squashed.sample((6,))
    assert float(x.abs().max()) < 1 and squashed.log_prob(x * 0.9).shape == (6,)


def test_the_last_value_of_a_transform_is_inverted_without_rounding() -> None:
    x = tracecomp.tensor([-20.0, 0.5, 20.0])
    plain, kept = D.TanhTransform(), D.TanhTransform(cache_size=1)
    assert not plain.inv(plain(x)).isfinite().all() and kept.inv(kept(x)) is x
    assert kept(x) is kept(x) and kept.inv(tracecomp.zeros(3)).tolist() == [0, 0, 0]
    d = D.TransformedDistribution(D.Normal(tracecomp.zeros(3), 1.0), [kept])
    want = D.Normal(0.0, 1.0).log_prob(x) - kept.log_abs_det_jacobian(x, kept(x))
    np.testing.assert_allclose(d.log_prob(kept(x)).numpy(), want.numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        D.AffineTransform(0.0, 1.0, cache_size=2)


def test_a_squashed_policy_compiles() -> None:
    """As soft actor critic has it: the transform is made in the step, and the sample's own value is inverted."""
    scale = tracecomp.full((64,), 9.0, requires_grad=True)

    def step() -> Any:
        d = D.TransformedDistribution(D.Normal(tracecomp.zeros(64), scale), [D.TanhTransform(cache_size=1)])
        return tracecomp.autograd.grad(d.log_prob(d.rsample()).mean(), scale)[0]

    compiled = tracecomp.compile(step)
    tracecomp.manual_seed(1)
    compiled()
    second = compiled()
    tracecomp.manual_seed(1)
    step()
    want = step()
    assert want.isfinite().all()
    np.testing.assert_allclose(second.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_a_policy_step_compiles() -> None:
    logits = tracecomp.zeros(3, requires_grad=True)

    def step() -> Any:
        d = D.Categorical(logits=logits)
        action = d.sample((64,))
        loss = -(d.log_prob(action) * (action == 2)).mean() - 0.1 * d.entropy()
        return tracecomp.autograd.grad(loss, logits)[0]

    compiled = tracecomp.compile(step)
    tracecomp.manual_seed(1)
    compiled()
    second = compiled()
    tracecomp.manual_seed(1)
    step()
    np.testing.assert_allclose(second.numpy(), step().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "StudentT", "Dirichlet", "Bernoulli"])
def test_compiled_samples_are_the_eager_ones(name: str) -> None:
    def draw() -> Any:
        return made(tracecomp, name, CASES[name][0])[0].sample((5,))

    compiled = tracecomp.compile(draw)
    compiled()
    tracecomp.manual_seed(11)
    native = [compiled(), compiled()]
    tracecomp.manual_seed(11)
    for x in native:
        np.testing.assert_allclose(x.numpy(), draw().numpy(), rtol=1e-6, atol=1e-9)


RELAXED: dict[str, tuple[dict[str, Any], Any]] = {
    "RelaxedBernoulli": ({"temperature": [0.7], "logits": [0.5, -1.0]}, [0.3, 0.9]),
    "RelaxedOneHotCategorical": ({"temperature": [0.7], "probs": [[0.2, 0.3, 0.5]]}, [[0.1, 0.7, 0.2]]),
}


@pytest.mark.parametrize("name", RELAXED)
def test_relaxed_density_and_its_gradient(name: str) -> None:
    torch = pytest.importorskip("torch")
    arguments, value = RELAXED[name]
    found = []
    for lib in (tracecomp, torch):
        d, tensors = made(lib, name, arguments, track=True)
        log_prob = d.log_prob(lib.tensor(value, dtype=lib.float64))
        found.append((log_prob, *lib.autograd.grad(log_prob.sum(), tensors)))
        assert (d.batch_shape, d.event_shape) == (log_prob.shape, d.rsample().shape[log_prob.ndim :])
    for a, b in zip(*found, strict=True):
        close(a, b)


def test_relaxed_samples_follow_the_probabilities_and_have_gradients() -> None:
    logits = tracecomp.tensor([0.0, 1.0, 2.0], requires_grad=True)
    weights = D.RelaxedOneHotCategorical(0.1, logits=logits).rsample((20000,))
    share = tracecomp.bincount(weights.argmax(-1), minlength=3) / 20000
    np.testing.assert_allclose(share.numpy(), logits.softmax(0).detach().numpy(), atol=0.02)
    weights[:, 2].mean().backward()
    assert logits.grad is not None and float(logits.grad[2]) > 0
    ones = (D.RelaxedBernoulli(0.1, probs=tracecomp.tensor([0.3])).sample((20000,)) > 0.5).float().mean()
    assert abs(float(ones) - 0.3) < 0.02


def test_generalized_pareto() -> None:
    """In float32: torch's own refuses float64."""
    torch = pytest.importorskip("torch")
    found = []
    for lib in (tracecomp, torch):
        c = lib.tensor([0.2, -0.3, 0.0], requires_grad=True)
        d = lib.distributions.GeneralizedPareto(lib.tensor([0.1, -1.0, 0.0]), lib.tensor([1.0, 2.0, 0.5]), c)
        x = lib.tensor([0.3, 2.0, 1.0])
        results = [d.log_prob(x), d.cdf(x), d.icdf(x * 0.3), d.mean, d.variance, d.entropy()]
        found.append([*results, *lib.autograd.grad(results[0][:2].sum(), c)])
    for a, b in zip(*found, strict=True):
        close(a, b, 1e-5)


def test_angles_have_the_circular_moments() -> None:
    tracecomp.manual_seed(7)
    d = D.VonMises(tracecomp.tensor([0.5, -3.0]), tracecomp.tensor([1.0, 7.0]))
    x = d.sample((20000,))
    assert x.dtype is tracecomp.float32 and float(x.abs().max()) <= np.pi + 1e-6
    centre = tracecomp.complex(tracecomp.cos(x), tracecomp.sin(x)).mean(0)
    np.testing.assert_allclose(centre.angle().numpy(), [0.5, -3.0], atol=0.03)
    np.testing.assert_allclose((1 - centre.abs()).numpy(), d.variance.numpy(), atol=0.01)


def test_compiled_bounds_that_are_tensors_are_not_printed(recwarn: pytest.WarningsRecorder) -> None:
    def density(low: Any, x: Any) -> Any:
        d = D.Independent(D.Uniform(low, low + 2), 1)
        return d.log_prob(x) + D.Pareto(low, low).log_prob(x).sum(-1)

    compiled = tracecomp.compile(density)
    low, x = tracecomp.tensor([[0.5, 1.0]]), tracecomp.tensor([[1.5, 2.0]])
    for _ in range(3):
        np.testing.assert_allclose(compiled(low, x).numpy(), density(low, x).numpy(), rtol=1e-6)
    assert not recwarn.list
    assert repr(D.constraints.interval(0, 1)) == "Interval(lower_bound=0, upper_bound=1)"
    assert repr(D.constraints.real_vector) == "IndependentConstraint(Real(), 1)"


@pytest.mark.parametrize("name", ["HalfNormal", "HalfCauchy", "Normal", "Exponential"])
def test_parameters_are_checked_wherever_they_are_kept(name: str) -> None:
    with pytest.raises(ValueError, match=r"scale|rate"):
        getattr(D, name)(**({"loc": 0.0} if name == "Normal" else {}), **{
            "rate" if name == "Exponential" else "scale": tracecomp.tensor(-1.0)
        })  # fmt: skip


def test_values_of_another_shape_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="not broadcastable"):
        D.Normal(tracecomp.zeros(2), tracecomp.ones(2)).log_prob(tracecomp.zeros(3))


def test_a_subclass_with_its_own_init_says_how_it_is_expanded() -> None:
    class Scaled(D.Normal):
        kept: str

        def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
            super().__init__(tracecomp.zeros_like(scale), scale, validate_args)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new: Any = self._get_checked_instance(Scaled, _instance)
            new.kept = "own"
            return super().expand(batch_shape, _instance=new)

    class Unaware(Scaled):
        def __init__(self) -> None:
            super().__init__(tracecomp.ones(()))

    wide: Any = Scaled(tracecomp.tensor(2.0)).expand((3,))
    assert type(wide) is Scaled and wide.kept == "own" and wide.scale.tolist() == [2.0] * 3
    assert wide.batch_shape == (3,)
    with pytest.raises(NotImplementedError, match=r"must also define a custom .expand\(\) method"):
        Unaware().expand((3,))


def test_families_that_torch_has_as_transformed_are_transformed() -> None:
    one = tracecomp.tensor([1.5, 0.5])
    families = [
        D.HalfNormal(one), D.HalfCauchy(one), D.Gumbel(one, one), D.Weibull(one, one), D.Pareto(one, one),
        D.InverseGamma(one, one), D.Kumaraswamy(one, one),
    ]  # fmt: skip
    for family in families:
        assert isinstance(family, D.TransformedDistribution)
        wide = family.expand((3, 2))
        value = wide.sample()
        assert value.shape == (3, 2) and wide.log_prob(value).shape == (3, 2)
        if not isinstance(family, D.HalfNormal | D.HalfCauchy):  # of which the transform knows one of two inverses
            general = D.TransformedDistribution.log_prob(family, value)
            assert tracecomp.allclose(family.log_prob(value), general, atol=1e-4, rtol=1e-3)


def test_a_factor_of_a_multivariate_normal_is_not_expanded_before_it_is_made() -> None:
    d: Any = D.MultivariateNormal(tracecomp.zeros(5, 2), covariance_matrix=tracecomp.tensor([[2.0, 0.5], [0.5, 1.0]]))
    assert d._unbroadcasted_scale_tril.shape == (2, 2)
    assert d.scale_tril.shape == d.precision_matrix.shape == (5, 2, 2)
    assert d.expand((4, 5)).covariance_matrix.shape == (4, 5, 2, 2)
