"""LLVM text of the code that all programs share: loops split among threads, workers that help, the call from Python.

The calling thread alone runs a program's entry. For a parallel loop it *posts a job*: a function and its iterations
split into chunks, a segment of neighbouring chunks for every thread. A thread *claims* the chunks of its segment from
the front, then chunks of the others' segments from the back. The caller continues until none is left, and then waits
for the chunks that workers have claimed and not finished. A worker that the system does not schedule claims nothing, so
no thread waits for it. A scheduled one finds the part of memory that it had in the previous loop.

The *ticket* of a segment is one 64-bit word: job number (32 bits), first (16) and end (16) of its unclaimed chunks. No
worker ever runs a chunk with another job's data, however late it is:

* A worker reads the number of the job, then claims by compare-and-swap of tickets with that number only. So it claims
  chunks of that job, or none.
* The job's fields and tickets are written before its number (release), which the worker has read (acquire). They are
  written again, for the next job, only when every chunk is claimed and finished. So they are valid whenever a claim
  succeeds. A later read may see another job's fields, but then no ticket has the number.
* A worker that finds no more chunks adds the number it has run to the count of finished ones (release). The caller
  returns when that count and its own add up to all (acquire): it sees all writes. The count is set to zero before the
  job is posted, and only workers with a claim change it.
* Workers whose index is not below the threads of the call do not take part: scratch memory is by index.
* One call has the pool at a time (``taken``); others run their loops alone, with the same results.

``codegen/threads/waiting.py`` implements waiting; workers watch the job number.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.portable_waiting import MONOTONIC, waiting_for
from tracecomp.codegen.threads.waiting import CROWDED, SEAT_BYTES, SEATS, SLEEPERS, Waiting

PARALLEL = "tc_parallel"
PARALLEL_DECLARATION = f"declare void @{PARALLEL}(ptr, ptr, ptr, i64, i1)"
TAKE, RELEASE, WORKER = "tc_take", "tc_release", "tc_worker"
SYMBOLS = (PARALLEL, TAKE, RELEASE, WORKER)

MAX_THREADS = 256
"""Seats in the pool; a job has at most 16 chunks for each, which fit a ticket's 16 bits."""
POOL_BYTES = SEATS + SEAT_BYTES * MAX_THREADS

# The pool, by byte. A word that one thread writes while others read it has a separate cache line.
NUMBER = 0  # of the current job; next word: workers asleep
FINISHED = 64  # chunks that workers have finished; next word: whether the caller sleeps
FUNCTION, ARGUMENTS, EXTENT, CHUNKS, THREADS = 128, 136, 144, 152, 160  # the job
TAKEN = 192  # whether a call has the pool
PASSED = 200  # nanoseconds of opportunistic jobs with sleeping threads
TICKET = SEATS  # of thread 0; each seat begins with the thread's ticket

CHUNKS_PER_THREAD = 8
"""Enough that the others can take over from a thread that comes late, or loses its processor."""

PASSED_NS = 80_000
"""Time in opportunistic jobs with sleeping threads after which a job wakes them: if many follow, they stay awake. It
equals the cost of waking, so a program loses at most half of its time by waiting."""

LOST_NS = 1_000_000
"""Time off its processor during ``WAITS`` waits after which a worker assumes that it shares it with other work."""
WAITS = 16
"""Waits between two of these checks: a check is two system calls."""
CROWDED_WAITS = 500
"""Number of short waits that follow: a worker that sleeps sometimes is scheduled at once when woken."""

_LINUX_MONOTONIC = 1
"""Linux's number of the clock, whatever system the code is made on."""


