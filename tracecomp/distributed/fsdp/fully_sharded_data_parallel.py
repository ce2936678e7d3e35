"""``FullyShardedDataParallel``: a wrapper around a module to which ``fully_shard`` is applied."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.distributed.checkpoint.state_dict import get_optimizer_state_dict, numbered, whole
from tracecomp.distributed.device_mesh import DeviceMesh, group_of_mesh
from tracecomp.distributed.fsdp.bucket import MixedPrecisionPolicy
from tracecomp.distributed.fsdp.fully_shard import FSDPModule, fully_shard
from tracecomp.distributed.fsdp.wrap import Policy
from tracecomp.distributed.processes import get_rank
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.distributed import DistributedDataParallel
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.utils import clip_grad_norm_
from tracecomp.optim.optimizer import Optimizer

_INSIDE = "_fsdp_wrapped_module."


class ShardingStrategy(Enum):
    """The parts that processes shard: parameters, gradients and states; the same without parameters between the passes;
    nothing."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = (auto() for _ in range(5))


class BackwardPrefetch(Enum):
    """When parameters are gathered for the backward pass; both are accepted; modules gather when they need them."""

    BACKWARD_PRE, BACKWARD_POST = auto(), auto()


class StateDictType(Enum):
    """The form of ``state_dict``: whole tensors, or the rows of this process."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = auto(), auto(), auto()


@dataclass
class MixedPrecision:
    """Dtypes of whole parameters, of the reduction of gradients (that of parameters if None), and of buffers."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    buffer_dtype: DType | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = True
    cast_root_forward_inputs: bool = True


@dataclass
class CPUOffload:
    """Accepted without effect: parameters are in the memory of CPUs."""

    offload_params: bool = False


@dataclass
class StateDictConfig:
    """The form of tensors in ``state_dict``."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """With ``rank0_only`` processes other than rank 0 get an empty state."""

    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Rows without conversion."""


@dataclass
class OptimStateDictConfig(FullStateDictConfig):
    """The form of tensors in ``optim_state_dict``."""


