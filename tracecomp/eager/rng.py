"""Random state: counter-based, so that a generator is two integers and compiled code draws the eager numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
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


class Stream:
    """Random bits from ``state``, an int64 tensor (seed, offset) that each draw advances.

    The offset counts Philox blocks.
    """

    def __init__(self, state: Tensor) -> None:
        self.state = state

    def bits(self, shape: tuple[int, ...]) -> Tensor:
        """32 random bits per element, as int32; the stream advances."""
        drawn: Tensor = prim.random_bits(self.state, shape=tuple(shape))
        if modes.place is None:  # else nothing is drawn
            self.advance(blocks(math.prod(shape)))
        return drawn

    def advance(self, count: int) -> None:
        """Advance the stream by ``count`` blocks."""
        if modes.recorder is not None:
            assign_(self.state, _moved(self.state, count))
            return
        state = self.state._data
        np.add(state, _step(count), out=state)
        self.state._shared_storage().wrote()


class Generator(Stream):
    """A stream of random bits that programs seed, save and restore. RuntimeError if a trial run draws from it."""

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__(wrap(np.array([_DEFAULT_SEED, 0], np.int64)))
        self.device = device

    def bits(self, shape: tuple[int, ...]) -> Tensor:
        """32 random bits per element, as int32; the stream advances."""
        refuse_trial_run()
        if modes.recorder is not None and modes.place is None:
            modes.recorder.python.watch(self, "state")  # users may replace this tensor
        return super().bits(shape)

    def advance(self, count: int) -> None:
        """Advance the stream by ``count`` blocks."""
        refuse_trial_run()
        super().advance(count)

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


def refuse_trial_run() -> None:
    """RuntimeError in a trial run, which must leave no trace in a generator."""
    if modes.trial_run:
        raise RuntimeError("random numbers cannot be drawn during a check")


def source(generator: Generator | None = None) -> Stream:
    """The stream that a function draws from: ``generator``, that of a trial run, or the default generator."""
    return generator or modes.stream or default_generator


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
    return source(generator).bits(shape)


def of_state(run: Callable[..., object]) -> Callable[..., object]:
    """``run``, which draws from ``source()``, as a function of that stream's state and its own arguments.

    For another state, such as the copy that a trial run has, it draws from a stream of that state.
    """

    def at(state: Tensor, *args: object) -> object:
        if state is source().state:
            return run(*args)
        before, modes.stream = modes.stream, Stream(state)
        try:
            return run(*args)
        finally:
            modes.stream = before

    at.__name__ = getattr(run, "__name__", "draw")
    return at


def with_state(run: Callable[..., object]) -> Callable[..., object]:
    """``run`` as a function of all its arguments but the first, which is the state of ``source()``."""

    def call(*args: object) -> object:
        return run((modes.stream or default_generator).state, *args)  # ``source()``, inlined: every call passes here

    return call


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
