"""LLVM text of ``tc_pause``, through which loops over steps of a program let Python handle signals.

A loop counts its iterations down and calls ``tc_pause`` at zero. The function reads the clock and sets the next count,
so that it is called about once a millisecond. Every ``SIGNALS_NS`` it takes the interpreter lock and runs the handlers
of the signals that have arrived. If one of them raises, the loop and the program end, and the exception is set: callers
of an entry look for it when the entry reports a failure.

Python runs handlers in the main thread only, so loops of other threads never take the lock.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.portable_waiting import waiting_for

PAUSE = "tc_pause"
DECLARATION = f"declare i1 @{PAUSE}(ptr, ptr)"
HOOK = "tc_on_pause"
"""A word with the address of a Python function that is called after each check of signals, or 0: it handles signals
that a block has deferred (``base.interrupts``)."""
SYMBOLS = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyObject_CallNoArgs", "Py_DecRef")
"""Functions of Python that the text calls."""

LEFT, PERIOD, CHECKED, LAST = 0, 8, 16, 24
"""Bytes of the words of a call's record: iterations left, iterations between two pauses, and the times of the last
check of signals and of the last pause, which are 0 at first."""
WORDS = 4
"""Number of these words."""

SHORT_NS, LONG_NS = 1_000_000, 10_000_000
"""Time between two pauses below which the period is doubled, and above which it is divided by eight."""
MOST = 1024
"""The greatest period. Reading the clock takes 25 ns, so even empty iterations are hardly slower."""
SIGNALS_NS = 50_000_000
"""Time between two checks of signals. A busy Python thread keeps the interpreter lock for up to 5 ms."""
FIRST = 128
"""The first period of loops whose kernels are all too short for several threads; other loops begin with 1."""

_DECLARATIONS = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
"""
_HOOK_DECLARATIONS = f"""
@{HOOK} = global ptr null, align 8
declare ptr @PyObject_CallNoArgs(ptr)
declare void @Py_DecRef(ptr)
"""


def pause_text(target: Target, hook: bool) -> str:
    """The definition, with or without the hook; ``tc.now`` is in the same module (``threads.sync``)."""
    a, waiting = Assembler(), waiting_for(target)
    now = a.call("i64", "@tc.now", f"ptr {a.let('alloca [2 x i64], align 8')}")
    last, period = a.load("i64", "%pause", LAST), a.load("i64", "%pause", PERIOD)
    a.store("i64", now, "%pause", LAST)
    a.choose(a.same(last, "0", "i64"), "begin", "known")
    a.block("begin")
    a.store("i64", now, "%pause", CHECKED)
    a.go("resume")
    a.block("known")
    elapsed = a.let(f"sub i64 {now}, {last}")
    doubled = a.call("i64", "@llvm.umin.i64", f"i64 {a.let(f'shl i64 {period}, 1')}", f"i64 {MOST}")
    divided = a.call("i64", "@llvm.umax.i64", f"i64 {a.let(f'lshr i64 {period}, 3')}", "i64 1")
    short, long = (
        a.let(f"icmp {test}") for test in (f"ult i64 {elapsed}, {SHORT_NS}", f"ugt i64 {elapsed}, {LONG_NS}")
    )
    longer = a.let(f"select i1 {long}, i64 {divided}, i64 {period}")
    a.let(f"select i1 {short}, i64 {doubled}, i64 {longer}", "adapted")
    since = a.let(f"sub i64 {now}, {a.load('i64', '%pause', CHECKED)}")
    a.choose(a.let(f"icmp uge i64 {since}, {SIGNALS_NS}"), "look", "resume")
    a.block("look")
    a.store("i64", now, "%pause", CHECKED)
    a.choose(waiting.is_main_thread(a), "main", "resume")
    a.block("main")
    state = a.call("i32", "@PyGILState_Ensure")
    raised = a.call("i32", "@PyErr_CheckSignals")
    if hook:
        raised = _call_hook(a, raised)
    a.run("@PyGILState_Release", f"i32 {state}")
    a.choose(a.same(raised, "0", "i32"), "resume", "stop")
    last_block = a.current
    a.block("stop")
    a.publish("i64", "1", "%failed")
    a.do("ret i1 true")
    a.block("resume")
    sources = {"begin": period, "known": "%adapted", "look": "%adapted", last_block: "%adapted"}
    following = a.phi("i64", sources)
    for word in (PERIOD, LEFT):
        a.store("i64", following, "%pause", word)
    a.do("ret i1 false")
    declared = "declare i64 @llvm.umin.i64(i64, i64)\ndeclare i64 @llvm.umax.i64(i64, i64)\n"
    declared += _HOOK_DECLARATIONS if hook else ""
    return _DECLARATIONS + declared + a.text(f"define i1 @{PAUSE}(ptr %pause, ptr %failed) #1")


def _call_hook(a: Assembler, raised: str) -> str:
    """Call the hook unless a handler has ``raised``; return whether an exception is set."""
    a.choose(a.same(raised, "0", "i32"), "handled", "checked")
    a.block("handled")
    hook = a.load("ptr", f"@{HOOK}")
    a.choose(a.same(hook, "null"), "checked", "call")
    a.block("call")
    result = a.call("ptr", "@PyObject_CallNoArgs", f"ptr {hook}")
    a.choose(a.same(result, "null"), "checked", "release")
    a.block("release")
    a.run("@Py_DecRef", f"ptr {result}")
    a.go("checked")
    a.block("checked")
    return a.phi("i32", {"main": raised, "handled": "0", "call": "1", "release": "0"})
