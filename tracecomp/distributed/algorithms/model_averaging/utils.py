"""``torch.distributed.algorithms.model_averaging.utils``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracecomp.communication.group import Group
from tracecomp.distributed.collectives import all_reduce
from tracecomp.distributed.processes import get_world_size
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterable[Tensor], process_group: Group | None) -> None:
    """Replace parameters by their means over the group; processes outside it do nothing."""
    size = get_world_size(process_group)
    if size < 1:
        return
    several = [*params]
    if several:
        with no_grad():
            means = T.cat([p.detach().reshape(-1) for p in several]) / size
            all_reduce(means, group=process_group)
            for p, mean in zip(several, means.split([p.numel() for p in several]), strict=True):
                p.copy_(mean.reshape(p.shape))


def get_params_to_average(params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> list[Tensor]:
    """Those of ``params``, or of an optimizer's groups, that have gradients. NotImplementedError for anything else."""
    found: list[Tensor] = []
    for given in params:
        several = given["params"] if isinstance(given, dict) else [given]
        if not all(isinstance(p, Tensor) for p in several):
            raise NotImplementedError(f"Parameter input of type {type(given)} is not supported")
        found += [p for p in several if p.grad is not None]
    return found


def average_parameters_or_parameter_groups(
    params: Iterable[Tensor] | Iterable[dict[str, Any]], process_group: Group | None
) -> None:
    """Average those that have gradients."""
    average_parameters(get_params_to_average(params), process_group)
