"""Names that libraries of optimizers import from ``torch.utils._foreach_utils``: grouping of tensors."""

from __future__ import annotations

from typing import Any

from tracecomp.eager.device import device
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.types import DType

Lists = list[list[Any]]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Lists, with_indices: bool = False
) -> dict[tuple[device, DType], tuple[Lists, list[int]]]:
    """Parts of parallel lists, one for each device and dtype of the first list's tensors, in the order met.

    RuntimeError where the lists are not of one length or the first has something else than tensors.
    """
    if len({len(each) for each in tensorlistlist}) > 1:
        raise RuntimeError("Tensor lists must have the same number of tensors")
    groups: dict[tuple[device, DType], tuple[Lists, list[int]]] = {}
    for i, column in enumerate(zip(*tensorlistlist, strict=True)):
        if not isinstance(column[0], Tensor):
            raise RuntimeError(f"the first list must contain tensors, got {type(column[0]).__name__}")
        lists, places = groups.setdefault((column[0].device, column[0].dtype), ([[] for _ in tensorlistlist], []))
        for part, x in zip(lists, column, strict=True):
            part.append(x)
        if with_indices:
            places.append(i)
    return groups


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Devices with separate kernels over lists: none."""
    return []


_get_fused_kernels_supported_devices = _get_foreach_kernels_supported_devices


def _has_foreach_support(tensors: list[Tensor], device: device) -> bool:
    """Whether lists are one kernel: they have the result of a loop over their tensors."""
    return False


_device_has_foreach_support = _has_foreach_support
