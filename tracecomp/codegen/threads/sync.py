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

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.waiting import CROWDED, PROCESSOR, SEAT_BYTES, SEATS, SLEEPERS, THREAD_ID, Waiting

PARALLEL = "tc_parallel"
PARALLEL_DECLARATION = f"declare void @{PARALLEL}(ptr, ptr, ptr, i64, i1)"
TAKE, RELEASE, WORKER = "tc_take", "tc_release", "tc_worker"
SYMBOLS = (PARALLEL, TAKE, RELEASE, WORKER)

MAX_THREADS = 256
"""Seats in the pool; a job has at most 16 chunks for each, which fit a ticket's 16 bits."""
POOL_BYTES = SEATS + SEAT_BYTES * MAX_THREADS

# The pool, by byte. What one thread writes while others read it has a cache line of its own.
NUMBER = 0  # of the current job; behind it, how many workers sleep until it changes
FINISHED = 64  # chunks that workers have finished; behind it, whether the caller sleeps
FUNCTION, ARGUMENTS, EXTENT, CHUNKS, THREADS = 128, 136, 144, 152, 160  # the job
TAKEN = 192  # whether a call has the pool
PASSED = 200  # nanoseconds of opportunistic jobs that found threads asleep
TICKET = SEATS  # of thread 0; each thread's ticket begins its seat

CHUNKS_PER_THREAD = 8
"""So that a thread which comes late, or is taken off its processor, leaves the others something to take over."""

PASSED_NS = 80_000
"""After so long in opportunistic jobs that found threads asleep one wakes them: where many follow, they stay awake. It
is what waking costs, so a program loses at most half of its time to having waited too long."""

LOST_NS = 1_000_000
"""A worker that has been off its processor for so long during ``WAITS`` waits shares it with other work."""
WAITS = 16
"""How often a worker looks whether it does: a look is two system calls."""
CROWDED_WAITS = 500
"""So many waits are then short: a worker that sleeps now and then is scheduled at once when it is woken."""

_CLOCK_MONOTONIC = 1
"""Linux's number."""


def shared_text(target: Target) -> str:
    """The definitions of ``SYMBOLS`` and what they use."""
    parts = (_work(), _worker(Waiting(target)), _post(), _now(), _parallel(), _take(), _release())
    return "\n\n".join((Waiting(target).text(), "declare i32 @clock_gettime(i32, ptr)", *parts))


def _ticket_of(a: Assembler, seat: str) -> str:
    return a.at("%pool", a.let(f"add i64 {a.let(f'mul i64 {seat}, {SEAT_BYTES}')}, {TICKET}"))


