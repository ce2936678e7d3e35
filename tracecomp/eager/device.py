"""Devices and layouts: there are the CPU and ``meta``, whose tensors have no memory."""

from __future__ import annotations

from typing import Any, TypeAlias

from tracecomp.base.errors import type_name
from tracecomp.eager.modes import modes


class _Use:
    """Whether something has a say in what operators do: tensors without memory, devices to make them on, modes.

    ``begun`` has an entry for each that is there in any thread: adding and taking one cannot be interrupted.
    """

    def __init__(self) -> None:
        self.begun: list[None] = []

    def begin(self) -> None:
        """One more has a say."""
        self.begun.append(None)

    def end(self) -> None:
        """One of them has none any more."""
        self.begun.pop()


use = _Use()


class device:
    """``device("cpu")``, ``device("cpu", 0)``, ``device("cuda:1")``; only ``cpu`` and ``meta`` can have tensors.

    ``with device("meta"):`` factories make tensors there.
    """

    __slots__ = ("index", "type")
    type: str
    index: int | None

    _TYPES = ("cpu", "cuda", "mps", "xpu", "meta")

    def __init__(self, type: str | int | device, index: int | None = None) -> None:
        if isinstance(type, device):
            self.type, self.index = type.type, type.index
            return
        if isinstance(type, int):
            self.type, self.index = "cuda", type
            return
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type_name(type)}")
        name, colon, number = type.partition(":")
        if name not in self._TYPES:
            raise RuntimeError(
                f"Expected one of {', '.join(self._TYPES)} device type at start of device string: {type}"
            )
        if colon and (not (number.isascii() and number.isdigit()) or (number[0] == "0" and number != "0")):
            raise RuntimeError(f"Invalid device string: '{type}'")
        if colon and index is not None:
            raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {type}")
        if index is not None and index < 0:
            raise RuntimeError(f"Device index must not be negative, got {index}")
        self.type = name
        self.index = int(number) if number else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (device, (self.type, self.index))

    def __enter__(self) -> device:
        check_device(self)
        use.begin()
        modes.default_places = (*modes.default_places, self)
        return self

    def __exit__(self, *error: object) -> None:
        modes.default_places = modes.default_places[:-1]
        use.end()


Device: TypeAlias = device | str | int | None
CPU = device("cpu")
META = device("meta")


def sole(where: device) -> device:
    """The device that tensors made on ``where`` say they are on: there is one CPU and one place without memory."""
    return CPU if where.type == "cpu" else META if where.type == "meta" else where


def check_device(where: Device) -> device:
    """``where`` as a device, the CPU if it says nothing.

    AssertionError for an accelerator, as in PyTorch; RuntimeError for the index of one.
    """
    if where is None:
        return CPU
    if isinstance(where, int):
        raise RuntimeError(f"Cannot access accelerator device {where}: tracecomp runs on the CPU. Use device='cpu'")
    found: device = where if isinstance(where, device) else device(where)
    if found.type in ("cpu", "meta"):
        return sole(found)
    raise AssertionError(f"tracecomp runs on the CPU: there is no {found.type.upper()} device (asked for {found})")


class _Name:
    """A value that is nothing but one of torch's names."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name  # copies and pickles are the one object of that name


class layout(_Name):
    """The layout of elements in memory; all tensors here are strided."""


class memory_format(_Name):
    """An order of dimensions in memory. It changes strides, never values or shapes."""


strided, jagged = layout("strided"), layout("jagged")
sparse_coo = layout("sparse_coo")
sparse_csr, sparse_csc, sparse_bsr, sparse_bsc = (layout(f"sparse_{n}") for n in ("csr", "csc", "bsr", "bsc"))
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


Layout: TypeAlias = layout | None
MemoryFormat: TypeAlias = memory_format | None
