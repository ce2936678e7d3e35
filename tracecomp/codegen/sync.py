"""LLVM text of the code that all programs share: the barrier, the pool's worker and launch loops, the call from Python.

Waiting spins for a bounded time, then sleeps in the kernel (futex); sleepers are counted, so a signal costs a system
call only when somebody sleeps. The memory layouts are the byte offsets below.
"""

from __future__ import annotations

from tracecomp.codegen.target import Target

BARRIER = "tc_barrier"
BARRIER_DECLARATION = f"declare void @{BARRIER}(ptr, i64)"

SYNC_BYTES = 192
"""One call's synchronisation block: 0 failed step, 64 arrivals, 128 generation and sleepers."""

POOL_BYTES = 256
"""The pool's block: 0 job number and sleepers, 64 finished workers and sleepers, 128 the job, 192 worker count and
whether it is taken. A call that finds it taken (or no pool) runs alone, with the same results."""

_SPINS = 4000
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARED = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}

_AWAIT = """
declare i64 @syscall(i64, ...)

define internal void @tc.signal(ptr %word) #1 {
  %n = atomicrmw add ptr %word, i32 1 seq_cst
  call void @tc.wake(ptr %word)
  ret void
}

define internal void @tc.wake(ptr %word) #1 {
  %sleepers = getelementptr i8, ptr %word, i64 4
  %s = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %s, 0
  br i1 %any, label %wake, label %done
wake:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  br label %done
done:
  ret void
}

define internal void @tc.await(ptr %word, i32 %old) #1 {
entry:
  br label %spin
spin:
  %i = phi i32 [ 0, %entry ], [ %j, %again ]
  %v = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %v, %old
  br i1 %changed, label %done, label %again
again:
  call void PAUSE
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, SPINS
  br i1 %more, label %spin, label %sleep
sleep:
  %sleepers = getelementptr i8, ptr %word, i64 4
  %a = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %wait
wait:
  %w = load atomic i32, ptr %word seq_cst, align 4
  %still = icmp eq i32 %w, %old
  br i1 %still, label %block, label %woken
block:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i64 128, i32 %old, ptr null, ptr null, i64 0)
  br label %wait
woken:
  %b = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %done
done:
  ret void
}
"""

_BARRIER = """
define void @tc_barrier(ptr %sync, i64 %nt) #1 {
  %alone = icmp eq i64 %nt, 1
  br i1 %alone, label %done, label %enter
enter:
  %arrivals = getelementptr i8, ptr %sync, i64 64
  %generation = getelementptr i8, ptr %sync, i64 128
  %g = load atomic i32, ptr %generation acquire, align 4
  %before = atomicrmw add ptr %arrivals, i32 1 acq_rel
  %n = trunc i64 %nt to i32
  %last = sub i32 %n, 1
  %release = icmp eq i32 %before, %last
  br i1 %release, label %open, label %wait
open:
  store atomic i32 0, ptr %arrivals monotonic, align 4
  call void @tc.signal(ptr %generation)
  ret void
wait:
  call void @tc.await(ptr %generation, i32 %g)
  br label %done
done:
  ret void
}
"""

_POOL = """
define void @tc_worker(ptr %pool, i64 %index, i32 %first) #1 {
entry:
  br label %next
next:
  %seen = phi i32 [ %first, %entry ], [ %job, %finished ]
  call void @tc.await(ptr %pool, i32 %seen)
  %job = load atomic i32, ptr %pool acquire, align 4
  %p.nt = getelementptr i8, ptr %pool, i64 152
  %nt = load i64, ptr %p.nt, align 8
  %mine = icmp slt i64 %index, %nt
  br i1 %mine, label %run, label %finished
run:
  %p.entry = getelementptr i8, ptr %pool, i64 128
  %p.table = getelementptr i8, ptr %pool, i64 136
  %p.arena = getelementptr i8, ptr %pool, i64 144
  %p.sync = getelementptr i8, ptr %pool, i64 160
  %fn = load ptr, ptr %p.entry, align 8
  %table = load ptr, ptr %p.table, align 8
  %arena = load ptr, ptr %p.arena, align 8
  %sync = load ptr, ptr %p.sync, align 8
  call void %fn(ptr %table, ptr %arena, i64 %index, i64 %nt, ptr %sync)
  br label %finished
finished:
  %done = getelementptr i8, ptr %pool, i64 64
  call void @tc.signal(ptr %done)
  br label %next
}

define i32 @tc_acquire(ptr %pool) #1 {
  %p.busy = getelementptr i8, ptr %pool, i64 196
  %pair = cmpxchg ptr %p.busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  %result = zext i1 %mine to i32
  ret i32 %result
}

define void @tc_release(ptr %pool) #1 {
  %p.busy = getelementptr i8, ptr %pool, i64 196
  store atomic i32 0, ptr %p.busy release, align 4
  ret void
}

define internal void @tc.launch(ptr %pool, ptr %fn, ptr %table, ptr %arena, i64 %nt, ptr %sync) #1 {
entry:
  %several = icmp ugt i64 %nt, 1
  %there = icmp ne ptr %pool, null
  %wanted = and i1 %several, %there
  br i1 %wanted, label %try, label %alone
try:
  %mine = call i32 @tc_acquire(ptr %pool)
  %got = icmp ne i32 %mine, 0
  br i1 %got, label %start, label %alone
alone:
  call void %fn(ptr %table, ptr %arena, i64 0, i64 1, ptr %sync)
  ret void
start:
  %p.entry = getelementptr i8, ptr %pool, i64 128
  %p.table = getelementptr i8, ptr %pool, i64 136
  %p.arena = getelementptr i8, ptr %pool, i64 144
  %p.nt = getelementptr i8, ptr %pool, i64 152
  %p.sync = getelementptr i8, ptr %pool, i64 160
  store ptr %fn, ptr %p.entry, align 8
  store ptr %table, ptr %p.table, align 8
  store ptr %arena, ptr %p.arena, align 8
  store i64 %nt, ptr %p.nt, align 8
  store ptr %sync, ptr %p.sync, align 8
  %done = getelementptr i8, ptr %pool, i64 64
  %p.workers = getelementptr i8, ptr %pool, i64 192
  %workers = load i32, ptr %p.workers, align 4
  store atomic i32 0, ptr %done release, align 4
  call void @tc.signal(ptr %pool)
  call void %fn(ptr %table, ptr %arena, i64 0, i64 %nt, ptr %sync)
  br label %check
check:
  %d = load atomic i32, ptr %done acquire, align 4
  %all = icmp eq i32 %d, %workers
  br i1 %all, label %finished, label %wait
wait:
  call void @tc.await(ptr %done, i32 %d)
  br label %check
finished:
  call void @tc_release(ptr %pool)
  ret void
}
"""


