"""Save and restore the external state that a recorded program writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tracecomp.record.binding import read, tensor_of
from tracecomp.record.pytree import Leaves
from tracecomp.record.recording import Recording


@contextmanager
def kept_state(recording: Recording, leaves: Leaves) -> Iterator[None]:
    """Run a block that calls the recorded program once; then restore memory, gradients and flags.

    Changes of other Python objects are not reverted.
    """
    targets = [(b, read(b, leaves)) for b, _ in recording.updates]
    before = [target.copy() for _, target in targets]
    holders = [tensor_of(b, leaves) for b, _ in recording.grads]
    gradients = [(t, t._grad, None if t._grad is None else t._grad._data.copy()) for t in holders]
    flags = [(tensor_of(b, leaves), tensor_of(b, leaves)._requires_grad) for b, _ in recording.requires_grad]
    try:
        yield
    finally:
        for (_, target), old in zip(targets, before, strict=True):
            np.copyto(target, old)
        for b, times in recording.writes:
            tensor_of(b, leaves)._shared_storage().wrote(times)
        for tensor, gradient, data in gradients:
            tensor._grad = gradient
            if gradient is not None and data is not None:
                np.copyto(gradient._data, data)
                gradient._shared_storage().wrote()
        for tensor, flag in flags:
            tensor._requires_grad = flag
