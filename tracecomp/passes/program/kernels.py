"""Groups of nodes as loop kernels: one task per group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import replace
from typing import Any

from tracecomp.ir.graph import Node, Value
from tracecomp.ir.index import Var, index
from tracecomp.ir.loops import Const, Load, Stmt, Store
from tracecomp.ir.op import Imperative
from tracecomp.ir.program import Kernel
from tracecomp.passes.contraction.contractions import schedule_bilinear
from tracecomp.passes.cost.machine import Machine
from tracecomp.passes.cost.work import shared_where_it_pays
from tracecomp.passes.fusion.access import buffer_of
from tracecomp.passes.fusion.groups import Group, Partition, RowFusion
from tracecomp.passes.fusion.signature import signature
from tracecomp.passes.nests.contraction_nest import BilinearNest, tidied, without_ones
from tracecomp.passes.nests.loop_nest import Nest
from tracecomp.passes.nests.scalar_exprs import Params
from tracecomp.passes.nests.store import Nests, on
from tracecomp.passes.program.frame import Task
from tracecomp.passes.program.output_buffers import OutputBuffers
from tracecomp.passes.row_fusion.lowering import row_fusion_body
from tracecomp.passes.schedule.elementwise import schedule_nest
from tracecomp.passes.schedule.records import Chooser, Given, print_record
from tracecomp.passes.winograd.forward import winograd_form
from tracecomp.passes.winograd.selection import windows_of


class GroupLowerer:
    """Lower groups and row fusions; those that differ only in their values share one kernel."""

    def __init__(
        self, partition: Partition, nests: Nests, outputs: OutputBuffers, machine: Machine, frozen: Set[Value],
        given: Given,
    ) -> None:  # fmt: skip
        self.partition = partition
        self.nests = nests
        self.same = outputs.same
        self.large = outputs.large
        self.frozen = frozen
        # Matrices of a model that exceeds the last cache: a call evicts the first ones before it ends.
        inputs = [v for v in frozen if v.node is None]
        cold = sum(v.type.nbytes for v in inputs) > machine.l3_bytes
        self.cold = frozenset(v for v in inputs if cold and len(v.shape) == 2)
        self.machine = machine
        self.given = given
        self.known: dict[Any, tuple[Kernel, list[int]]] = {}

    def task(self, unit: Group | RowFusion) -> Task:
        groups = unit.groups if isinstance(unit, RowFusion) else (unit,)
        shape, values = signature(groups, self.partition, self.same)
        blocks = _blocks(unit, values) if isinstance(unit, RowFusion) else None
        # The key includes which values are large or frozen, as that changes the loops (stores past the caches,
        # packing).
        marks = (tuple(n for n, v in enumerate(values) if v in chosen) for chosen in (self.large, self.frozen))
        key = (shape, blocks, *marks)
        if key not in self.known:
            task = self._lower(unit)
            number = {v: n for n, v in enumerate(values)}
            self.known[key] = (task.kernel, [number[v] for v in task.values])
        kernel, places = self.known[key]
        return Task(kernel, tuple(values[n] for n in places), tuple(n for g in groups for n in g.nodes))

    def _lower(self, unit: Group | RowFusion) -> Task:
        """Return the kernel with the chosen schedule, or with the user's schedules for it."""
        # First scheduled without the record, whose key is the kernel's content.
        task = self._scheduled(unit, Chooser(self.machine))
        written = self.given.get(replace(task.kernel, name=""))
        if written is None:
            return task
        chooser = Chooser(self.machine, written)
        task = self._scheduled(unit, chooser)
        chooser.finish()
        return task

    def _scheduled(self, unit: Group | RowFusion, chooser: Chooser) -> Task:
        views, slices = self.partition.materialized_views, self.partition.slices
        params = Params(views, self.same, self.large, self.frozen, slices, self.cold)
        if isinstance(unit, Group):
            return self._lower_group(unit, params, chooser)
        body = row_fusion_body(unit, self.partition, self.nests, params, chooser)
        # Values kept per block became local memory.
        for value in unit.block_values:
            params.drop(value)
        nodes = tuple(n for g in unit.groups for n in g.nodes)
        return _task(_kernel_name(nodes), body, params, nodes, chooser)

    def _lower_group(self, group: Group, params: Params, chooser: Chooser) -> Task:
        """The kernel of one group."""
        if group.kind == "imperative":
            body = _imperative(group.nodes[0], params, chooser.machine)
        elif group.kind == "bilinear":
            body = _bilinear(on(self.nests.contraction(group, self.partition), params), chooser)
        else:
            body = schedule_nest(on(self.nests.loops(group, self.partition), params), chooser)
        return _task(_kernel_name(group.nodes), body, params, tuple(group.nodes), chooser)


def _blocks(fused: RowFusion, values: list[Value]) -> tuple[Any, ...]:
    return (fused.outer, fused.count, fused.height, tuple(map(values.index, fused.block_values)))


def _bilinear(nest: BilinearNest, chooser: Chooser) -> tuple[Stmt, ...]:
    nest = without_ones(nest)
    windows = windows_of(nest)
    # Winograd's form first: it uses the variables of the graph, which tidying would join.
    return winograd_form(nest, windows, chooser) if windows else schedule_bilinear(tidied(nest), chooser)


def _imperative(node: Node, params: Params, machine: Machine) -> tuple[Stmt, ...]:
    assert isinstance(node.op.loop, Imperative), node
    # These take pointers to dense memory, so operands are buffers.
    ins = [params.of(buffer_of(v)) for v in node.inputs]
    outs = [params.written(v) for v in node.outputs]
    types = [v.type for v in node.inputs], [v.type for v in node.outputs]
    return shared_where_it_pays(node.op.loop.fn(ins, outs, *types, **node.attrs), machine)


def _kernel_name(nodes: Iterable[Node]) -> str:
    # A few names are enough in a profile.
    names = [n.op.name for n in nodes]
    return "_".join(names if len(names) <= 4 else [*names[:3], f"{len(names) - 3}_more"])


def _task(name: str, body: tuple[Stmt, ...], params: Params, nodes: tuple[Node, ...], chooser: Chooser) -> Task:
    schedules = tuple(map(print_record, chooser.made))
    kernel = Kernel(name, tuple(params.buffers.values()), frozenset(params.writes), body, schedules)
    return Task(kernel, tuple(params.buffers), nodes)


def unset_task(value: Value, nodes: tuple[Node, ...], machine: Machine) -> Task:
    """A kernel that fills one value's memory, before ``nodes``, with a marker that shows when it is read: NaN, -1 or
    True."""
    params = Params(frozenset())
    q, var = params.written(value), Var("i", value.type.numel)
    number = math.nan if value.dtype.is_floating_point else -1 if value.dtype.signed else 1
    nest = Nest([var], [], [[Store(q, index(var), Const(number, value.dtype))]], params, 1)
    chooser = Chooser(machine)
    return _task("unset", schedule_nest(nest, chooser), params, nodes, chooser)


def copy_task(source: Value, target: Value, machine: Machine, large: bool = False) -> Task:
    """A kernel that copies one value's memory; ``large``: past the caches."""
    params = Params(frozenset(), large={target} if large else frozenset())
    p, q = params.of(source), params.written(target)
    var = Var("i", source.type.numel)
    store = Store(q, index(var), Load(p, index(var)))
    chooser = Chooser(machine)
    return _task("copy", schedule_nest(Nest([var], [], [[store]], params, 1), chooser), params, (), chooser)
