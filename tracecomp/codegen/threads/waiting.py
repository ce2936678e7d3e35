"""LLVM text of waiting for a word of memory to change, and of waking sleepers.

Waiting spins for a bounded time, a short one while other work wants the processors, then sleeps in the kernel: with
Linux's futex, or with what another system has (``portable_waiting.py``).
A sleeper increments the count after the watched word, then checks the word again. A writer checks for sleepers after
its write. All accesses are sequentially consistent, so a wake-up cannot be missed, and costs a system call only if a
thread sleeps.

A system that wakes a thread on its old processor may leave it waiting there behind the caller while another processor
is idle. Workers therefore record their processor before they wait. The waking thread first excludes the occupied
processors for a worker that would collide with the caller, or with another worker.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.target import Target

SLEEPERS = 4
"""Offset of the count of sleepers from a watched word."""

CROWDED = 208
"""In the pool: the number of further short waits, as other work wants the processors."""

SEATS, SEAT_BYTES = 256, 64
"""In the pool: a cache line for each thread, which holds its ticket and then the two words below."""
THREAD_ID, PROCESSOR = 8, 12
"""Bytes into a thread's seat."""

SPINS = 8000
"""Checks of a word before a wait sleeps: 0.2 ms, some twenty times the cost of waking a sleeper."""
FEW_SPINS = 500
"""The same while other work wants the processors: 13 us, about the cost of waking a sleeper. 13 us, about what waking a
sleeper costs."""
PROCESSORS = 1024
"""Number of processors that are distinguished: a set of them is 16 words."""

_FUTEX_WAIT, _FUTEX_WAKE, _EVERYBODY = 128, 129, 2**31 - 1  # both private to the process
_MONOTONIC_CLOCK, _THREAD_CLOCK = 1, 3  # Linux's numbers
_SYSTEM_CALLS = {
    "x86_64": {
        "futex": 202, "gettid": 186, "getcpu": 309, "setaffinity": 203, "getaffinity": 204, "clock_gettime": 228,
        "getpid": 39,
    },
    "aarch64": {
        "futex": 98, "gettid": 178, "getcpu": 168, "setaffinity": 122, "getaffinity": 123, "clock_gettime": 113,
        "getpid": 172,
    },
}  # fmt: skip
PART_HEAD = "define internal void @tc.part(ptr %pool, i64 %threads) #1"
_PAUSE = {"x86_64": ("@llvm.x86.sse2.pause", ""), "aarch64": ("@llvm.aarch64.hint", "i32 1")}


