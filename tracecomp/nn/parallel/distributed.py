"""``DistributedDataParallel``: one model in several processes, whose gradients are the mean over all."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.base.errors import at_user_line
from tracecomp.communication.group import Group
from tracecomp.communication.world import world
from tracecomp.eager.modes import grad_enabled, modes, no_grad
from tracecomp.eager.rng import get_rng_state
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.join import Join, Joinable, JoinHook
from tracecomp.nn.parallel.reducer import Hook, Reducer
from tracecomp.nn.parallel.shard_values import Shards, within
from tracecomp.nn.parallel.shards import ShardPlan
from tracecomp.ops.prim import prim

_MB = 1 << 20
"""Bytes of the unit of ``bucket_cap_mb``, as in PyTorch."""


class DistributedDataParallel(Module, Joinable):
    """``module`` in every process of a group, with equal parameters and equal gradients.

    Parameters and buffers are copied from rank 0. After every backward pass gradients are the mean over processes, sent
    in buckets of ``bucket_cap_mb`` while the pass still runs. With ``shards=S`` the mean is over S logical shards of
    the global batch, in one order for any number of processes up to S: see ``shard`` and ``docs/distributed.md``.
    RuntimeError when no parameter requires a gradient or when the processes' models differ.
    """

    def __init__(
        self, module: Module, device_ids: object = None, output_device: object = None, dim: int = 0,
        broadcast_buffers: bool = True, init_sync: bool = True, process_group: Group | None = None,
        bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
        gradient_as_bucket_view: bool = False, static_graph: bool = False,
        delay_all_reduce_named_params: object = None, param_to_hook_all_reduce: object = None,
        mixed_precision: object = None, device_mesh: Any = None, skip_all_reduce_unused_params: bool = False,
        shards: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
            process_group = device_mesh.get_group(0)
        group = _group(process_group)
        if mixed_precision is not None:
            raise NotImplementedError(
                at_user_line("DistributedDataParallel: mixed_precision is not supported; use autocast")
            )
        ignored = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
        self.process_group, self.module, self.dim = group, module, dim
        self.device_ids, self.output_device, self.device_type = None, None, "cpu"
        self.broadcast_buffers = broadcast_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.parameters_to_ignore = set(ignored)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._params = [
            p for n, p in module.named_parameters() if p.requires_grad and n not in self.parameters_to_ignore
        ]
        if not self._params:
            raise RuntimeError(
                at_user_line(
                    "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                    "gradient."
                )
            )
        if init_sync:
            self._check_models()
            self._same([t for n, t in self._everything() if n not in self.parameters_to_ignore])
        self._cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * _MB)
        self.shards = shards
        self._by_initial = True  # divisor of gradients while processes join
        self._connect()
        if self._plan is not None:
            self._check_for_shards()

    def _connect(self) -> None:
        """Create what combines gradients in the process group."""
        self._reducer: Reducer | None = None
        self._plan = self._shared(self.process_group, self.shards)
        self.shards = None if self._plan is None else self._plan.total
        if self._plan is not None:
            self._buckets = self._plan.add(self._params, self._cap)
        else:
            self._reducer = Reducer(self._params, self.process_group, self._cap, self.gradient_as_bucket_view)
            self._reducer.find_unused = self.find_unused_parameters or self.static_graph

    @staticmethod
    def _shared(group: Group, shards: int | None) -> ShardPlan | None:
        """The shards of the model: the environment's, those of ``shards``, or None."""
        plan = world.plan if group is world.default else None
        if plan is None:
            return None if shards is None else ShardPlan(group, shards)
        if shards not in (None, plan.total):
            raise ValueError(
                at_user_line(f"DistributedDataParallel: shards={shards}, but TRACECOMP_SHARDS={plan.total}")
            )
        assert isinstance(plan, ShardPlan)
        return plan

    def _everything(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.module.named_parameters()
        yield from self.module.named_buffers()

    def _compared(self, what: str, value: object) -> list[Any]:
        """Return ``value`` of every process."""
        packed = np.frombuffer(pickle.dumps(value), np.uint8)
        bodies = self.process_group.worker.run(lambda: self.process_group.gather_bytes(packed, what))
        return [pickle.loads(body.tobytes()) for body in bodies]

    def _check_models(self) -> None:
        """RuntimeError naming the first difference to the model of rank 0."""
        mine = [(n, tuple(p.shape), str(p.dtype)) for n, p in self.module.named_parameters() if p.requires_grad]
        every = self._compared("DistributedDataParallel()", mine)
        for rank, theirs in enumerate(every):
            if theirs == every[0]:
                continue
            if len(theirs) != len(every[0]):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank 0 has {len(every[0])} params, while rank "
                    f"{rank} has inconsistent {len(theirs)} params."
                )
            first, other = next((a, b) for a, b in zip(every[0], theirs, strict=True) if a != b)
            raise RuntimeError(
                f"DDP expects same model across all ranks, but rank 0 has {first} where rank {rank} has {other}"
            )

    def _check_for_shards(self) -> None:
        """Raise for state that would make results depend on the number of processes: other random states, statistics of
        one shard."""
        for name, child in self.module.named_modules():
            if getattr(child, "running_mean", None) is not None and not type(child).__name__.startswith(
                "SyncBatchNorm"
            ):
                raise ValueError(
                    at_user_line(
                        f"DistributedDataParallel(shards=...): {name or 'the module'} is a {type(child).__name__}, "
                        "whose running statistics would depend on the number of processes. Use "
                        "SyncBatchNorm.convert_sync_batchnorm"
                    )
                )
        states = self._compared("DistributedDataParallel(shards)", get_rng_state().tolist())
        different = [rank for rank, state in enumerate(states) if state != states[0]]
        if different:
            raise RuntimeError(
                at_user_line(
                    f"DistributedDataParallel(shards=...): ranks {different} differ in random state from rank 0; "
                    "call manual_seed with the same seed in all processes"
                )
            )

    def _same(self, tensors: Iterable[Tensor], root: int = 0) -> None:
        """Copy tensors from rank ``root``."""
        if self.process_group.size() == 1:
            return
        by_dtype: dict[Any, list[Tensor]] = {}
        for t in tensors:
            by_dtype.setdefault(t.dtype, []).append(t)
        with no_grad():
            for row in by_dtype.values():
                flat = T.cat([(T.view_as_real(t) if t.dtype.is_complex else t).reshape(-1) for t in row])
                sent = prim.broadcast_from(flat.detach(), root=root, group=self.process_group.group_name)
                sizes = [t.numel() * (2 if t.dtype.is_complex else 1) for t in row]
                for t, piece in zip(row, sent.split(sizes), strict=True):
                    t.copy_(
                        T.view_as_complex(piece.reshape(*t.shape, 2)) if t.dtype.is_complex else piece.reshape(t.shape)
                    )

    # ---- calls

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        training = grad_enabled() and self.require_backward_grad_sync
        if self._plan is not None:
            return self._of_shards(inputs, kwargs)
        reducer = self._reducer
        assert reducer is not None
        if training and modes.recorder is None and reducer.unfinished:
            raise RuntimeError(at_user_line(_unfinished(self.module, reducer.unfinished)))
        reducer.enabled = training
        root = self._begin_joined(training)
        if grad_enabled():
            self._same_buffers(root)
        output = self.module(*inputs, **kwargs)
        if training and reducer.find_unused:
            reducer.ready_without(_unused(self._params, output))
        return output

    def _same_buffers(self, root: int) -> None:
        """Copy buffers from rank ``root``, if the model was created so."""
        if self.broadcast_buffers and self.require_forward_param_sync:
            self._same((b for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore), root)

    def _of_shards(self, inputs: tuple[object, ...], kwargs: Mapping[str, object]) -> Any:
        """Return the module's results for each shard; in evaluation without shards, the module's."""
        given = next(within((inputs, kwargs), Shards), None)
        if given is not None:
            with given.context.parameters():
                return self.module(*inputs, **kwargs)
        if grad_enabled():
            raise RuntimeError(
                at_user_line(
                    "a model with logical shards trains on shards, but got tensors. Load batches by a DataLoader with "
                    "a DistributedSampler (TRACECOMP_SHARDS), or call x, y = model.shard(x, y)"
                )
            )
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Return a context in which forward and backward passes only add to the gradients of this process.

        With logical shards it has no effect: every backward pass adds the mean over all shards.
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:  # fmt: skip
        """Return a context in which processes may have different numbers of inputs: those without inputs contribute
        zeros.

        Gradients are divided by the number of processes, or by that of those with inputs. At the end the model is that
        of the last process with inputs. With ``throw_on_early_termination``, RuntimeError in all processes when the
        first one has none left.
        """
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """This model's part in a ``Join`` block; ``divide_by_initial_world_size`` as in ``join``."""
        if self._reducer is None:
            raise RuntimeError(at_user_line("join() is not supported with shards: global batches have one size"))
        self._by_initial = bool(kwargs.get("divide_by_initial_world_size", True))
        return _Answers(self)

    @property
    def join_device(self) -> Any:
        """The CPU."""
        return self._params[0].device

    @property
    def join_process_group(self) -> Group:
        """The group in which gradients are combined."""
        return self.process_group

    def _begin_joined(self, synchronised: bool) -> int:
        """Announce this pass to processes without inputs; return the rank whose buffers all processes take."""
        join, reducer = self._join, self._reducer
        assert reducer is not None
        if join is None:
            if reducer.divisor is not None:
                reducer.divisor = None
            return 0
        join.begin(self, synchronised)
        reducer.divisor = None if self._by_initial else len(join.last.active)
        return join.last.active[-1]

    def answer(self, join: Join) -> None:
        """Take part in a pass of other processes."""
        assert self._reducer is not None
        self._same_buffers(join.last.active[-1])
        if join.last.synchronised:
            self._reducer.divisor = None if self._by_initial else len(join.last.active)
            self._reducer.answer()

    def become(self, join: Join) -> None:
        """Copy parameters and buffers from the last process with inputs."""
        self._same((t for _, t in self._everything()), join.last.active[-1])

    def shard(self, *tensors: Tensor) -> Any:
        """Split tensors of this process's part of the global batch into its logical shards, for a model with
        ``shards=S``.

        Axis 0 is split into equal parts, one for each of the process's shards; pass all tensors of a step in one call.
        The model and functions run shard by shard. ``backward()`` of a loss computes the mean over all shards of all
        processes; ``mean(loss)`` is its value.
        """
        if self._plan is None:
            raise RuntimeError(at_user_line("shard(): the model was created without shards=..."))
        found = self._plan.cut(tensors)
        return found[0] if len(found) == 1 else tuple(found)

    def mean(self, value: Shards) -> Tensor:
        """The mean over all shards of all processes, without gradient; every process calls it."""
        if not isinstance(value, Shards):
            raise TypeError(at_user_line(f"mean(): expected a tensor computed from shards, got {type(value).__name__}"))
        return value.context.mean(value)

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass copies buffers from another process."""
        return self.broadcast_buffers and self.require_forward_param_sync and any(True for _ in self.module.buffers())

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """PyTorch's log data of a model, as far as it applies here."""
        group = self.process_group
        return {
            "world_size": group.size(), "rank": group.rank(), "module_name": type(self.module).__name__,
            "backend_name": group.name(), "broadcast_buffers": self.broadcast_buffers,
            "find_unused_parameters": self.find_unused_parameters, "static_graph": self.static_graph,
            "gradient_as_bucket_view": self.gradient_as_bucket_view, "num_parameter_tensors": len(self._params),
            "total_parameter_size_bytes": sum(p.nbytes for p in self._params),
        }  # fmt: skip

    # ---- hooks and state

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Let ``hook(state, bucket)`` combine gradients; its future holds the bucket's new gradients."""
        if self._reducer is None:
            raise RuntimeError(at_user_line("register_comm_hook() is not supported with shards"))
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._reducer.hook = state, hook

    def _set_static_graph(self) -> None:
        """The same as ``static_graph=True``."""
        self.static_graph = True
        if self._reducer is not None:
            self._reducer.find_unused = True

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Iterable[str]
    ) -> None:  # fmt: skip
        """Exclude parameters and buffers by name from copies and gradient means of a model created later."""
        module._ddp_params_and_buffers_to_ignore = [*params_and_buffers_to_ignore]

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy or a pickle. As in PyTorch it lacks the communication hook."""
        group = self.process_group
        missing = {"process_group", "_reducer", "_plan", "_buckets", "_join"}
        kept = {k: v for k, v in self.__dict__.items() if k not in missing}
        return {**kept, "_group": (group.group_name, group.ranks)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore a copy in the same group, or in the default group of another run."""
        name, ranks = state["_group"]
        self.__dict__.update({k: v for k, v in state.items() if k != "_group"})
        found = world.groups.get(name)
        self.process_group = _group(found if found is not None and found.ranks == ranks else None)
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self._connect()


