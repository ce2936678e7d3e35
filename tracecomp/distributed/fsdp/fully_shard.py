"""``fully_shard``: every process keeps some rows of a module's parameters, gradients and optimizer state."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from tracecomp.autograd.graph import saved_tensors_hooks
from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.distributed import over_shards
from tracecomp.distributed.device_mesh import DeviceMesh, group_of_mesh
from tracecomp.distributed.fsdp.bucket import Bucket, MixedPrecisionPolicy, OffloadPolicy, Places, saving
from tracecomp.eager.modes import grad_enabled, modes, no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.nn.containers import ModuleDict, ModuleList
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.shard_values import Context, Shards, within
from tracecomp.nn.parallel.shards import ShardPlan
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.sharding import ShardedParameter


class _State:
    """State of ``fully_shard`` for one module."""

    def __init__(self, buckets: list[Bucket], group: Group, policy: MixedPrecisionPolicy, drops: bool) -> None:
        self.buckets, self.group, self.policy = buckets, group, policy
        self.drops = drops
        self.plan: ShardPlan | None = None

    @contextmanager
    def whole(self, given: Shards | None) -> Iterator[None]:
        """A context in which the module has whole parameters; one per shard if it or an outer module received
        shards."""
        before = _running.now
        now = _running.now = before if given is None else given.context
        try:
            for bucket in self.buckets:
                bucket.find()
                bucket.install(_seen_by(bucket, now))
            yield
        finally:
            _running.now = before
            for bucket in self.buckets:
                bucket.install(bucket.rows)
                if self.drops or not grad_enabled():
                    bucket.drop()


class _Running(threading.local):
    """The current pass of shards."""

    now: Context | None = None


_running = _Running()


def _seen_by(bucket: Bucket, now: Context | None) -> Sequence[Any]:
    """The whole parameters of a bucket, as shards during a pass."""
    if not grad_enabled():
        return bucket.gathered()
    each = bucket.differentiable(1 if now is None else len(now.plan.own))
    return each[0] if now is None else [Shards(list(row), now) for row in zip(*each, strict=True)]


class FSDPModule:
    """The methods that ``fully_shard`` adds to the class of a module."""

    _fsdp: _State

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        state = self._fsdp
        args, kwargs = _cast_inputs(state.policy, args, kwargs)
        with state.whole(next(within((args, kwargs), Shards), None)):
            # A recorded call keeps the operands of its derivative: saved tensors need no replacement.
            notes = saved_tensors_hooks(*saving(state.buckets)) if modes.recorder is None else nullcontext()
            with notes:
                found = super()._call_impl(*args, **kwargs)  # type: ignore[misc]  # of the module's own class
        return found if state.policy.output_dtype is None else _cast(found, state.policy.output_dtype)

    def _states(self, recurse: bool = True) -> Iterator[_State]:
        modules: Iterable[Any] = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        yield from (m._fsdp for m in modules if isinstance(m, FSDPModule))

    def unshard(self, async_op: bool = False) -> Any:
        """Gather the module's whole parameters until ``reshard``; all processes call it."""
        for bucket in self._fsdp.buckets:
            bucket.find()
            bucket.install([Parameter(t, r.requires_grad) for t, r in zip(bucket.gathered(), bucket.rows, strict=True)])
            bucket.shown = True
        return _Done() if async_op else None

    def reshard(self) -> None:
        """Restore the module's rows; writes to whole parameters are lost."""
        for bucket in self._fsdp.buckets:
            bucket.install(bucket.rows)
            bucket.shown = False
            bucket.drop()

    def _show_whole(self) -> None:
        """Like ``unshard``, in the dtype of the rows."""
        for bucket in self._fsdp.buckets:
            bucket.find()
            bucket.install([Parameter(r.full_tensor(), r.requires_grad) for r in bucket.rows])
            bucket.shown = True

    def _keep_whole(self) -> None:
        """Write the current whole parameters to the rows."""
        with no_grad():
            for bucket in self._fsdp.buckets:
                for ((module, name), *_), row, sharding in zip(
                    bucket.places, bucket.rows, bucket.shardings, strict=True
                ):
                    row.copy_(sharding.own(getattr(module, name)))

    def shard(self, *tensors: Tensor) -> Any:
        """Split tensors of this process's part of the global batch into logical shards, like
        ``DistributedDataParallel.shard``.

        Only for modules created with ``shards=S``; RuntimeError for others.
        """
        found = self._planned("shard").cut(tensors)
        return found[0] if len(found) == 1 else tuple(found)

    def mean(self, value: Shards) -> Tensor:
        """The mean over all shards of all processes, without gradient; every process calls it."""
        self._planned("mean")
        return value.context.mean(value)

    def _planned(self, name: str) -> ShardPlan:
        if self._fsdp.plan is None:
            raise RuntimeError(at_user_line(f"{name}(): fully_shard was called without shards=..."))
        return self._fsdp.plan

    # ---- settings

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes combine gradients; if not, they add up in each process until one does."""
        for state in self._states(recurse):
            for bucket in state.buckets:
                bucket.synchronised = requires_gradient_sync

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Set whether whole parameters are dropped between forward and backward."""
        for state in self._states(recurse):
            state.drops = reshard_after_forward

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Do nothing: every backward pass ends independently."""

    def set_modules_to_forward_prefetch(self, modules: object) -> None:
        """Do nothing: modules gather their parameters when they run."""

    def set_modules_to_backward_prefetch(self, modules: object) -> None:
        """Do nothing: modules gather their parameters when they run."""


class _Done:
    """The handle of a finished ``unshard``."""

    def wait(self) -> None:
        """Return at once."""


def fully_shard(
    module: Any, *, mesh: DeviceMesh | Group | None = None, reshard_after_forward: bool | None = None,
    shard_placement_fn: object = None, mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None, ignored_params: Any = None, shards: int | None = None,
) -> Any:  # fmt: skip
    """Keep, in place, only this process's rows of the module's parameters; return the module.

    Parameters of inner modules that are already sharded stay separate: call ``fully_shard`` for blocks first, then for
    the whole. All ranks take the parameters of rank 0. A call gathers whole parameters and drops them after forward
    (unless ``reshard_after_forward`` is False; the default for all but the outermost module). Backward gathers them
    again, and leaves the mean of gradients over processes, by rows. With ``shards=S``, the same in all calls, the mean
    is over S logical shards. Its bits are those of ``DistributedDataParallel(..., shards=S)`` for any number of
    processes (``docs/distributed.md``). ``mesh`` is a mesh of one dimension or a process
    group, the default one if None.

    ValueError for parameters without axes and containers without forward; RuntimeError for a parameter shared with a
    separately sharded module. (Rajbhandari et al. 2020, stage 3)
    """
    if shard_placement_fn is not None:
        raise NotImplementedError(at_user_line("fully_shard: shard_placement_fn is not supported"))
    if isinstance(module, ModuleList | ModuleDict) or not isinstance(module, Module):
        raise ValueError(
            at_user_line(f"fully_shard does not support containers that do not implement forward: {module}")
        )
    if isinstance(module, FSDPModule):
        raise AssertionError(f"Expects a module that fully_shard has not been applied to, got {type(module).__name__}")
    group = group_of_mesh(mesh, "fully_shard")
    policy = mp_policy or MixedPrecisionPolicy()
    for inner in module.modules():
        if isinstance(inner, FSDPModule) and reshard_after_forward is None:
            inner._fsdp.drops = True
    plan = over_shards.plan_of(group) or (None if shards is None else ShardPlan(group, shards))
    if plan is not None and shards not in (None, plan.total):
        raise ValueError(at_user_line(f"shards={shards}, but TRACECOMP_SHARDS={plan.total}. Pass one of them"))
    total = group.size() if plan is None else plan.total
    buckets = [Bucket(row, group, policy, total, mesh) for row in _by_dtype(_own(module, ignored_params or ()))]
    state = _State(buckets, group, policy, bool(reshard_after_forward))
    state.plan = plan
    module.__dict__["_fsdp"] = state
    kind = type(module)
    module.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {"__module__": kind.__module__})
    return module


def _own(module: Module, ignored: Iterable[Tensor]) -> list[tuple[Parameter, Places]]:
    """Parameters below ``module`` that no inner module has sharded separately, with their places."""
    left_out = {id(p) for p in ignored}
    found: dict[int, tuple[Parameter, list[tuple[Module, str]]]] = {}
    stack = [(module, "")]
    while stack:
        part, path = stack.pop()
        if isinstance(part, FSDPModule):
            continue
        for name, param in part._parameters.items():
            if param is None or id(param) in left_out:
                continue
            _check(param, f"{path}{name}")
            found.setdefault(id(param), (param, []))[1].append((part, name))
        children = [(child, f"{path}{name}.") for name, child in part._modules.items() if child is not None]
        stack.extend(reversed(children))
    return [*found.values()]


def _check(param: Parameter, name: str) -> None:
    if not param.ndim:
        raise ValueError(
            at_user_line(
                f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
            )
        )
    if isinstance(param, ShardedParameter) or param.__dict__.get("_sharded"):
        raise RuntimeError(
            at_user_line(
                f"{name} is already sharded by fully_shard() on an inner module. Call fully_shard() on a module that "
                "contains every module using this parameter"
            )
        )


def _by_dtype(params: list[tuple[Parameter, Places]]) -> list[list[tuple[Parameter, Places]]]:
    rows: dict[Any, list[tuple[Parameter, Places]]] = {}
    for param, places in params:
        rows.setdefault(param.dtype, []).append((param, places))
    return [*rows.values()]


def _cast_inputs(policy: MixedPrecisionPolicy, args: object, kwargs: object) -> Any:
    if policy.param_dtype is None or not policy.cast_forward_inputs:
        return args, kwargs
    return _cast(args, policy.param_dtype), _cast(kwargs, policy.param_dtype)


def _cast(value: Any, dtype: Any) -> Any:
    """Cast the floating tensors of ``value`` to ``dtype``."""
    if isinstance(value, Tensor | Shards):
        return value.to(dtype) if value.dtype.is_floating_point else value
    if isinstance(value, dict):
        return {k: _cast(v, dtype) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_cast(v, dtype) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, dtype) for v in value)
    return value
