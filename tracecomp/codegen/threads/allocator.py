"""Memory for arrays that begins at a cache line, as an allocator of numpy's.

``malloc`` gives somewhat more, and what it gave stands before the memory: ``aligned_alloc`` leaves pieces behind that
other memory settles in, so that the next array of the size needs new pages. Blocks that ``malloc`` would give back to
the system at once are kept when they are freed, the last two of them: the program that made one often makes the next,
and new pages take longer than what is computed into them.
"""

from __future__ import annotations

from tracecomp.ir.loops import LINE

SYMBOLS = ("malloc", "realloc", "free", "memmove", "memset")
_ROOM = LINE + 16
_LARGE = 32 * 2**20
"""What the C library gives from its own memory at most."""
_KEPT = 128 * 2**20
"""How large a block may be that is kept."""

TEXT = f"""
declare ptr @malloc(i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @memset(ptr, i32, i64)

define internal ptr @tc.line(ptr %start) {{
  %last = getelementptr i8, ptr %start, i64 {_ROOM - 1}
  %at = ptrtoint ptr %last to i64
  %past = and i64 %at, {LINE - 1}
  %back = sub i64 0, %past
  %line = getelementptr i8, ptr %last, i64 %back
  %cell = getelementptr i8, ptr %line, i64 -8
  store ptr %start, ptr %cell, align 8
  ret ptr %line
}}

@tc.newer = internal global ptr null
@tc.older = internal global ptr null

define internal ptr @tc.taken(ptr %slot, i64 %room) {{
  %found = atomicrmw xchg ptr %slot, ptr null seq_cst
  %none = icmp eq ptr %found, null
  br i1 %none, label %missing, label %look
look:
  %held = load i64, ptr %found, align 8
  %fits = icmp eq i64 %held, %room
  br i1 %fits, label %done, label %back
back:
  %other = atomicrmw xchg ptr %slot, ptr %found seq_cst
  call void @free(ptr %other)
  br label %missing
missing:
  ret ptr null
done:
  ret ptr %found
}}

define internal ptr @tc.block(i64 %room) {{
  %large = icmp ugt i64 %room, {_LARGE}
  br i1 %large, label %first, label %new
first:
  %newer = call ptr @tc.taken(ptr @tc.newer, i64 %room)
  %no.newer = icmp eq ptr %newer, null
  br i1 %no.newer, label %second, label %kept
second:
  %older = call ptr @tc.taken(ptr @tc.older, i64 %room)
  %no.older = icmp eq ptr %older, null
  br i1 %no.older, label %new, label %kept
kept:
  %block = phi ptr [ %newer, %first ], [ %older, %second ]
  ret ptr %block
new:
  %start = call ptr @malloc(i64 %room)
  ret ptr %start
}}

define internal void @tc.return(ptr %start) {{
  %room = load i64, ptr %start, align 8
  %large = icmp ugt i64 %room, {_LARGE}
  %few = icmp ule i64 %room, {_KEPT}
  %keep = and i1 %large, %few
  br i1 %keep, label %kept, label %done
kept:
  %newer = atomicrmw xchg ptr @tc.newer, ptr %start seq_cst
  %older = atomicrmw xchg ptr @tc.older, ptr %newer seq_cst
  br label %done
done:
  %gone = phi ptr [ %start, %0 ], [ %older, %kept ]
  call void @free(ptr %gone)
  ret void
}}

define ptr @tc_malloc(ptr %context, i64 %size) {{
  %room = add i64 %size, {_ROOM}
  %start = call ptr @tc.block(i64 %room)
  %none = icmp eq ptr %start, null
  br i1 %none, label %failed, label %given
given:
  store i64 %room, ptr %start, align 8
  %line = call ptr @tc.line(ptr %start)
  ret ptr %line
failed:
  ret ptr null
}}

define ptr @tc_calloc(ptr %context, i64 %count, i64 %each) {{
  %size = mul i64 %count, %each
  %line = call ptr @tc_malloc(ptr %context, i64 %size)
  %none = icmp eq ptr %line, null
  br i1 %none, label %done, label %given
given:
  call ptr @memset(ptr %line, i32 0, i64 %size)
  br label %done
done:
  ret ptr %line
}}

define ptr @tc_realloc(ptr %context, ptr %old, i64 %size) {{
  %cell = getelementptr i8, ptr %old, i64 -8
  %before = load ptr, ptr %cell, align 8
  %from = ptrtoint ptr %old to i64
  %to = ptrtoint ptr %before to i64
  %offset = sub i64 %from, %to
  %room = add i64 %size, {_ROOM}
  %start = call ptr @realloc(ptr %before, i64 %room)
  %none = icmp eq ptr %start, null
  br i1 %none, label %failed, label %given
given:
  %contents = getelementptr i8, ptr %start, i64 %offset
  %last = getelementptr i8, ptr %start, i64 {_ROOM - 1}
  %at = ptrtoint ptr %last to i64
  %past = and i64 %at, {LINE - 1}
  %back = sub i64 0, %past
  %place = getelementptr i8, ptr %last, i64 %back
  call ptr @memmove(ptr %place, ptr %contents, i64 %size)
  store i64 %room, ptr %start, align 8
  %line = call ptr @tc.line(ptr %start)
  ret ptr %line
failed:
  ret ptr null
}}

define void @tc_free(ptr %context, ptr %line, i64 %size) {{
  %none = icmp eq ptr %line, null
  br i1 %none, label %done, label %given
given:
  %cell = getelementptr i8, ptr %line, i64 -8
  %start = load ptr, ptr %cell, align 8
  call void @tc.return(ptr %start)
  br label %done
done:
  ret void
}}
"""
