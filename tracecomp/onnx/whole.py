"""Calls of functions with an ONNX operator: while a model is recorded for export, each becomes that operator.

The recording contains the result of the function; the operator is only written. A comparison of the model with the
recording therefore compares the two. Calls that an operator of the wanted version cannot express are recorded as
primitives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx

from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import NOT_OVERRIDDEN, TorchFunctionMode
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.publish import store_inplace
from tracecomp.ir.op import External, Op
from tracecomp.ir.types import float16, float32
from tracecomp.onnx.module import load
from tracecomp.onnx.registry import Array
from tracecomp.utils._pytree import tree_leaves, tree_map

Given = Tensor | tuple[int, ...] | None
"""An operand: a tensor, a vector of whole numbers, or one that is left out."""


@dataclass(frozen=True)
class Whole:
    """An operator of ONNX that a call is, with its operands and attributes."""

    op: str
    operands: Sequence[Given]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    gives: Callable[..., Any] | None = None
    """The result in terms of the operator's, if they differ: a function of its operands, with ``attrs`` by name."""


Spelling = Callable[..., Whole | None]
"""The operator of a call, from the version and the arguments by name; None if it cannot express the call."""


class RecordWhole(TorchFunctionMode):
    """Inside, calls of the functions of ``spellings`` are recorded as operators of ``version``."""

    def __init__(self, version: int, spellings: Mapping[Callable[..., object], Spelling]) -> None:
        self._version, self._spellings = version, spellings

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:  # fmt: skip
        spelling = self._spellings.get(func)
        if spelling is None or modes.recorder is None or modes.autocast is not None:
            return NOT_OVERRIDDEN
        try:
            bound = inspect.signature(func).bind(*args, **(kwargs or {}))
        except TypeError:  # the call itself raises the error
            return NOT_OVERRIDDEN
        bound.apply_defaults()
        given = dict(bound.arguments)
        inplace = given.pop("inplace", False)
        first, *others = [x for x in tree_leaves([*given.values()]) if isinstance(x, Tensor)]
        floats = [x for x in (first, *others) if x.dtype.kind == "float"]
        if any(x.dtype not in (float32, float16) for x in floats) or any(x.numel() == 0 for x in (first, *others)):
            return NOT_OVERRIDDEN
        found = spelling(self._version, **given)
        if found is None:
            return NOT_OVERRIDDEN
        result = self._recorded(found, lambda: func(*given.values()))
        return store_inplace(first, result) if inplace else result

    def _recorded(self, whole: Whole, run: Callable[[], Any]) -> Any:
        """The result of ``run``, recorded as one node."""
        recorder, modes.recorder = modes.recorder, None
        try:
            result = tree_map(Tensor.clone, run())
        finally:
            modes.recorder = recorder
        assert recorder is not None
        operands = tuple(x for x in whole.operands if isinstance(x, Tensor))
        places = iter(range(len(operands)))
        given = tuple(next(places) if isinstance(x, Tensor) else x for x in whole.operands)
        attrs = {"given": given, "version": self._version, "stated": tuple(sorted(whole.attrs.items()))}
        recorder.node(op_of(whole.op, whole.gives), operands, attrs, tree_leaves(result))
        return result


@cache
def op_of(name: str, gives: Callable[..., Any] | None = None) -> Op:
    """The record of an ONNX operator, which occurs only in graphs for export."""

    def run(*arrays: Array, given: Sequence[Any], version: int, stated: Sequence[tuple[str, Any]]) -> Any:
        """Run ``gives``."""
        assert gives is not None
        operands = [None if g is None else T.from_numpy(arrays[g]) for g in given]
        return tuple(t.numpy() for t in tree_leaves(gives(*operands, **dict(stated))))

    def impl(*arrays: Array, given: Sequence[object], version: int, stated: Sequence[tuple[str, object]]) -> Any:
        """The operator's result as imported by ``load``."""
        held = [arrays[g] if isinstance(g, int) else np.array(g, np.int64) for g in given if g is not None]
        places = iter(range(len(held)))
        names = ["" if g is None else f"x{next(places)}" for g in given]
        told = onnx.helper.make_tensor_value_info
        kinds = [told(f"x{k}", onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in enumerate(held)]
        attributes: dict[str, Any] = dict(stated)
        node = onnx.helper.make_node(name, names, ["y"], **attributes)
        graph = onnx.helper.make_graph([node], name, kinds, [onnx.ValueInfoProto(name="y")])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        return load(model)(*map(T.from_numpy, held)).numpy()

    def infer(*types: object, **attrs: object) -> Any:
        raise AssertionError(f"{name}: only the recording defines its result")

    doc = f"ONNX's {name}: ``given`` are its operands (numbers of tensors, whole numbers, None), ``stated`` attributes"
    return Op(name=f"onnx.{name}", kind="external", doc=doc, infer=infer, impl=run if gives else impl, loop=External())
