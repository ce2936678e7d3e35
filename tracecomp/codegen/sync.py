"""LLVM text of what threads share: the barrier inside a program, and the pool's worker and launch loops.

Waiting spins for a bounded time, then sleeps in the kernel (futex); sleepers are counted, so a signal costs a system call
only when somebody sleeps. The memory layouts are the byte offsets below.
"""

from __future__ import annotations

from tracecomp.codegen.target import Target

SYNC_BYTES = 192
"""One call's synchronisation block: 0 failed step, 64 arrivals, 128 generation and sleepers."""

POOL_BYTES = 256
"""The pool's block: 0 job number and sleepers, 64 finished workers and sleepers, 128 the job, 192 worker count."""

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
define internal void @tc.barrier(ptr %sync, i64 %nt) #1 {
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

define void @tc_launch(ptr %pool, ptr %fn, ptr %table, ptr %arena, i64 %nt, ptr %sync) #1 {
entry:
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
  ret void
}
"""


def _filled(text: str, target: Target) -> str:
    arch = target.triple.split("-", 1)[0]
    filled = text.replace("FUTEX", str(_FUTEX_CALL[arch])).replace("SPINS", str(_SPINS)).replace("PAUSE", _PAUSE[arch])
    return f"{_PAUSE_DECLARED[arch]}\n{filled}"


def barrier_text(target: Target) -> str:
    """``@tc.barrier(ptr sync, i64 threads)`` and what it calls."""
    return _filled(_AWAIT + _BARRIER, target)


def pool_text(target: Target) -> str:
    """The module with ``tc_worker`` and ``tc_launch``."""
    return _filled(_AWAIT + _POOL, target) + "\nattributes #1 = { nounwind }\n"
