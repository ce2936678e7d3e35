"""Activation checkpointing, where PyTorch keeps it; and selective checkpointing, by operator."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tracecomp.autograd.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, noop_context_fn
from tracecomp.eager.tensor import Tensor
from tracecomp.utils._python_dispatch import TorchDispatchMode
from tracecomp.utils._pytree import tree_map_only

__all__ = [
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint", "checkpoint_sequential",
    "create_selective_checkpoint_contexts", "noop_context_fn",
]  # fmt: skip


class CheckpointPolicy(enum.Enum):
    """The handling of an operator's results. The PREFER members equal the MUST members."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """The context of a policy: whether the operator runs again for the backward pass."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


Policy = Callable[..., CheckpointPolicy | bool]


def _saves(policy: Policy, again: bool, func: Any, args: Any, kwargs: Any) -> bool:
    answer = policy(SelectiveCheckpointContext(is_recompute=again), func, *args, **kwargs)
    return answer if isinstance(answer, bool) else answer in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class _Saving(TorchDispatchMode):
    """The first run: results that the policy wants are kept."""

    def __init__(self, policy: Policy, kept: dict[Any, list[Any]]) -> None:
        self._policy, self._kept = policy, kept

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if _saves(self._policy, False, func, args, kwargs or {}):
            self._kept[func].append(tree_map_only(Tensor, Tensor.detach, found))
        return found


class _Taking(TorchDispatchMode):
    """The second run: kept results are reused, in order of creation."""

    def __init__(self, policy: Policy, kept: dict[Any, list[Any]]) -> None:
        self._policy, self._kept = policy, kept

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        if not _saves(self._policy, True, func, args, kwargs or {}):
            return func(*args, **(kwargs or {}))
        if not self._kept[func]:
            raise RuntimeError(
                f"{func} encountered during backward, but not found in storage, or trying to backward an extra time. "
                "You are only allowed to backward once on any region computed under selective activation checkpoint."
            )
        return self._kept[func].pop(0)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Sequence[object], allow_cache_entry_mutation: bool = False
) -> tuple[TorchDispatchMode, TorchDispatchMode]:
    """Contexts for ``checkpoint(..., context_fn=)``: results of some operators are kept, others computed again.

    A policy is called as ``policy(ctx, op, *args, **kwargs)`` and answers with a `CheckpointPolicy`; or a list of the
    operators to keep, as ``torch.ops.aten.mm.default``. Which operators there are says docs/dispatch.md.
    """
    policy = policy_fn_or_list if callable(policy_fn_or_list) else partial(_among, list(policy_fn_or_list))
    kept: dict[Any, list[Any]] = defaultdict(list)
    return _Saving(policy, kept), _Taking(policy, kept)


def _among(listed: list[object], ctx: SelectiveCheckpointContext, func: object, *args: Any, **kwargs: Any) -> bool:
    return func in listed


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Devices of the tensors among ``args`` and the states of their random numbers: none other than the CPU's."""
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Put back what :func:`get_device_states` gave. RuntimeError where there is a state of a device."""
    if devices or states:
        raise RuntimeError("set_device_states: the CPU is the only device")
