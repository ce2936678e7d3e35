"""From constraints to maps onto them, under the names of ``torch.distributions.constraint_registry``.

``biject_to(c)`` is one-to-one from unconstrained values onto the set, ``transform_to(c)`` need not be, and is better
for optimization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from tracecomp.distributions import constraints, mappings, transforms
from tracecomp.distributions.constraints import Constraint
from tracecomp.distributions.transforms import Transform
from tracecomp.eager.tensor import Tensor

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """A registry from a constraint class to the factory of a transform onto such a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Factory] = {}

    @overload
    def register(self, constraint: Constraint | type[Constraint]) -> Callable[[Factory], Factory]: ...

    @overload
    def register(self, constraint: Constraint | type[Constraint], factory: Factory) -> Factory: ...

    def register(self, constraint: Constraint | type[Constraint], factory: Factory | None = None) -> Any:
        """Use ``factory`` for constraints of a class, or of the class of an instance; also a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """Return a transform onto ``constraint``; NotImplementedError if there is none."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable[[Factory], Factory]:
    def register(factory: Factory) -> Factory:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return register


@_both(constraints.real)
def _to_real(constraint: Constraint) -> Transform:
    return transforms.identity_transform


@_both(constraints.positive, constraints.nonnegative)
def _to_positive(constraint: Any) -> Transform:
    exp = transforms.ExpTransform()
    return exp if constraint.lower_bound == 0 else _shifted(exp, constraint.lower_bound, 1)


def _shifted(first: Transform, loc: Tensor | float, scale: Tensor | float) -> Transform:
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


@_both(constraints.greater_than, constraints.greater_than_eq)
def _to_greater(constraint: Any) -> Transform:
    return _shifted(transforms.ExpTransform(), constraint.lower_bound, 1)


@_both(constraints.less_than)
def _to_less(constraint: Any) -> Transform:
    return _shifted(transforms.ExpTransform(), constraint.upper_bound, -1)


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, int | float) and isinstance(high, int | float) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _shifted(transforms.SigmoidTransform(), low, high - low)


@biject_to.register(constraints.simplex)
def _biject_to_simplex(constraint: Constraint) -> Transform:
    return mappings.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(constraint: Constraint) -> Transform:
    return mappings.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _to_lower_cholesky(constraint: Constraint) -> Transform:
    return mappings.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _to_positive_definite(constraint: Constraint) -> Transform:
    return mappings.PositiveDefiniteTransform()


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Constraint) -> Transform:
    return mappings.CorrCholeskyTransform()


@biject_to.register(constraints.independent)
def _biject_to_independent(constraint: Any) -> Transform:
    base = biject_to(constraint.base_constraint)
    return mappings.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@transform_to.register(constraints.independent)
def _transform_to_independent(constraint: Any) -> Transform:
    base = transform_to(constraint.base_constraint)
    return mappings.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


@biject_to.register(constraints.cat)
def _biject_to_cat(constraint: Any) -> Transform:
    return mappings.CatTransform([biject_to(c) for c in constraint.cseq], constraint.dim, constraint.lengths)


@transform_to.register(constraints.cat)
def _transform_to_cat(constraint: Any) -> Transform:
    return mappings.CatTransform([transform_to(c) for c in constraint.cseq], constraint.dim, constraint.lengths)


@biject_to.register(constraints.stack)
def _biject_to_stack(constraint: Any) -> Transform:
    return mappings.StackTransform([biject_to(c) for c in constraint.cseq], constraint.dim)


@transform_to.register(constraints.stack)
def _transform_to_stack(constraint: Any) -> Transform:
    return mappings.StackTransform([transform_to(c) for c in constraint.cseq], constraint.dim)
