"""Saved programs, loaded: machine code with its weights and state, called on numpy arrays."""

from __future__ import annotations

import ctypes
import hmac
import os
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from tracecomp_runtime import processor, tensors
from tracecomp_runtime.container import HERE, Container, ProgramError
from tracecomp_runtime.machine_code import Code, placed
from tracecomp_runtime.threads import POOL, available, start_workers

Array = np.ndarray[Any, Any]

_LINE = 64
_ALIGNED = 0x100
_CONTIGUOUS = 0x1
_FASTCALL = 0x80
_DATA, _ND, _DIMS, _DESCR, _FLAGS, _TYPE = 16, 24, 32, 56, 64, 8
"""Offsets in numpy's array objects, which the code of a call reads; tried on probes before it is used."""


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class Program:
    """A program from a file. Call it with numpy arrays, as the function that was saved was called with tensors.

    ``state`` are the arrays that it reads and writes besides its arguments, by name; those that it only reads cannot be
    written. ``numbers`` are settings that it reads at every call, such as a learning rate, as arrays without
    dimensions. ``gradients`` are those that the last call left.
    """

    def __init__(self, file: Container, threads: int | None, check: bool) -> None:
        header = file.header
        self.name: str = header["name"]
        self.digest = file.digest
        self.level = _level(file)
        self._structure = header["arguments"]
        arrays = tensors.arrays(file.section("tensors", check), file)
        written = set(header["written"])
        self.state: Mapping[str, Array] = {
            name: arrays[f"state:{name}"].copy() if name in written else arrays[f"state:{name}"]
            for name in header["state"]
        }
        self.numbers: Mapping[str, Array] = {name: np.array(value, np.float64) for name, value in header["numbers"]}
        self.gradients: dict[str, Array] = {}
        self.threads = threads or available()
        self._paths = [_Path(self, file, path, k, arrays) for k, path in enumerate(header["paths"])]
        only = self._paths[0]
        self._call: Callable[..., Any] = only.fast if len(self._paths) == 1 and only.simple else self._general

    def __call__(self, *args: Any) -> Any:
        """The results for ``args``. TypeError where a dtype or shape is not one that was saved."""
        return self._call(*args)

    def __repr__(self) -> str:
        kinds = " or ".join(sorted({", ".join(map(str, p.arguments)) for p in self._paths}))
        return f"<program {self.name}({kinds}), {len(self.state)} arrays of state, {self.level}>"

    def _general(self, *args: Any) -> Any:
        leaves: list[Any] = []
        _flatten(self._structure, args, leaves, self.name)
        fitting = [p for p in self._paths if p.fits(leaves)]
        if not fitting:
            wanted = "; or ".join(", ".join(map(str, p.arguments)) for p in self._paths)
            raise TypeError(f"{self.name} was saved for ({wanted}), and got ({', '.join(map(_told, leaves))})")
        for path in fitting:
            held, result = path.run(leaves)
            if held:
                return result
        raise RuntimeError(f"{self.name}: no path was saved for the values that this call's arguments lead to")


class _Kind:
    """The dtype and shape of an argument."""

    def __init__(self, dtype: str, shape: Sequence[int]) -> None:
        self.dtype = tensors.dtype_of(dtype)
        self.shape = tuple(shape)
        self.name = dtype

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.shape))}]"

    def takes(self, array: Array) -> bool:
        return bool(array.dtype == self.dtype) and array.shape == self.shape


