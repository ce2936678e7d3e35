"""Sharded parameters: rows are gathered for use, and gradients are scattered.

The gather is a node of the autograd graph between rows and whole parameters, whose derivative combines gradients along
the tree over shards. Operations save the location of a whole parameter's part instead of the tensor, so nothing keeps
whole parameters alive between forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tracecomp.autograd.function import Function
from tracecomp.base.errors import at_user_line
from tracecomp.communication.combine import share
from tracecomp.communication.group import Group
from tracecomp.distributed.tensor.placement_types import Shard
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional import names as T
from tracecomp.ir.types import DType
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.reducer import sums_of_nodes
from tracecomp.nn.parameter import Parameter
from tracecomp.nn.sharding import ShardedParameter, Sharding, sharded_parameter
from tracecomp.ops.prim import prim


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of whole parameters, of the reduction of gradients, and of results; None leaves them unchanged."""

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


class OffloadPolicy:
    """Keep parameters, gradients and optimizer states on the device that computes."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """Keep them on the CPU, where tensors are anyway: it changes nothing here."""

    pin_memory: bool = True


Places = Sequence[tuple[Module, str]]
"""Places of a parameter: modules and attribute names, several for a shared parameter."""


class _Whole(NamedTuple):
    """Gathered parameters, and the versions of the rows that they were gathered from."""

    versions: Sequence[int]
    tensors: Sequence[Tensor]


class _Note(NamedTuple):
    """Replacement of a saved tensor: a part of the memory of one whole parameter."""

    number: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    versions: Sequence[int]


class Bucket:
    """Parameters of one dtype of one module, which are sent in one message."""

    def __init__(
        self, params: Sequence[tuple[Parameter, Places]], group: Group, policy: MixedPrecisionPolicy, total: int,
        mesh: object = None,
    ) -> None:  # fmt: skip
        self.group, self.policy, self.total = group, policy, total
        self.places = [places for _, places in params]
        self.shardings = [Sharding(p.shape, group, (Shard(0),), mesh) for p, _ in params]
        self.rows: Sequence[Any] = [_spread(p, s) for (p, _), s in zip(params, self.shardings, strict=True)]
        self.synchronised = True
        self.shown = False  # whether ``unshard`` has installed whole parameters
        self.pending: list[Tensor | None] | None = None  # gradients that are not reduced yet
        self._whole: _Whole | None = None
        self.install(self.rows)

    def find(self) -> None:
        """Read the current parameters of modules: ``to_empty`` and similar methods replace them."""
        if self.shown:
            self.shown = False
            self.install(self.rows)
        self.rows = [module._parameters[name] for (module, name), *_ in self.places]
        for (module, name), row, sharding in zip((p[0] for p in self.places), self.rows, self.shardings, strict=True):
            if not isinstance(row, ShardedParameter) or row.sharding != sharding:
                kind = type(module).__name__
                raise RuntimeError(
                    at_user_line(f"{kind}.{name} was replaced after fully_shard(), so it is no longer sharded")
                )

    def install(self, tensors: Sequence[Any]) -> None:
        """Set ``tensors`` as the modules' parameters."""
        for places, tensor in zip(self.places, tensors, strict=True):
            for module, name in places:
                module._parameters[name] = tensor

    # ---- whole parameters

    def _versions(self) -> list[int]:
        return [r._version for r in self.rows]

    def gathered(self) -> Sequence[Tensor]:
        """Return whole parameters without gradient; all processes call it."""
        if modes.recorder is None and self._whole is not None and self._whole.versions == self._versions():
            return self._whole.tensors
        with no_grad():
            rows = [s.flat(r.detach()) for s, r in zip(self.shardings, self.rows, strict=True)]
            flat = T.cat(rows) if len(rows) > 1 else rows[0]
            if self.policy.param_dtype is not None:
                flat = flat.to(self.policy.param_dtype)
            pieces = _listed(prim.all_gather(flat, group=self.group.group_name, size=self.group.size()))
            parts = [piece.split([s.padded for s in self.shardings]) for piece in pieces]
            found = [s.joined(row) for s, row in zip(self.shardings, zip(*parts, strict=True), strict=True)]
        if modes.recorder is None:
            self._whole = _Whole(self._versions(), found)
        return found

    def drop(self) -> None:
        """Drop whole parameters."""
        self._whole = None

    def differentiable(self, count: int) -> list[Sequence[Tensor]]:
        """Return whole parameters for each of ``count`` shards."""
        found = _Gather.apply(self, count, *self.rows)
        each = len(self.rows)
        return [found[k * each : (k + 1) * each] for k in range(count)]

    # ---- saved tensors

    def note(self, tensor: Tensor) -> _Note | None:
        """Return the location of ``tensor`` in a whole parameter; None if it is in none."""
        if self._whole is None or not tensor._data.size:
            return None
        address = tensor._data.__array_interface__["data"][0]
        for number, whole in enumerate(self._whole.tensors):
            offset = address - whole._data.__array_interface__["data"][0]
            if 0 <= offset < whole._data.nbytes and tensor._data.dtype == whole._data.dtype:
                return _Note(number, offset, tensor._data.shape, tensor._data.strides, self._whole.versions)
        return None

    def noted(self, note: _Note) -> Tensor:
        """Return the tensor of a note, from parameters that are gathered again."""
        if note.versions != self._versions():
            shape = list(self.shardings[note.number].shape)
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"a sharded parameter of shape {shape} has changed since the forward pass"
            )
        whole = self.gathered()[note.number]._data
        flat = whole.reshape(-1)[note.offset // whole.itemsize :]
        return wrap(as_strided(flat, note.shape, note.strides, writeable=False))

    # ---- gradients

    def scattered(self, leaves: Sequence[Sequence[Tensor | None]]) -> list[Tensor | None]:
        """Return this process's rows of the mean of gradients over all leaves; None if no process has one."""
        if not self.synchronised:
            self._put_off(leaves)
            return [None] * len(self.rows)
        leaves = self._with_pending(leaves)
        size, pieces = self.group.size(), []
        reduced = [[None if g is None else g.to(self._reduce_dtype()) for g in row] for row in leaves]
        for grads in sums_of_nodes(reduced, share(self.total, self.group.rank(), size), self.total):
            pieces += self._pieces(grads, size)
        found = prim.reduce_scatter(*pieces, op="AVG", group=self.group.group_name, size=size, total=self.total)
        sizes = [s.padded for s in self.shardings]
        *parts, used = found.split([*sizes, len(sizes)])
        return [
            part[: r.numel()].reshape(r.shape).to(r.dtype) if r.requires_grad and is_used else None
            for part, r, is_used in zip(parts, self.rows, _flags(used, leaves), strict=True)
        ]

    def _reduce_dtype(self) -> Any:
        return self.policy.reduce_dtype or self.policy.param_dtype or self.rows[0].dtype

    def _pieces(self, grads: Sequence[Tensor | None], size: int) -> list[Tensor]:
        """Concatenate, for each process, its rows of all gradients, then flags of existing gradients."""
        dtype = self._reduce_dtype()
        parts = []
        for grad, s in zip(grads, self.shardings, strict=True):
            flat = T.zeros(0, dtype=dtype) if grad is None else grad.reshape(-1)
            missing = s.padded * size - flat.numel()
            whole = T.cat([flat, T.zeros(missing, dtype=dtype)]) if missing else flat
            parts.append(whole.reshape(size, s.padded))
        flags = T.tensor([float(g is not None) for g in grads], dtype=dtype)
        return [T.cat([*(p[r] for p in parts), flags]) for r in range(size)]

    def _put_off(self, leaves: Sequence[Sequence[Tensor | None]]) -> None:
        """Add gradients of this process to the pending ones."""
        if len(leaves) > 1:
            raise RuntimeError(
                at_user_line("no_sync(): not supported with several shards per process. Use one shard each")
            )
        self.pending = _sums(self.pending, leaves[0])

    def _with_pending(self, leaves: Sequence[Sequence[Tensor | None]]) -> Sequence[Sequence[Tensor | None]]:
        if self.pending is None:
            return leaves
        waiting, self.pending = self.pending, None
        return [_sums(waiting, leaves[0]), *leaves[1:]]


def _sums(first: Sequence[Tensor | None] | None, second: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Elementwise sums, of which either operand may be missing."""
    pairs = zip(first or [None] * len(second), second, strict=True)
    return [b if a is None else a if b is None else a + b for a, b in pairs]


def _flags(used: Tensor, leaves: Sequence[Sequence[Tensor | None]]) -> list[bool]:
    """Flags of parameters that some process has used; during recording, of those that this one has."""
    if modes.recorder is not None:
        return [any(g is not None for g in row) for row in zip(*leaves, strict=True)]
    return [bool(v > 0) for v in used.tolist()]


def _listed(found: object) -> Sequence[Tensor]:
    return found if isinstance(found, tuple) else (found,)


def _spread(param: Parameter, sharding: Sharding) -> ShardedParameter:
    """The rows of this process, of the values of rank 0."""
    group = sharding.group
    with no_grad():
        if param.is_meta or group.size() == 1:
            rows = sharding.own(param.detach()).clone()
        else:
            array = np.ascontiguousarray(param.detach()._data).reshape(-1)
            padded = sharding.padded
            parts = [array[r * padded : (r + 1) * padded] for r in range(group.size())] if not group.rank() else []
            parts = [np.concatenate([p, np.zeros(padded - p.size, p.dtype)]) if p.size < padded else p for p in parts]
            like = np.empty(padded, array.dtype)
            flat = group.worker.run(lambda: group.scatter(parts, like, 0))
            shape = (sharding.stop - sharding.start, *sharding.shape[1:])
            rows = wrap(np.array(flat[: math.prod(shape)]).reshape(shape))
    param.__dict__["_sharded"] = True
    return sharded_parameter(rows, sharding, param.requires_grad)


class _Gather(Function):
    """Whole parameters from rows, once for each shard of this process; the backward is the mean over all shards."""

    @staticmethod
    def forward(ctx: Any, bucket: Bucket, count: int, *rows: Tensor) -> tuple[Tensor, ...]:
        ctx.bucket, ctx.count = bucket, count
        ctx.set_materialize_grads(False)
        found = tuple(t.detach() for _ in range(count) for t in bucket.gathered())
        ctx.mark_non_differentiable(*(t for t, r in zip(found, [*rows] * count, strict=True) if not r.requires_grad))
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        bucket, each = ctx.bucket, len(ctx.bucket.rows)
        leaves = [grads[k * each : (k + 1) * each] for k in range(ctx.count)]
        bucket.drop()
        return (None, None, *bucket.scattered(leaves))


Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


def saving(buckets: Sequence[Bucket]) -> Hooks:
    """Hooks that save notes instead of whole parameters of ``buckets``; other tensors go to the outer hooks."""
    outside = modes.save_hooks[-1] if modes.save_hooks else None

    def pack(tensor: Tensor) -> Any:
        for bucket in buckets:
            note = bucket.note(tensor)
            if note is not None:
                return bucket, note
        return None, tensor if outside is None else outside[0](tensor)

    def unpack(packed: Any) -> Tensor:
        bucket, found = packed
        if bucket is not None:
            restored: Tensor = bucket.noted(found)
            return restored
        kept: Tensor = found if outside is None else outside[1](found)
        return kept

    return pack, unpack