def shared_text(target: Target) -> str:
    """The definitions of ``SYMBOLS``, with the helpers that they use."""
    waiting, clock = waiting_for(target), _LINUX_MONOTONIC if "linux" in target.triple else MONOTONIC
    parts = (_work(), _worker(waiting), _post(), _now(clock), _parallel(), _take(), _release())
    return "\n\n".join((waiting.text(), "declare i32 @clock_gettime(i32, ptr)", *parts))


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
    a.block("segment")  # the thread's segment first, then those after it, around
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
    # Another job's number: no chunks of the requested job are left.
    current = a.same(a.let(f"lshr i64 {ticket}, 32"), wanted, "i64")
    front = a.let(f"and i64 {a.let(f'lshr i64 {ticket}, 16')}, {0xFFFF}")
    end = a.let(f"and i64 {ticket}, {0xFFFF}")
    a.choose(a.both(current, a.let(f"icmp ult i64 {front}, {end}")), "claim", "exhausted")
    a.block("claim")
    # The whole word is exchanged, so number, front and end are one decision.
    pair = a.let(f"cmpxchg ptr {at}, i64 {ticket}, i64 {a.let(f'add i64 {ticket}, {change}')} acq_rel acquire")
    a.let(f"extractvalue {{ i64, i1 }} {pair}, 0", "now")
    # Another thread changed the ticket: decide again by its new value.
    a.choose(a.let(f"extractvalue {{ i64, i1 }} {pair}, 1"), "run", "look")
    a.block("run")  # read after the claim, which makes the job's fields valid
    chunk = a.let(f"select i1 {own}, i64 {front}, i64 {a.let(f'sub i64 {end}, 1')}")
    function, arguments = a.load("ptr", "%pool", FUNCTION), a.load("ptr", "%pool", ARGUMENTS)
    extent, chunks = a.load("i64", "%pool", EXTENT), a.load("i64", "%pool", CHUNKS)
    start, stop = _share(a, chunk, extent, chunks), _share(a, a.let(f"add i64 {chunk}, 1"), extent, chunks)
    a.run(function, f"ptr {arguments}", "i64 %thread", f"i64 {start}", f"i64 {stop}")
    a.let(f"add i32 {ran}, 1", "ran.more")
    # Fresh after the chunk: others have probably taken some.
    a.let(f"load atomic i64, ptr {at} acquire, align 8", "again")
    a.go("look")
    a.block("exhausted")
    a.choose(a.let(f"icmp ult i64 {a.let(f'add i64 {k}, 1', 'k.next')}, {threads}"), "segment", "done")
    a.block("done")
    a.do(f"ret i32 {a.phi('i32', {'entry': '0', 'exhausted': ran})}")
    return a.text("define internal i32 @tc.work(ptr %pool, i64 %thread, i32 %number) #1")


def _share(a: Assembler, number: str, extent: str, parts: str) -> str:
    """The start of part ``number`` of ``parts``, of an extent ``extent``."""
    # Split so that parts differ by at most one; 64 bits hold extent times parts, as there are at most 2^16 of those.
    return a.let(f"udiv i64 {a.let(f'mul i64 {number}, {extent}')}, {parts}")