class _Answers(JoinHook):
    """A model's part in the passes of processes with inputs."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self._model = model

    def main_hook(self) -> None:
        assert self._model._join is not None
        self._model.answer(self._model._join)

    def post_hook(self, is_last_joiner: bool) -> None:
        assert self._model._join is not None
        self._model.become(self._model._join)


def _unused(params: Sequence[Tensor], output: object) -> list[Tensor]:
    """Parameters on which no tensor of ``output`` depends."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [t.grad_fn for t in within(output, Tensor, objects=True) if t.grad_fn is not None]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        stack.extend(edge[0] for edge in node.edges if edge is not None)
    return [p for p in params if id(p) not in found]


def _group(given: Group | None) -> Group:
    """Return ``given``, or the default group. ValueError if neither exists."""
    found = given or world.default
    if found is None:
        raise ValueError(
            at_user_line("Default process group has not been initialized, please make sure to call init_process_group.")
        )
    return found


def _unfinished(module: Module, left: Sequence[Tensor]) -> str:
    names = {id(p): n for n, p in module.named_parameters()}
    return (
        "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss. You can enable unused parameter "
        "detection by passing the keyword argument `find_unused_parameters=True`. Parameters which did not receive "
        f"grad: {', '.join(names[id(p)] for p in left)}"
    )
