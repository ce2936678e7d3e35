"""An allocator for numpy whose arrays begin at cache lines.

It takes somewhat more from ``malloc`` and stores the block's size and start before the array. ``aligned_alloc`` would
leave fragments that other allocations occupy, so that the next array of the same size needs new pages. The last two
freed blocks that ``malloc`` would return to the system at once are kept. A program often allocates the same size again,
and new pages take longer than the computation that fills them.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.ir.loops import LINE

SYMBOLS = ("malloc", "realloc", "free", "memmove", "memset")

ROOM = LINE + 16
"""Bytes of a block beyond its array: the block's size (8), the block's address (8), and padding to a line."""
LARGE = 32 * 2**20
"""Largest block that the C library takes from its heap (glibc's M_MMAP_THRESHOLD grows no further)."""
KEPT = 128 * 2**20
"""Largest block that is kept: up to two of them are unused memory of the process."""

_DECLARATIONS = """
declare ptr @malloc(i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)

@tc.newer = internal global ptr null
@tc.older = internal global ptr null
"""


def allocator_text() -> str:
    """``tc_malloc``, ``tc_calloc``, ``tc_realloc`` and ``tc_free``, as numpy's table of an allocator has them."""
    parts = (_line(), _taken(), _block(), _return(), _malloc(), _calloc(), _realloc(), _free())
    return "\n\n".join((_DECLARATIONS, *parts))


def _first_line(a: Assembler, block: str) -> str:
    """The first cache line in ``block`` after its two words."""
    # At the last byte after which a line may begin: rounding down from there gives the first line.
    last = a.at(block, ROOM - 1)
    past = a.let(f"and i64 {a.let(f'ptrtoint ptr {last} to i64')}, {LINE - 1}")
    return a.at(last, a.let(f"sub i64 0, {past}"))


def _line() -> str:
    """Find the array in a block; store the block's address before it."""
    a = Assembler()
    line = _first_line(a, "%start")
    # Before the array, at a fixed distance: freeing starts from the array's address.
    a.store("ptr", "%start", line, -8)
    a.do(f"ret ptr {line}")
    return a.text("define internal ptr @tc.line(ptr %start) #1")


def _taken() -> str:
    """The block that ``slot`` keeps, if it has ``room`` bytes, else null. Other threads may access the slot
    concurrently."""
    a = Assembler()
    # The exchange makes the block this thread's alone, or finds that another thread was faster.
    found = a.let("atomicrmw xchg ptr %slot, ptr null seq_cst")
    a.need(a.let(f"icmp ne ptr {found}, null"), "missing")
    a.choose(a.same(a.load("i64", found), "%room", "i64"), "done", "back")
    a.block("back")
    # Too small or too large: it goes back to its place, and a block that another thread has put there is freed.
    a.run("@free", f"ptr {a.let(f'atomicrmw xchg ptr %slot, ptr {found} seq_cst')}")
    a.go("missing")
    a.block("missing")
    a.do("ret ptr null")
    a.block("done")
    a.do(f"ret ptr {found}")
    return a.text("define internal ptr @tc.taken(ptr %slot, i64 %room) #1")


def _block() -> str:
    """A block of ``room`` bytes: one that is kept, or a new one; null when there is no memory."""
    a = Assembler()
    # Small blocks come from the C library, whose own lists are as fast.
    a.need(a.let(f"icmp ugt i64 %room, {LARGE}"), "new")
    for slot in ("newer", "older"):
        kept = a.call("ptr", "@tc.taken", f"ptr @tc.{slot}", "i64 %room")
        other = a.name("other")
        a.need(a.let(f"icmp ne ptr {kept}, null"), other)
        a.do(f"ret ptr {kept}")
        a.block(other)
    a.go("new")
    a.block("new")
    a.do(f"ret ptr {a.call('ptr', '@malloc', 'i64 %room')}")
    return a.text("define internal ptr @tc.block(i64 %room) #1")


def _return() -> str:
    """Keep a freed block, or free it; a displaced block is freed."""
    a = Assembler()
    room = a.load("i64", "%start")
    # Larger ones than KEPT would be too much unused memory.
    keep = a.both(a.let(f"icmp ugt i64 {room}, {LARGE}"), a.let(f"icmp ule i64 {room}, {KEPT}"))
    a.choose(keep, "kept", "done")
    a.block("kept")
    # The newer of the two slots takes it, the older slot takes that one's block, and the last one is freed.
    newer = a.let("atomicrmw xchg ptr @tc.newer, ptr %start seq_cst")
    older = a.let(f"atomicrmw xchg ptr @tc.older, ptr {newer} seq_cst")
    a.go("done")
    a.block("done")
    a.run("@free", f"ptr {a.phi('ptr', {'entry': '%start', 'kept': older})}")
    a.do("ret void")
    return a.text("define internal void @tc.return(ptr %start) #1")


def _given(a: Assembler, start: str, room: str) -> None:
    """Record the size of a block."""
    a.need(a.let(f"icmp ne ptr {start}, null"), "failed")
    a.store("i64", room, start)


def _malloc() -> str:
    a = Assembler()
    # Overflow is impossible: numpy checks sizes earlier.
    room = a.let(f"add i64 %size, {ROOM}")
    start = a.call("ptr", "@tc.block", f"i64 {room}")
    _given(a, start, room)
    a.do(f"ret ptr {a.call('ptr', '@tc.line', f'ptr {start}')}")
    a.block("failed")
    a.do("ret ptr null")
    return a.text("define ptr @tc_malloc(ptr %context, i64 %size) #1")


def _calloc() -> str:
    a = Assembler()
    # numpy has checked that the product fits.
    size = a.let("mul i64 %count, %each")
    line = a.call("ptr", "@tc_malloc", "ptr %context", f"i64 {size}")
    with a.when(a.let(f"icmp ne ptr {line}, null")):
        # malloc's memory may be dirty, and a kept block is.
        a.call("ptr", "@memset", f"ptr {line}", "i32 0", f"i64 {size}")
    a.do(f"ret ptr {line}")
    return a.text("define ptr @tc_calloc(ptr %context, i64 %count, i64 %each) #1")


def _realloc() -> str:
    """The C library keeps the contents at their offset in the block; move them to its new first line."""
    a = Assembler()
    before = a.load("ptr", "%old", -8)
    here, there = a.let("ptrtoint ptr %old to i64"), a.let(f"ptrtoint ptr {before} to i64")
    offset = a.let(f"sub i64 {here}, {there}")
    room = a.let(f"add i64 %size, {ROOM}")
    start = a.call("ptr", "@realloc", f"ptr {before}", f"i64 {room}")
    a.need(a.let(f"icmp ne ptr {start}, null"), "failed")
    # realloc may move the block by any distance, so the array's distance to
    # a line changes: moved before its size is noted.
    a.call("ptr", "@memmove", f"ptr {_first_line(a, start)}", f"ptr {a.at(start, offset)}", "i64 %size")
    a.store("i64", room, start)
    a.do(f"ret ptr {a.call('ptr', '@tc.line', f'ptr {start}')}")
    a.block("failed")
    a.do("ret ptr null")
    return a.text("define ptr @tc_realloc(ptr %context, ptr %old, i64 %size) #1")


def _free() -> str:
    a = Assembler()
    with a.when(a.let("icmp ne ptr %line, null")):
        a.run("@tc.return", f"ptr {a.load('ptr', '%line', -8)}")
    a.do("ret void")
    return a.text("define void @tc_free(ptr %context, ptr %line, i64 %size) #1")
