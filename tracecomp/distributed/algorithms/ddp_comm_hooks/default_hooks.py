"""Hooks by their names in PyTorch. ``state`` is a group or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.communication.group import Group
from tracecomp.distributed.collectives import all_reduce
from tracecomp.distributed.processes import get_world_size
from tracecomp.eager.tensor import Tensor
from tracecomp.futures import Future
from tracecomp.ir.types import DType, bfloat16, float16
from tracecomp.nn.parallel.reducer import GradBucket

Hook = Callable[[Any, GradBucket], Future[Tensor]]


def _mean(group: Group | None, tensor: Tensor) -> Future[Tensor]:
    """The mean over processes: divided first, as in PyTorch, so that narrow types do not overflow."""
    tensor.div_(get_world_size(group))
    work = all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    done: Future[Tensor] = work.get_future().then(lambda found: found.value()[0])
    return done


def allreduce_hook(process_group: Group | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over processes."""
    return _mean(process_group, bucket.buffer())


def _compressed(process_group: Group | None, bucket: GradBucket, dtype: DType) -> Future[Tensor]:
    buffer = bucket.buffer()
    return _mean(process_group, buffer.to(dtype)).then(lambda found: found.value().to(buffer.dtype))


def fp16_compress_hook(process_group: Group | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over processes of gradients rounded to float16."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: Group | None, bucket: GradBucket) -> Future[Tensor]:
    """The mean over processes of gradients rounded to bfloat16."""
    return _compressed(process_group, bucket, bfloat16)


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """``hook`` on gradients rounded to float16."""
    return _wrapper(hook, float16, "fp16_compress_wrapper_hook")


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """``hook`` on gradients rounded to bfloat16."""
    return _wrapper(hook, bfloat16, "bf16_compress_wrapper_hook")


def _wrapper(hook: Hook, dtype: DType, name: str) -> Hook:
    def run(state: object, bucket: GradBucket) -> Future[Tensor]:
        kind = bucket.buffer().dtype
        bucket.set_buffer(bucket.buffer().to(dtype))
        return hook(state, bucket).then(lambda found: found.value().to(kind))

    run.__name__ = name
    return run