class _Path:
    """One recorded way through the function: its code, and where its arrays come from and go."""

    def __init__(self, owner: Program, file: Container, path: dict[str, Any], number: int, arrays: Any) -> None:
        self.owner = owner
        self.path = path
        self.arguments = [_Kind(*kind) for kind in path["arguments"]]
        self._places: list[int] = path["places"]  # leaf number of each array argument
        self._plain: list[tuple[int, Any]] = [(k, v) for k, v in path["plain"]]
        image = file.header["levels"][owner.level][number]
        self._image = image
        self._code = _placed(owner.level, number, image, file)
        self._entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(self._code.address + image["entry"])
        self._fixed: dict[int, Array] = {}  # arrays that stay in their places of the table
        self._given: dict[int, int] = {}  # place in the table to argument
        self._in_place: dict[int, int] = {}  # output to the argument that it overwrites
        self._bind(arrays)
        self._look_up_all(file)
        self._made = [k for k in range(len(path["outputs"])) if self._slot(k) not in self._fixed]
        self._kinds = [_Kind(*path["outputs"][k][:2]) for k in range(len(path["outputs"]))]
        self.simple = self._is_simple()
        self.fast: Callable[..., Any] = owner._general
        if self.simple and _arrays_are_known():
            self._make_fast()

    def _look_up_all(self, file: Container) -> None:
        """ProgramError where what a call is to give, compare or write is nowhere."""
        path, state = self.path, self.owner.state
        there: dict[str, Any] = {
            "output": range(len(path["outputs"])), "value": range(len(path["outputs"])),
            "argument": range(len(self.arguments)), "state": state,
        }  # fmt: skip
        wanted = [(kind, what) for kind, what, *_ in path["results"] if kind != "plain"]
        numbers = [n for n, *_ in (*path["predicates"], *path["copies"])] + [n for _, n in path["new_gradients"]]
        wanted += [("output", n) for n in numbers] + [("state", name) for _, name in path["copies"]]
        for kind, what in wanted:
            if what not in there[kind]:
                raise file.error(f"is damaged: a call would use {kind} {what!r}, which is not there")

    def _bind(self, arrays: Mapping[str, Array]) -> None:
        for slot, (kind, name) in enumerate(self._image["inputs"]):
            if kind == "argument":
                self._given[slot] = name
            elif kind == "state":
                self._fixed[slot] = self.owner.state[name]
            elif kind == "number":
                self._fixed[slot] = self.owner.numbers[name]
            else:
                self._fixed[slot] = arrays[f"constant:{name}"]
        given = [slot for slot, (kind, _) in enumerate(self._image["inputs"]) if kind != "constant"]
        for number, (dtype, shape, how, what) in enumerate(self.path["outputs"]):
            if how == "in_place":
                if given[what] in self._fixed:
                    self._fixed[self._slot(number)] = self._fixed[given[what]]
                else:
                    self._in_place[number] = self._given[given[what]]
            elif how == "gradient":
                made = tensors.empty(shape, tensors.dtype_of(dtype))
                self._fixed[self._slot(number)] = self.owner.gradients[what] = made

    def _slot(self, output: int) -> int:
        return len(self._image["inputs"]) + output

    def _is_simple(self) -> bool:
        """Whether calls are arrays in and new arrays out, so that native code can do everything."""
        path = self.path
        whole = [["output", k, None, None] for k in self._made]
        several = ["tuple", *["*"] * len(whole)]
        return (
            not path["predicates"] and not path["copies"] and not self._plain and not path["overwrites"]
            and path["results"] == whole and path["structure"] == ("*" if len(whole) == 1 else several)
            and path["flat"] and len(whole) > 0
        )  # fmt: skip

    def fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the leaves are of the types that this path was recorded for."""
        return all(k.takes(np.asarray(leaves[i])) for k, i in zip(self.arguments, self._places, strict=True)) and all(
            type(leaves[i]) is type(v) and leaves[i] == v for i, v in self._plain
        )

    def run(self, leaves: Sequence[Any]) -> tuple[bool, Any]:
        """Whether this was the path of the call, and then its results. Nothing is written where it was not."""
        given = [np.ascontiguousarray(leaves[i]) for i in self._places]
        for k in self.path["overwrites"]:
            if given[k] is not leaves[self._places[k]] or not given[k].flags.writeable:
                raise ValueError(f"{self.owner.name} writes argument {k}: give a writable array in row-major order")
            if any(np.may_share_memory(given[k], a) for j, a in enumerate(given) if j != k):
                raise ValueError(f"{self.owner.name} writes argument {k}, which shares memory with another one")
        outputs = self._outputs(given)
        word = self._execute(given, outputs)
        if word:
            self._fail(word)
        for number, wanted in self.path["predicates"]:
            if not _same(outputs[number].tolist(), wanted):
                return False, None
        for number, name in self.path["copies"]:
            np.copyto(self.owner.state[name], outputs[number])
        for name, number in self.path["new_gradients"]:
            self.owner.gradients[name] = outputs[number]
        found = iter([self._result(spec, given, outputs) for spec in self.path["results"]])
        return True, _unflatten(self.path["structure"], found)

    def _outputs(self, given: Sequence[Array]) -> list[Array]:
        found = []
        for number, kind in enumerate(self._kinds):
            slot = self._slot(number)
            if slot in self._fixed:
                found.append(self._fixed[slot])
            elif number in self._in_place:
                found.append(given[self._in_place[number]])
            else:
                found.append(tensors.empty(kind.shape, kind.dtype))
        return found

    def _execute(self, given: Sequence[Array], outputs: Sequence[Array]) -> int:
        """Run the code in memory of its own, on this thread alone; what it reports."""
        slots = len(self._image["inputs"])
        table = (ctypes.c_void_p * (slots + len(outputs)))()
        for slot, array in self._fixed.items():
            table[slot] = array.ctypes.data
        for slot, k in self._given.items():
            table[slot] = given[k].ctypes.data
        for k, array in enumerate(outputs):
            table[slots + k] = array.ctypes.data
        arena = tensors.zeros(self._image["memory_bytes"] + self._image["thread_bytes"])
        failed = ctypes.c_uint64(0)
        self._entry(ctypes.addressof(table), arena.ctypes.data, None, ctypes.addressof(failed))
        return failed.value

    def _fail(self, word: int) -> None:
        kinds: list[tuple[str, str]] = self.path["failures"]
        label = self._image["labels"][(word & 0xFFFFFFFF) - 1]
        name, text = kinds[word >> 32 & 0xFF]
        error = IndexError if name == "IndexError" else RuntimeError
        raise error(f"{self.owner.name}: {text.format(step=label, detail=word >> 40)}")

    def _result(self, spec: Sequence[Any], given: Sequence[Array], outputs: Sequence[Array]) -> Any:
        kind, what, axes, view = spec
        if kind == "plain":
            return what
        if kind == "value":
            return outputs[what].item()
        where: Mapping[str, Any] = {"output": outputs, "argument": given, "state": self.owner.state}
        array: Array = where[kind][what]
        if axes is not None:
            array = array.transpose(np.argsort(axes))
        if view is not None:
            array = _looked(array, *view)
        return array

    # ---- the native call

    def _make_fast(self) -> None:
        image, count = self._image, self.owner.threads if self._image["parallel"] else 1
        words, arguments, outputs = image["record"], image["argument_row"], image["output_row"]
        slots = len(self._image["inputs"]) + len(self._kinds)
        sizes = (len(words), len(self.arguments) * len(arguments), len(self._made) * len(outputs), slots)
        dims = [np.array(k.shape, np.intp) for k in self.arguments]
        self._held: list[Any] = [dims, self._code]
        starts = [*accumulate((-(-8 * n // _LINE) * _LINE for n in sizes), initial=0)]
        arena = starts[-1]
        memory = tensors.zeros(arena + image["memory_bytes"] + count * image["thread_bytes"])
        base = memory.ctypes.data
        self._arena = memory[arena:]
        record, rows, made, table = (
            memory[start : start + 8 * n].view(np.uintp) for start, n in zip(starts[:-1], sizes, strict=True)
        )
        for slot, array in self._fixed.items():
            table[slot] = array.ctypes.data
        at = {slot: base + starts[3] + 8 * slot for slot in range(slots)}
        slot_of = {k: slot for slot, k in self._given.items()}
        unused = np.zeros(1, np.uintp)  # for arguments that the program does not read
        for k, kind in enumerate(self.arguments):
            values = {
                "descr": id(kind.dtype), "nd": len(kind.shape), "dims": dims[k].ctypes.data,
                "flags": _CONTIGUOUS | _ALIGNED, "slot": at[slot_of[k]] if k in slot_of else unused.ctypes.data,
            }  # fmt: skip
            rows[k * len(arguments) : (k + 1) * len(arguments)] = [values[name] for name in arguments]
        for k, number in enumerate(self._made):
            make = partial(tensors.empty, self._kinds[number].shape, self._kinds[number].dtype)
            self._held.append(make)
            values = {"make": id(make), "slot": at[self._slot(number)], "array": 0}
            made[k * len(outputs) : (k + 1) * len(outputs)] = [values[name] for name in outputs]
        self._held_general, self._held_first, fail = self.owner._general, self._first, self._fail
        values = {
            "entry": self._code.address + image["entry"], "table": base + starts[3], "arena": base + arena,
            "pool": POOL.ctypes.data if count > 1 else 0, "threads": count, "failed": 0, "busy": 0,
            "array_type": id(np.ndarray), "general": id(self._held_first), "fail": id(fail), "count": _NEVER,
            "arguments": base + starts[1], "arguments_end": base + starts[1] + 8 * sizes[1],
            "outputs": base + starts[2], "outputs_end": base + starts[2] + 8 * sizes[2],
            "results": len(self._made),
        }  # fmt: skip
        record[:] = [values[name] for name in words]
        self._record = record
        self._held += [memory, unused, fail]
        if count > 1:
            start_workers(self._code, image["worker"], count - 1)
        self._method = _MethodDef(b"program", self._code.address + image["call"], _FASTCALL, None)
        create = ctypes.pythonapi.PyCFunction_NewEx
        create.restype, create.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
        self.fast = create(ctypes.addressof(self._method), record, None)

    def _first(self, *args: Any) -> Any:
        """The first native call. What depends on weights alone is made ready in it, once: they cannot change."""
        record, fast = self._record, self.fast
        count, general = self._word("count"), self._word("general")
        if not (len(args) == len(self.arguments) and all(isinstance(a, np.ndarray) for a in args) and self.fits(args)):
            return self.owner._general(*args)
        record[count], record[general] = len(self.arguments), id(self._held_general)
        try:
            result = fast(*map(np.ascontiguousarray, args))
        except BaseException:
            record[count], record[general] = _NEVER, id(self._held_first)
            raise
        if self._image["prepared"] is not None:
            self._arena[self._image["prepared"]] = 1
        return result

    def _word(self, name: str) -> int:
        index: int = self._image["record"].index(name)
        return index


_NEVER = 2**62
"""A number of arguments that no call has: it sends all calls to Python."""

_images: dict[tuple[str, str], Code] = {}
_placing = threading.Lock()


def _placed(level: str, number: int, image: dict[str, Any], file: Container) -> Code:
    """The code of a path in memory, where it stays: workers may run it until the process ends."""
    key = (file.digest, f"{level}/{number}")
    with _placing:
        if key not in _images:
            _images[key] = placed(image, file.section(image["section"]))
        return _images[key]


def _level(file: Container) -> str:
    have = file.header["levels"]
    if HERE in have:
        return HERE
    for level in processor.levels():
        if level in have:
            return level
    mine = processor.levels()[0] if processor.levels() else platform.machine()
    raise file.error(f"holds code for {', '.join(have)}; this processor is {mine}")


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


def _flatten(structure: Any, value: Any, leaves: list[Any], name: str) -> None:
    """Append the leaves of ``value``, which must be nested as ``structure`` says."""
    if structure == "*":
        leaves.append(value)
        return
    kind, *parts = structure
    keys = parts.pop(0) if kind == "dict" else None
    kinds: Mapping[str, type[Any]] = {"tuple": tuple, "list": list, "dict": dict}
    right = kinds[kind]
    if not isinstance(value, right) or len(value) != len(parts) or (keys is not None and [*value] != keys):
        raise TypeError(f"{name} was saved for arguments nested as {structure}; got {_told(value)}")
    for part, item in zip(parts, value.values() if isinstance(value, dict) else value, strict=True):
        _flatten(part, item, leaves, name)


def _unflatten(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure == "*":
        return next(leaves)
    kind, *parts = structure
    if kind == "dict":
        return dict(zip(parts[0], [_unflatten(p, leaves) for p in parts[1:]], strict=True))
    found = [_unflatten(p, leaves) for p in parts]
    return tuple(found) if kind == "tuple" else found


def _told(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    return repr(value) if value is None or isinstance(value, int | float | str) else type(value).__name__


def _looked(array: Array, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """A view of ``array``, which lies in order; ValueError when it would leave its memory."""
    spans = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low, high = (offset * array.itemsize + sum(f(span, 0) for span in spans) for f in (min, max))
    if min(shape, default=0) < 0 or (0 not in shape and (low < 0 or high + array.itemsize > array.nbytes)):
        raise ValueError("a result looks beyond its array")
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], shape, strides)


def _same(now: Any, wanted: Any) -> bool:
    return bool(now == wanted) or (now != now and wanted != wanted)


def load_program(
    path: str | os.PathLike[str], *, digest: str | None = None, threads: int | None = None, check: bool = True
) -> Program:
    """The program that was saved as machine code at ``path``.

    A file with machine code can do anything that this process can: it is loaded only when its ``digest``, which saving
    it returned, is given and right. ``threads`` it may use (default: the cores of this process). ``check`` compares
    weights, too, with their digests. ProgramError says what is wrong with a file.
    """
    file = Container(path)
    if file.header.get("kind") != "code":
        raise file.error("holds a graph and no machine code: tracecomp.load_program compiles it")
    if digest is None:
        raise file.error("holds machine code: give the digest that saving it returned, digest='sha256:...'")
    if not hmac.compare_digest(digest, file.digest):
        raise file.error(f"has the digest {file.digest}, and {digest} was asked for")
    return from_container(file, threads, check)


def from_container(file: Container, threads: int | None, check: bool = True) -> Program:
    """The program in a file whose code is to be trusted."""
    try:
        return Program(file, threads, check)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ProgramError):
            raise
        raise file.error(f"is damaged: {type(error).__name__}: {error}") from error
