"""Checkpoints that N processes write and M processes read.

A checkpoint is a folder. Every process writes one file with its share of the values, and its rows of sharded tensors.
Then rank 0 replaces ``metadata.json``, which maps values to files. The checkpoint therefore changes atomically when all
files exist. A process that dies during the write leaves the previous checkpoint intact.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracecomp.base.atomic import write_file
from tracecomp.communication.group import Group
from tracecomp.distributed.objects import of_processes
from tracecomp.distributed.processes import barrier, group_of, is_initialized
from tracecomp.eager.modes import no_grad
from tracecomp.eager.tensor import Tensor, own
from tracecomp.functional import names as T
from tracecomp.nn.sharding import ShardedTensor, Sharding, marked
from tracecomp.optim.optimizer import Optimizer
from tracecomp.serialization import files

_METADATA = "metadata.json"
_FORMAT = 1
"""Version of this layout; readers reject others."""
Key = tuple[Any, ...]
"""Path of a value: keys of dictionaries and list indices, outermost first."""


_Rows = tuple[int, int, tuple[int, ...]]
"""Rows of a tensor, and its whole shape."""


class CheckpointException(RuntimeError):
    """Raised if a checkpoint cannot be read, or lacks a requested value."""


def _leaves(value: object, at: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield values other than dictionaries, and lists that contain tensors, with their paths."""
    value = _stateless(value)
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, (*at, key))
    elif isinstance(value, list | tuple) and any(isinstance(v, Tensor | Mapping) for v in value):
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*at, place))
    else:
        yield at, value


def _is_stateful(value: object) -> bool:
    return not isinstance(value, Tensor) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _stateless(value: Any) -> Any:
    """The state of a module, optimizer, sampler or similar; another value unchanged."""
    return value.state_dict() if _is_stateful(value) else value


def _text(key: Key) -> str:
    return json.dumps(list(key))


# ---- saving


def save(
    state_dict: Mapping[str, object], *, checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: object = None, planner: object = None, process_group: Group | None = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Write ``state_dict``, nested dictionaries of tensors, values and objects with state, as a checkpoint.

    All processes call it with the same keys. Common values are written once, distributed over processes so that they
    write about the same number of bytes. An existing checkpoint is replaced atomically.
    """
    folder = _folder(checkpoint_id, storage_writer)
    group = None if no_dist or not is_initialized() else group_of(process_group)
    values = {_text(key): value for key, value in _leaves(state_dict)}
    rows = {text: value for text, value in values.items() if isinstance(value, ShardedTensor)}
    every = _everyone(group, {text: _size(value) for text, value in values.items() if text not in rows})
    spread = _everyone(group, {text: _rows_of(value.sharding) for text, value in rows.items()})
    token = _everyone(group, secrets.token_hex(8))[0]
    owner = _owners(every)
    place = 0 if group is None else group.rank()
    folder.mkdir(parents=True, exist_ok=True)
    mine = {text: values[text] for text, rank in owner.items() if rank == place}
    mine |= {text: value.to_local() for text, value in rows.items()}
    write_file(folder / _file(place, token), lambda out: files.save(mine, out))
    if group is not None:
        barrier(group)
    if place == 0:
        _replace(folder, token, owner, spread)
    if group is not None:
        barrier(group)


def async_save(state_dict: Mapping[str, object], **options: Any) -> Future[None]:
    """Like ``save``, which has finished when this returns, as has the future."""
    save(state_dict, **options)
    done: Future[None] = Future()
    done.set_result(None)
    return done


def _everyone(group: Group | None, value: object) -> list[Any]:
    return [value] if group is None else of_processes(group, value, "checkpoint.save()")


def _size(value: object) -> int:
    return value.nbytes if isinstance(value, Tensor) else 0


def _owners(every: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Choose the rank that writes each value: of those that have it, the one with the fewest bytes so far."""
    load = [0] * len(every)
    owner: dict[str, int] = {}
    for rank, values in enumerate(every):
        for text in values:
            if text not in owner:
                having = [r for r in range(rank, len(every)) if text in every[r]]
                owner[text] = min(having, key=lambda r: load[r])
                load[owner[text]] += values[text]
    return owner


_NAME = re.compile(r"rank[0-9]+-[0-9a-f]+\.pt")
_DEEPEST = 100
"""Most steps of a key; deeper descriptions are damaged."""


def _check_told(found: dict[str, Any]) -> None:
    """AttributeError, KeyError, TypeError or ValueError for an invalid description. It is untrusted input."""
    parts = [part for entry in found.get("rows", {}).values() for part in entry["parts"]]
    for entry in found.get("rows", {}).values():
        if not entry["parts"] or not entry["shape"] or any(type(n) is not int or n < 0 for n in entry["shape"]):
            raise ValueError(f"rows of a tensor of {entry['shape']}")
    for name in [*found["entries"].values(), *(file for file, _, _ in parts)]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):  # files in its own folder only
            raise ValueError(f"the checkpoint lacks the file {name!r}")
    if any(type(n) is not int or n < 0 for _, first, last in parts for n in (first, last)):
        raise ValueError("invalid range of rows")
    for text in [*found["entries"], *found.get("rows", {})]:
        key = json.loads(text)
        if not isinstance(key, list) or len(key) > _DEEPEST or any(isinstance(k, list | dict) for k in key):
            raise ValueError(f"{text!r:.80} is not a valid key")


