"""LLVM text of the code that all programs share: loops split among threads, workers that help, the call from Python.

The calling thread alone runs a program's entry. Where a kernel has a parallel loop it *posts a job*: a function and the
number of chunks that its iterations are cut into. Every thread, the caller first, *claims* chunks until none is left;
then the caller waits for the chunks that workers have claimed and not finished. A worker that the system does not
schedule claims nothing, so nobody waits for it.

The *ticket* is one 64-bit word: job number (32 bits), threads of the call (16), unclaimed chunks (16). Why no worker
ever runs a chunk with the wrong job's data, however late it is:

* A chunk is claimed by compare-and-swap of the whole ticket, so a claim is one of the job that is posted at that
  moment, whatever the worker had seen before, and only by workers that take part in it (index below its threads):
  scratch memory is by index, as much as the call has threads.
* The job's fields are written before its ticket (release) and read after the claim (acquire; swaps of the ticket
  continue the release sequence). The caller writes the next job's fields only when every chunk is claimed and
  finished. So the fields cannot change under a claimed chunk.
* A worker adds the chunks it has run to the count of finished ones (release) when it finds no other; the caller returns
  when that count and its own make up all (acquire): it sees all that was written. The count is set to zero
  before the ticket is posted, and no worker that has not claimed touches it.
* One call has the pool at a time (``taken``); others run their loops alone, with the same results.

Waiting spins for a bounded time, then sleeps in the kernel (futex). A sleeper counts itself in the word behind the one
it watches, then looks again; who changes the word looks for sleepers afterwards (all sequentially consistent), so a
wake cannot be missed and costs a system call only when somebody sleeps. Workers watch the job number.
"""

from __future__ import annotations

from tracecomp.codegen.target import Target

PARALLEL = "tc_parallel"
PARALLEL_DECLARATION = f"declare void @{PARALLEL}(ptr, ptr, ptr, i64)"

POOL_BYTES = 256
"""The pool: 0 ticket (job number at 4), 8 sleeping workers; 64 finished chunks, 68 whether the caller sleeps; 128 the
job: function, arguments, extent, chunks; 160 threads of the call; 192 whether it is taken."""

CHUNKS_PER_THREAD = 4

_SPINS = 500
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARED = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}

_AWAIT = """
declare i64 @syscall(i64, ...)

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

_JOBS = """
define internal { i32, i32 } @tc.work(ptr %pool, i64 %worker) #1 {
entry:
  %p.args = getelementptr i8, ptr %pool, i64 136
  %p.extent = getelementptr i8, ptr %pool, i64 144
  %p.chunks = getelementptr i8, ptr %pool, i64 152
  %p.fn = getelementptr i8, ptr %pool, i64 128
  br label %look
look:
  %ran = phi i32 [ 0, %entry ], [ %ran.more, %run ]
  %first = load atomic i64, ptr %pool acquire, align 8
  br label %try
try:
  %ticket = phi i64 [ %first, %look ], [ %now, %claim ]
  %left = and i64 %ticket, 65535
  %above = lshr i64 %ticket, 16
  %threads = and i64 %above, 65535
  %some = icmp ne i64 %left, 0
  %wanted = icmp ult i64 %worker, %threads
  %may = and i1 %some, %wanted
  br i1 %may, label %claim, label %finished
claim:
  %less = sub i64 %ticket, 1
  %pair = cmpxchg ptr %pool, i64 %ticket, i64 %less acq_rel acquire
  %now = extractvalue { i64, i1 } %pair, 0
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %try
run:
  %fn = load ptr, ptr %p.fn, align 8
  %args = load ptr, ptr %p.args, align 8
  %extent = load i64, ptr %p.extent, align 8
  %chunks = load i64, ptr %p.chunks, align 8
  %chunk = sub i64 %chunks, %left
  %following = add i64 %chunk, 1
  %a = mul i64 %chunk, %extent
  %b = mul i64 %following, %extent
  %start = udiv i64 %a, %chunks
  %stop = udiv i64 %b, %chunks
  call void %fn(ptr %args, i64 %worker, i64 %start, i64 %stop)
  %ran.more = add i32 %ran, 1
  br label %look
finished:
  %high = lshr i64 %ticket, 32
  %number = trunc i64 %high to i32
  %r0 = insertvalue { i32, i32 } poison, i32 %ran, 0
  %r1 = insertvalue { i32, i32 } %r0, i32 %number, 1
  ret { i32, i32 } %r1
}

define void @tc_worker(ptr %pool, i64 %index) #1 {
entry:
  %p.number = getelementptr i8, ptr %pool, i64 4
  %p.finished = getelementptr i8, ptr %pool, i64 64
  br label %next
next:
  %result = call { i32, i32 } @tc.work(ptr %pool, i64 %index)
  %ran = extractvalue { i32, i32 } %result, 0
  %number = extractvalue { i32, i32 } %result, 1
  %some = icmp ne i32 %ran, 0
  br i1 %some, label %report, label %idle
report:
  %before = atomicrmw add ptr %p.finished, i32 %ran seq_cst
  call void @tc.wake(ptr %p.finished)
  br label %idle
idle:
  call void @tc.await(ptr %p.number, i32 %number)
  br label %next
}

define void @tc_parallel(ptr %pool, ptr %fn, ptr %args, i64 %extent) #1 {
entry:
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %whole, label %post
whole:
  call void %fn(ptr %args, i64 0, i64 0, i64 %extent)
  ret void
