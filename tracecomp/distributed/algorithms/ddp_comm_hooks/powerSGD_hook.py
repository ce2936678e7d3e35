"""Gradients as products of two narrow matrices (PowerSGD, Vogels et al. 2019), for slow networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.communication.group import Group
from tracecomp.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from tracecomp.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from tracecomp.distributed.collectives import all_reduce
from tracecomp.distributed.processes import get_world_size
from tracecomp.eager.modes import no_grad
from tracecomp.eager.rng import Generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.futures import Future
from tracecomp.nn.parallel.reducer import GradBucket

__all__ = ["PowerSGDState", "powerSGD_hook"]


class PowerSGDState:
    """Settings, and state between steps: compression errors, and the narrow matrices to start with.

    Up to the step ``start_powerSGD_iter`` (at least 2 with error feedback or a warm start: ValueError) gradients are
    averaged uncompressed. Afterwards a gradient of n x m numbers is compressed to ``matrix_approximation_rank`` columns
    if that makes it smaller by more than ``min_compression_rate``.
    """

    def __init__(
        self, process_group: Group | None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1_000,
        min_compression_rate: float = 2, use_error_feedback: bool = True, warm_start: bool = True,
        orthogonalization_epsilon: float = 0, random_seed: int = 0, compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:  # fmt: skip
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD "
                "can only be applied after the first two iterations in DDP."
            )
        self.process_group = process_group
        self.matrix_approximation_rank, self.start_powerSGD_iter = matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon = orthogonalization_epsilon
        self.generator = Generator().manual_seed(random_seed)  # the same numbers in all processes
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[tuple[int, int], Tensor] = {}

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step with its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compresses(self, n: int, m: int) -> int:
        """Number of columns to which a matrix is compressed; 0 if that does not pay."""
        rank = min(n, m, self.matrix_approximation_rank)
        return rank if (n + m) * rank * self.min_compression_rate < n * m else 0


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Tensor]:
    """The mean over processes, approximately for large matrices."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    with no_grad():
        buffer = bucket.buffer()
        if state.use_error_feedback and bucket.index() in state.error_dict:
            buffer += state.error_dict[bucket.index()]
        before = buffer.clone()
        _combine(state, bucket.index(), bucket.gradients())
        if state.use_error_feedback:
            state.error_dict[bucket.index()] = before - buffer
    state.maybe_increase_iter(bucket)
    return noop_hook(None, bucket)


def _combine(state: PowerSGDState, index: int, gradients: Sequence[Tensor]) -> None:
    """Replace gradients, views of the bucket, by their means or approximations of these."""
    whole: list[Tensor] = []
    matrices: list[tuple[Tensor, Tensor]] = []
    for number, grad in enumerate(gradients):
        matrix = grad.reshape(grad.shape[0], -1) if grad.ndim > 1 else grad.reshape(1, -1)
        rank = state.compresses(*matrix.shape)
        if not rank:
            whole.append(grad)
            continue
        matrices.append((matrix, _start(state, (index, number), matrix, rank)))
    for grad, mean in zip(whole, _means(state, whole), strict=True):
        grad.copy_(mean)
    lefts = _means(state, [matrix @ right for matrix, right in matrices])
    lefts = [_orthogonal(left, state.orthogonalization_epsilon) for left in lefts]
    rights = _means(state, [matrix.T @ left for (matrix, _), left in zip(matrices, lefts, strict=True)])
    for (matrix, kept), left, right in zip(matrices, lefts, rights, strict=True):
        matrix.copy_(left @ right.T)
        kept.copy_(right)


def _start(state: PowerSGDState, place: tuple[int, int], matrix: Tensor, rank: int) -> Tensor:
    """The narrow matrix to start with: that of the last step, or a random one."""
    found = state.q_memory_dict.get(place) if state.warm_start else None
    if found is None:
        found = T.randn(matrix.shape[1], rank, generator=state.generator, dtype=matrix.dtype)
        state.q_memory_dict[place] = found
    return _orthogonal(found, state.orthogonalization_epsilon)


def _orthogonal(matrix: Tensor, epsilon: float) -> Tensor:
    """Orthonormalize columns by the Gram-Schmidt process."""
    columns: list[Any] = []
    for column in matrix.unbind(1):
        for other in columns:
            column = column - (other * column).sum() * other
        columns.append(column / (column.norm() + epsilon))
    return T.stack(columns, 1)


def _means(state: PowerSGDState, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Means over processes, in one message."""
    if not tensors:
        return []
    flat = T.cat([t.reshape(-1) for t in tensors]) / get_world_size(state.process_group)
    all_reduce(flat, group=state.process_group)
    return [p.reshape(t.shape) for p, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)]
