"""Gradients averaged over all processes at first, over few of them later (Lin et al. 2018)."""

from __future__ import annotations

from tracecomp.communication.group import Group
from tracecomp.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from tracecomp.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from tracecomp.distributed.processes import new_subgroups
from tracecomp.eager.tensor import Tensor
from tracecomp.futures import Future
from tracecomp.nn.parallel.reducer import GradBucket

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Gradients are averaged over ``process_group`` up to the step ``start_localSGD_iter``, then over ``subgroup``.

    Without ``post_local_gradient_allreduce`` each process then keeps its gradients. By default the subgroup is this
    machine's.
    """

    def __init__(
        self, process_group: Group | None, subgroup: Group | None, start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:  # fmt: skip
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step with its last bucket."""
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The mean selected by ``state``; ``PeriodicModelAverager`` averages the model in addition."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return allreduce_hook(state.subgroup, bucket)
