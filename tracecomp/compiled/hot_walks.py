"""Machine code for backward passes over graphs of a form that recurs, compiled on a second thread.

The derivatives of all nodes become one graph, in the engine's order, so contributions are added in its order. Machine
code serves later passes only if it gives the engine's bits, on copies of the saved values and on random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tracecomp.autograd.walks import Form, Walk
from tracecomp.compiled import background as compiling
from tracecomp.compiled.backends import BACKENDS, Native
from tracecomp.compiled.background import Job
from tracecomp.compiled.trial_runs import Unfit
from tracecomp.eager.grad_fn import AccumulateGrad, ProgramNode, run_on_arrays
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import Node
from tracecomp.eager.vjp_program import ArrayType, Derivative, Run
from tracecomp.eager_kernels import background
from tracecomp.ir.arrays import same_bits
from tracecomp.ir.graph import Graph, Value
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.runtime.aligned import Make, maker

Array = np.ndarray[Any, Any]

MOST_BYTES = 2**24
"""Most bytes of the values that a pass reads. The engine frees them one by one, a program only when it ends."""
MOST_SCRATCH = 2**22
"""Bytes of scratch memory, which stays with the machine code."""
MOST_STEPS = 1024
"""Most operators of a pass."""
PATIENCE = 0.02
"""Seconds for which the second thread waits for another process before it does other work."""


class _Step(NamedTuple):
    """A step of a pass, at one node: ``program`` reads ``slots``; None: a leaf.

    ``types`` are those that the gradients have to have behind the ``edges``, which lead to places of nodes.
    """

    program: Derivative | None
    slots: Sequence[int]
    values: int
    edges: Sequence[tuple[int, int] | None]
    types: Sequence[ArrayType]


class _Pass:
    """The pass over graphs of a form. ``steps`` are those of its nodes, newest first."""

    def __init__(self, form: Form, nodes: Sequence[Node]) -> None:
        self.root: int = form[0]
        edges: Sequence[Sequence[tuple[int, int] | None]] = form[2::2]
        self.types = [node.out_types for node in nodes]
        present = [[False] * len(types) for types in self.types]
        present[0][self.root] = True
        self.steps: list[_Step | None] = []
        for place, node in enumerate(nodes):
            if any(e is not None and e[0] <= place for e in edges[place]):
                raise Unfit("a node is older than one that it leads to")
            self.steps.append(self._step(node, tuple(present[place]), edges[place], present))

    def _step(
        self, node: Node, present: tuple[bool, ...], edges: Sequence[tuple[int, int] | None], later: list[list[bool]]
    ) -> _Step | None:
        if not any(present):
            return None
        if isinstance(node, AccumulateGrad):
            return _Step(None, (), 0, (), ())
        assert isinstance(node, ProgramNode)
        if any(e is not None and later[e[0]][e[1]] for k, e in enumerate(edges) if k in node.sums):
            raise Unfit("a call adds several gradients to one of another call")
        program = node.program(present)
        types: list[ArrayType] = []
        for edge, result in zip(edges, program.results, strict=False):
            place, number = (0, self.root) if edge is None else edge
            types.append(self.types[place][number])
            if edge is not None and result is not None:
                later[place][number] = True
        return _Step(program, sorted(program.reads), len(node.value_types()), edges, types)

    def run(self, seed: Any, values: Sequence[Any], run: Run, fit: Callable[[Any, ArrayType], Any]) -> list[Any]:
        """Gradients of the leaves, from ``values`` that the steps read, with ``run`` for operators.

        ``fit`` gives a gradient the type of its operand.
        """
        arrived: list[list[Any]] = [[None] * len(types) for types in self.types]
        arrived[0][self.root] = seed
        given, found = iter(values), []
        for step, grads in zip(self.steps, arrived, strict=True):
            if step is None:
                continue
            if step.program is None:
                found.append(grads[0])
                continue
            slots: list[Any] = [None] * step.values
            for slot in step.slots:
                slots[slot] = next(given)
            results = step.program.run([*slots, *grads], run)
            for edge, grad, kind in zip(step.edges, results, step.types, strict=False):
                if edge is not None and grad is not None:
                    have, fitting = arrived[edge[0]][edge[1]], fit(grad, kind)
                    added = fitting if have is None else run(OPS["add"], (have, fitting), {})
                    arrived[edge[0]][edge[1]] = added[0] if type(added) is tuple else added
        return found

    def graph(self, arrays: Sequence[Array]) -> Graph:
        """The graph of the pass: inputs are the gradient of the root, and values that the steps read."""
        graph = Graph("backward_pass")
        types = [TensorType(from_numpy_dtype(a.dtype), a.shape) for a in arrays]
        inputs = [graph.add_input(t, f"x{i}") for i, t in enumerate(types)]

        def add(op: Op, operands: tuple[Any, ...], attrs: Attrs) -> Any:
            if op.is_separate or op.kind == "external":
                raise Unfit(f"{op.name} runs on the host")
            return graph.add(op, operands, attrs)

        for value in self.run(inputs[0], inputs[1:], add, partial(_fit_value, graph)):
            graph.add_output(value)
        if len(list(graph.live_nodes())) > MOST_STEPS:
            raise Unfit("it has too many operators")
        return graph


def _fit_value(graph: Graph, grad: Value, kind: ArrayType) -> Value:
    if grad.type.shape != kind[1]:
        raise Unfit("a gradient has a different shape than its operand")
    dtype = from_numpy_dtype(kind[0])
    return grad if grad.type.dtype is dtype else graph.apply("cast", grad, dtype=dtype)


def _fit_array(grad: object, kind: ArrayType) -> Any:
    grad = np.asanyarray(grad)
    return grad if grad.dtype == kind[0] else run_on_arrays(OPS["cast"], (grad,), {"dtype": from_numpy_dtype(kind[0])})


def consider(walk: Walk, form: Form, nodes: Sequence[Node], grad: Tensor) -> bool:
    """Begin to compile passes like this one, if that is worthwhile; False: ask again later."""
    if modes.inference:
        return False
    if not background.is_idle():  # functions that get machine code change the form
        return False
    try:
        one = _Pass(form, nodes)
    except Unfit:
        return True
    reads = [(place, step.slots) for place, step in enumerate(one.steps) if step is not None and step.slots]
    arrays = [grad._data]
    for place, slots in reads:
        node = nodes[place]
        assert isinstance(node, ProgramNode)
        if not node.take(slots, arrays):
            return False
    if any(a.dtype.kind == "c" for a in arrays) or sum(a.nbytes for a in arrays) > MOST_BYTES:
        return True
    walk.reads = reads
    walk.leaves = [place for place, step in enumerate(one.steps) if step is not None and step.program is None]
    walk.released = [place for place, step in enumerate(one.steps) if step is not None and step.program is not None]
    walk.results = [_result(*one.types[place][0]) for place in walk.leaves]
    return background.begin("backward", partial(_begin, walk, one, [np.array(a, order="C") for a in arrays]))


def _result(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> tuple[Make, tuple[int, ...], np.dtype[np.generic]]:
    return maker(dtype.itemsize * math.prod(shape)), shape, dtype


def _begin(walk: Walk, one: _Pass, arrays: list[Array]) -> None:
    """Compile the program of a form, in another process if that takes long."""
    graph = one.graph(arrays)
    finish = partial(_serve, walk, one, graph, arrays)
    job = compiling.begin(graph.name, graph, {}, frozenset())
    if job is None:
        finish()
    else:
        _await(job, finish)


def _await(job: Job, finish: Callable[[], None]) -> None:
    """Call ``finish`` when ``job`` is done; do other work meanwhile."""
    if not job.done.wait(PATIENCE):
        background.begin("backward", partial(_await, job, finish))
        return
    with job.delivered():
        if job.error:
            raise Unfit(job.error)
        finish()


def _serve(walk: Walk, one: _Pass, graph: Graph, arrays: list[Array]) -> None:
    """Serve passes of the form, if machine code has the bits of the engine."""
    code = BACKENDS["native"](graph, {}, None, frozenset())
    if not isinstance(code, Native) or code.executable.image.memory_bytes > MOST_SCRATCH:
        raise Unfit("it needs host routines or too much memory")
    rng = np.random.default_rng(0)
    others = [np.asarray(rng.standard_normal(a.shape), a.dtype) if a.dtype.kind == "f" else a for a in arrays]
    for given in (arrays, others):
        found = [make(shape, dtype) for make, shape, dtype in walk.results]
        code.run(given, found)
        wanted = one.run(given[0], given[1:], run_on_arrays, _fit_array)
        if not all(same_bits(a, np.asarray(b), any_nan=True) for a, b in zip(found, wanted, strict=True)):
            raise Unfit("eager results differ in bits")
    walk.run = code.run
