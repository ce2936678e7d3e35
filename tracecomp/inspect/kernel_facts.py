"""Facts about each kernel call of a program, and the reasons why adjacent kernels were not fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracecomp.compiled.backends import Native
from tracecomp.compiled.kernel_profile import KernelProfile, Profile
from tracecomp.inspect import assembly
from tracecomp.inspect.bottleneck import Limit, Measured, limit_of
from tracecomp.inspect.facts import Apart, KernelFacts
from tracecomp.ir.graph import Graph, Node
from tracecomp.ir.program import CallStep, Program, WhenStep, call_steps
from tracecomp.passes.cost.machine import host
from tracecomp.passes.cost.work import operations
from tracecomp.passes.kernel_title import graphs_of, title_of
from tracecomp.passes.program.frame import Frame


def of_program(backend: Native, profile: Profile | None) -> tuple[KernelFacts, ...]:
    """Every kernel call, in order; with ``profile``, its time and bottleneck."""
    program, frame = backend.built.program, backend.built.lowered.frame
    steps, origins = list(call_steps(program.steps)), graphs_of(frame)
    once = {id(s) for s in _preparing(program)}
    if profile is None:
        return tuple(_facts(n, s, "", origins, id(s) in once) for n, s in enumerate(steps))
    code = assembly.functions(backend.executable.annotated)
    # All calls of a kernel do the same work, so the fastest one says what the kernel can do: others were disturbed.
    fastest: dict[str, float] = {}
    for k in profile.kernels:
        fastest[k.name] = min(k.fastest, fastest.get(k.name, k.fastest))
    known: dict[str, Limit] = {}
    found = []
    for n, (step, name, k) in enumerate(zip(steps, backend.executable.code.functions, profile.kernels, strict=True)):
        if k.name not in known:
            bodies = [*assembly.of_kernel(name, code).values()]
            measured = Measured(fastest[k.name], profile.threads, profile.disturbed)
            known[k.name] = limit_of(step.kernel, measured, host(), bodies)
        found.append(_facts(n, step, name, origins, id(step) in once, k, known[k.name]))
    return tuple(found)


def _facts(
    n: int, step: CallStep, function: str, origins: Sequence[Graph], once: bool, k: KernelProfile | None = None,
    limit: Limit | None = None,
) -> KernelFacts:  # fmt: skip
    kernel = step.kernel
    found = [graph.origin[node] for node in step.nodes for graph in origins if node in graph.origin]
    return KernelFacts(
        number=n,
        name=kernel.name,
        function=function,
        operators=tuple(node.op.name for node in step.nodes),
        title=title_of(step.nodes, origins),
        sources=tuple(sorted({str(o.source) for o in found if o.source})),
        scopes=tuple(dict.fromkeys(".".join(o.scope) for o in found if o.scope)),
        nbytes=sum(p.size * p.dtype.itemsize for p in kernel.params),
        operations=operations(kernel.body),
        schedules=kernel.schedules,
        prepares=once,
        seconds=k.seconds if k else None,
        share=k.share if k else None,
        binding=k.binding if k else "",
        limit=limit,
    )


def _preparing(program: Program) -> Iterator[CallStep]:
    """The calls that later calls of the program need not make again."""
    for step in program.steps:
        if isinstance(step, WhenStep) and program.prepared is not None and step.condition.slot is program.prepared:
            yield from call_steps(step.otherwise)


def apart(frame: Frame, program: Program) -> Iterator[Apart]:
    """Yield refused fusions between kernels that stayed separate, equal ones together, most bytes first."""
    kernel_of: dict[Node, tuple[str, str]] = {}
    graphs = graphs_of(frame)
    for step in call_steps(program.steps):
        kernel_of.update(dict.fromkeys(step.nodes, (step.kernel.name, str(title_of(step.nodes, graphs)))))
    found: dict[tuple[str, str, str, str], Apart] = {}
    for f in _frames(frame):
        for d in f.partition.decisions:
            first, second = kernel_of.get(d.producer), kernel_of.get(d.consumer)
            if d.fused or first is None or second is None or first[0] == second[0]:
                continue
            origin = f.graph.origin.get(d.consumer)
            source = str(origin.source) if origin and origin.source else ""
            nbytes = sum(v.type.nbytes for v in d.producer.outputs)
            key = (first[0], second[0], d.reason, source)
            # Calls of one kernel count together; the first pair gives their titles.
            known = found.get(key, Apart(first[0], second[0], d.reason, 0, 0, source, (first[1], second[1])))
            found[key] = replace(known, count=known.count + 1, nbytes=known.nbytes + nbytes)
    yield from sorted(found.values(), key=lambda a: -a.nbytes)


def _frames(frame: Frame) -> Iterator[Frame]:
    yield frame
    for bodies in frame.bodies.values():
        for body in bodies:
            yield from _frames(body)
