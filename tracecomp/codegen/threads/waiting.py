"""LLVM text of how threads wait for a word of memory to change, and of how those that sleep are woken.

Waiting spins for a bounded time, a short one while other work wants the processors, then sleeps in the kernel
(futex). A sleeper counts itself in the word behind the one it watches, then looks again; who changes the word looks
for sleepers afterwards (all sequentially consistent), so a wake cannot be missed and costs a system call only when
somebody sleeps.

A system that wakes a thread where it slept may leave it waiting there behind the caller while another processor is
idle. So workers note their processor before they wait, and who wakes them first forbids a worker that would meet the
caller, or another worker, the processors that are taken.
"""

from __future__ import annotations

from tracecomp.codegen.text.target import Target

_SPINS = 8000
"""Looks at a word before a wait sleeps: 0.2 ms."""
_FEW_SPINS = 500
_LOST_NS = 1_000_000
"""A worker that has been off its processor for so long during 16 waits without sleep shares it with other work."""
_CROWDED_WAITS = 500
"""So many waits are then short: a worker that sleeps now and then is scheduled at once when it is woken."""
_SYSTEM_CALLS = {
    "x86_64": {"FUTEX": 202, "GETTID": 186, "GETCPU": 309, "SETAFFINITY": 203, "GETAFFINITY": 204, "CLOCK": 228},
    "aarch64": {"FUTEX": 98, "GETTID": 178, "GETCPU": 168, "SETAFFINITY": 122, "GETAFFINITY": 123, "CLOCK": 113},
}
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_PAUSE_DECLARED = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}

TEXT = """
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

define internal i1 @tc.await(ptr %pool, ptr %word, i32 %old) #1 {
entry:
  %p.crowded = getelementptr i8, ptr %pool, i64 208
  %crowded = load atomic i32, ptr %p.crowded monotonic, align 4
  %hurry = icmp ne i32 %crowded, 0
  %spins = select i1 %hurry, i32 FEW, i32 SPINS
  br label %spin
spin:
  %i = phi i32 [ 0, %entry ], [ %j, %again ]
  %v = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %v, %old
  br i1 %changed, label %done, label %again
again:
  call void PAUSE
  %j = add i32 %i, 1
  %more = icmp ult i32 %j, %spins
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
  %slept = phi i1 [ false, %spin ], [ true, %woken ]
  ret i1 %slept
}

define internal i64 @tc.off(ptr %time) #1 {
  %p.ns = getelementptr i8, ptr %time, i64 8
  %a = call i64 (i64, ...) @syscall(i64 CLOCK, i64 1, ptr %time)
  %s.wall = load i64, ptr %time, align 8
  %n.wall = load i64, ptr %p.ns, align 8
  %b = call i64 (i64, ...) @syscall(i64 CLOCK, i64 3, ptr %time)
  %s.own = load i64, ptr %time, align 8
  %n.own = load i64, ptr %p.ns, align 8
  %s = sub i64 %s.wall, %s.own
  %n = sub i64 %n.wall, %n.own
  %whole = mul i64 %s, 1000000000
  %off = add i64 %whole, %n
  ret i64 %off
}

define internal void @tc.part(ptr %pool, i64 %threads) #1 {
entry:
  %p.cpu = alloca i32, align 4
  %taken = alloca [16 x i64], align 8
  %mask = alloca [16 x i64], align 8
  store [16 x i64] zeroinitializer, ptr %taken, align 8
  %g = call i64 (i64, ...) @syscall(i64 GETCPU, ptr %p.cpu, ptr null, ptr null)
  %here = load i32, ptr %p.cpu, align 4
  %known = icmp ult i32 %here, 1024
  br i1 %known, label %first, label %done
first:
  call void @tc.mark(ptr %taken, i32 %here)
  br label %worker
worker:
  %n = phi i64 [ 1, %first ], [ %n.next, %following ]
  %more = icmp ult i64 %n, %threads
  br i1 %more, label %look, label %done
look:
  %line = shl i64 %n, 6
  %offset = add i64 %line, 264
  %p.tid = getelementptr i8, ptr %pool, i64 %offset
  %p.there = getelementptr i8, ptr %p.tid, i64 4
  %tid = load atomic i32, ptr %p.tid monotonic, align 4
  %there = load atomic i32, ptr %p.there monotonic, align 4
  %is = icmp ne i32 %tid, 0
  %valid = icmp ult i32 %there, 1024
  %usable = and i1 %is, %valid
  br i1 %usable, label %test, label %following
test:
  %word = lshr i32 %there, 6
  %bit = and i32 %there, 63
  %p.word = getelementptr i64, ptr %taken, i32 %word
  %bits = load i64, ptr %p.word, align 8
  %wide = zext i32 %bit to i64
  %shifted = lshr i64 %bits, %wide
  %meets = trunc i64 %shifted to i1
  br i1 %meets, label %send, label %stays
stays:
  call void @tc.mark(ptr %taken, i32 %there)
  br label %following
send:
  store [16 x i64] zeroinitializer, ptr %mask, align 8
  %a = call i64 (i64, ...) @syscall(i64 GETAFFINITY, i64 0, i64 128, ptr %mask)
  br label %clear
clear:
  %i = phi i64 [ 0, %send ], [ %i.next, %clear ]
  %p.allowed = getelementptr i64, ptr %mask, i64 %i
  %p.used = getelementptr i64, ptr %taken, i64 %i
  %allowed = load i64, ptr %p.allowed, align 8
  %used = load i64, ptr %p.used, align 8
  %free = xor i64 %used, -1
  %left = and i64 %allowed, %free
  store i64 %left, ptr %p.allowed, align 8
  %i.next = add i64 %i, 1
  %again = icmp ult i64 %i.next, 16
  br i1 %again, label %clear, label %move
move:
  %tid.wide = zext i32 %tid to i64
  %s = call i64 (i64, ...) @syscall(i64 SETAFFINITY, i64 %tid.wide, i64 128, ptr %mask)
  br label %following
following:
  %n.next = add i64 %n, 1
  br label %worker
done:
  ret void
}

define internal void @tc.mark(ptr %set, i32 %cpu) #1 {
  %word = lshr i32 %cpu, 6
  %bit = and i32 %cpu, 63
  %p.word = getelementptr i64, ptr %set, i32 %word
  %old = load i64, ptr %p.word, align 8
  %wide = zext i32 %bit to i64
  %one = shl i64 1, %wide
  %new = or i64 %old, %one
  store i64 %new, ptr %p.word, align 8
  ret void
}
"""


def words(target: Target) -> dict[str, object]:
    """What names in the text stand for on a target."""
    arch = target.triple.split("-", 1)[0]
    spins = {"SPINS": _SPINS, "FEW": _FEW_SPINS, "LOST": _LOST_NS, "CROWDED": _CROWDED_WAITS}
    return {**_SYSTEM_CALLS[arch], "PAUSE": _PAUSE[arch], **spins}


def declarations(target: Target) -> str:
    """What the text calls."""
    return _PAUSE_DECLARED[target.triple.split("-", 1)[0]]