def _work() -> str:
    """Claims and runs chunks of job ``number`` until none is left; returns how many it ran."""
    a = Assembler()
    # Compared in the upper half of the ticket.
    wanted = a.let("zext i32 %number to i64")
    # Relaxed: a wrong value is caught by the ticket, whose number must match.
    threads = a.watch("i64", "%pool", THREADS)
    a.choose(a.let(f"icmp ult i64 %thread, {threads}"), "segment", "done")
    a.block("segment")  # the own one first, then those of the threads after it, around
    k = a.phi("i64", {"entry": "0", "exhausted": "%k.next"})
    before = a.phi("i32", {"entry": "0", "exhausted": "%ran"})
    seat = a.let(f"add i64 %thread, {k}")
    # Around the circle: threads with no own work start at different victims and so collide less.
    past = a.let(f"icmp uge i64 {seat}, {threads}")
    seat = a.let(f"select i1 {past}, i64 {a.let(f'sub i64 {seat}, {threads}')}, i64 {seat}")
    at = _ticket_of(a, seat)
    own = a.let(f"icmp eq i64 {k}, 0")
    # Owners from the front, others from the back: they meet only at the last chunk.
    change = a.let(f"select i1 {own}, i64 {1 << 16}, i64 -1")  # one from the front, or one from the back
    first = a.watch("i64", at, 0, "acquire")
    a.go("look")
    a.block("look")
    ticket = a.phi("i64", {"segment": first, "claim": "%now", "run": "%again"})
    ran = a.phi("i32", {"segment": before, "claim": "%ran", "run": "%ran.more"}, "ran")
    # Another job's number: there is nothing left of the one that was asked for.
    current = a.same(a.let(f"lshr i64 {ticket}, 32"), wanted, "i64")
    front = a.let(f"and i64 {a.let(f'lshr i64 {ticket}, 16')}, {0xFFFF}")
    end = a.let(f"and i64 {ticket}, {0xFFFF}")
    a.choose(a.both(current, a.let(f"icmp ult i64 {front}, {end}")), "claim", "exhausted")
    a.block("claim")
    # The whole word is exchanged, so number, front and end are one decision.
    pair = a.let(f"cmpxchg ptr {at}, i64 {ticket}, i64 {a.let(f'add i64 {ticket}, {change}')} acq_rel acquire")
    a.let(f"extractvalue {{ i64, i1 }} {pair}, 0", "now")
    # Someone else changed the ticket: its new value decides anew.
    a.choose(a.let(f"extractvalue {{ i64, i1 }} {pair}, 1"), "run", "look")
    a.block("run")  # the job's fields are read after the claim, which makes them the right ones
    chunk = a.let(f"select i1 {own}, i64 {front}, i64 {a.let(f'sub i64 {end}, 1')}")
    function, arguments = a.load("ptr", "%pool", FUNCTION), a.load("ptr", "%pool", ARGUMENTS)
    extent, chunks = a.load("i64", "%pool", EXTENT), a.load("i64", "%pool", CHUNKS)
    start, stop = _share(a, chunk, extent, chunks), _share(a, a.let(f"add i64 {chunk}, 1"), extent, chunks)
    a.run(function, f"ptr {arguments}", "i64 %thread", f"i64 {start}", f"i64 {stop}")
    a.let(f"add i32 {ran}, 1", "ran.more")
    # Fresh after the chunk: others will have taken some meanwhile.
    a.let(f"load atomic i64, ptr {at} acquire, align 8", "again")
    a.go("look")
    a.block("exhausted")
    a.choose(a.let(f"icmp ult i64 {a.let(f'add i64 {k}, 1', 'k.next')}, {threads}"), "segment", "done")
    a.block("done")
    a.do(f"ret i32 {a.phi('i32', {'entry': '0', 'exhausted': ran})}")
    return a.text("define internal i32 @tc.work(ptr %pool, i64 %thread, i32 %number) #1")


def _share(a: Assembler, number: str, extent: str, parts: str) -> str:
    """Where part ``number`` of ``parts`` begins, of something ``extent`` long."""
    # Cut so that parts differ by one at most; 64 bits hold extent times parts, as there are at most 2^16 of those.
    return a.let(f"udiv i64 {a.let(f'mul i64 {number}, {extent}')}, {parts}")


def _worker(waiting: Waiting) -> str:
    """The life of worker ``thread``: helps with one job after the other, and sleeps when none comes."""
    a = Assembler()
    seat = _ticket_of(a, "%thread")
    time = a.let("alloca [2 x i64], align 8")
    off_first = a.call("i64", "@tc.off", f"ptr {time}")
    # For whoever wakes this worker: which thread, and on which processor it was.
    a.publish("i32", a.let(f"trunc i64 {waiting.system(a, 'gettid')} to i32"), seat, THREAD_ID)
    a.go("next")
    a.block("next")
    ends = ("again", "look", "crowd")
    waits = a.phi("i32", {"entry": "0"} | dict.fromkeys(ends, "%waits.next"))
    off = a.phi("i64", {"entry": off_first, "again": "%off", "look": "%off.now", "crowd": "%off.now"}, "off")
    number = a.watch("i32", "%pool", NUMBER, "acquire")
    ran = a.call("i32", "@tc.work", "ptr %pool", "i64 %thread", f"i32 {number}")
    # A worker that ran nothing does not touch the count: the caller may have gone on to the next job already.
    with a.when(a.let(f"icmp ne i32 {ran}, 0")):
        finished = a.at("%pool", FINISHED)
        # The release that the caller's acquire meets: what the chunks wrote is seen.
        a.let(f"atomicrmw add ptr {finished}, i32 {ran} seq_cst")
        a.run("@tc.wake", f"ptr {finished}")
    waiting.system(a, "getcpu", f"ptr {a.at(seat, PROCESSOR)}", "ptr null", "ptr null")
    slept = a.call("i1", "@tc.await", "ptr %pool", f"ptr {a.at('%pool', NUMBER)}", f"i32 {number}")
    crowded = a.watch("i32", "%pool", CROWDED)
    some = a.let(f"icmp ne i32 {crowded}, 0")
    a.publish("i32", a.let(f"select i1 {some}, i32 {a.let(f'sub i32 {crowded}, 1')}, i32 0"), "%pool", CROWDED)
    turn = a.let(f"and i32 {a.let(f'add i32 {waits}, 1', 'waits.next')}, {WAITS - 1}")
    # Off its processor without having slept means that other work wants it.
    a.choose(a.either(slept, a.same(turn, "0", "i32")), "look", "again")
    a.block("again")
    a.go("next")
    a.block("look")
    off_now = a.let(f"call i64 @tc.off(ptr {time})", "off.now")
    long = a.let(f"icmp sgt i64 {a.let(f'sub i64 {off_now}, {off}')}, {LOST_NS}")
    a.choose(a.both(long, a.let(f"xor i1 {slept}, true")), "crowd", "next")
    a.block("crowd")
    a.publish("i32", str(CROWDED_WAITS), "%pool", CROWDED)
    a.go("next")
    return a.text(f"define void @{WORKER}(ptr %pool, i64 %thread) #1")


