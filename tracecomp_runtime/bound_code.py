"""Machine code of a program with the arrays that it works on: those that stay, and those of a call."""

from __future__ import annotations

import ctypes
from _thread import allocate_lock  # threading takes milliseconds to import
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any, Protocol

import numpy as np

from tracecomp_runtime import tensors
from tracecomp_runtime.container import Container
from tracecomp_runtime.machine_code import Code, placed
from tracecomp_runtime.open_sizes import block_length, number
from tracecomp_runtime.threads import POOL, start_workers

Array = np.ndarray[Any, Any]

_LINE = 64
_ALIGNED = 0x100
_CONTIGUOUS = 0x1
_FASTCALL = 0x80
_DATA, _ND, _DIMS, _DESCR, _FLAGS, _TYPE = 16, 24, 32, 56, 64, 8
"""Offsets in numpy's array objects, which the code of a call reads; tried on probes before it is used."""
_ELEMENT_BITS = 10
"""Bits of the detail of a failure in a batch of matrices that number the element; higher bits number the matrix, as in
``tracecomp/base/errors.py``."""


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class Kind:
    """The dtype and shape of an argument or output. Numbers of the shape may follow from dynamic sizes."""

    def __init__(self, dtype: str, shape: Sequence[Any], names: Sequence[str] = ()) -> None:
        self.dtype = tensors.dtype_of(dtype)
        self.shape: tuple[Any, ...] = tuple(shape)
        self.open = any(not isinstance(n, int) for n in shape)
        self.name = dtype
        self._names = names

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(str(n) if isinstance(n, int) else self._named(n) for n in self.shape)}]"

    def _named(self, told: Any) -> str:
        """The name of an argument's size."""
        size: int = told[0][0][0]
        return self._names[size]

    def takes(self, array: Array) -> bool:
        """Whether ``array`` is of this kind, apart from what its sizes are where they are open."""
        if array.dtype != self.dtype or array.ndim != len(self.shape):
            return False
        return all(n == m or not isinstance(m, int) for n, m in zip(array.shape, self.shape, strict=True))


class Surroundings(Protocol):
    """State that lasts between calls."""

    name: str
    state: Mapping[str, Array]
    numbers: Mapping[str, Array]
    threads: int


