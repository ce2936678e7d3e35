"""The inputs and outputs of a model, and whether its requests may be batched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tracecomp.serve.errors import InvalidRequest
from tracecomp.serve.tensors import TensorData

OPEN = -1
"""A size that differs between requests."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor's name, datatype and shape; open sizes are -1."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def check(self, tensor: TensorData) -> None:
        """Raise InvalidRequest unless ``tensor`` has this datatype and shape."""
        if tensor.datatype != self.datatype or not self._fits(tensor.shape):
            told = f"expected {self.datatype}{[*self.shape]}, got {tensor.datatype}{[*tensor.shape]}"
            raise InvalidRequest(f"input {self.name!r}: {told}")

    def _fits(self, shape: tuple[int, ...]) -> bool:
        if len(shape) != len(self.shape):
            return False
        return all(size in (OPEN, given) for size, given in zip(self.shape, shape, strict=True))


@dataclass(frozen=True)
class Signature:
    """``max_rows`` is the largest batch that the model takes, and 0 if requests are not batched.

    ``not_batched`` is the reason for that.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    platform: str
    max_rows: int = 0
    not_batched: str = ""

    def to_json(self) -> dict[str, Any]:
        """The signature as the worker process sends it."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Signature:
        """The inverse of ``to_json``."""
        specs = {
            key: [TensorSpec(s["name"], s["datatype"], tuple(s["shape"])) for s in told[key]]
            for key in ("inputs", "outputs")
        }
        return cls(**{**told, **specs})

    def in_order(self, given: Sequence[TensorData]) -> tuple[TensorData, ...]:
        """``given`` in the order of the inputs. InvalidRequest for tensors that are missing, unknown or do not fit."""
        named = {tensor.name: tensor for tensor in given}
        names = [spec.name for spec in self.inputs]
        if len(named) < len(given) or named.keys() != {*names}:
            got = ", ".join(tensor.name for tensor in given) or "none"
            raise InvalidRequest(f"the model's inputs are {', '.join(names) or 'none'}; got {got}")
        for spec in self.inputs:
            spec.check(named[spec.name])
        ordered = tuple(named[name] for name in names)
        if self.max_rows:
            rows = {tensor.shape[0] for tensor in ordered}
            if len(rows) != 1 or not 1 <= min(rows) <= self.max_rows:
                told = f"got {', '.join(map(str, sorted(rows)))}"
                raise InvalidRequest(f"all inputs must have the same first size, from 1 to {self.max_rows}; {told}")
        return ordered

    def check_outputs(self, wanted: Sequence[str]) -> None:
        """Raise InvalidRequest for a wanted output that the model does not have."""
        names = [spec.name for spec in self.outputs]
        if unknown := [name for name in wanted if name not in names]:
            raise InvalidRequest(f"the model's outputs are {', '.join(names)}; got {unknown[0]!r}")