def _file(rank: int, token: str) -> str:
    return f"rank{rank}-{token}.pt"


def _rows_of(sharding: Sharding) -> _Rows:
    return sharding.start, sharding.stop, sharding.shape


def _replace(folder: Path, token: str, owner: Mapping[str, int], spread: Sequence[Mapping[str, _Rows]]) -> None:
    """Make the folder the new checkpoint, and remove files of older ones."""
    entries = {text: _file(rank, token) for text, rank in owner.items()}
    rows: dict[str, Any] = {}
    for rank, found in enumerate(spread):
        for text, (start, stop, shape) in found.items():
            entry = rows.setdefault(text, {"shape": shape, "parts": []})
            entry["parts"].append([_file(rank, token), start, stop])
    told = json.dumps({"format": _FORMAT, "entries": entries, "rows": rows}).encode()
    write_file(folder / _METADATA, lambda out: out.write(told))
    for path in folder.glob("rank*.pt"):
        if token not in path.name:
            with suppress(OSError):
                path.unlink()


# ---- loading


def load(
    state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_reader: object = None,
    planner: object = None, process_group: Group | None = None, no_dist: bool = False,
) -> None:  # fmt: skip
    """Fill ``state_dict`` from a checkpoint, for any number of processes that wrote it.

    Tensors are written in place; other values are replaced; objects with state load theirs, as a whole. An empty
    dictionary receives everything that the checkpoint has at its path. CheckpointException for keys and shapes that it
    lacks; with a ``planner`` that allows a partial load, missing outermost keys keep their values.
    """
    folder = _folder(checkpoint_id, storage_reader)
    values = _Values(folder)
    partial = getattr(planner, "allow_partial_load", False)
    for key in state_dict:
        if partial and not any(place[0] == key for place in values.places):
            continue
        state_dict[key] = _filled(state_dict[key], (key,), values)


class _Values:
    """The values of a checkpoint by path; files are read on first use."""

    def __init__(self, folder: Path) -> None:
        path = folder / _METADATA
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointException(f"{folder}: missing or damaged checkpoint ({error})") from error
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            has = found.get("format") if isinstance(found, dict) else None
            raise CheckpointException(f"{folder}: checkpoint format is {has}, expected {_FORMAT}")
        try:
            _check_told(found)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise CheckpointException(f"{folder}: missing or damaged checkpoint ({error})") from error
        self._folder = folder
        self._files: dict[str, str] = found["entries"]
        self._rows: dict[str, Any] = found.get("rows", {})
        self._read: dict[str, dict[str, Any]] = {}
        self.places = [tuple(json.loads(text)) for text in (*self._files, *self._rows)]

    def _of_file(self, name: str, text: str) -> Any:
        if name not in self._read:
            found = files.load(self._folder / name, mmap=True)
            self._read[name] = found if isinstance(found, dict) else {}
        if text not in self._read[name]:
            raise CheckpointException(f"{self._folder}: {name} lacks {text}, which the index lists")
        return self._read[name][text]

    def __getitem__(self, key: Key) -> Any:
        text = _text(key)
        if text in self._rows:
            return self.rows(key, 0, self._rows[text]["shape"][0])
        if text not in self._files:
            raise CheckpointException(f"Missing key in checkpoint state_dict: {'.'.join(map(str, key))}.")
        return self._of_file(self._files[text], text)

    def shape(self, key: Key) -> tuple[int, ...] | None:
        """The shape of a tensor as a whole; None for another value."""
        text = _text(key)
        if text in self._rows:
            return tuple(self._rows[text]["shape"])
        value = self[key]
        return tuple(value.shape) if isinstance(value, Tensor) else None

    def rows(self, key: Key, start: int, stop: int) -> Tensor:
        """Some rows of a tensor; other rows are not read."""
        text = _text(key)
        if text not in self._rows:
            whole: Tensor = self[key]
            return whole[start:stop]
        pieces = []
        for name, first, last in self._rows[text]["parts"]:
            low, high = max(start, first), min(stop, last)
            if low < high:
                pieces.append(self._of_file(name, text)[low - first : high - first])
        if pieces:
            return T.cat(pieces)
        rows: Tensor = self._of_file(self._rows[text]["parts"][0][0], text)
        return rows[:0]

    def below(self, at: Key, sharding_of: Callable[[Key], Sharding | None] = lambda key: None) -> Any:
        """Everything below a path, in dictionaries and lists; only rows for sharded tensors."""
        keys = [key for key in self.places if key[: len(at)] == at]
        if keys == [at]:
            sharding = sharding_of(at)
            if sharding is None or self.shape(at) != sharding.shape:
                return self[at]
            return marked(own(self.rows(at, sharding.start, sharding.stop)), sharding)
        if not keys:
            raise CheckpointException(f"Missing key in checkpoint state_dict: {'.'.join(map(str, at))}.")
        found: dict[Any, Any] = {}
        for step in dict.fromkeys(key[len(at)] for key in keys):
            found[step] = self.below((*at, step), sharding_of)
        is_list = list(found) == list(range(len(found))) and at[-1] == "param_groups"
        return list(found.values()) if is_list else found


