"""The layers of ``einops.layers.tracecomp``: Rearrange, Reduce, EinMix as modules."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tracecomp import nn
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T


def layers() -> dict[str, type]:
    """The layer classes by name; ImportError when einops is not installed."""
    base = import_module("einops.layers")
    mix = import_module("einops.layers._einmix")
    rearrange = _recipe_layer("Rearrange", base.RearrangeMixin)
    return {
        "Rearrange": rearrange,
        "Reduce": _recipe_layer("Reduce", base.ReduceMixin),
        "EinMix": _mixing_layer(mix._EinmixMixin, rearrange),
    }


def _recipe_layer(name: str, mixin: Any) -> type:
    def forward(self: Any, input: Tensor) -> Tensor:
        return self._apply_recipe(input)

    return type(name, (mixin, nn.Module), {"forward": forward, "__doc__": mixin.__doc__})


def _mixing_layer(mixin: Any, rearrange: Any) -> type:
    class EinMix(mixin, nn.Module):  # type: ignore[misc]
        """An einsum of the input with the layer's weight, rearranged before and after."""

        def _create_parameters(
            self, weight_shape: Any, weight_bound: float, bias_shape: Any, bias_bound: float
        ) -> None:
            self.weight = nn.Parameter(T.zeros(weight_shape).uniform_(-weight_bound, weight_bound))
            self.bias = None
            if bias_shape is not None:
                self.bias = nn.Parameter(T.zeros(bias_shape).uniform_(-bias_bound, bias_bound))

        def _create_rearrange_layers(
            self, pre_pattern: str | None, pre_lengths: Any, post_pattern: str | None, post_lengths: Any
        ) -> None:
            self.pre_rearrange = None if pre_pattern is None else rearrange(pre_pattern, **pre_lengths)
            self.post_rearrange = None if post_pattern is None else rearrange(post_pattern, **post_lengths)

        def forward(self, input: Tensor) -> Tensor:
            if self.pre_rearrange is not None:
                input = self.pre_rearrange(input)
            result: Tensor = T.einsum(self.einsum_pattern, input, self.weight)
            if self.bias is not None:
                result = result + self.bias
            return result if self.post_rearrange is None else self.post_rearrange(result)

    return EinMix
