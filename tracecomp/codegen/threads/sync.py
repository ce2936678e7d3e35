"""LLVM text of the code that all programs share: loops split among threads, workers that help, the call from Python.

The calling thread alone runs a program's entry. Where a kernel has a parallel loop it *posts a job*: a function and its
iterations cut into chunks, a segment of neighbouring chunks for every thread. A thread *claims* the chunks of its own
segment from the front, then chunks of the others' segments from the back; the caller goes on until none is left, and
then waits for the chunks that workers have claimed and not finished. A worker that the system does not schedule claims
nothing, so nobody waits for it; one that is scheduled finds the part of memory that it had in the loop before.

The *ticket* of a segment is one 64-bit word: job number (32 bits), first (16) and end (16) of its unclaimed chunks. Why
no worker ever runs a chunk with the wrong job's data, however late it is:

* A worker reads the number of the job, then claims by compare-and-swap of tickets with that number only. So it claims
  chunks of the job that it knows of, or none.
* The job's fields and tickets are written before its number (release), which the worker has read (acquire). They are
  written again, for the next job, only when every chunk is claimed and finished. So they are the right ones as long
  as a claim succeeds; read any later they may be another job's, but then no ticket has the number and nothing is left.
* A worker adds the chunks it has run to the count of finished ones (release) when it finds no other; the caller returns
  when that count and its own make up all (acquire): it sees all that was written. The count is set to zero before the
  job is posted, and no worker that has not claimed touches it.
* Workers whose index is not below the threads of the call take no part: scratch memory is by index.
* One call has the pool at a time (``taken``); others run their loops alone, with the same results.

How they wait stands in ``codegen/threads/waiting.py``; workers watch the job number.
"""

from __future__ import annotations

from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads import waiting

PARALLEL = "tc_parallel"
PARALLEL_DECLARATION = f"declare void @{PARALLEL}(ptr, ptr, ptr, i64, i1)"
TAKE, RELEASE = "tc_take", "tc_release"
SHARED_SYMBOLS = (PARALLEL, TAKE, RELEASE)

MAX_THREADS = 256
POOL_BYTES = 256 + 64 * MAX_THREADS
"""The pool: 0 job number, 4 sleeping workers; 64 finished chunks, 68 whether the caller sleeps; 128 the job: function,
arguments, extent, chunks, threads; 192 whether it is taken, 200 nanoseconds of brief jobs that found threads asleep,
208 how many more waits are short because others want the processors; from 256 a cache line for each thread: 0 its
ticket, 8 the worker's number in the system, 12 the processor it was on."""

CHUNKS_PER_THREAD = 8

_PASSED_NS = 80_000
"""After so long in brief jobs that found threads asleep one wakes them: where many follow, they stay awake."""

