"""One recorded path through a saved function: its calls, results and side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from tracecomp_runtime import tensors
from tracecomp_runtime.bound_code import BoundCode, Kind, NativeCall
from tracecomp_runtime.container import Container
from tracecomp_runtime.nesting import unflatten
from tracecomp_runtime.open_sizes import OpenSizes, numbers

Array = np.ndarray[Any, Any]

VIEWS: Mapping[str, Callable[..., Any]] = {
    "reshape": lambda x, shape: x.reshape(shape),
    "permute": lambda x, dims: x.transpose(dims),
    "expand": lambda x, shape: np.broadcast_to(x, shape),
    "slice": lambda x, starts, stops, steps: x[(*map(slice, starts, stops, steps), ...)],
    "flip": lambda x, axes: np.flip(x, axes),
}
"""Steps that turn arrays into results of dynamic sizes."""

FIELDS = (
    "arguments", "places", "plain", "flat", "outputs", "copies", "overwrites", "new_gradients", "predicates", "results",
    "structure", "failures",
)  # fmt: skip
"""The fields of a path in a file, in addition to its dynamic sizes."""
MOST_NATIVE = 32
"""Choices of sizes that have a native call, the latest ones."""


class Owner(Protocol):
    """The program that a path belongs to."""

    name: str
    state: Mapping[str, Array]
    numbers: Mapping[str, Array]
    gradients: dict[str, Array]
    threads: int

    def _general(self, *args: Any) -> Any: ...


class Path:
    """``told`` is the file's description of the path, ``codes`` that of its code: one piece, or one for each box of
    sizes."""

    def __init__(self, owner: Owner, file: Container, told: Mapping[str, Any], codes: Any) -> None:
        self.owner = owner
        self.told = {name: told[name] for name in FIELDS}  # a missing field raises here, not in a call
        self.sizes = OpenSizes(told["sizes"]) if told.get("sizes") else None
        names: Sequence[str] = self.sizes.names if self.sizes else ()
        self.arguments = [Kind(dtype, shape, names) for dtype, shape in told["arguments"]]
        self._places: Sequence[int] = told["places"]  # leaf number of each array argument
        self._plain: Sequence[tuple[int, Any]] = told["plain"]
        self._outputs = [Kind(dtype, shape) for dtype, shape, *_ in told["outputs"]]
        self._file = file
        self._codes: list[Any] = codes if self.sizes else [codes]
        self._bound: dict[int, BoundCode] = {}
        self._stay = {
            k: tensors.empty(shape, tensors.dtype_of(dtype))
            for k, (dtype, shape, how, _) in enumerate(told["outputs"]) if how == "gradient"
        }  # fmt: skip
        self._look_up_all()
        self._leave_gradients([])
        self._natives: dict[tuple[int, ...], NativeCall | None] = {}

    def __str__(self) -> str:
        return ", ".join(map(str, self.arguments)) + (f", {self.sizes}" if self.sizes else "")

    def native(self, sizes: tuple[int, ...] = ()) -> Callable[..., Any] | None:
        """A builtin that makes whole calls with these sizes, where there can be one."""
        if sizes not in self._natives:
            if len(self._natives) >= MOST_NATIVE:
                del self._natives[next(iter(self._natives))]
            code = self._at(sizes)
            arguments, outputs = [[_at(k, sizes) for k in kinds] for kinds in (self.arguments, self._outputs)]
            general = partial(self._from_python, sizes) if sizes else self.owner._general
            simple = self._is_simple(code.made)
            self._natives[sizes] = code.native(arguments, outputs, sizes, general) if simple else None
        found = self._natives[sizes]
        return found and found.function  # type: ignore[return-value]

    def _from_python(self, sizes: tuple[int, ...], *given: Array) -> Any:
        """The results for arguments that native code does not take as they are."""
        return self._run(given, sizes)[1]

    def _code(self, number: int) -> BoundCode:
        """A piece of code, which is put in memory when it is needed first."""
        if number not in self._bound:
            self._bound[number] = BoundCode(self._codes[number], self._file, self.owner, self.told, self._stay)
        return self._bound[number]

    def _look_up_all(self) -> None:
        """ProgramError where what a call is to give, compare or write is nowhere."""
        told, state = self.told, self.owner.state
        there: dict[str, Any] = {
            "output": range(len(told["outputs"])), "value": range(len(told["outputs"])),
            "argument": range(len(self.arguments)), "state": state,
        }  # fmt: skip
        wanted = [(kind, what) for kind, what, *_ in told["results"] if kind not in ("plain", "size")]
        made = [n for n, *_ in (*told["predicates"], *told["copies"])] + [n for _, n in told["new_gradients"]]
        wanted += [("output", n) for n in made] + [("state", name) for _, name in told["copies"]]
        for kind, what in wanted:
            if what not in there[kind]:
                raise self._file.error(f"is damaged: a call would use {kind} {what!r}, which does not exist")

    def _is_simple(self, made: Sequence[int]) -> bool:
        """Whether calls are arrays in and new arrays out, so that native code can do everything."""
        told = self.told
        whole = [["output", k, None, None] for k in made]
        several = ["tuple", *["*"] * len(whole)]
        return (
            not told["predicates"] and not told["copies"] and not self._plain and not told["overwrites"]
            and told["results"] == whole and told["structure"] == ("*" if len(whole) == 1 else several)
            and told["flat"] and len(whole) > 0
        )  # fmt: skip

    def match(self, leaves: Sequence[Any]) -> tuple[int, ...] | None:
        """The dynamic sizes of a call, none of a path without; None where the call is not one for this path."""
        arrays = [np.asarray(leaves[i]) for i in self._places]
        if not all(k.takes(a) for k, a in zip(self.arguments, arrays, strict=True)):
            return None
        if not all(type(leaves[i]) is type(v) and leaves[i] == v for i, v in self._plain):
            return None
        return self.sizes.of([a.shape for a in arrays]) if self.sizes else ()

    def run(self, leaves: Sequence[Any], sizes: tuple[int, ...]) -> tuple[bool, Any]:
        """Whether this was the path of the call, and then its results. Nothing is written where it was not."""
        given = self._given(leaves)
        native = self.native(sizes) if sizes else None
        return (True, native(*given)) if native else self._run(given, sizes)

    def _run(self, given: Sequence[Array], sizes: tuple[int, ...]) -> tuple[bool, Any]:
        outputs = self._at(sizes).run(given, sizes)
        if self.sizes:
            outputs = [self._meant(a, kind, sizes) for a, kind in zip(outputs, self._outputs, strict=True)]
        told = self.told
        for number, wanted in told["predicates"]:
            if not _same(outputs[number].tolist(), wanted):
                return False, None
        for number, name in told["copies"]:
            np.copyto(self.owner.state[name], outputs[number])
        self._leave_gradients(outputs)
        found = iter([self._result(spec, given, outputs, sizes) for spec in told["results"]])
        return True, unflatten(told["structure"], found)

    def _given(self, leaves: Sequence[Any]) -> list[Array]:
        given = [np.asarray(leaves[i], order="C") for i in self._places]
        for k in self.told["overwrites"]:
            if given[k] is not leaves[self._places[k]] or not given[k].flags.writeable:
                raise ValueError(f"{self.owner.name} writes argument {k}. Pass a writable C-contiguous array")
            if any(np.may_share_memory(given[k], a) for j, a in enumerate(given) if j != k):
                raise ValueError(f"{self.owner.name} writes argument {k}, which shares memory with another argument")
        return given

    def _at(self, sizes: tuple[int, ...]) -> BoundCode:
        """The code for these sizes."""
        if self.sizes is None:
            return self._code(0)
        for number, code in enumerate(self._codes):
            if all(low <= n <= high for n, (low, high) in zip(sizes, code["box"], strict=True)):
                return self._code(number)
        raise RuntimeError(f"{self.owner.name} has no code for sizes {sizes}")

    @staticmethod
    def _meant(array: Array, kind: Kind, sizes: Sequence[int]) -> Array:
        """The valid elements of ``array`` for these sizes: the first ones."""
        if not kind.open:
            return array
        shape = numbers(kind.shape, sizes)
        return array.reshape(-1)[: prod(shape)].reshape(shape)

    def _leave_gradients(self, outputs: Sequence[Array]) -> None:
        for k, array in self._stay.items():
            self.owner.gradients[self.told["outputs"][k][3]] = array
        for name, number in self.told["new_gradients"] if outputs else ():
            self.owner.gradients[name] = outputs[number]

    def _result(self, spec: Sequence[Any], given: Sequence[Array], outputs: Sequence[Array], sizes: Any) -> Any:
        kind, what, axes, view = spec
        if kind == "plain":
            return what
        if kind == "size":
            return numbers([what], sizes)[0]
        if kind == "value":
            return outputs[what].item()
        where: Mapping[str, Any] = {"output": outputs, "argument": given, "state": self.owner.state}
        array: Array = where[kind][what]
        if axes is not None:
            array = array.transpose(np.argsort(axes))
        if view is None:
            return array
        if self.sizes is None:
            return _looked(array, *view)
        for name, attrs in view:
            array = VIEWS[name](array, **{key: numbers(value, sizes) for key, value in attrs.items()})
        return array


def _at(kind: Kind, sizes: Sequence[int]) -> Kind:
    """``kind`` for these sizes."""
    return Kind(kind.name, numbers(kind.shape, sizes)) if kind.open else kind


def _looked(array: Array, shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    """A view of ``array``, which is dense; ValueError if it would leave its memory."""
    spans = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low, high = (offset * array.itemsize + sum(f(span, 0) for span in spans) for f in (min, max))
    if min(shape, default=0) < 0 or (0 not in shape and (low < 0 or high + array.itemsize > array.nbytes)):
        raise ValueError("a result is out of bounds of its array")
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[offset:], shape, strides)


def _same(now: Any, wanted: Any) -> bool:
    return bool(now == wanted) or (now != now and wanted != wanted)
