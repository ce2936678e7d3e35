"""Elementwise kernels for any number of elements, which is read in every call.

The program is lowered for a length that no array has, which gives one loop over blocks of neighbouring elements. The
number of blocks becomes a parameter. The remainder is covered by the last block's worth of elements: some are stored
twice, with the same values. Fewer elements than a block are copied into one and back.
"""

from __future__ import annotations

from tracecomp.base.errors import CompileError
from tracecomp.codegen.kernels.kernel import emit_kernel
from tracecomp.codegen.kernels.overlap import overlapping
from tracecomp.codegen.kernels.program import ProgramCode, slot_places
from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.emitter import Module
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.loops import Buffer, Loop
from tracecomp.ir.program import CallStep, Program

_COPYING = {
    "llvm.memset.p0.i64": "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    "llvm.memcpy.p0.p0.i64": "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
}


def _only_call(program: Program) -> CallStep:
    calls = [s for s in program.steps if isinstance(s, CallStep)]
    if len(calls) != 1 or len(program.steps) != 1 or program.arena_bytes:
        raise CompileError(f"program {program.name} is not one kernel")
    return calls[0]


def block_of(program: Program) -> int:
    """The elements of a block; CompileError for a program that is not one loop over blocks."""
    kernel = _only_call(program).kernel
    loops = [s for s in kernel.body if isinstance(s, Loop)]
    length = max(p.size for p in kernel.params)
    if len(loops) != 1 or loops[0].kind != "parallel" or length % loops[0].var.extent:
        raise CompileError(f"program {program.name} is not one loop over blocks")
    return length // loops[0].var.extent


def emit_counted(program: Program, target: Target) -> ProgramCode:
    """The module of ``program``, whose entry reads the address of the number of elements after its arrays.

    Arrays of one element are the same for all blocks.
    """
    call, block = _only_call(program), block_of(program)
    module = Module(target, program.fast_math)
    code = emit_kernel(call.kernel, "k0", module, overlapping(call), counted=True)
    declarations = {**module.declarations, **_COPYING}
    text = ModuleText(target, (code.text, _entry(program, call, block, code.shared_bytes)), declarations)
    return ProgramCode((text,), code.shared_bytes, code.private_bytes, (call.label,), True, ("k0",))


def _entry(program: Program, call: CallStep, block: int, shared_bytes: int) -> str:
    a = Assembler()
    places = slot_places(program)
    params = call.kernel.params
    copies = ["" if p.size == 1 else a.let(f"alloca [{block * p.dtype.itemsize} x i8], align 64") for p in params]
    count = a.load("i64", a.load("ptr", "%table", 8 * len(places)))
    arrays = [a.load("ptr", "%table", 8 * places[r.slot.space, r.slot.position]) for r in call.args]
    private = a.at("%arena", shared_bytes)

    def run(begin: list[str], team: str, blocks: str) -> None:
        rest = (f"ptr {team}", "ptr %failed", "i64 1", "ptr %arena", f"ptr {private}", f"i64 {blocks}")
        a.run("@k0", *(f"ptr {p}" for p in begin), *rest)

    def bytes_of(p: Buffer, number: str) -> str:
        return a.let(f"mul i64 {number}, {p.dtype.itemsize}")

    a.choose(a.let(f"icmp ult i64 {count}, {block}"), "few", "many")
    a.block("few")
    for p, array, copy in zip(params, arrays, copies, strict=True):
        if copy:
            a.do(f"call void @llvm.memset.p0.i64(ptr {copy}, i8 0, i64 {block * p.dtype.itemsize}, i1 false)")
        if copy and p.name not in call.kernel.writes:
            a.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {copy}, ptr {array}, i64 {bytes_of(p, count)}, i1 false)")
    run([copy or array for array, copy in zip(arrays, copies, strict=True)], "null", "1")
    for p, array, copy in zip(params, arrays, copies, strict=True):
        if copy and p.name in call.kernel.writes:
            a.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {array}, ptr {copy}, i64 {bytes_of(p, count)}, i1 false)")
    a.do("ret void")
    a.block("many")
    run(arrays, "%team", a.let(f"udiv i64 {count}, {block}"))
    with a.when(a.let(f"icmp ne i64 {a.let(f'urem i64 {count}, {block}')}, 0")):
        last = a.let(f"sub i64 {count}, {block}")
        moved = [
            p if not copy else a.at(p, bytes_of(b, last)) for p, b, copy in zip(arrays, params, copies, strict=True)
        ]
        run(moved, "null", "1")
    a.do("ret void")
    return a.text(HEAD)
