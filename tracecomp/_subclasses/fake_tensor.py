"""Fake tensors: shapes, types and strides of tensors on a device, without elements.

They are tensors of the device ``meta`` (``eager/meta.py``) that report the CPU as their device.
"""

from __future__ import annotations

from typing import Any, Self

from tracecomp.eager import meta
from tracecomp.eager.device import CPU, use
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, to_place

__all__ = ["FakeTensor", "FakeTensorConverter", "FakeTensorMode", "is_fake"]


class _FakeMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and type(instance._data) is meta.MetaArray


class FakeTensor(metaclass=_FakeMeta):
    """The class of tensors without elements, for ``isinstance``."""


def is_fake(x: object) -> bool:
    """Whether ``x`` is a fake tensor."""
    return isinstance(x, FakeTensor)


class FakeTensorMode:
    """A context in which new tensors have no elements; operators compute shapes and types.

    Memory of real tensors among the operands is not read. Reading an element raises.

    Example:
        >>> import tracecomp as torch
        >>> from tracecomp._subclasses import FakeTensorMode
        >>> with FakeTensorMode() as mode:
        ...     x = mode.from_tensor(torch.ones(2, 3))
        ...     y = x @ torch.ones(3, 5)
        >>> y.shape, y.device
        (torch.Size([2, 5]), device(type='cpu'))
    """

    def __init__(
        self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None,
        static_shapes: bool | None = None, export: bool = False,
    ) -> None:  # fmt: skip
        self.allow_non_fake_inputs, self.shape_env, self.static_shapes = allow_non_fake_inputs, shape_env, static_shapes
        self.fake_tensor_converter = FakeTensorConverter(self)
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        use.begin()
        self._before.append((modes.place, modes.without_memory))
        modes.place, modes.without_memory = CPU, True
        return self

    def __exit__(self, *error: object) -> None:
        modes.place, modes.without_memory = self._before.pop()
        use.end()

    def from_tensor(
        self, tensor: Tensor, *, static_shapes: bool | None = None, source: object = None, **options: Any
    ) -> Any:
        """A fake tensor of the shape, type and strides of ``tensor``, as a leaf."""
        if isinstance(tensor, FakeTensor):
            return tensor
        found = to_place(tensor.detach(), CPU)
        return found.requires_grad_() if tensor.requires_grad else found


class FakeTensorConverter:
    """Converter from real to fake tensors, one for each."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[int, tuple[Tensor, Any]] = {}

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor, **options: Any) -> Any:
        """Return the fake tensor of ``t``: the same object each time."""
        if id(t) not in self._known:
            self._known[id(t)] = t, fake_mode.from_tensor(t)
        return self._known[id(t)][1]
