"""The order in which a loader visits a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Generic, TypeVar

from tracecomp.communication.combine import share
from tracecomp.communication.world import world
from tracecomp.eager.rng import Generator
from tracecomp.functional import names as T
from tracecomp.ir.types import float64

Index = TypeVar("Index", covariant=True)


class Sampler(Generic[Index]):
    """Base of samplers: an iterable of indices."""

    def __init__(self, data_source: Sized | None = None) -> None:
        pass

    def __iter__(self) -> Iterator[Index]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ..."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


def fresh_seed() -> int:
    """A seed drawn from the default generator."""
    return int(T.randint(0, 2**31 - 1, (1,)).item())


def _generator(given: Generator | None) -> Generator:
    if given is not None:
        return given
    made = Generator()
    made.manual_seed(fresh_seed())
    return made


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


_BLOCK = 32
"""Indices drawn at once, as PyTorch does."""


class RandomSampler(Sampler[int]):
    """A new permutation at every pass, or ``num_samples`` draws with ``replacement``."""

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, generator = len(self.data_source), _generator(self.generator)
        left = self.num_samples
        while self.replacement and left > 0:  # by the block: programs ask for 1e10 draws to mean for ever
            yield from T.randint(0, n, (min(left, _BLOCK),), generator=generator).tolist()
            left -= _BLOCK
        while left > 0:
            yield from T.randperm(n, generator=generator).tolist()[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order."""

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        order = T.randperm(len(self.indices), generator=self.generator).tolist()
        return (self.indices[i] for i in order)

    def __len__(self) -> int:
        return len(self.indices)


class DistributedSampler(Sampler[int]):
    """The indices of process ``rank`` of ``num_replicas``; call ``set_epoch`` before every pass.

    Both default to those of the default group of ``tracecomp.distributed``. Shares are equal: indices are repeated, or
    with ``drop_last`` dropped.

    With ``shards=S``, shares are those of S logical shards, ``shard_size`` indices of each at a time. This process
    yields those of its neighbouring shards in sequence. So ``DataLoader(batch_size=sampler.batch_size)`` builds batches
    for ``DistributedDataParallel(shards=S)``, and a global batch has the same samples for any number of processes.
    ``state_dict()`` has the number of global batches that were ``given``; any number of processes may continue from it.

    With TRACECOMP_SHARDS=S in the environment, each of S logical shards has the indices that PyTorch gives to one of S
    processes. A ``DataLoader`` then reads a batch for each shard of this process. Lengths are those of one shard.
    """

    def __init__(
        self, dataset: Sized, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
        seed: int = 0, drop_last: bool = False, *, shards: int | None = None, shard_size: int = 1,
    ) -> None:  # fmt: skip
        group = world.default
        self.dataset = dataset
        plan = world.plan if shards is None else None
        self.rows: int | None = None if plan is None else len(plan.own)
        if plan is not None and group is not None:
            if num_replicas not in (None, plan.total):
                raise ValueError(
                    f"DistributedSampler: num_replicas is {num_replicas}, but TRACECOMP_SHARDS is {plan.total}. Pass "
                    "get_world_size(), which is the number of shards"
                )
            if rank not in (None, group.rank()):
                raise ValueError(f"DistributedSampler: rank is {rank}, but this process has rank {group.rank()}")
            num_replicas, shards = group.size(), plan.total
        self.num_replicas = num_replicas if num_replicas is not None else group.size() if group is not None else 1
        self.rank = rank if rank is not None else group.rank() if group is not None else 0
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        if shards is not None and not (self.num_replicas <= shards and shard_size > 0):
            raise ValueError(
                f"DistributedSampler: expected shard_size > 0 and shards >= num_replicas, got {shard_size}, {shards} "
                f"and {self.num_replicas}"
            )
        self.shards, self.shard_size, self._skip = shards, shard_size, 0

    @property
    def batch_size(self) -> int:
        """Indices that this process gives of one global batch."""
        if self.rows is not None:
            return self.shard_size
        return len(self._own()) * self.shard_size

    @property
    def num_samples(self) -> int:
        """Indices that a process gives in a pass, one with shards those of its shards."""
        return self._each() * (1 if self.rows is not None else len(self._own()))

    @property
    def total_size(self) -> int:
        """Indices of all processes in a pass."""
        return self._each() * (self.shards or self.num_replicas)

    def _own(self) -> range:
        """The logical shards of this process; without shards it is one itself."""
        return (
            range(self.rank, self.rank + 1)
            if self.shards is None
            else range(*share(self.shards, self.rank, self.num_replicas))
        )

    def set_epoch(self, epoch: int) -> None:
        """Shuffle otherwise from now on, and begin at the first index."""
        self.epoch, self._skip = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """The position of a pass: the epoch, and its number of global batches so far."""
        return {"epoch": self.epoch, "batches": self._skip}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next pass begin where ``state`` says."""
        self.epoch, self._skip = state["epoch"], state["batches"]

    def given(self, batches: int = 1) -> None:
        """Note that so many more global batches have been trained on."""
        self._skip += batches

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.lists(self.shard_size))

    def lists(self, size: int) -> Iterator[list[int]]:
        """Lists of ``size`` indices of a shard, for each shard of this process in turn."""
        count, parts = len(self.dataset), self.shards or self.num_replicas
        each = self._each()
        generator = Generator().manual_seed(self.seed + self.epoch)
        order = T.randperm(count, generator=generator).tolist() if self.shuffle else list(range(count))
        repeated = list(itertools.islice(itertools.cycle(order), each * parts))
        rows = [repeated[part::parts] for part in self._own()]
        for start in range(self._skip * size, each, size):
            for row in rows:
                yield row[start : start + size]

    def _each(self) -> int:
        """Indices of one shard in a pass."""
        count, parts = len(self.dataset), self.shards or self.num_replicas
        if self.shards is None:
            return count // parts if self.drop_last else -(-count // parts)
        whole = parts * self.shard_size
        return (count // whole if self.drop_last else -(-count // whole)) * self.shard_size

    def __len__(self) -> int:
        return (self._each() - self._skip * self.shard_size) * (1 if self.rows is not None else len(self._own()))


class WeightedRandomSampler(Sampler[int]):
    """Draws with given weights."""

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        _check_count("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = T.as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise ValueError(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = T.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of ``batch_size`` indices of another sampler."""

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.sampler, DistributedSampler) and self.sampler.rows is not None:  # logical shards
            lists = self.sampler.lists(self.batch_size)
            yield from (x for x in lists if len(x) == self.batch_size or not self.drop_last)
            return
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class _InfiniteConstantSampler(Sampler[None]):
    """An endless stream of None, which replaces the indices of an iterable dataset."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None