class BoundCode:
    """Code described by the file (``told``), in memory, with the permanent arrays of its table.

    ``path`` is the file's description of its path; ``stay`` are outputs with separate memory.
    """

    def __init__(
        self, told: Mapping[str, Any], file: Container, around: Surroundings, path: Mapping[str, Any],
        stay: Mapping[int, Array],
    ) -> None:  # fmt: skip
        self.told = file.code(told)
        self._around = around
        self._failures: Sequence[tuple[str, str]] = path["failures"]
        outputs: Sequence[Sequence[Any]] = path["outputs"]
        self._code = _placed(self.told, file)
        self._entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(self._code.address + self.told["entry"])
        self._fixed: dict[int, Array] = {}  # arrays that stay in their places of the table
        self._given: dict[int, int] = {}  # place in the table to argument
        self._sizes: dict[int, int] = {}  # place in the table to size
        self._blocks: dict[int, int] = {}  # place in the table to the block of a long sum
        self._in_place: dict[int, int] = {}  # output to the argument that it overwrites
        self._shapes: Sequence[Sequence[int]] = self.told.get("outputs") or [shape for _, shape, *_ in outputs]
        self._dtypes = [tensors.dtype_of(dtype) for dtype, *_ in outputs]
        self._idle: list[list[Any]] = []
        self._bind(file, outputs, stay)
        self.made = [k for k in range(len(outputs)) if self._slot(k) not in self._fixed]

    def _bind(self, file: Container, outputs: Sequence[Sequence[Any]], stay: Mapping[int, Array]) -> None:
        around: Mapping[str, Mapping[str, Array]] = {"state": self._around.state, "number": self._around.numbers}
        places: Mapping[str, dict[int, int]] = {"argument": self._given, "size": self._sizes, "block": self._blocks}
        for slot, (kind, name) in enumerate(self.told["inputs"]):
            if kind in places:
                places[kind][slot] = name
            elif kind == "constant":
                self._fixed[slot] = file.arrays[f"constant:{name}"]
            else:
                self._fixed[slot] = around[kind][name]
        # The first inputs of code for several sizes are these, before those of the path.
        given = [slot for slot, (kind, _) in enumerate(self.told["inputs"]) if kind != "constant"]
        given = given[len(self.told.get("box", ())) :]
        for k, (_, _, how, what) in enumerate(outputs):
            if how == "in_place":
                if given[what] in self._fixed:
                    self._fixed[self._slot(k)] = self._fixed[given[what]]
                else:
                    self._in_place[k] = self._given[given[what]]
            elif how == "gradient":
                self._fixed[self._slot(k)] = stay[k]

    def _slot(self, output: int) -> int:
        return len(self.told["inputs"]) + output

    # ---- a call from Python

    def run(self, given: Sequence[Array], sizes: Sequence[int]) -> list[Array]:
        """The outputs for dense arguments; raises the program's error if it fails."""
        outputs = self._outputs(given)
        slots = len(self.told["inputs"])
        table = (ctypes.c_void_p * (slots + len(outputs)))()
        held = self._inputs(given, sizes)
        for slot, array in (*self._fixed.items(), *held, *((slots + k, a) for k, a in enumerate(outputs))):
            table[slot] = array.ctypes.data
        failed = ctypes.c_uint64(0)
        prepared = self.told["prepared"]
        try:
            idle = self._idle.pop()
        except IndexError:
            idle = [tensors.zeros(self.told["memory_bytes"] + self.told["thread_bytes"])]
        self._entry(ctypes.addressof(table), idle[0].ctypes.data, None, ctypes.addressof(failed))
        if prepared is not None and not failed.value:
            idle[0][prepared] = 1  # values that depend on weights alone are prepared once
        self._idle.append(idle)
        if failed.value:
            self.fail(failed.value)
        return outputs

    def _inputs(self, given: Sequence[Array], sizes: Sequence[int]) -> list[tuple[int, Array]]:
        room = self.told.get("room", {})
        found = [(slot, _with_room(given[k], room.get(str(slot)))) for slot, k in self._given.items()]
        return found + self._numbers(sizes)

    def _numbers(self, sizes: Sequence[int]) -> list[tuple[int, Array]]:
        """The sizes, and the blocks of long sums that follow from them, with their places in the table."""
        found = [(slot, np.array(sizes[k], np.int64)) for slot, k in self._sizes.items()]
        for slot, k in self._blocks.items():
            extent, target = self.told["blocks"][k]
            found.append((slot, np.array(block_length(number(extent, sizes), target), np.int64)))
        return found

    def _outputs(self, given: Sequence[Array]) -> list[Array]:
        found = []
        for k, shape in enumerate(self._shapes):
            if self._slot(k) in self._fixed:
                found.append(self._fixed[self._slot(k)])
            elif k in self._in_place:
                found.append(given[self._in_place[k]])
            else:
                found.append(tensors.empty(shape, self._dtypes[k]))
        return found

    def fail(self, word: int) -> None:
        """The error that the code reports by ``word``."""
        label = self.told["labels"][(word & 0xFFFFFFFF) - 1]
        name, text = self._failures[word >> 32 & 0xFF]
        error = IndexError if name == "IndexError" else RuntimeError
        detail = word >> 40
        found = text.format(
            step=label, detail=detail, element=detail & (1 << _ELEMENT_BITS) - 1, batch=detail >> _ELEMENT_BITS
        )
        raise error(f"{self._around.name}: {found}")

    # ---- the native call

    def native(
        self, arguments: Sequence[Kind], outputs: Sequence[Kind], sizes: Sequence[int], general: Callable[..., Any]
    ) -> NativeCall | None:
        """A native function from arrays to new arrays, for one choice of sizes.

        None if it is impossible: numpy has an unknown layout, or arguments have to be copied first.
        """
        if "room" in self.told or not _arrays_are_known():
            return None
        return NativeCall(self, arguments, outputs, sizes, general)