def _worker(waiting: Waiting) -> str:
    """The main loop of worker ``thread``: help with one job after the other, and sleep if none comes."""
    a = Assembler()
    seat = _ticket_of(a, "%thread")
    time = a.let("alloca [2 x i64], align 8")
    off_first = a.call("i64", "@tc.off", f"ptr {time}")
    # For the thread that wakes this worker: its id, and its last processor.
    waiting.record_thread(a, seat)
    a.go("next")
    a.block("next")
    ends = ("again", "look", "crowd")
    waits = a.phi("i32", {"entry": "0"} | dict.fromkeys(ends, "%waits.next"))
    off = a.phi("i64", {"entry": off_first, "again": "%off", "look": "%off.now", "crowd": "%off.now"}, "off")
    number = a.watch("i32", "%pool", NUMBER, "acquire")
    ran = a.call("i32", "@tc.work", "ptr %pool", "i64 %thread", f"i32 {number}")
    # A worker that ran nothing does not touch the count: the caller may have started the next job.
    with a.when(a.let(f"icmp ne i32 {ran}, 0")):
        finished = a.at("%pool", FINISHED)
        # The release that pairs with the caller's acquire: makes the chunks' writes visible.
        a.let(f"atomicrmw add ptr {finished}, i32 {ran} seq_cst")
        a.run("@tc.wake", f"ptr {finished}")
    waiting.record_processor(a, seat)
    slept = a.call("i1", "@tc.await", "ptr %pool", f"ptr {a.at('%pool', NUMBER)}", f"i32 {number}")
    crowded = a.watch("i32", "%pool", CROWDED)
    some = a.let(f"icmp ne i32 {crowded}, 0")
    a.publish("i32", a.let(f"select i1 {some}, i32 {a.let(f'sub i32 {crowded}, 1')}, i32 0"), "%pool", CROWDED)
    turn = a.let(f"and i32 {a.let(f'add i32 {waits}, 1', 'waits.next')}, {WAITS - 1}")
    # Off its processor without having slept: other work wants it.
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
    """Publish a job; return its number. Its fields and tickets are written before the number: see above."""
    a = Assembler()
    fields = (("ptr", "%fn", FUNCTION), ("ptr", "%args", ARGUMENTS), ("i64", "%extent", EXTENT))
    for kind, value, field in (*fields, ("i64", "%chunks", CHUNKS)):
        a.store(kind, value, "%pool", field)
    # Before the number is published, so that no worker adds to the old sum.
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
    # The place where they sleep matters only if there are sleepers.
    with a.when(a.let(f"icmp ne i32 {a.watch('i32', '%pool', NUMBER + SLEEPERS)}, 0")):
        a.run("@tc.part", "ptr %pool", "i64 %threads")
    # Sequentially consistent, as the sleepers' count is: a worker that starts to sleep now either sees the number or is
    # counted.
    a.publish("i32", number, "%pool", NUMBER, "seq_cst")
    a.run("@tc.wake", f"ptr {a.at('%pool', NUMBER)}")
    a.do(f"ret i32 {number}")
    head = "define internal i32 @tc.post(ptr %pool, ptr %fn, ptr %args, i64 %extent, i64 %threads, i64 %chunks) #1"
    return a.text(head)


def _now(clock: int) -> str:
    """Nanoseconds of the clock; ``time`` is room for two words."""
    a = Assembler()
    a.call("i32", "@clock_gettime", f"i32 {clock}", "ptr %time")
    seconds, nanoseconds = a.load("i64", "%time"), a.load("i64", "%time", 8)
    whole = a.let(f"mul i64 {seconds}, 1000000000")
    a.do(f"ret i64 {a.let(f'add i64 {whole}, {nanoseconds}')}")
    return a.text("define internal i64 @tc.now(ptr %time) #1")


_EVERYTHING = "ptr %args", "i64 0", "i64 0", "i64 %extent"
"""Arguments of a loop's function for all of its iterations, as thread 0."""


def _parallel() -> str:
    """A parallel loop: ``fn`` over ``extent`` iterations, alone if there is no pool, else shared with workers.

    An ``opportunistic`` loop does not justify waking workers: it is shared with those that are awake.
    """
    a = Assembler()
    time = a.let("alloca [2 x i64], align 8")
    # Without a pool, or called inside another loop: all of it here.
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
    """From block "look": share with workers that are awake, else run all here and count the time."""
    a.block("look")
    # No sleepers: sharing costs nothing but the chunks.
    a.choose(a.let(f"icmp ne i32 {a.watch('i32', '%pool', NUMBER + SLEEPERS)}, 0"), "timed", "shared")
    a.block("timed")
    passed = a.load("i64", "%pool", PASSED)
    # Enough time has been lost to sleepers: wake them for the next loops.
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
    # The caller waits for chunks that others ran, not for threads: a late thread has claimed nothing.
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
    # Acquire: the previous call's fields are visible.
    pair = a.let(f"cmpxchg ptr {a.at('%pool', TAKEN)}, i32 0, i32 1 acquire monotonic")
    a.need(a.let(f"extractvalue {{ i32, i1 }} {pair}, 1"), "alone")
    a.publish("i64", "%threads", "%pool", THREADS)
    a.do("ret ptr %pool")
    a.block("alone")
    a.do("ret ptr null")
    return a.text(f"define ptr @{TAKE}(ptr %pool, i64 %threads) #1")


def _release() -> str:
    """Release the pool that ``tc_take`` returned."""
    a = Assembler()
    with a.when(a.let("icmp ne ptr %pool, null")):
        a.publish("i32", "0", "%pool", TAKEN, "release")
    a.do("ret void")
    return a.text(f"define void @{RELEASE}(ptr %pool) #1")
