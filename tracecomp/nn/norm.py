"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tracecomp.communication.group import Group
from tracecomp.communication.world import world
from tracecomp.eager.device import Device
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, bfloat16, float16, float32, int64
from tracecomp.nn import functional as F
from tracecomp.nn import init
from tracecomp.nn.lazy import LazyModuleMixin
from tracecomp.nn.module import Module
from tracecomp.nn.parallel.shard_values import Context, Shards
from tracecomp.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from tracecomp.ops.prim import prim


class _NormBase(Module):
    """Affine parameters and running statistics of batch and instance normalisation."""

    _version = 2
    ranks: tuple[int, ...] = ()

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device = None, dtype: DType | None = None, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            made = Parameter(T.empty(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        tracked = track_running_stats
        self.register_buffer("running_mean", T.zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", T.ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", T.tensor(0, dtype=int64) if tracked else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Reset to mean 0, variance 1, no batches seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Reset to weight 1, bias 0 and initial statistics."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self.ranks:
            expected = " or ".join(f"{n}D" for n in self.ranks)
            raise ValueError(f"expected {expected} input (got {input.ndim}D input)")

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        """Files older than version 2 do not count batches."""
        key = prefix + "num_batches_tracked"
        if (local_metadata.get("version") or 1) < 2 and self.track_running_stats and key not in state_dict:
            state_dict[key] = T.tensor(0, dtype=int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum: Any = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            with no_grad():
                self.num_batches_tracked.add_(1)
                if self.momentum is None:
                    momentum = 1.0 / self.num_batches_tracked.to(self.running_mean.dtype)
        use_batch = self.training or self.running_mean is None
        tracked = not self.training or self.track_running_stats
        return F.batch_norm(
            input, self.running_mean if tracked else None, self.running_var if tracked else None, self.weight,
            self.bias, use_batch, momentum, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of (N, C) or (N, C, L). ValueError for another rank."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of (N, C, H, W). ValueError for another rank."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of (N, C, D, H, W). ValueError for another rank."""

    ranks = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation of (N, C, ...) by the statistics of all processes, or of all shards of a global batch.

    ``process_group`` defaults to the default group. ValueError for a rank below 2 and, in training, when a channel has
    one value only.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Device = None, dtype: DType | None = None,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")

    def forward(self, input: Any) -> Any:
        self._check_input_dim(input)
        group = self.process_group or world.default
        if not (self.training or self.running_mean is None):
            return super().forward(input)
        if isinstance(input, Shards):
            context = input.context
            affine = [(self._of(self.weight, context, i), self._of(self.bias, context, i)) for i in context.plan.places]
            found = self._normalised(input.parts, affine, context.summed)
            return Shards(found, context)
        if group is None or group.size() == 1:
            return super().forward(input)
        return self._normalised([input], [(self.weight, self.bias)], partial(_summed, group))[0]

    @staticmethod
    def _of(param: Tensor | None, context: Context, i: int) -> Tensor | None:
        return None if param is None else context.view(param, i)

    def _normalised(
        self, parts: Sequence[Tensor], affine: Sequence[tuple[Tensor | None, Tensor | None]],
        summed: Callable[[Sequence[Tensor]], list[Tensor]],
    ) -> list[Tensor]:  # fmt: skip
        """Normalise every part by the statistics of all; ``summed`` returns, for each part, the sum over all."""
        channels, shape = self.num_features, (1, -1, *[1] * (parts[0].ndim - 2))
        wide = [x.to(float32) if x.dtype in (float16, bfloat16) else x for x in parts]
        axes = [0, *range(2, parts[0].ndim)]
        counts = [T.full((1,), float(x.numel() // channels), dtype=x.dtype) for x in wide]
        totals = summed([T.cat([x.sum(axes), n]) for x, n in zip(wide, counts, strict=True)])
        apart = [x - (s[:-1] / s[-1]).reshape(shape) for x, s in zip(wide, totals, strict=True)]
        squares = summed([(d * d).sum(axes) for d in apart])
        variances = [q / s[-1] for q, s in zip(squares, totals, strict=True)]
        self._track(totals[0].detach(), variances[0].detach())
        found = []
        for x, d, v, (weight, bias) in zip(parts, apart, variances, affine, strict=True):
            y = d * (v + self.eps).rsqrt().reshape(shape)
            y = y if weight is None else y * weight.reshape(shape)
            found.append((y if bias is None else y + bias.reshape(shape)).to(x.dtype))
        return found

    def _track(self, totals: Tensor, variance: Tensor) -> None:
        """Update the running statistics."""
        if not (self.training and self.track_running_stats):
            return
        with no_grad():
            self.num_batches_tracked.add_(1)
            kind = self.running_mean.dtype
            share: Any = self.momentum
            if share is None:
                share = 1.0 / self.num_batches_tracked.to(kind)
            count = totals[-1]
            self.running_mean.copy_(self.running_mean * (1 - share) + (totals[:-1] / count).to(kind) * share)
            unbiased = variance * (count / (count - 1))
            self.running_var.copy_(self.running_var * (1 - share) + unbiased.to(kind) * share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: object = None) -> Module:
        """``module`` with every batch normalisation below it replaced by this class."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group,
            )  # fmt: skip
            for table in ("_parameters", "_buffers"):
                getattr(result, table).update(getattr(module, table))
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result


def _summed(group: Group, parts: Sequence[Tensor]) -> list[Tensor]:
    """The sum of the one part over all processes; differentiable."""
    return [prim.all_reduce(*parts, op="SUM", group=group.group_name, total=group.size())]


class _InstanceNorm(_NormBase):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Device = None, dtype: DType | None = None, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = input.ndim == self.ranks[0]
        x = input.unsqueeze(0) if single else input
        if x.shape[1] != self.num_features and self.affine:
            raise ValueError(
                f"expected input's size at dim={0 if single else 1} to match num_features ({self.num_features}), "
                f"but got: {x.shape[1]}."
            )
        out = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, 0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return out.squeeze(0) if single else out


class InstanceNorm1d(_InstanceNorm):
    """Instance normalisation of (N, C, L) or (C, L)."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalisation of (N, C, H, W) or (C, H, W)."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalisation of (N, C, D, H, W) or (C, D, H, W)."""

    ranks = (4, 5)


class _LazyNorm(LazyModuleMixin, _NormBase):
    """A normalisation that learns ``num_features`` from its first input."""

    def __init__(
        self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Device = None, dtype: DType | None = None, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(dtype=dtype)
            self.bias = UninitializedParameter(dtype=dtype) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(dtype=dtype)
            self.running_var = UninitializedBuffer(dtype=dtype)
            self.num_batches_tracked = T.tensor(0, dtype=int64)

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1 if input.ndim == self.ranks[-1] or isinstance(self, _BatchNorm) else 0]
        for value in (*self._parameters.values(), *self._buffers.values()):
            if isinstance(value, UninitializedParameter | UninitializedBuffer):
                value.materialize((self.num_features,))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.num_features:
            super().reset_parameters()


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """``BatchNorm1d`` that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """``BatchNorm2d`` that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """``BatchNorm3d`` that learns ``num_features`` from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """``InstanceNorm1d`` that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """``InstanceNorm2d`` that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """``InstanceNorm3d`` that learns ``num_features`` from its first input."""

    cls_to_become = InstanceNorm3d


class _AffineNorm(Module):
    """Common part of norms with an optional weight and bias."""

    def _make_affine(self, shape: Sequence[int], weight: bool, bias: bool, device: Device, dtype: DType | None) -> None:
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            made = Parameter(T.empty(*shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset to weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_AffineNorm):
    """Normalises over the last axes, whose sizes are ``normalized_shape``."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._make_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divides by the root mean square over the last axes."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Device = None, dtype: DType | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        made = Parameter(T.empty(*self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reset to weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_AffineNorm):
    """Normalises each of ``num_groups`` groups of channels of (N, C, *)."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Device = None,
        dtype: DType | None = None, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_groups == 0:
            raise ZeroDivisionError("GroupNorm: num_groups must not be 0")
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._make_affine((num_channels,), affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divides by a power of the mean square over neighbouring channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """The older name of ``LocalResponseNorm`` for images."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