_JOBS = """
declare i32 @clock_gettime(i32, ptr)

define internal i32 @tc.work(ptr %pool, i64 %thread, i32 %number) #1 {
entry:
  %p.fn = getelementptr i8, ptr %pool, i64 128
  %p.args = getelementptr i8, ptr %pool, i64 136
  %p.extent = getelementptr i8, ptr %pool, i64 144
  %p.chunks = getelementptr i8, ptr %pool, i64 152
  %p.threads = getelementptr i8, ptr %pool, i64 160
  %tickets = getelementptr i8, ptr %pool, i64 256
  %wanted = zext i32 %number to i64
  %threads = load atomic i64, ptr %p.threads monotonic, align 8
  %part = icmp ult i64 %thread, %threads
  br i1 %part, label %segment, label %done
segment:
  %k = phi i64 [ 0, %entry ], [ %k.next, %exhausted ]
  %ran.before = phi i32 [ 0, %entry ], [ %ran, %exhausted ]
  %sum = add i64 %thread, %k
  %past = icmp uge i64 %sum, %threads
  %around = sub i64 %sum, %threads
  %s = select i1 %past, i64 %around, i64 %sum
  %offset = shl i64 %s, 6
  %p.ticket = getelementptr i8, ptr %tickets, i64 %offset
  %own = icmp eq i64 %k, 0
  %change = select i1 %own, i64 65536, i64 -1
  %first = load atomic i64, ptr %p.ticket acquire, align 8
  br label %look
look:
  %ticket = phi i64 [ %first, %segment ], [ %now, %claim ], [ %again, %run ]
  %ran = phi i32 [ %ran.before, %segment ], [ %ran, %claim ], [ %ran.more, %run ]
  %high = lshr i64 %ticket, 32
  %current = icmp eq i64 %high, %wanted
  %middle = lshr i64 %ticket, 16
  %front = and i64 %middle, 65535
  %end = and i64 %ticket, 65535
  %some = icmp ult i64 %front, %end
  %may = and i1 %current, %some
  br i1 %may, label %claim, label %exhausted
claim:
  %changed = add i64 %ticket, %change
  %pair = cmpxchg ptr %p.ticket, i64 %ticket, i64 %changed acq_rel acquire
  %now = extractvalue { i64, i1 } %pair, 0
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  %back = sub i64 %end, 1
  %chunk = select i1 %own, i64 %front, i64 %back
  %fn = load ptr, ptr %p.fn, align 8
  %args = load ptr, ptr %p.args, align 8
  %extent = load i64, ptr %p.extent, align 8
  %chunks = load i64, ptr %p.chunks, align 8
  %following = add i64 %chunk, 1
  %a = mul i64 %chunk, %extent
  %b = mul i64 %following, %extent
  %start = udiv i64 %a, %chunks
  %stop = udiv i64 %b, %chunks
  call void %fn(ptr %args, i64 %thread, i64 %start, i64 %stop)
  %ran.more = add i32 %ran, 1
  %again = load atomic i64, ptr %p.ticket acquire, align 8
  br label %look
exhausted:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %threads
  br i1 %more, label %segment, label %done
done:
  %result = phi i32 [ 0, %entry ], [ %ran, %exhausted ]
  ret i32 %result
}

define void @tc_worker(ptr %pool, i64 %thread) #1 {
entry:
  %p.finished = getelementptr i8, ptr %pool, i64 64
  %line = shl i64 %thread, 6
  %offset = add i64 %line, 264
  %p.tid = getelementptr i8, ptr %pool, i64 %offset
  %p.cpu = getelementptr i8, ptr %p.tid, i64 4
  %p.crowded = getelementptr i8, ptr %pool, i64 208
  %time = alloca [2 x i64], align 8
  %off.first = call i64 @tc.off(ptr %time)
  %tid.wide = call i64 (i64, ...) @syscall(i64 GETTID)
  %tid = trunc i64 %tid.wide to i32
  store atomic i32 %tid, ptr %p.tid monotonic, align 4
  br label %next
next:
  %waits = phi i32 [ 0, %entry ], [ %waits.next, %again ], [ %waits.next, %look ], [ %waits.next, %crowd ]
  %off = phi i64 [ %off.first, %entry ], [ %off, %again ], [ %off.now, %look ], [ %off.now, %crowd ]
  %number = load atomic i32, ptr %pool acquire, align 4
  %ran = call i32 @tc.work(ptr %pool, i64 %thread, i32 %number)
  %some = icmp ne i32 %ran, 0
  br i1 %some, label %report, label %idle
report:
  %before = atomicrmw add ptr %p.finished, i32 %ran seq_cst
  call void @tc.wake(ptr %p.finished)
  br label %idle
idle:
  %r = call i64 (i64, ...) @syscall(i64 GETCPU, ptr %p.cpu, ptr null, ptr null)
  %slept = call i1 @tc.await(ptr %pool, ptr %pool, i32 %number)
  %crowded = load atomic i32, ptr %p.crowded monotonic, align 4
  %was = icmp ne i32 %crowded, 0
  %less = sub i32 %crowded, 1
  %left = select i1 %was, i32 %less, i32 0
  store atomic i32 %left, ptr %p.crowded monotonic, align 4
  %waits.next = add i32 %waits, 1
  %turn = and i32 %waits.next, 15
  %due = icmp eq i32 %turn, 0
  %check = or i1 %slept, %due
  br i1 %check, label %look, label %again
again:
  br label %next
look:
  %off.now = call i64 @tc.off(ptr %time)
  %lost = sub i64 %off.now, %off
  %long = icmp sgt i64 %lost, LOST
  %awake = xor i1 %slept, true
  %others = and i1 %long, %awake
  br i1 %others, label %crowd, label %next
crowd:
  store atomic i32 CROWDED, ptr %p.crowded monotonic, align 4
  br label %next
}

define internal i32 @tc.post(ptr %pool, ptr %fn, ptr %args, i64 %extent, i64 %threads, i64 %chunks) #1 {
entry:
  %p.finished = getelementptr i8, ptr %pool, i64 64
  %p.fn = getelementptr i8, ptr %pool, i64 128
  %p.args = getelementptr i8, ptr %pool, i64 136
  %p.extent = getelementptr i8, ptr %pool, i64 144
  %p.chunks = getelementptr i8, ptr %pool, i64 152
  %tickets = getelementptr i8, ptr %pool, i64 256
  store ptr %fn, ptr %p.fn, align 8
  store ptr %args, ptr %p.args, align 8
  store i64 %extent, ptr %p.extent, align 8
  store i64 %chunks, ptr %p.chunks, align 8
  store atomic i32 0, ptr %p.finished monotonic, align 4
  %old = load atomic i32, ptr %pool monotonic, align 4
  %number = add i32 %old, 1
  %wide = zext i32 %number to i64
  %high = shl i64 %wide, 32
  br label %segment
segment:
  %s = phi i64 [ 0, %entry ], [ %s.next, %segment ]
  %s.next = add i64 %s, 1
  %a = mul i64 %s, %chunks
  %b = mul i64 %s.next, %chunks
  %front = udiv i64 %a, %threads
  %end = udiv i64 %b, %threads
  %middle = shl i64 %front, 16
  %low = or i64 %middle, %end
  %ticket = or i64 %high, %low
  %offset = shl i64 %s, 6
  %p.ticket = getelementptr i8, ptr %tickets, i64 %offset
  store atomic i64 %ticket, ptr %p.ticket release, align 8
  %more = icmp ult i64 %s.next, %threads
  br i1 %more, label %segment, label %posted
posted:
  %p.sleepers = getelementptr i8, ptr %pool, i64 4
  %asleep = load atomic i32, ptr %p.sleepers monotonic, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %part, label %announce
part:
  call void @tc.part(ptr %pool, i64 %threads)
  br label %announce
announce:
  store atomic i32 %number, ptr %pool seq_cst, align 4
  call void @tc.wake(ptr %pool)
  ret i32 %number
}

define internal i64 @tc.now(ptr %time) #1 {
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %p.ns = getelementptr i8, ptr %time, i64 8
  %s = load i64, ptr %time, align 8
  %n = load i64, ptr %p.ns, align 8
  %whole = mul i64 %s, 1000000000
  %now = add i64 %whole, %n
  ret i64 %now
}

define void @tc_parallel(ptr %pool, ptr %fn, ptr %args, i64 %extent, i1 %brief) #1 {
entry:
  %time = alloca [2 x i64], align 8
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %whole, label %several
whole:
  call void %fn(ptr %args, i64 0, i64 0, i64 %extent)
  ret void
several:
  br i1 %brief, label %look, label %shared
look:
  %p.sleepers = getelementptr i8, ptr %pool, i64 4
  %asleep = load atomic i32, ptr %p.sleepers monotonic, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %timed, label %shared
timed:
  %p.passed = getelementptr i8, ptr %pool, i64 200
  %passed = load i64, ptr %p.passed, align 8
  %due = icmp uge i64 %passed, PASSED
  br i1 %due, label %wake, label %own
wake:
  store i64 0, ptr %p.passed, align 8
  br label %shared
own:
  %start = call i64 @tc.now(ptr %time)
  call void %fn(ptr %args, i64 0, i64 0, i64 %extent)
  %end = call i64 @tc.now(ptr %time)
  %took = sub i64 %end, %start
  %sum = add i64 %passed, %took
  store i64 %sum, ptr %p.passed, align 8
  ret void
shared:
  %p.finished = getelementptr i8, ptr %pool, i64 64
  %p.threads = getelementptr i8, ptr %pool, i64 160
  %threads = load i64, ptr %p.threads, align 8
  %wanted = mul i64 %threads, CHUNKS
  %twice = mul i64 %wanted, 2
  %few = icmp ule i64 %extent, %twice
  %chunks = select i1 %few, i64 %extent, i64 %wanted
  %number = call i32 @tc.post(ptr %pool, ptr %fn, ptr %args, i64 %extent, i64 %threads, i64 %chunks)
  %ran = call i32 @tc.work(ptr %pool, i64 0, i32 %number)
  %all = trunc i64 %chunks to i32
  %others = sub i32 %all, %ran
  br label %check
check:
  %done = load atomic i32, ptr %p.finished acquire, align 4
  %complete = icmp eq i32 %done, %others
  br i1 %complete, label %finished, label %wait
wait:
  %slept = call i1 @tc.await(ptr %pool, ptr %p.finished, i32 %done)
  br label %check
finished:
  ret void
}
"""


