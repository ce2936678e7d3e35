"""Maps, constraints and their registries against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracecomp
import tracecomp.distributions as ours

torch = pytest.importorskip("torch")
theirs = torch.distributions

MAPS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "exp": (lambda d, t: d.ExpTransform(), (3,)),
    "softplus": (lambda d, t: d.SoftplusTransform(), (3,)),
    "abs": (lambda d, t: d.AbsTransform(), (3,)),
    "affine vector": (lambda d, t: d.AffineTransform(t([1.0, 2.0]), t([-2.0, 0.5]), event_dim=1), (4, 2)),
    "compose": (lambda d, t: d.ComposeTransform([d.SigmoidTransform(), d.AffineTransform(1.0, 3.0)]), (2, 3)),
    "inverse": (lambda d, t: d.TanhTransform().inv.inv, (2, 3)),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), (2, 3)),
    "reshape": (lambda d, t: d.ReshapeTransform((2, 3), (6,)), (4, 2, 3)),
    "softmax": (lambda d, t: d.SoftmaxTransform(), (2, 3)),
    "stick breaking": (lambda d, t: d.StickBreakingTransform(), (2, 3)),
    "lower cholesky": (lambda d, t: d.LowerCholeskyTransform(), (2, 3, 3)),
    "positive definite": (lambda d, t: d.PositiveDefiniteTransform(), (2, 3, 3)),
    "correlations": (lambda d, t: d.CorrCholeskyTransform(), (2, 6)),
    "distribution function": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(0.5), t(2.0))), (3,)),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [2, 1]), (2, 3)),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.SigmoidTransform()], -1), (3, 2)),
    "vectors of vectors": (
        lambda d, t: d.ComposeTransform([d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()]), (2, 3),
    ),
}  # fmt: skip
NO_SLOPE = ("abs", "softmax", "lower cholesky", "positive definite")


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a.detach()), b.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", MAPS)
def test_maps_their_inverses_slopes_and_shapes_are_torchs(name: str) -> None:
    make, shape = MAPS[name]
    x = np.random.default_rng(0).normal(size=shape)
    mine = make(ours, lambda v: tracecomp.tensor(v, dtype=tracecomp.float64))
    other = make(theirs, lambda v: torch.tensor(v, dtype=torch.float64))
    a, b = tracecomp.tensor(x), torch.tensor(x)
    close(mine(a), other(b))
    close(mine.inv(mine(a)), other.inv(other(b)))
    assert tuple(mine.forward_shape(a.shape)) == tuple(other.forward_shape(b.shape))
    assert mine.domain.event_dim == other.domain.event_dim and mine.codomain.event_dim == other.codomain.event_dim
    assert mine.bijective is other.bijective
    if name not in NO_SLOPE:
        close(mine.log_abs_det_jacobian(a, mine(a)), other.log_abs_det_jacobian(b, other(b)))
        close(mine.inv.log_abs_det_jacobian(mine(a), a), other.inv.log_abs_det_jacobian(other(b), b))


CONSTRAINTS: dict[str, Any] = {
    "real": lambda c: c.real, "positive": lambda c: c.positive, "greater": lambda c: c.greater_than(2.0),
    "less": lambda c: c.less_than(-1.0), "interval": lambda c: c.interval(-2.0, 3.0), "unit": lambda c: c.unit_interval,
    "half open": lambda c: c.half_open_interval(1.0, 2.0), "simplex": lambda c: c.simplex,
    "lower_cholesky": lambda c: c.lower_cholesky, "positive_definite": lambda c: c.positive_definite,
    "vector": lambda c: c.independent(c.positive, 1), "cat": lambda c: c.cat([c.positive, c.real], -1, [2, 1]),
    "stack": lambda c: c.stack([c.positive, c.real, c.unit_interval], -1), "corr": lambda c: c.corr_cholesky,
}  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_registries_map_onto_constraints_as_torch_does(name: str, registry: str) -> None:
    if registry == "biject_to" and name in ("lower_cholesky", "positive_definite"):
        with pytest.raises(NotImplementedError):
            ours.biject_to(CONSTRAINTS[name](ours.constraints))
        return
    x = np.random.default_rng(1).normal(size=(2, 3, 3))
    constraint = CONSTRAINTS[name](ours.constraints)
    y = getattr(ours, registry)(constraint)(tracecomp.tensor(x))
    close(y, getattr(theirs, registry)(CONSTRAINTS[name](theirs.constraints))(torch.tensor(x)))
    assert bool(constraint.check(y).all())


VALUES = (-1.5, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, float("nan"))


@pytest.mark.parametrize(
    "make",
    [
        lambda c: c.boolean, lambda c: c.nonnegative_integer, lambda c: c.positive_integer, lambda c: c.real,
        lambda c: c.integer_interval(0, 2), lambda c: c.half_open_interval(0.0, 1.0), lambda c: c.less_than(1.0),
        lambda c: c.nonnegative, lambda c: c.greater_than(0.5),
    ],
)  # fmt: skip
def test_checks_of_numbers_and_their_text_are_torchs(make: Any) -> None:
    mine, other = make(ours.constraints), make(theirs.constraints)
    checked = mine.check(tracecomp.tensor(VALUES, dtype=tracecomp.float64))
    assert checked.tolist() == other.check(torch.tensor(VALUES, dtype=torch.float64)).tolist()
    assert repr(mine) == repr(other) and mine.is_discrete == other.is_discrete


def test_checks_of_vectors_and_matrices_are_torchs() -> None:
    x = np.stack([np.eye(3), -np.eye(3), np.tri(3), np.full((3, 3), 1 / 3), np.eye(3)[::-1]]).copy()
    for name in ("simplex", "one_hot", "lower_triangular", "lower_cholesky", "corr_cholesky", "square", "symmetric",
                 "positive_semidefinite", "positive_definite"):  # fmt: skip
        mine, other = getattr(ours.constraints, name), getattr(theirs.constraints, name)
        given = x[[0, 1]] if name.startswith("positive") else x  # torch answers for all at once if one is skew
        assert mine.check(tracecomp.tensor(given.copy())).tolist() == other.check(torch.tensor(given)).tolist(), name
        assert mine.event_dim == other.event_dim


def test_distributions_transformed_by_maps_of_vectors_are_torchs() -> None:
    def make(d: Any, t: Any) -> Any:
        base = d.Independent(d.Normal(t([0.0, 1.0, -1.0]), t([1.0, 2.0, 0.5])), 1)
        return d.TransformedDistribution(base, [d.AffineTransform(1.0, 2.0), d.StickBreakingTransform()])

    def plain(d: Any, t: Any) -> Any:
        return d.TransformedDistribution(d.Normal(t([0.0, 1.0, -1.0]), t([1.0, 2.0, 0.5])), d.StickBreakingTransform())

    y = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
    for build in (make, plain):
        mine = build(ours, lambda v: tracecomp.tensor(v, dtype=tracecomp.float64))
        other = build(theirs, lambda v: torch.tensor(v, dtype=torch.float64))
        assert tuple(mine.batch_shape) == tuple(other.batch_shape)
        assert tuple(mine.event_shape) == tuple(other.event_shape)
        close(mine.log_prob(tracecomp.tensor(y)), other.log_prob(torch.tensor(y)))


def test_dependent_constraints_and_subclasses() -> None:
    c = ours.constraints

    class Mine(ours.Distribution):
        @c.dependent_property(is_discrete=False, event_dim=1)
        def support(self) -> Any:
            return c.simplex

    assert c.is_dependent(Mine.support) and Mine.support.event_dim == 1 and not c.is_dependent(c.real)
    assert Mine((), (2,)).support is c.simplex
    with pytest.raises(NotImplementedError, match="statically"):
        c.dependent.event_dim  # noqa: B018

    class Even(c.Constraint):
        is_discrete = True

        def check(self, value: Any) -> Any:
            return value % 2 == 0

    with pytest.raises(NotImplementedError, match="Even"):
        ours.biject_to(Even())
    ours.biject_to.register(Even, lambda constraint: ours.AffineTransform(0.0, 2.0))
    assert ours.biject_to(Even())(tracecomp.tensor(3.0)).item() == 6.0


def test_random_matrices_have_torchs_densities_and_moments() -> None:
    x = np.random.default_rng(3).normal(size=(2, 3, 3))
    psd = x @ x.transpose(0, 2, 1) + np.eye(3)
    mine = ours.Wishart(tracecomp.tensor(5.5, dtype=tracecomp.float64), tracecomp.tensor(psd[0]))
    other = theirs.Wishart(torch.tensor(5.5, dtype=torch.float64), torch.tensor(psd[0]))
    close(mine.log_prob(tracecomp.tensor(psd)), other.log_prob(torch.tensor(psd)))
    for name in ("mean", "variance"):
        close(getattr(mine, name), getattr(other, name))
    close(mine.entropy(), other.entropy())
    lkj = ours.LKJCholesky(4, tracecomp.tensor([0.5, 2.0], dtype=tracecomp.float64))
    tracecomp.manual_seed(0)
    drawn = lkj.sample((2000,))
    assert bool(lkj.support.check(drawn).all())
    known = theirs.LKJCholesky(4, torch.tensor([0.5, 2.0], dtype=torch.float64))
    close(lkj.log_prob(drawn[:5]), known.log_prob(torch.tensor(drawn[:5].numpy())))
    products = drawn @ drawn.mT  # each correlation is 2 Beta(a, a) - 1 with a = concentration + (4 - 2) / 2
    spread = products[..., 3, 1].var(0).tolist()
    assert np.allclose(spread, [1 / (2 * a + 1) for a in (1.5, 3.0)], rtol=0.1)
    wishart = mine.sample((4000,)).mean(0)
    np.testing.assert_allclose(wishart.numpy(), mine.mean.numpy(), atol=0.1 * float(mine.mean.max()))
    point = ours.LogisticNormal(tracecomp.zeros(2).double(), tracecomp.ones(2).double())
    y = np.array([0.2, 0.3, 0.5])
    close(point.log_prob(tracecomp.tensor(y)),
          theirs.LogisticNormal(torch.zeros(2).double(), torch.ones(2).double()).log_prob(torch.tensor(y)))
