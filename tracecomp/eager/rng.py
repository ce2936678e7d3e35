"""Random state: counter-based, so that a generator is two integers and compiled code draws the eager numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from tracecomp.base.errors import integer_text
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, assign_, create, no_grad, own, wrap
from tracecomp.ir.philox import blocks
from tracecomp.ir.types import int64
from tracecomp.ops.prim import prim

_MASK = (1 << 64) - 1
"""64 bits."""


class Generator:
    """A stream of random bits: ``state`` is an int64 tensor (seed, offset), where the offset counts Philox blocks."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = device
        self.state = wrap(np.array([_DEFAULT_SEED, 0], np.int64))

    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream at ``seed``, an integer of 64 bits."""
        seed = int(seed)
        if not -(1 << 63) <= seed <= _MASK:
            raise ValueError(f"manual_seed(): the seed must fit 64 bits, but got {integer_text(seed)}")
        signed = seed - (1 << 64) if seed >= 1 << 63 else seed
        with no_grad():
            assign_(self.state, wrap(np.array([signed, 0], np.int64)))
        return self

    def seed(self) -> int:
        """Restart the stream at a seed from the operating system, and return it."""
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        return int(self.state._data[0]) & _MASK

    def get_state(self) -> Tensor:
        """A copy of the state."""
        with no_grad():
            return own(self.state)

    def set_state(self, state: Tensor) -> Generator:
        """Continue from a state that ``get_state`` gave; TypeError for anything else."""
        if not isinstance(state, Tensor) or state.dtype is not int64 or tuple(state.shape) != (2,):
            raise TypeError("expected a state made by get_state: an int64 tensor of 2 elements")
        with no_grad():
            assign_(self.state, own(state))
        return self

    def clone_state(self) -> Generator:
        """Return a separate generator with the current state."""
        return Generator(self.device).set_state(self.state)

    def bits(self, shape: tuple[int, ...]) -> Tensor:
        """32 random bits per element, as int32; the stream advances. RuntimeError in a trial run."""
        if modes.trial_run:
            raise RuntimeError("random numbers cannot be drawn during a check")
        if modes.place is not None:  # nothing is drawn
            return _bits(self.state, shape)
        if modes.recorder is not None:
            modes.recorder.python.watch(self, "state")  # users may replace this tensor
        result = _bits(self.state, shape)
        self.advance(blocks(math.prod(shape)))
        return result

    def advance(self, count: int) -> None:
        """Advance the stream by ``count`` blocks. RuntimeError in a trial run."""
        if modes.trial_run:
            raise RuntimeError("random numbers cannot be drawn during a check")
        if modes.recorder is not None:
            assign_(self.state, _moved(self.state, count))
            return
        state = self.state._data
        np.add(state, _step(count), out=state)
        self.state._shared_storage().wrote()


class Stream:
    """Random bits from a state on, which stays as it is; ``blocks`` of them have been drawn."""

    def __init__(self, state: Tensor) -> None:
        self._state = state
        self.blocks = 0

    def bits(self, shape: tuple[int, ...]) -> Tensor:
        """32 random bits per element, as int32."""
        state = _moved(self._state, self.blocks) if self.blocks else self._state
        self.blocks += blocks(math.prod(shape))
        return _bits(state, shape)


def _bits(state: Tensor, shape: tuple[int, ...]) -> Tensor:
    drawn: Tensor = prim.random_bits(state, shape=tuple(shape))
    return drawn


def _moved(state: Tensor, count: int) -> Tensor:
    step = prim.mul(create("iota", shape=(2,), axis=0, dtype=int64), count)
    moved: Tensor = prim.add(state, step)
    return moved


@lru_cache(1024)
def _step(count: int) -> np.ndarray[Any, Any]:
    """The increment of a state."""
    return np.array([0, count], np.int64)


_DEFAULT_SEED = 67280421310721
"""PyTorch's default seed."""
default_generator = Generator()


def bits(shape: tuple[int, ...], generator: Generator | None = None) -> Tensor:
    """32 random bits per element from ``generator`` (the default one), as int32."""
    return (generator or default_generator).bits(shape)


def manual_seed(seed: int) -> Generator:
    """Seed the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """A copy of the default generator's state."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Continue the default generator from ``state``."""
    default_generator.set_state(state)


@contextmanager
def fork_rng(devices: object = None, enabled: bool = True) -> Iterator[None]:
    """A context after which the default generator is restored."""
    before = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if before is not None:
            set_rng_state(before)