class Waiting:
    """Emit the functions for one target that runs Linux."""

    def __init__(self, target: Target) -> None:
        arch = target.triple.split("-", 1)[0]
        self.arch = {"arm64": "aarch64"}.get(arch, arch)

    def text(self) -> str:
        """All of them, with their declarations."""
        name, operand = _PAUSE[self.arch]
        declared = f"{self._declared()}\ndeclare void {name}({operand.split(' ')[0]})"
        return "\n\n".join((declared, self._wake(), self._await(), self._off(), self._part()))

    def _declared(self) -> str:
        return "declare i64 @syscall(i64, ...)"

    def _system(self, a: Assembler, call: str, *operands: str) -> str:
        """The result of a system call."""
        given = ", ".join((f"i64 {_SYSTEM_CALLS[self.arch][call]}", *operands))
        return a.let(f"call i64 (i64, ...) @syscall({given})")

    def _sleep_while(self, a: Assembler, word: str, old: str) -> None:
        """Sleep until another thread wakes ``word``, or for a while, unless it differs from ``old``."""
        self._system(a, "futex", f"ptr {word}", f"i64 {_FUTEX_WAIT}", f"i32 {old}", "ptr null", "ptr null", "i64 0")

    def _wake_all(self, a: Assembler, word: str) -> None:
        how = f"i64 {_FUTEX_WAKE}", f"i64 {_EVERYBODY}", "ptr null", "ptr null", "i64 0"
        self._system(a, "futex", f"ptr {word}", *how)

    def _read_clock(self, a: Assembler, own: bool, time: str) -> None:
        """Store the time in two words: wall time, or this thread's ``own`` processor time."""
        self._system(a, "clock_gettime", f"i64 {_THREAD_CLOCK if own else _MONOTONIC_CLOCK}", f"ptr {time}")

    def record_thread(self, a: Assembler, seat: str) -> None:
        """Store which thread a worker is, for the thread that wakes it."""
        a.publish("i32", a.let(f"trunc i64 {self._system(a, 'gettid')} to i32"), seat, THREAD_ID)

    def record_processor(self, a: Assembler, seat: str) -> None:
        """Store the processor that a worker runs on before it waits."""
        self._system(a, "getcpu", f"ptr {a.at(seat, PROCESSOR)}", "ptr null", "ptr null")

    def is_main_thread(self, a: Assembler) -> str:
        """Whether this thread may handle Python's signals: the main thread of a process has the process's number."""
        return a.same(self._system(a, "gettid"), self._system(a, "getpid"), "i64")

    def _wake(self) -> str:
        a = Assembler()
        sleepers = a.watch("i32", "%word", SLEEPERS, "seq_cst")
        with a.when(a.let(f"icmp ne i32 {sleepers}, 0")):
            self._wake_all(a, "%word")
        a.do("ret void")
        return a.text("define internal void @tc.wake(ptr %word) #1")

    def _await(self) -> str:
        """Return when the word differs from ``old``, and whether it slept."""
        a = Assembler()
        # Crowded: others want the processors, so spinning steals time from them.
        hurry = a.let(f"icmp ne i32 {a.watch('i32', '%pool', CROWDED)}, 0")
        spins = a.let(f"select i1 {hurry}, i32 {FEW_SPINS}, i32 {SPINS}")
        a.go("spin")
        a.block("spin")
        turn = a.phi("i32", {"entry": "0", "again": "%turn.next"})
        changed = a.let(f"icmp ne i32 {a.watch('i32', '%word', 0, 'acquire')}, %old")
        a.choose(changed, "done", "again")
        a.block("again")
        name, operand = _PAUSE[self.arch]
        a.run(name, *filter(None, [operand]))
        following = a.let(f"add i32 {turn}, 1", "turn.next")
        a.choose(a.let(f"icmp ult i32 {following}, {spins}"), "spin", "sleep")
        a.block("sleep")
        sleepers = a.at("%word", SLEEPERS)
        # Counted before the last check: a later writer sees the count and wakes this thread.
        a.let(f"atomicrmw add ptr {sleepers}, i32 1 seq_cst")
        a.go("look")
        a.block("look")  # again, now that it is counted: later writers wake it
        # The kernel compares with ``old`` again when it puts the thread to sleep, so a change in between is not missed.
        still = a.let(f"icmp eq i32 {a.watch('i32', '%word', 0, 'seq_cst')}, %old")
        a.choose(still, "block", "woken")
        a.block("block")
        self._sleep_while(a, "%word", "%old")
        a.go("look")
        a.block("woken")
        a.let(f"atomicrmw sub ptr {sleepers}, i32 1 seq_cst")
        a.go("done")
        a.block("done")
        slept = a.phi("i1", {"spin": "false", "woken": "true"})
        a.do(f"ret i1 {slept}")
        return a.text("define internal i1 @tc.await(ptr %pool, ptr %word, i32 %old) #1")

    def _off(self) -> str:
        """Nanoseconds for which this thread has been off its processor; ``time`` is room for two words."""
        a = Assembler()

        def read(own: bool) -> tuple[str, str]:
            self._read_clock(a, own, "%time")
            return a.load("i64", "%time"), a.load("i64", "%time", 8)

        (wall, wall_ns), (own, own_ns) = read(False), read(True)
        # Wall time minus the thread's processor time: time without a processor, or asleep.
        seconds, nanoseconds = a.let(f"sub i64 {wall}, {own}"), a.let(f"sub i64 {wall_ns}, {own_ns}")
        whole = a.let(f"mul i64 {seconds}, 1000000000")
        a.do(f"ret i64 {a.let(f'add i64 {whole}, {nanoseconds}')}")
        return a.text("define internal i64 @tc.off(ptr %time) #1")

    def _part(self) -> str:
        """Exclude the occupied processors for workers that would collide with the caller, or with each other."""
        a = Assembler()
        words = PROCESSORS // 64
        processor, taken = a.let("alloca i32, align 4"), a.let(f"alloca [{words} x i64], align 8")
        mask = a.let(f"alloca [{words} x i64], align 8")
        # The caller's processor is occupied first.
        a.do(f"store [{words} x i64] zeroinitializer, ptr {taken}, align 8")
        self._system(a, "getcpu", f"ptr {processor}", "ptr null", "ptr null")
        here = a.let(f"load i32, ptr {processor}, align 4")
        a.choose(a.let(f"icmp ult i32 {here}, {PROCESSORS}"), "first", "done")
        a.block("first")
        a.run("@tc.mark", f"ptr {taken}", f"i32 {here}")
        a.go("worker")
        a.block("worker")
        number = a.phi("i64", {"first": "1", "following": "%number.next"})
        a.choose(a.let(f"icmp ult i64 {number}, %threads"), "look", "done")
        a.block("look")
        seat = a.at("%pool", a.let(f"add i64 {a.let(f'mul i64 {number}, {SEAT_BYTES}')}, {SEATS}"))
        thread, there = a.watch("i32", seat, THREAD_ID), a.watch("i32", seat, PROCESSOR)
        # Zero: the worker has not started yet.
        known = a.both(a.let(f"icmp ne i32 {thread}, 0"), a.let(f"icmp ult i32 {there}, {PROCESSORS}"))
        a.choose(known, "test", "following")
        a.block("test")
        word = a.let(f"getelementptr i64, ptr {taken}, i32 {a.let(f'lshr i32 {there}, 6')}")
        place = a.let(f"and i32 {there}, 63")
        shifted = a.let(f"lshr i64 {a.load('i64', word)}, {a.let(f'zext i32 {place} to i64')}")
        a.choose(a.let(f"trunc i64 {shifted} to i1"), "send", "stays")
        a.block("stays")
        a.run("@tc.mark", f"ptr {taken}", f"i32 {there}")
        a.go("following")
        self._send(a, thread, taken, mask)
        a.block("following")
        a.let(f"add i64 {number}, 1", "number.next")
        a.go("worker")
        a.block("done")
        a.do("ret void")
        return f"{a.text(PART_HEAD)}\n\n{self._mark()}"

    def _send(self, a: Assembler, thread: str, taken: str, mask: str) -> None:
        """Block "send": allow ``thread`` the processors of this process minus those ``taken``; ``mask`` is scratch
        memory."""
        words = PROCESSORS // 64
        a.block("send")
        a.do(f"store [{words} x i64] zeroinitializer, ptr {mask}, align 8")
        # The processors that this thread, and so its process, may use.
        self._system(a, "getaffinity", "i64 0", f"i64 {8 * words}", f"ptr {mask}")
        a.go("clear")
        a.block("clear")
        k = a.phi("i64", {"send": "0", "clear": "%k.next"})
        allowed = a.let(f"getelementptr i64, ptr {mask}, i64 {k}")
        free = a.let(f"xor i64 {a.load('i64', a.let(f'getelementptr i64, ptr {taken}, i64 {k}'))}, -1")
        # Minus the occupied ones.
        a.store("i64", a.let(f"and i64 {a.load('i64', allowed)}, {free}"), allowed)
        a.choose(a.let(f"icmp ult i64 {a.let(f'add i64 {k}, 1', 'k.next')}, {words}"), "clear", "move")
        a.block("move")
        # The kernel moves a thread at once when its processor is forbidden.
        self._system(a, "setaffinity", f"i64 {a.let(f'zext i32 {thread} to i64')}", f"i64 {8 * words}", f"ptr {mask}")
        a.go("following")

    def _mark(self) -> str:
        """Adds a processor to a set."""
        a = Assembler()
        word = a.let(f"getelementptr i64, ptr %set, i32 {a.let('lshr i32 %cpu, 6')}")
        place = a.let("and i32 %cpu, 63")
        bit = a.let(f"shl i64 1, {a.let(f'zext i32 {place} to i64')}")
        a.store("i64", a.let(f"or i64 {a.load('i64', word)}, {bit}"), word)
        a.do("ret void")
        return a.text("define internal void @tc.mark(ptr %set, i32 %cpu) #1")
