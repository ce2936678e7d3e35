"""Memory for arrays that begins at a cache line, as an allocator of numpy's.

``malloc`` gives somewhat more, and what it gave stands before the memory: ``aligned_alloc`` leaves pieces behind that
other memory settles in, so that the next array of the size needs new pages.
"""

from __future__ import annotations

from tracecomp.ir.loops import LINE

SYMBOLS = ("malloc", "realloc", "free", "memmove", "memset")
_ROOM = LINE + 16

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

define ptr @tc_malloc(ptr %context, i64 %size) {{
  %room = add i64 %size, {_ROOM}
  %start = call ptr @malloc(i64 %room)
  %none = icmp eq ptr %start, null
  br i1 %none, label %failed, label %given
given:
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
  call void @free(ptr %start)
  br label %done
done:
  ret void
}}
"""