def _post() -> str:
    """Makes a job known; returns its number. Its fields and tickets are written before the number: see above."""
    a = Assembler()
    fields = (("ptr", "%fn", FUNCTION), ("ptr", "%args", ARGUMENTS), ("i64", "%extent", EXTENT))
    for kind, value, field in (*fields, ("i64", "%chunks", CHUNKS)):
        a.store(kind, value, "%pool", field)
    # Before the number is published, so that no worker counts into the old sum.
    a.publish("i32", "0", "%pool", FINISHED)
    number = a.let(f"add i32 {a.watch('i32', '%pool', NUMBER)}, 1")
    high = a.let(f"shl i64 {a.let(f'zext i32 {number} to i64')}, 32")
    a.go("segment")
    a.block("segment")
    seat = a.phi("i64", {"entry": "0", "segment": "%following"})
    following = a.let(f"add i64 {seat}, 1", "following")
    front, end = _share(a, seat, "%chunks", "%threads"), _share(a, following, "%chunks", "%threads")
    low = a.let(f"or i64 {a.let(f'shl i64 {front}, 16')}, {end}")
    a.publish("i64", a.let(f"or i64 {high}, {low}"), _ticket_of(a, seat), 0, "release")
    a.choose(a.let(f"icmp ult i64 {following}, %threads"), "segment", "posted")
    a.block("posted")
    # Where they sleep matters only if somebody does.
    with a.when(a.let(f"icmp ne i32 {a.watch('i32', '%pool', NUMBER + SLEEPERS)}, 0")):
        a.run("@tc.part", "ptr %pool", "i64 %threads")
    # Sequentially consistent, as the sleepers' count is: a worker that goes
    # to sleep now either sees the number or is seen.
    a.publish("i32", number, "%pool", NUMBER, "seq_cst")
    a.run("@tc.wake", f"ptr {a.at('%pool', NUMBER)}")
    a.do(f"ret i32 {number}")
    head = "define internal i32 @tc.post(ptr %pool, ptr %fn, ptr %args, i64 %extent, i64 %threads, i64 %chunks) #1"
    return a.text(head)


def _now() -> str:
    """Nanoseconds of the clock; ``time`` is room for two words."""
    a = Assembler()
    a.call("i32", "@clock_gettime", f"i32 {_CLOCK_MONOTONIC}", "ptr %time")
    seconds, nanoseconds = a.load("i64", "%time"), a.load("i64", "%time", 8)
    whole = a.let(f"mul i64 {seconds}, 1000000000")
    a.do(f"ret i64 {a.let(f'add i64 {whole}, {nanoseconds}')}")
    return a.text("define internal i64 @tc.now(ptr %time) #1")


_EVERYTHING = "ptr %args", "i64 0", "i64 0", "i64 %extent"
"""Arguments of a loop's function for all of its iterations, as thread 0."""