post:
  %p.number = getelementptr i8, ptr %pool, i64 4
  %p.finished = getelementptr i8, ptr %pool, i64 64
  %p.fn = getelementptr i8, ptr %pool, i64 128
  %p.args = getelementptr i8, ptr %pool, i64 136
  %p.extent = getelementptr i8, ptr %pool, i64 144
  %p.chunks = getelementptr i8, ptr %pool, i64 152
  %p.threads = getelementptr i8, ptr %pool, i64 160
  %threads = load i64, ptr %p.threads, align 8
  %wanted = mul i64 %threads, CHUNKS
  %few = icmp ult i64 %extent, %wanted
  %chunks = select i1 %few, i64 %extent, i64 %wanted
  store ptr %fn, ptr %p.fn, align 8
  store ptr %args, ptr %p.args, align 8
  store i64 %extent, ptr %p.extent, align 8
  store i64 %chunks, ptr %p.chunks, align 8
  store atomic i32 0, ptr %p.finished monotonic, align 4
  %old = load atomic i64, ptr %pool monotonic, align 8
  %high = lshr i64 %old, 32
  %number = add i64 %high, 1
  %number.high = shl i64 %number, 32
  %threads.high = shl i64 %threads, 16
  %upper = or i64 %number.high, %threads.high
  %ticket = or i64 %upper, %chunks
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  call void @tc.wake(ptr %p.number)
  %result = call { i32, i32 } @tc.work(ptr %pool, i64 0)
  %own = extractvalue { i32, i32 } %result, 0
  %all = trunc i64 %chunks to i32
  %others = sub i32 %all, %own
  br label %check
check:
  %done = load atomic i32, ptr %p.finished acquire, align 4
  %complete = icmp eq i32 %done, %others
  br i1 %complete, label %finished, label %wait
wait:
  call void @tc.await(ptr %p.finished, i32 %done)
  br label %check
finished:
  ret void
}
"""


_CALL = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)

define internal ptr @tc.take(ptr %pool, i64 %threads) #1 {
entry:
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %try, label %alone
try:
  %p.taken = getelementptr i8, ptr %pool, i64 192
  %pair = cmpxchg ptr %p.taken, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %taken, label %alone
taken:
  %p.threads = getelementptr i8, ptr %pool, i64 160
  store i64 %threads, ptr %p.threads, align 8
  ret ptr %pool
alone:
  ret ptr null
}

define internal void @tc.release(ptr %pool) #1 {
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %done, label %free
free:
  %p.taken = getelementptr i8, ptr %pool, i64 192
  store atomic i32 0, ptr %p.taken release, align 4
  br label %done
done:
  ret void
}

define ptr @tc_call(ptr %self, ptr %args, i64 %count) #1 {
entry:
  %p.record = getelementptr i8, ptr %self, i64 16
  %record = load ptr, ptr %p.record, align 8
  %p.table = getelementptr i8, ptr %record, i64 8
  %p.arena = getelementptr i8, ptr %record, i64 16
  %p.pool = getelementptr i8, ptr %record, i64 24
  %p.threads = getelementptr i8, ptr %record, i64 32
  %p.slots = getelementptr i8, ptr %record, i64 40
  %p.wanted = getelementptr i8, ptr %record, i64 48
  %p.failed = getelementptr i8, ptr %record, i64 56
  %fn = load ptr, ptr %record, align 8
  %table = load ptr, ptr %p.table, align 8
  %arena = load ptr, ptr %p.arena, align 8
  %pool = load ptr, ptr %p.pool, align 8
  %threads = load i64, ptr %p.threads, align 8
  %slots = load i64, ptr %p.slots, align 8
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
  br i1 %plain, label %layout, label %mismatch
layout:
  %p.flags = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %p.flags, align 4
  %contiguous = trunc i32 %flags to i1
  br i1 %contiguous, label %take, label %mismatch
take:
  %p.data = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %p.data, align 8
  %p.entry = getelementptr ptr, ptr %table, i64 %i
  store ptr %data, ptr %p.entry, align 8
  %j = add i64 %i, 1
  br label %fill
go:
  store i64 0, ptr %p.failed, align 8
  %state = call ptr @PyEval_SaveThread()
  %team = call ptr @tc.take(ptr %pool, i64 %threads)
  call void %fn(ptr %table, ptr %arena, ptr %team, ptr %p.failed)
  call void @tc.release(ptr %team)
  call void @PyEval_RestoreThread(ptr %state)
  %failed = load i64, ptr %p.failed, align 8
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
"""A call's record: 0 entry, 8 call table, 16 arena, 24 pool, 32 threads, 40 number of arrays, 48 the type that they
must have exactly, 56 the failed step. ``tc_call`` is a METH_FASTCALL function; its self is an array on one."""


DATA_OFFSET = 16
"""Where an ndarray object holds its data pointer."""

FLAGS_OFFSET = 64
"""Where it holds its flags, of which the lowest says that it is C-contiguous."""


def shared_text(target: Target) -> str:
    """The module with ``tc_parallel``, ``tc_worker`` and ``tc_call``."""
    arch = target.triple.split("-", 1)[0]
    text = _AWAIT + _JOBS + _CALL + "\nattributes #1 = { nounwind }\n"
    numbers = {"FUTEX": _FUTEX_CALL[arch], "SPINS": _SPINS, "CHUNKS": CHUNKS_PER_THREAD, "PAUSE": _PAUSE[arch]}
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return f"{_PAUSE_DECLARED[arch]}\n{text}"