def _filled(value: Any, at: Key, values: _Values) -> Any:
    """Return ``value`` with the checkpoint's contents."""
    if _is_stateful(value):
        value.load_state_dict(_state_of(value, at, values))
        return value
    if isinstance(value, Tensor):
        sharding = value.sharding if isinstance(value, ShardedTensor) else None
        shape = tuple(value.shape) if sharding is None else sharding.shape
        has = values.shape(at)
        if has != shape:
            raise CheckpointException(
                f"{'.'.join(map(str, at))}: the checkpoint has {'no tensor' if has is None else list(has)} where "
                f"{list(shape)} is expected"
            )
        with no_grad():
            value.copy_(own(values[at] if sharding is None else values.rows(at, sharding.start, sharding.stop)))
        return value
    if isinstance(value, dict):
        # An empty dictionary specifies no keys: it receives all of the checkpoint's.
        if not value:
            return values.below(at) if any(key[: len(at)] == at for key in values.places) else value
        return {key: _filled(inner, (*at, key), values) for key, inner in value.items()}
    if isinstance(value, list) and any(isinstance(v, Tensor | dict) for v in value):
        return [_filled(inner, (*at, place), values) for place, inner in enumerate(value)]
    return values[at]


def _state_of(value: Any, at: Key, values: _Values) -> Any:
    """The checkpoint's state of an object; of sharded tensors only rows of this process are read."""
    if isinstance(value, Optimizer):
        params = [p for g in value.param_groups for p in g["params"]]
        shardings = {i: p.sharding for i, p in enumerate(params) if isinstance(p, ShardedTensor)}
        return values.below(at, lambda key: shardings.get(key[len(at) + 1]) if len(key) > len(at) + 2 else None)
    mine = value.state_dict()
    shardings = (
        {k: v.sharding for k, v in mine.items() if isinstance(v, ShardedTensor)} if isinstance(mine, dict) else {}
    )
    return values.below(at, lambda key: shardings.get(key[-1]))


class FileSystemWriter:
    """The folder of a checkpoint to write, for ``save(storage_writer=...)``."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = Path(path)


class FileSystemReader:
    """The folder of a checkpoint to read, for ``load(storage_reader=...)``."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = Path(path)


def _folder(checkpoint_id: Any, storage: Any) -> Path:
    if checkpoint_id is None and storage is None:
        raise ValueError("checkpoint_id, a folder, must be specified")
    return Path(checkpoint_id) if checkpoint_id is not None else Path(storage.path)


class DefaultSavePlanner:
    """PyTorch's planner of ``save``. Everything is always written: options have no effect."""

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, **options: object
    ) -> None:
        self.flatten_state_dict, self.flatten_sharded_tensors = flatten_state_dict, flatten_sharded_tensors


class DefaultLoadPlanner:
    """PyTorch's planner of ``load``; with ``allow_partial_load``, keys may be missing."""

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:  # fmt: skip
        self.flatten_state_dict, self.flatten_sharded_tensors = flatten_state_dict, flatten_sharded_tensors
        self.allow_partial_load = allow_partial_load