FullOptimStateDictConfig = OptimStateDictConfig


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Rows without conversion."""

    offload_to_cpu: bool = True


class FullyShardedDataParallel(Module):
    """``module`` with parameters, gradients and optimizer state sharded by rows, like ``fully_shard``.

    ``auto_wrap_policy`` (``fsdp.wrap``) selects the inner modules that are wrapped separately. FULL_SHARD drops whole
    parameters after forward; SHARD_GRAD_OP keeps them until the backward pass has used them; NO_SHARD is
    ``DistributedDataParallel``. Gradients, and weights after a step, have the bits of the latter; with ``shards=S`` for
    any number of processes. NotImplementedError for hybrid strategies. (Zhao et al. 2023)
    """

    def __init__(
        self, module: Module, process_group: Group | None = None, sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None, auto_wrap_policy: Policy | None = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None, ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Any = None, device_id: object = None, sync_module_states: bool = False,
        forward_prefetch: bool = False, limit_all_gathers: bool = True, use_orig_params: bool = False,
        ignored_states: Iterable[Parameter] | None = None, device_mesh: DeviceMesh | Group | None = None,
        shards: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        strategy = ShardingStrategy.FULL_SHARD if sharding_strategy is None else sharding_strategy
        if strategy.name not in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD") or param_init_fn is not None:
            what = "param_init_fn" if param_init_fn is not None else strategy.name
            raise NotImplementedError(at_user_line(f"FullyShardedDataParallel: {what} is not supported"))
        group = process_group if device_mesh is None else group_of_mesh(device_mesh, "FullyShardedDataParallel")
        mixed = mixed_precision or MixedPrecision()
        skipped = {id(m) for top in ignored_modules or () for m in top.modules()}
        ignored = [*(ignored_states or ()), *(p for m in ignored_modules or () for p in m.parameters())]
        self.sharding_strategy, self.mixed_precision = strategy, mixed
        self._state_dict_type = StateDictType.FULL_STATE_DICT
        self._state_dict_config: StateDictConfig = FullStateDictConfig()
        self._optim_state_dict_config: StateDictConfig = OptimStateDictConfig()
        if mixed.buffer_dtype is not None:
            _cast_buffers(module, mixed.buffer_dtype)
        # Without sharding this is DistributedDataParallel; it is not a submodule, so that names do not change.
        replicas = None
        if strategy is ShardingStrategy.NO_SHARD:
            replicas = DistributedDataParallel(module, process_group=group, shards=shards)
        else:
            # Inner modules first: each takes its parameters, and the outermost one the remaining ones.
            if auto_wrap_policy is not None:
                inner = functools.partial(
                    FullyShardedDataParallel, process_group=group, sharding_strategy=strategy, mixed_precision=mixed,
                    ignored_modules=ignored_modules, ignored_states=ignored_states, shards=shards,
                )  # fmt: skip
                _wrap_inside(module, auto_wrap_policy, inner, skipped)
            policy = MixedPrecisionPolicy(
                mixed.param_dtype, mixed.reduce_dtype or mixed.param_dtype, None, mixed.cast_forward_inputs
            )
            drops = None if strategy is ShardingStrategy.FULL_SHARD else False
            fully_shard(
                module, mesh=group, reshard_after_forward=drops, mp_policy=policy, ignored_params=ignored, shards=shards
            )
        self._fsdp_wrapped_module = module
        self.__dict__["_replicas"] = replicas
        self._register_state_dict_hook(_given)
        self._register_load_state_dict_pre_hook(_taken, with_module=True)

    @property
    def module(self) -> Module:
        """The wrapped module."""
        return self._fsdp_wrapped_module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_fsdp_wrapped_module"), name)

    def __getitem__(self, key: int) -> Any:
        return self.module[key]  # type: ignore[index]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        run = self.__dict__["_replicas"] or self.module
        return run(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Return names without the wrappers' prefix."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(_INSIDE, ""), param

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """Return names without the wrappers' prefix."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_INSIDE, ""), buffer

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale gradients so that their norm over all processes is at most ``max_norm``; return the old norm."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which backward passes accumulate gradients in each process."""
        replicas = self.__dict__["_replicas"]
        if replicas is not None:
            with replicas.no_sync():
                yield
            return
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """Wrappers in ``module``; with ``root_only`` those that no other one contains."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        held = {id(inner) for m in found for inner in m.modules() if inner is not m}
        return [m for m in found if not root_only or id(m) not in held]

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
        offload_to_cpu: bool = False, with_grads: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """A context in which modules have whole parameters; writes to them are kept if ``writeback``.

        NotImplementedError for ``rank0_only`` with ``writeback``, as in PyTorch, and for ``with_grads``.
        """
        if with_grads or (writeback and rank0_only):
            raise NotImplementedError(at_user_line("summon_full_params: rank0_only with writeback, or with_grads"))
        tops = [m.module for m in FullyShardedDataParallel.fsdp_modules(module)] if recurse else [module.module]
        sharded = [m for m in tops if isinstance(m, FSDPModule)]
        for part in sharded:
            part._show_whole()
            if rank0_only and get_rank():
                part.reshard()
        try:
            yield
        finally:
            for part in sharded:
                if writeback:
                    part._keep_whole()
                part.reshard()

    # ---- states

    @staticmethod
    def set_state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: StateDictConfig | None = None,
    ) -> None:  # fmt: skip
        """Set the form of ``state_dict`` and ``optim_state_dict``. NotImplementedError for LOCAL_STATE_DICT."""
        if state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise NotImplementedError(at_user_line("LOCAL_STATE_DICT is not supported. Use SHARDED_STATE_DICT"))
        for part in FullyShardedDataParallel.fsdp_modules(module):
            part._state_dict_type = state_dict_type
            part._state_dict_config = state_dict_config or FullStateDictConfig()
            part._optim_state_dict_config = optim_state_dict_config or OptimStateDictConfig()

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: StateDictConfig | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """A context with ``set_state_dict_type``."""
        parts = FullyShardedDataParallel.fsdp_modules(module)
        before = [(p._state_dict_type, p._state_dict_config, p._optim_state_dict_config) for p in parts]
        FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for part, kept in zip(parts, before, strict=True):
                part._state_dict_type, part._state_dict_config, part._optim_state_dict_config = kept

    @staticmethod
    def optim_state_dict(model: Module, optim: Optimizer, optim_state_dict: object = None) -> dict[str, Any]:
        """Return the state of ``optim`` by parameter names, in the form of ``set_state_dict_type``."""
        first = FullyShardedDataParallel.fsdp_modules(model)[0]
        found = get_optimizer_state_dict(model, optim)
        if first._state_dict_type is StateDictType.FULL_STATE_DICT:
            found = whole(found, not _elsewhere(first._optim_state_dict_config))
        return found

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Optimizer, optim_state_dict: Mapping[str, Any], **options: object
    ) -> dict[str, Any]:
        """Convert a result of ``optim_state_dict`` to the argument of ``optim.load_state_dict``."""
        return numbered(model, optim, optim_state_dict)


def _elsewhere(config: StateDictConfig) -> bool:
    return isinstance(config, FullStateDictConfig) and config.rank0_only and get_rank() != 0


def _given(module: Any, state: dict[str, Any], prefix: str, metadata: object) -> None:
    """Remove the wrapper from names, and convert tensors to the requested form; in the outermost wrapper last."""
    for key in [k for k in state if k.startswith(prefix + _INSIDE)]:
        value = state.pop(key)
        if module._state_dict_type is StateDictType.FULL_STATE_DICT:
            value = whole(value)
            if _elsewhere(module._state_dict_config):
                continue
        state[prefix + key.removeprefix(prefix + _INSIDE)] = value


def _taken(module: object, state: dict[str, Any], prefix: str, *rest: object) -> None:
    """Add the wrapper to names."""
    for key in [k for k in state if k.startswith(prefix)]:
        state[prefix + _INSIDE + key.removeprefix(prefix)] = state.pop(key)


def _cast_buffers(module: Module, dtype: DType) -> None:
    with no_grad():
        for part in module.modules():
            for name, buffer in part._buffers.items():
                if buffer is not None and buffer.dtype.is_floating_point:
                    part._buffers[name] = buffer.to(dtype)


def _wrap_inside(module: Module, policy: Policy, wrap: Any, skipped: set[int]) -> int:
    """Wrap the inner modules that the policy selects; return the number of elements of their parameters."""
    taken = 0
    for name, child in [*module._modules.items()]:
        if child is None or id(child) in skipped or isinstance(child, FullyShardedDataParallel):
            continue
        size = sum(p.numel() for p in child.parameters())
        if not policy(module=child, recurse=True, nonwrapped_numel=size):
            continue
        inside = _wrap_inside(child, policy, wrap, skipped)
        if size > inside and policy(module=child, recurse=False, nonwrapped_numel=size - inside):
            module._modules[name] = wrap(child)
            inside = size
        taken += inside
    return taken