_CALL = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)

define ptr @tc_call(ptr %self, ptr %args, i64 %count) #1 {
entry:
  %p.record = getelementptr i8, ptr %self, i64 16
  %record = load ptr, ptr %p.record, align 8
  %p.table = getelementptr i8, ptr %record, i64 8
  %p.arena = getelementptr i8, ptr %record, i64 16
  %p.sync = getelementptr i8, ptr %record, i64 24
  %p.cell = getelementptr i8, ptr %record, i64 32
  %p.nt = getelementptr i8, ptr %record, i64 40
  %p.slots = getelementptr i8, ptr %record, i64 48
  %fn = load ptr, ptr %record, align 8
  %table = load ptr, ptr %p.table, align 8
  %arena = load ptr, ptr %p.arena, align 8
  %sync = load ptr, ptr %p.sync, align 8
  %cell = load ptr, ptr %p.cell, align 8
  %nt = load i64, ptr %p.nt, align 8
  %slots = load i64, ptr %p.slots, align 8
  %p.wanted = getelementptr i8, ptr %record, i64 56
  %wanted = load ptr, ptr %p.wanted, align 8
  %right = icmp eq i64 %count, %slots
  br i1 %right, label %fill, label %mismatch
fill:
  %i = phi i64 [ 0, %entry ], [ %j, %take ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %put, label %go
put:
  %p.array = getelementptr ptr, ptr %args, i64 %i
  %array = load ptr, ptr %p.array, align 8
  %p.type = getelementptr i8, ptr %array, i64 8
  %type = load ptr, ptr %p.type, align 8
  %plain = icmp eq ptr %type, %wanted
  br i1 %plain, label %take, label %mismatch
take:
  %p.data = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %p.data, align 8
  %p.entry = getelementptr ptr, ptr %table, i64 %i
  store ptr %data, ptr %p.entry, align 8
  %j = add i64 %i, 1
  br label %fill
go:
  store i64 0, ptr %sync, align 8
  %pool = load ptr, ptr %cell, align 8
  %state = call ptr @PyEval_SaveThread()
  call void @tc.launch(ptr %pool, ptr %fn, ptr %table, ptr %arena, i64 %nt, ptr %sync)
  call void @PyEval_RestoreThread(ptr %state)
  %failed = load i64, ptr %sync, align 8
  br label %finished
mismatch:
  br label %finished
finished:
  %result = phi i64 [ %failed, %go ], [ -1, %mismatch ]
  %object = call ptr @PyLong_FromLongLong(i64 %result)
  ret ptr %object
}
"""
CALL_SYMBOLS = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong")

RECORD_BYTES = 64
"""A call's record: 0 entry, 8 call table, 16 arena, 24 synchronisation block, 32 cell that holds the pool's address,
40 threads, 48 number of arrays, 56 the type that they must have exactly. ``tc_call`` is a METH_FASTCALL function whose
self is an array on such a record."""

DATA_OFFSET = 16
"""Where an ndarray object holds its data pointer."""


def _filled(text: str, target: Target) -> str:
    arch = target.triple.split("-", 1)[0]
    filled = text.replace("FUTEX", str(_FUTEX_CALL[arch])).replace("SPINS", str(_SPINS)).replace("PAUSE", _PAUSE[arch])
    return f"{_PAUSE_DECLARED[arch]}\n{filled}"


def shared_text(target: Target) -> str:
    """The module with ``tc_barrier``, ``tc_worker``, ``tc_acquire``, ``tc_release`` and ``tc_call``."""
    return _filled(_AWAIT + _BARRIER + _POOL + _CALL, target) + "\nattributes #1 = { nounwind }\n"
