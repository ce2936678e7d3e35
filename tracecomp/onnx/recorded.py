"""Recordings of models for export: in evaluation mode, without state, for one size or for all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.base.errors import CaptureError, Source
from tracecomp.base.user_warnings import warn_user
from tracecomp.compiled.open_sizes import OpenSizes, argument_names
from tracecomp.eager.modes import modes, no_grad
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.graph import Graph, Origin, Value
from tracecomp.nn.module import Module
from tracecomp.onnx.decisions import Path, elsewhere
from tracecomp.onnx.errors import RecordingError, UnsupportedError
from tracecomp.onnx.export_marks import exporting
from tracecomp.onnx.sizes import Fit, generalize, grids
from tracecomp.onnx.whole import RecordWhole
from tracecomp.onnx.whole_calls import spellings
from tracecomp.record.capture import Refusal, record
from tracecomp.record.pytree import flatten_call
from tracecomp.record.recording import Recording
from tracecomp.record.results import Made, Plain
from tracecomp.record.symbolic.sizes import Named, SizeSource, Varying
from tracecomp.utils._pytree import TreeSpec, tree_flatten, tree_map, tree_unflatten


class _Packed(Module):
    """A model that is given the leaves of its arguments."""

    def __init__(self, model: Callable[..., object], structure: TreeSpec) -> None:
        super().__init__()
        self.model = model
        self.structure = structure

    def forward(self, *leaves: object) -> Any:
        args, kwargs = tree_unflatten(leaves, self.structure)
        return self.model(*args, **kwargs)


def unpacked(
    model: Any, args: object, kwargs: Mapping[str, object], names: Sequence[str] | None
) -> tuple[Any, tuple[object, ...], list[str]]:
    """The model, the arguments that it is called with, and their names: ``names`` are those of the tensors."""
    if hasattr(model, "graph_signature") and not isinstance(model, Module):  # created by torch.export
        if args in ((), None) and not kwargs:
            args, kwargs = model.example_inputs
        model = model.module()
    given: list[Any] = [*args] if isinstance(args, tuple | list) else [args]
    if not kwargs and given and isinstance(given[-1], dict):
        kwargs = given.pop()
    if kwargs:
        given, kwargs = _in_order(model, given, kwargs)
    if kwargs or any(isinstance(a, tuple | list | dict) for a in given):
        leaves, structure = tree_flatten((tuple(given), dict(kwargs)))
        model, given = _Packed(model, structure), leaves
    given = _apart(given)
    own = argument_names(model, given) if not isinstance(model, _Packed) else [f"input{k}" for k in range(len(given))]
    places = [k for k, a in enumerate(given) if isinstance(a, Tensor)]
    named = named_in_order("input", names, [own[k] for k in places])
    for k, name in zip(places, named, strict=True):
        own[k] = name
    return model, tuple(given), own


def named_in_order(kind: str, names: Sequence[str] | None, own: Sequence[str]) -> list[str]:
    """Names of inputs or outputs: ``names`` as far as they go, then ``own``.

    Raises RuntimeError, as PyTorch does, if ``names`` are more than there are, and ValueError for a name given twice,
    which ONNX does not allow.
    """
    told = [*(names or ())]
    if len(told) > len(own):
        raise RuntimeError(
            f"onnx.export(): number of {kind} names provided ({len(told)}) exceeded number of {kind}s ({len(own)})"
        )
    found = [*told, *own[len(told) :]]
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise ValueError(f"onnx.export(): {kind}_names must differ, got {', '.join(twice)} more than once")
    return found


def _apart(args: Sequence[object]) -> list[object]:
    """The arguments, with tensors that are one, or share memory, as several: callers may give others."""
    found: list[object] = []
    for a in args:
        arrays = [b._data for b in found if isinstance(b, Tensor)]
        shares = isinstance(a, Tensor) and any(np.may_share_memory(a._data, b) for b in arrays)
        found.append(a.clone() if shares and isinstance(a, Tensor) else a)
    return found


def _in_order(
    model: Callable[..., object], args: list[object], kwargs: Mapping[str, object]
) -> tuple[list[object], dict[str, object]]:
    """The arguments with those by name in their places, as far as they have some."""
    signature = inspect.signature(getattr(model, "forward", model))
    bound = signature.bind(*args, **kwargs)
    last = max((k for k, name in enumerate(signature.parameters) if name in bound.arguments), default=-1)
    bound.apply_defaults()
    positional = [p for p in [*signature.parameters.values()][: last + 1] if p.kind is p.POSITIONAL_OR_KEYWORD]
    if bound.args[len(positional) :]:
        return args, dict(kwargs)
    found = [bound.arguments[p.name] for p in positional]
    return found, {k: v for k, v in kwargs.items() if k not in [p.name for p in positional]}


def recorded_open(
    model: Module, args: tuple[object, ...], left_open: OpenSizes, version: int
) -> tuple[Recording, list[Any]]:
    """The recording for all sizes, and arguments, results and recordings for some."""
    example = left_open.of(args)
    own = (args, *recorded(model, args, version))
    # Sizes of one make another program (nothing is expanded), which is only run and compared.
    known = [example] if min(example.values()) > 1 else []
    refused: list[Exception] = []
    for corners, checks in grids(example):
        chosen = [*corners, *checks, *known]
        try:
            samples = [(a, *recorded(model, a, version)) for a in (left_open.resized(args, c) for c in chosen)]
        except (RuntimeError, ValueError, IndexError) as error:  # other sizes may be right: models take multiples only
            refused.append(error)
            continue
        try:
            generalize([recording.graph for *_, recording in samples], Fit(corners, chosen[len(corners) :]))
            return samples[0][2], [samples[len(chosen) - len(known) - 1], own]
        except (
            UnsupportedError
        ) as error:  # halves follow from even sizes; what holds for them has to hold for these too
            refused.insert(0, error)
            known += [*corners, *checks]
    raise refused[0]


def recorded(model: Module, args: tuple[object, ...], version: int) -> tuple[Any, Recording]:
    """The results of ``model`` for ``args``, and the recording; calls with an operator in ``version`` are one node.

    The random state is restored. RecordingError for features that ONNX models lack: written state, control flow that
    depends on values, effects in Python.
    """
    name = getattr(model, "__name__", type(model).__name__)
    try:
        with _evaluated(model), RecordWhole(version, spellings()):
            results, recording = record(model, args, {}, name, derive=False)
            if isinstance(recording, Recording) and not all(isinstance(r, Made) for r in recording.results):
                with _owned(model) as owned:
                    results, recording = record(owned, args, {}, name, derive=False)
    except CaptureError as error:
        raise RecordingError(f"{name} cannot be exported: {error}") from error
    if isinstance(recording, Refusal):
        raise RecordingError(f"{name} cannot be exported: {recording.reason}")
    recording.graph = without_random_state(recording.graph)
    if why := _more_than_a_function(recording):
        raise RecordingError(f"{name} cannot be exported: {why}")
    return results, recording


@contextmanager
def _evaluated(model: Module) -> Iterator[None]:
    """Inside, ``model`` runs as it is exported: in evaluation mode. Random numbers are left as they were."""
    training = [m for m in model.modules() if m.training] if isinstance(model, Module) else []
    random = default_generator.get_state()
    try:
        for module in training:
            module.training = False
        with no_grad(), exporting():
            yield
    finally:
        for module in training:
            module.training = True
        default_generator.set_state(random)


def other_paths(model: Module, args: tuple[object, ...], left_open: OpenSizes) -> list[tuple[dict[str, int], Any, Any]]:
    """Sizes at which ``model`` may be another program than at those of ``args``, with arguments and results there.

    Sizes that the model itself refuses are left out.
    """
    plainly: dict[str, Source] = {}

    def run(sizes: Mapping[str, int]) -> Path | None:
        path = _path(model, args, left_open, sizes)
        for name, held in zip(path.names, path.conditions.ranges, strict=True) if path else ():
            if held.read_at is not None:
                plainly[name] = held.read_at
        return path

    others, found = elsewhere(left_open.of(args), left_open.ranges, run), []
    for name, line in plainly.items():
        warn_user(
            f"onnx.export(): the program reads size {name!r} as a plain number ({line})",
            "The file is compared with the program at some sizes only, up to 1,025",
            f"Compute with the size as a tensor dimension, or give its range: Dim({name!r}, min=..., max=...)",
        )
    for sizes in others:
        if left_open.elements(args, sizes) > _MOST_ELEMENTS:
            continue
        given = tuple(map(_varied, left_open.resized(args, sizes)))
        try:
            with _evaluated(model):
                found.append((sizes, given, model(*given)))
        except _OF_THE_MODEL:
            continue
    return found


def _path(model: Module, args: tuple[object, ...], left_open: OpenSizes, sizes: Mapping[str, int]) -> Path | None:
    """The conditions of a run at ``sizes``; None where the model does not run."""
    if left_open.elements(args, sizes) > _MOST_ELEMENTS:
        raise UnsupportedError(f"the program branches at the sizes {sizes}, which are too large to run. Give Dim a max")
    varying, seen = Varying(), []
    for (k, axis), name in left_open.names.items():
        varying.named[SizeSource(("argument", len(flatten_call(args[:k], {})[1])), axis)] = Named(name)

    def noted(*given: Any) -> Any:
        seen.append(modes.recorder)
        return model(*given)

    try:
        with _evaluated(model):
            record(noted, left_open.resized(args, sizes), {}, "model", strict=False, derive=False, varying=varying)
    except _OF_THE_MODEL:
        return None
    return Path([*seen[0].sizes.named], sizes, seen[0].conditions)


_MOST_ELEMENTS = 2**26
"""Limit on the elements of the arguments in a run that looks for the decisions of the model."""
_OF_THE_MODEL = (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError)
"""Exceptions that models raise for unsupported arguments."""


def _varied(x: object) -> object:
    """``x`` with other elements, if they are floats: those of examples are often all the same."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return x
    return x + (T.arange(x.numel()) * 0.618 % 1.0).reshape(x.shape).to(x.dtype) * 0.25