_CALL = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)

define ptr @TAKE(ptr %pool, i64 %threads) #1 {
entry:
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %try, label %alone
try:
  %p.taken = getelementptr i8, ptr %pool, i64 192
  %pair = cmpxchg ptr %p.taken, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %taken, label %alone
taken:
  %p.threads = getelementptr i8, ptr %pool, i64 160
  store atomic i64 %threads, ptr %p.threads monotonic, align 8
  ret ptr %pool
alone:
  ret ptr null
}

define void @RELEASE(ptr %pool) #1 {
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
  %team = call ptr @TAKE(ptr %pool, i64 %threads)
  call void %fn(ptr %table, ptr %arena, ptr %team, ptr %p.failed)
  call void @RELEASE(ptr %team)
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
    """The module with ``tc_parallel``, ``tc_take``, ``tc_release``, ``tc_worker`` and ``tc_call``."""
    text = waiting.TEXT + _JOBS + _CALL + "\nattributes #1 = { nounwind }\n"
    words = {"CHUNKS": CHUNKS_PER_THREAD, "PASSED": _PASSED_NS, "TAKE": TAKE, "RELEASE": RELEASE}
    for name, value in (waiting.words(target) | words).items():
        text = text.replace(name, str(value))
    return f"{waiting.declarations(target)}\n{text}"