class NativeCall:
    """A builtin ``function`` and all that it works with; calls that do not fit go to ``general``.

    The layouts are those of the code's ``record``, ``argument_row`` and ``output_row``.
    """

    def __init__(
        self, code: BoundCode, arguments: Sequence[Kind], outputs: Sequence[Kind], sizes: Sequence[int],
        general: Callable[..., Any],
    ) -> None:  # fmt: skip
        self._told, self._arguments, self._general = code.told, arguments, general
        self._outputs, self._numbers = outputs, code._numbers(sizes)
        self._slots = len(code.told["inputs"]) + len(code._shapes)
        self._count = code._around.threads if code.told["parallel"] else 1
        self._held: list[Any] = [code]
        self._make(code)
        if self._count > 1:
            start_workers(code._code, code.told["worker"], self._count - 1)
        self._method = _MethodDef(b"program", code._code.address + code.told["call"], _FASTCALL, None)
        create = ctypes.pythonapi.PyCFunction_NewEx
        create.restype, create.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.function = create(ctypes.addressof(self._method), self._record, None)

    def _make(self, code: BoundCode) -> None:
        told, count = self._told, self._count
        words, arguments, outputs = told["record"], told["argument_row"], told["output_row"]
        sizes = (len(words), len(self._arguments) * len(arguments), len(code.made) * len(outputs), self._slots)
        starts = [*accumulate((-(-8 * n // _LINE) * _LINE for n in sizes), initial=0)]
        arena = starts[-1]
        memory = tensors.zeros(arena + told["memory_bytes"] + count * told["thread_bytes"])
        base = memory.ctypes.data
        self._arena = memory[arena:]
        self._record, rows, made, table = (
            memory[start : start + 8 * n].view(np.uintp) for start, n in zip(starts[:-1], sizes, strict=True)
        )
        for slot, array in (*code._fixed.items(), *self._numbers):
            table[slot] = array.ctypes.data
        at = {slot: base + starts[3] + 8 * slot for slot in range(self._slots)}
        self._fill(rows, arguments, self._argument_rows(at, {k: slot for slot, k in code._given.items()}))
        self._fill(made, outputs, self._output_rows(at, code))
        self._held.append(memory)
        values = {
            "entry": code._code.address + told["entry"], "table": base + starts[3], "arena": base + arena,
            "pool": POOL.ctypes.data if count > 1 else 0, "threads": count, "failed": 0, "busy": 0,
            "array_type": id(np.ndarray), "general": self._address(self._first), "fail": self._address(code.fail),
            "count": _NEVER, "arguments": base + starts[1], "arguments_end": base + starts[1] + 8 * sizes[1],
            "outputs": base + starts[2], "outputs_end": base + starts[2] + 8 * sizes[2], "results": len(code.made),
        }  # fmt: skip
        self._record[:] = [values[name] for name in words]

    def _address(self, thing: Any) -> int:
        self._held.append(thing)
        return id(thing)

    def _argument_rows(self, at: Mapping[int, int], slot_of: Mapping[int, int]) -> list[dict[str, int]]:
        unused = np.zeros(1, np.uintp)  # for arguments that the program does not read
        dims = [np.array(k.shape, np.intp) for k in self._arguments]
        self._held += [unused, dims]
        return [
            {"descr": id(kind.dtype), "nd": len(kind.shape), "dims": dims[k].ctypes.data,
             "flags": _CONTIGUOUS | _ALIGNED, "slot": at[slot_of[k]] if k in slot_of else unused.ctypes.data}
            for k, kind in enumerate(self._arguments)
        ]  # fmt: skip

    def _output_rows(self, at: Mapping[int, int], code: BoundCode) -> list[dict[str, int]]:
        makers = [partial(with_room_for, code._shapes[k], self._outputs[k].shape, code._dtypes[k]) for k in code.made]
        return [
            {"make": self._address(make), "slot": at[code._slot(k)], "array": 0}
            for k, make in zip(code.made, makers, strict=True)
        ]

    @staticmethod
    def _fill(rows: Array, names: Sequence[str], values: Sequence[Mapping[str, int]]) -> None:
        for k, row in enumerate(values):
            rows[k * len(names) : (k + 1) * len(names)] = [row[name] for name in names]

    def _first(self, *args: Any) -> Any:
        """The first native call. Values that depend on weights alone are prepared in it, once: weights are constant."""
        record, kinds = self._record, self._arguments
        count, general = self._word("count"), self._word("general")
        fits = len(args) == len(kinds) and all(isinstance(a, np.ndarray) for a in args)
        if not (fits and all(k.takes(a) for k, a in zip(kinds, args, strict=True))):
            return self._general(*args)
        first, record[count], record[general] = record[general], len(kinds), self._address(self._general)
        try:
            result = self.function(*map(np.ascontiguousarray, args))
        except BaseException:
            record[count], record[general] = _NEVER, first
            raise
        if self._told["prepared"] is not None:
            self._arena[self._told["prepared"]] = 1
        return result

    def _word(self, name: str) -> int:
        index: int = self._told["record"].index(name)
        return index


_NEVER = 2**62
"""A number of arguments that no call has: it sends all calls to Python."""

_images: dict[tuple[str, str], Code] = {}
_placing = allocate_lock()


def _placed(told: Mapping[str, Any], file: Container) -> Code:
    """The code in memory, where it stays: workers may run it until the process ends."""
    key = (file.digest, told["section"])
    with _placing:
        if key not in _images:
            _images[key] = placed(told, file.section(told["section"]))
        return _images[key]


def with_room_for(wide: Sequence[int], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array of ``shape``, with memory behind it for one of ``wide``."""
    made = tensors.empty(wide, dtype)
    return made if made.shape == shape else made.reshape(-1)[: prod(shape)].reshape(shape)


def _with_room(array: Array, shape: Sequence[int] | None) -> Array:
    """``array``, or where ``shape`` is given its elements as the first of an array of that."""
    if shape is None:
        return array
    found = np.zeros(shape, array.dtype)
    found.reshape(-1)[: array.size] = array.reshape(-1)
    return found


def _arrays_are_known() -> bool:
    """Whether this numpy's array objects look as the native call believes."""
    word = ctypes.c_uint64.from_address
    return all(
        word(id(a) + _TYPE).value == id(np.ndarray)
        and word(id(a) + _DATA).value == a.ctypes.data
        and word(id(a) + _ND).value & 0xFFFFFFFF == a.ndim
        and [word(word(id(a) + _DIMS).value + 8 * k).value for k in range(a.ndim)] == [*a.shape]
        and word(id(a) + _DESCR).value == id(a.dtype)
        and word(id(a) + _FLAGS).value & 0xFFFFFFFF == a.flags.num
        for a in (np.zeros(3), np.zeros(()), np.zeros((2, 5)), np.zeros((4, 4))[:, ::2])
    )