@contextmanager
def _owned(model: Any) -> Iterator[Any]:
    """The model with results in separate memory."""
    if not isinstance(model, Module):
        yield lambda *args: _copies(model(*args))
        return
    handle = model.register_forward_hook(lambda module, args, found: _copies(found))
    try:
        yield model
    finally:
        handle.remove()


def _copies(found: object) -> Any:
    return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, found)


def _more_than_a_function(recording: Recording) -> str:
    """The side effects of a recording; empty if there are none."""
    for seen in recording.predicates:
        line = f" ({seen.source})" if seen.source else ""
        return f"it takes a path that depends on values{line}"
    given = [i.value for i in recording.graph.inputs if i.role != "constant"]
    before = dict(zip(recording.inputs, given, strict=True))
    for binding, number in recording.updates:
        output = recording.graph.outputs[number]
        if output.value is not before.get(binding):
            return f"it writes state ({output.name})"
    kept = [r for e in recording.effects for r in e.results] + [r for b in recording.rebound for r in b.results]
    # Plain values that change in Python's objects (a flag that is set and reset) are nothing of the model's.
    return "" if all(isinstance(r, Plain) for r in kept) else "it stores a tensor in a Python object"


def without_random_state(graph: Graph) -> Graph:
    """``graph`` with random numbers without a source: each has a separate state, which is not updated."""
    drawn = [n for n in graph.live_nodes() if n.op.name == "random_bits"]
    if not drawn:
        return graph
    new = Graph(graph.name)
    known = {i.value: new.add_input(i.value.type, i.name, i.role, i.data) for i in graph.inputs}
    for node in graph.live_nodes():
        operands = [known[v] for v in node.inputs]
        if node.op.name == "random_bits":
            seed = np.array([0, drawn.index(node)])  # different ones: equal nodes would be one
            operands = [new.add_input(operands[0].type, f"random{seed[1]}", "constant", seed)]
        new.here = graph.origin.get(node, Origin())
        known.update(
            zip(node.outputs, new.add(node.op, operands, node.attrs, [v.type for v in node.outputs]), strict=True)
        )
    states = {_origin(n.inputs[0]) for n in drawn}
    updated = {i.name: known[i.value] for i in graph.inputs if i.value in states}
    for output in graph.outputs:
        value = updated.get(output.name) if output.role == "state" else None
        new.add_output(value or known[output.value], output.name, output.role)
    new.drop_dead()
    return new


def _origin(state: Value) -> Value:
    """The initial state of the program: draws add to it."""
    while state.node is not None:
        state = state.node.inputs[0]
    return state
