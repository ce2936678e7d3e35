"""Every setting of tracecomp: one typed record, its environment variables, and a scoped override.

``current()`` has the current values; ``with override(verify=True): ...`` changes it for the block (and for this thread
only). Settings marked ``code`` change compiled code, so they belong to the key of every compiled object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tracecomp.base.locks import Lock
from tracecomp.base.topics import topics
from tracecomp_runtime import processor


def _knob(default: object, env: str, parse: Callable[[str], object], doc: str, code: bool = False) -> Any:
    return field(default=default, metadata={"env": env, "parse": parse, "doc": doc, "code": code})


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("expected 0 or 1")


_EVERY = 100
"""Calls between two comparisons, if the variable does not say."""


def _accesses(text: str) -> bool:
    return False if text.startswith("calls") else _flag(text)


def _calls(text: str) -> int | None:
    if not text.startswith("calls"):
        return None
    count = text.removeprefix("calls") or f":{_EVERY}"
    if not count.startswith(":") or not count[1:].isdecimal() or int(count[1:]) < 1:
        raise ValueError("expected calls, or calls: with a positive number")
    return int(count[1:])


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _eager(text: str) -> str:
    if text not in ("native", "numpy"):
        raise ValueError("expected native or numpy")
    return text


def _cpu(text: str) -> str:
    if text and text not in processor.LEVELS:
        raise ValueError(f"expected one of {', '.join(processor.LEVELS)}")
    return text


@dataclass(frozen=True, slots=True)
class Settings:
    """One value per setting; ``describe()`` prints them all."""

    dump: str = _knob("", "TRACECOMP_DUMP", str, "Folder that receives every stage of every compiled graph as text.")
    verify: bool = _knob(False, "TRACECOMP_VERIFY", _flag, "Verify the graph after every pass.")
    skip_passes: tuple[str, ...] = _knob(
        (), "TRACECOMP_SKIP", _names, "Comma-separated names of passes to skip.", code=True
    )
    stop_after: int | None = _knob(
        None, "TRACECOMP_STOP_AFTER", int, "Run only this many steps, and all required ones.", code=True
    )
    fusion: bool = _knob(True, "TRACECOMP_FUSION", _flag, "Let several nodes share a kernel.", code=True)
    fast_math: bool = _knob(
        False, "TRACECOMP_FAST_MATH", _flag, "Arithmetic may be fused and regrouped: see docs/numerics.md.", code=True
    )
    check: bool = _knob(
        False,
        "TRACECOMP_CHECK",
        _accesses,
        "Check every access and result of compiled programs: docs/testing.md.",
        code=True,
    )
    check_calls: int | None = _knob(
        None,
        "TRACECOMP_CHECK",
        _calls,
        "With calls:100, compare every 100th call of compiled functions with an eager one: docs/wrong-results.md.",
    )
    num_threads: int | None = _knob(
        None, "TRACECOMP_NUM_THREADS", int, "Threads of compiled programs; by default the cores this process may use."
    )
    eager: str = _knob(
        "native", "TRACECOMP_EAGER", _eager, "Implementation of eager operators: native (with numpy), or numpy alone."
    )
    cpu: str = _knob(
        "", "TRACECOMP_CPU", _cpu, "Highest level of x86-64 that code may use, e.g. x86-64-v3; read at start."
    )
    wait: bool = _knob(
        False, "TRACECOMP_WAIT", _flag, "Calls wait for the compiler; by default they run eagerly meanwhile."
    )
    jit: bool = _knob(
        False, "TRACECOMP_JIT", _flag, "Modules whose calls repeat compile themselves: docs/eager.md. Read at start."
    )
    log: tuple[str, ...] = _knob((), "TRACECOMP_LOG", topics, "Comma-separated topics to log to standard error.")
    jitdump: str = _knob(
        "", "TRACECOMP_JITDUMP", str, "Folder for the jitdump file, from which perf reads kernels and lines."
    )
    cache_dir: str = _knob("", "TRACECOMP_CACHE_DIR", str, "Folder of compiled objects; default ~/.cache/tracecomp.")


def from_environment(environ: Mapping[str, str]) -> Settings:
    """The settings in ``environ``; ValueError names an invalid variable."""
    found: dict[str, Any] = {}
    for knob in fields(Settings):
        text = environ.get(knob.metadata["env"])
        if text is not None:
            try:
                found[knob.name] = knob.metadata["parse"](text)
            except ValueError as error:
                raise ValueError(f"environment variable {knob.metadata['env']}={text!r}: {error}") from None
    return Settings(**found)


_process = from_environment(os.environ)
_override: ContextVar[Settings | None] = ContextVar("tracecomp_settings", default=None)
_counting = Lock()
thread_overrides = 0
"""Number of running blocks, in any thread, that override the number of threads."""


def current() -> Settings:
    """The current settings of this thread."""
    return _override.get() or _process


@contextmanager
def override(**changes: Any) -> Iterator[Settings]:
    """Apply ``changes`` to ``current()`` while the block runs; TypeError for an unknown name and for ``cpu``."""
    if "cpu" in changes:  # loaded code is for the processor chosen at the process's start
        raise TypeError("override(): cpu cannot change while the process runs. Set TRACECOMP_CPU before it starts.")
    settings = replace(current(), **changes)
    token = _override.set(settings)
    _count_threads_override("num_threads" in changes)
    try:
        yield settings
    finally:
        _count_threads_override(-("num_threads" in changes))
        _override.reset(token)


def overridden() -> Settings | None:
    """The settings of the innermost ``override`` block of this thread."""
    return _override.get()


def under(settings: Settings, work: Callable[[], Any]) -> Any:
    """Run ``work()`` with the result of ``overridden``, in another context."""
    token = _override.set(settings)
    try:
        return work()
    finally:
        _override.reset(token)


def _count_threads_override(change: int) -> None:
    global thread_overrides
    with _counting:
        thread_overrides += change


def cache_directory() -> Path:
    """The folder of compiled code and of this machine's measurements.

    FileNotFoundError for a user without a home directory and without the setting.
    """
    chosen = current().cache_dir
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG standard ignores relative paths
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        raise FileNotFoundError("the home folder of this user is unknown")
    return Path(base) / "tracecomp"


def code_key() -> tuple[tuple[str, Any], ...]:
    """The settings that change compiled code, for the key of a compiled object."""
    settings = current()
    return tuple((k.name, getattr(settings, k.name)) for k in fields(Settings) if k.metadata["code"])


def describe() -> str:
    """One line per setting: environment variable, value, meaning."""
    settings = current()
    return "\n".join(
        f"{k.metadata['env']:<24} {getattr(settings, k.name)!r:<10} {k.metadata['doc']}" for k in fields(Settings)
    )