def _parallel() -> str:
    """A parallel loop: ``fn`` over ``extent`` iterations, alone where there is no pool, else shared with workers.

    One that is ``opportunistic`` is not worth waking anybody for: it is shared with workers that are awake.
    """
    a = Assembler()
    time = a.let("alloca [2 x i64], align 8")
    # Without a pool, or called inside of another loop: all of it here.
    a.choose(a.same("%pool", "null"), "whole", "several")
    a.block("whole")
    a.run("%fn", *_EVERYTHING)
    a.do("ret void")
    a.block("several")
    a.choose("%opportunistic", "look", "shared")
    _opportunistic(a, time)
    _shared(a)
    return a.text(f"define void @{PARALLEL}(ptr %pool, ptr %fn, ptr %args, i64 %extent, i1 %opportunistic) #1")


def _opportunistic(a: Assembler, time: str) -> None:
    """From block "look": share with workers that are awake, else run all here and count the time that this took."""
    a.block("look")
    # Nobody sleeps: sharing costs nothing but the chunks.
    a.choose(a.let(f"icmp ne i32 {a.watch('i32', '%pool', NUMBER + SLEEPERS)}, 0"), "timed", "shared")
    a.block("timed")
    passed = a.load("i64", "%pool", PASSED)
    # Enough time has been lost to sleepers: wake them for what follows.
    a.choose(a.let(f"icmp uge i64 {passed}, {PASSED_NS}"), "rouse", "own")
    a.block("rouse")
    a.store("i64", "0", "%pool", PASSED)
    a.go("shared")
    a.block("own")
    start = a.call("i64", "@tc.now", f"ptr {time}")
    a.run("%fn", *_EVERYTHING)
    took = a.let(f"sub i64 {a.call('i64', '@tc.now', f'ptr {time}')}, {start}")
    a.store("i64", a.let(f"add i64 {passed}, {took}"), "%pool", PASSED)
    a.do("ret void")


def _shared(a: Assembler) -> None:
    """Block "shared": post the loop as a job, take part in it, and wait for the chunks that others have claimed."""
    a.block("shared")
    threads = a.load("i64", "%pool", THREADS)
    # Several chunks for each thread, but no fewer than one iteration each.
    wanted = a.let(f"mul i64 {threads}, {CHUNKS_PER_THREAD}")
    few = a.let(f"icmp ule i64 %extent, {a.let(f'mul i64 {wanted}, 2')}")
    chunks = a.let(f"select i1 {few}, i64 %extent, i64 {wanted}")
    job = "ptr %fn", "ptr %args", "i64 %extent", f"i64 {threads}", f"i64 {chunks}"
    number = a.call("i32", "@tc.post", "ptr %pool", *job)
    ran = a.call("i32", "@tc.work", "ptr %pool", "i64 0", f"i32 {number}")
    # The caller waits for chunks that others ran, not for threads: one that never came claimed nothing.
    others = a.let(f"sub i32 {a.let(f'trunc i64 {chunks} to i32')}, {ran}")
    finished = a.at("%pool", FINISHED)
    a.go("check")
    a.block("check")
    done = a.watch("i32", finished, 0, "acquire")
    a.choose(a.same(done, others, "i32"), "finished", "wait")
    a.block("wait")
    a.call("i1", "@tc.await", "ptr %pool", f"ptr {finished}", f"i32 {done}")
    a.go("check")
    a.block("finished")
    a.do("ret void")


def _take() -> str:
    """The pool for a call of ``threads``; null, so that it runs its loops alone, when another call has it."""
    a = Assembler()
    a.need(a.let("icmp sgt i64 %threads, 1"), "alone")
    # Acquire: the fields of the call before are settled.
    pair = a.let(f"cmpxchg ptr {a.at('%pool', TAKEN)}, i32 0, i32 1 acquire monotonic")
    a.need(a.let(f"extractvalue {{ i32, i1 }} {pair}, 1"), "alone")
    a.publish("i64", "%threads", "%pool", THREADS)
    a.do("ret ptr %pool")
    a.block("alone")
    a.do("ret ptr null")
    return a.text(f"define ptr @{TAKE}(ptr %pool, i64 %threads) #1")


def _release() -> str:
    """Gives back what ``tc_take`` gave."""
    a = Assembler()
    with a.when(a.let("icmp ne ptr %pool, null")):
        a.publish("i32", "0", "%pool", TAKEN, "release")
    a.do("ret void")
    return a.text(f"define void @{RELEASE}(ptr %pool) #1")
