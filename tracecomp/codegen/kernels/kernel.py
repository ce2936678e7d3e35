"""One kernel as LLVM functions: itself, and its parallel loops, which any thread may run a part of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tracecomp.codegen.kernels.elements import Binding
from tracecomp.codegen.kernels.statements import Statements
from tracecomp.codegen.text.emitter import Emitter, Module, Value
from tracecomp.codegen.threads import sync
from tracecomp.ir.loops import SHARED, Accumulate, Let, Local, Loop, Store, walk
from tracecomp.ir.program import Kernel


@dataclass(slots=True)
class KernelCode:
    """The functions' text and their scratch memory: bytes shared by all threads, and bytes per thread.

    ``streamed`` are the numbers of parameters with non-temporal stores. A second function, whose name ends in
    ``STREAMING``, has those stores. Calls use it if the memory of all these parameters begins at a line; with
    ``alone``, only on a single thread.
    """

    text: str
    shared_bytes: int
    private_bytes: int
    parallel: bool
    streamed: tuple[int, ...] = ()
    alone: bool = False


STREAMING = ".streaming"


def emit_kernel(kernel: Kernel, name: str, module: Module, groups: dict[str, str], counted: bool = False) -> KernelCode:
    """Emit the code of one kernel. ``groups`` maps a parameter to its alias group; single members are noalias.

    ``counted``: the number of iterations of parallel loops is one more parameter, the last one.
    """
    code = KernelEmitter(kernel, name, module, groups, False, counted).emit()
    streams = {s.buffer.name: s.stream for s in walk(kernel.body) if isinstance(s, Store) and s.stream}
    streamed = tuple(n for n, p in enumerate(kernel.params) if p.name in streams)
    # Non-temporal stores must be aligned to whole vectors. The alignment of a call's memory is known at run time, so
    # there are two functions.
    if not streamed or not module.target.is_x86 or module.shadow is not None:
        return code
    fast = KernelEmitter(kernel, name + STREAMING, module, groups, True).emit()
    alone = "always" not in streams.values()
    return replace(code, text=f"{code.text}\n{fast.text}", streamed=streamed, alone=alone)


class KernelEmitter(Statements):
    """Emit one kernel."""

    def __init__(
        self, kernel: Kernel, name: str, module: Module, groups: dict[str, str], streaming: bool, counted: bool = False
    ) -> None:
        bases = {p.name: Value(f"%p{i}", "ptr") for i, p in enumerate(kernel.params)}
        # As many lanes as the widest element allows: no value of the kernel
        # then takes more than one register for a vector.
        width = module.target.vector_bits // 8 // _lane_bytes(kernel)
        super().__init__(Emitter(module), width, bases, groups, streaming)
        if module.shadow is not None:
            self.tags = {p.name: Value(f"%t{i}", "i64") for i, p in enumerate(kernel.params)}
        self.kernel = kernel
        self.name = name
        self.counted = counted
        self.parts: list[_Part] = []
        self.buffers = [p.name for p in kernel.params]
        self.names: list[str] = []

    def emit(self) -> KernelCode:
        for stmt in self.kernel.body:
            # Only top-level loops are shared: the calling thread runs everything before them once.
            if isinstance(stmt, Loop) and stmt.kind in SHARED and stmt.var.extent > 1:
                self._share_out(stmt)
                continue
            self.stmt(stmt)
            match stmt:
                case Local(buffer):
                    self.buffers.append(buffer.name)
                case Let(name):
                    self.names.append(name)
                case Accumulate(accs):
                    self.names.extend(a.name for a in accs)
        # Non-temporal stores are weakly ordered: a fence makes them visible before the kernel's end is published.
        self.finish_streams()
        params = [f"{self.pointer(p.name)} %p{i}" for i, p in enumerate(self.kernel.params)]
        params += map(str, self.tags.values())
        rest = ["ptr %team", "ptr %failed", "i64 %step", "ptr %shared", "ptr %private"]
        rest += ["i64 %count"] if self.counted else []
        own = _function("void", self.name, [*params, *rest], self.e)
        private_bytes = max([self.private_bytes, *(part.private_bytes for part in self.parts)])
        text = "\n".join([own, *(part.text for part in self.parts)])
        return KernelCode(text, self.shared_bytes, private_bytes, bool(self.parts))

    def pointer(self, buffer: str) -> str:
        """The type of a parameter that points to ``buffer``."""
        # Only a group of one is without aliases.
        sharing = [name for name, group in self.groups.items() if group == self.groups.get(buffer)]
        return "ptr" if len(sharing) > 1 else "ptr noalias"

    def _share_out(self, loop: Loop) -> None:
        """Emit a loop as a job of all threads, or of those that are awake."""
        e = self.e
        part = _Part(self, loop)
        self.parts.append(part)
        memory = f"%args{len(self.parts)}"
        given = [Value(f"@{part.name}", "ptr"), Value(str(part.private_bytes), "i64"), *part.given]
        # On the stack: workers read it before the call returns.
        e.allocas.append(f"  {memory} = alloca [{len(given)} x i64], align 8")
        for n, value in enumerate(given):
            e.line(f"  {memory}.{n} = getelementptr i64, ptr {memory}, i64 {n}")
            e.line(f"  store {value}, ptr {memory}.{n}, align 8")
        e.declare(sync.PARALLEL, sync.PARALLEL_DECLARATION)
        awake_only, extent = int(loop.kind == "opportunistic"), "%count" if self.counted else loop.var.extent
        run = _runner(e, part.given)
        e.line(f"  call void @{sync.PARALLEL}(ptr %team, ptr {run}, ptr {memory}, i64 {extent}, i1 {awake_only})")
        # Later loads have to assume that the part has executed the loop's stores.
        self.stores.bump(self.written(loop.body))


class _Part(Statements):
    """A parallel loop as a function over a range of its iterations.

    ``given`` are values of the enclosing kernel: the words of failing checks, addresses of buffers and values of names
    from the kernel's statements. They are passed in memory, and another function loads them (``_runner``), so that here
    they are parameters without aliases.
    """

    def __init__(self, kernel: KernelEmitter, loop: Loop) -> None:
        super().__init__(Emitter(kernel.e.module), kernel.width, {}, kernel.groups, kernel.streaming)
        self.name = f"{kernel.name}.part{len(kernel.parts)}"
        self.given = [Value("%private", "ptr"), Value("%failed", "ptr"), Value("%step", "i64")]
        self.params = ["ptr %private", "ptr %failed", "i64 %step"]
        for buffer in kernel.buffers:
            # As parameters they can be ``noalias``; loaded from memory they could not.
            self.bases[buffer] = self._take(kernel.bases[buffer], kernel.pointer(buffer))
        for buffer, tag in kernel.tags.items():
            self.tags[buffer] = self._take(tag, tag.type)
        for name in kernel.names:
            value = kernel.bindings[name].values[()]
            # Constants need not be passed.
            self.bindings[name] = Binding((), {(): value if value.const is not None else self._take(value, value.type)})
        self.repeat(loop, Value("%start", "i64"), Value("%stop", "i64"))
        self.finish_streams()

    def _take(self, value: Value, spelled: str) -> Value:
        taken = Value(f"%c{len(self.given)}", value.elem)
        self.given.append(value)
        self.params.append(f"{spelled} {taken.text}")
        return taken

    @property
    def text(self) -> str:
        return _function("internal void", self.name, [*self.params, "i64 %start", "i64 %stop"], self.e)


def _runner(e: Emitter, given: list[Value]) -> str:
    """A function that calls a part with the values ``given`` from memory, which begins with the part's address.

    Every thread has as many bytes of scratch memory as the second word says, by its number. Parts with values of the
    same types share the function.
    """
    name = f"@run.{'.'.join(value.type for value in given)}"
    lines = ["  %part = load ptr, ptr %args, align 8", "  %b = getelementptr i64, ptr %args, i64 1"]
    lines += ["  %bytes = load i64, ptr %b, align 8", "  %before = mul i64 %thread, %bytes"]
    for n, value in enumerate(given):
        lines.append(f"  %a{n} = getelementptr i64, ptr %args, i64 {n + 2}")
        lines.append(f"  %g{n} = load {value.type}, ptr %a{n}, align 8")
    passed = ["ptr %mine", *(f"{value.type} %g{n}" for n, value in enumerate(given[1:], 1))]
    lines += ["  %mine = getelementptr i8, ptr %g0, i64 %before"]
    lines += [f"  call void %part({', '.join([*passed, 'i64 %start', 'i64 %stop'])})", "  ret void"]
    body = "\n".join(lines)
    e.declare(name, f"define void {name}(ptr %args, i64 %thread, i64 %start, i64 %stop) #0 {{\n{body}\n}}")
    return name


def _function(kind: str, name: str, params: list[str], e: Emitter) -> str:
    body = "\n".join([*e.allocas, *e.blocks[0].lines])
    return f"define {kind} @{name}({', '.join(params)}) #0 {{\nentry:\n{body}\n  ret void\n}}\n"


def _lane_bytes(kernel: Kernel) -> int:
    """Element size that decides the number of lanes: the widest float, else the widest type of all."""
    types = [p.dtype for p in kernel.params]
    for s in walk(kernel.body):
        if isinstance(s, Accumulate):
            types += [a.dtype for a in s.accs]
    # Floats decide: 64-bit index arithmetic next to floats may take two registers.
    floats = [max(t.itemsize, 4) for t in types if t.is_floating_point]
    return max(floats or [t.itemsize for t in types], default=4)
