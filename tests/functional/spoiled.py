"""Calls with one spoiled argument: ``python -m tests.functional.spoiled [NAME...] [--part 1/8] [--all]``.

Each function of ``torch`` and ``torch.nn.functional`` and each method of ``Tensor`` gets the first arguments of
``CALLS`` that PyTorch accepts. Every argument is then replaced by each value of ``SPOILED``. The command lists *raw*
errors: exceptions from inside (``KeyError``, ``AttributeError``, ``OverflowError``, numpy's own, ...) where PyTorch
raises another type. ``--all`` also lists other types, refused calls and accepted calls.

A separate process makes the calls, because a signal does not interrupt a loop in PyTorch. A call that crashes the
process or takes longer than ``--seconds`` counts as *ended*. A new process makes the next calls.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import multiprocessing
import resource
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Args = tuple[Any, ...]
RAW = (
    KeyError, AttributeError, AssertionError, RecursionError, OverflowError, ArithmeticError, NameError, SystemError,
    StopIteration, MemoryError, UnicodeError,
)  # fmt: skip
"""Errors that a program meets only if the library has not checked an argument."""
FAULTS = ("raw", "ended (tracecomp)")
FROM_PYTHON = (
    "arg is an empty sequence", "tuple index out of range", "list index out of range", "objects cannot be broadcast",
    "could not be broadcast together", "'_data'",
    "unsupported operand type", "has no attribute", "is not iterable", "not subscriptable", "cannot unpack",
    "unhashable", "not supported between instances", "bad operand type", "invalid literal", "could not convert string",
    "object has no len()", "interpreted as an integer", "values to unpack",
)  # fmt: skip
"""Words of messages of Python and numpy."""
MEMORY = 16 << 30
"""The address space of the process that makes the calls; larger requests fail there as they do elsewhere."""
MAKERS: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda t: t.arange(12.0).reshape(3, 4) / 16 + 0.125,
    "square": lambda t: t.eye(3) * 2 + t.arange(9.0).reshape(3, 3) / 16,
    "vector": lambda t: t.arange(4.0) / 4,
    "signal": lambda t: t.arange(24.0).reshape(1, 3, 8) / 32,
    "image": lambda t: t.arange(96.0).reshape(1, 2, 6, 8) / 128,
    "volume": lambda t: t.ones(1, 2, 4, 4, 4),
    "kernel": lambda t: t.ones(2, 2, 3, 3),
    "weights": lambda t: t.ones(5, 4),
    "indices": lambda t: t.tensor([0, 1, 0]),
    "index matrix": lambda t: t.zeros(3, 4, dtype=t.int64),
    "mask": lambda t: t.arange(12.0).reshape(3, 4) > 4,
    "integers": lambda t: t.arange(12).reshape(3, 4),
    "complex": lambda t: t.ones(3, 4, dtype=t.complex64),
    "number tensor": lambda t: t.tensor(1.5),
    "dtype": lambda t: t.float64,
}
M = "=matrix"
CALLS: tuple[Args, ...] = (
    (M,), (M, 1), (M, M), (M, 0, 1), (M, 0, "=indices"), (M, 0, "=indices", M), (M, 0, "=index matrix"),
    (M, 0, "=index matrix", M), (M, "=mask"), (M, "=mask", 2.0), (M, "=mask", M), ("=mask", M, M), (M, (3, 4)),
    (M, (1, 0)), (M, 0, 1, 1), (M, 0, 1, 2, 1), (M, M, M), (M, "=weights"), ("=indices", "=weights"),
    (M, "=indices"), ("=square",), ("=square", "=square"), ("=square", "=matrix"), ("=square", "=indices"),
    ("=vector",), ("=vector", "=vector"), ("=integers",), ("=integers", "=integers"), ("=integers", 1), ("=complex",),
    ("=image", 2), ("=image", "=kernel"), ("=signal", 2), ("=signal",), ("=image",), ("=volume", 2), ("=image", (2, 2)),
    ("=image", 2, 1), ("=image", (1, 1, 1, 1)), (2,), (3, 4), ((3, 4),), (0, 5, 2), (0.0, 1.0, 5), ([M, M],),
    ([M, M], 0), ("ij,jk->ik", "=square", "=matrix"), ((3, 4), 1.5), (M, "=number tensor"), (M, "=dtype"), (),
    (M, (1,), M), (M, "=vector", 1), (M, [4]), ("=vector", M, "=vector"), ("=square", "=square", "=square"),
    ("=signal", "=signal", "=signal"), (M, M, "=indices"), (M, 3, 1, 0.5), ("=number tensor",),
)  # fmt: skip
"""Arguments; a text that begins with ``=`` names a tensor of ``MAKERS``."""
SPOILED: dict[str, Callable[[Any], Any]] = {
    "None": lambda t: None,
    "text": lambda t: "a",
    "object": lambda t: object(),
    "float": lambda t: 1.5,
    "nan": lambda t: float("nan"),
    "infinite": lambda t: float("inf"),
    "negative": lambda t: -7,
    "zero": lambda t: 0,
    "large": lambda t: 2**62,
    "huge": lambda t: 2**2000,
    "huge float": lambda t: 1e300,
    "True": lambda t: True,
    "list": lambda t: [1, "a"],
    "nothing": lambda t: (),
    "huge list": lambda t: [2**70, 2**70],
    "dict": lambda t: {"a": 1},
    "dtype": lambda t: t.float32,
    "0-d": lambda t: t.tensor(2.0),
    "empty": lambda t: t.ones(0),
    "no rows": lambda t: t.ones(0, 4),
    "integers": lambda t: t.ones(3, 4, dtype=t.int64),
    "bools": lambda t: t.ones(3, 4, dtype=t.bool),
    "complex": lambda t: t.ones(3, 4, dtype=t.complex64),
    "five axes": lambda t: t.ones(1, 1, 2, 2, 2),
    "nan tensor": lambda t: t.full((3, 4), float("nan")),
    "far indices": lambda t: t.full((3,), 2**40),
}
BESIDE = (
    "set_", "get_", "manual_seed", "seed", "initial_seed", "save", "load", "compile", "from_file", "fork", "wait",
    "vmap", "import_ir", "parse_", "merge_type", "init", "autocast", "clear_autocast", "use_deterministic", "show",
    "unify_type", "typename", "prepare_multi", "cudnn", "mkldnn", "quantize", "fbgemm", "dequantize", "fused_moving",
    "fake_quantize", "choose_qparams", "q_", "int_repr", "qint", "quint", "resize_as_sparse", "sparse", "to_sparse",
    "miopen", "as_strided", "cuda", "xpu", "ipu", "hpu", "mtia", "storage", "untyped_storage", "data_ptr",
    "share_memory", "register", "backward", "retain_grad", "module_load", "is_shared", "pin_memory", "is_pinned",
    "record_stream",
    "native_", "batch_norm_", "lstm", "gru", "rnn_", "empty", "new_empty", "resize", "multi_head", "view_as_real_copy",
    "is_set_to", "DisableTorch", "scripted", "handle_torch", "has_torch", "boolean_dispatch", "assert_int", "nested",
    "hspmm", "sspaddmm", "smm", "spmm", "saddmm", "chalf", "ccol", "crow", "col_indices", "row_indices", "coalesce",
    "cond", "while_loop", "read_vitals", "segment_reduce", "norm_except", "narrow_copy", "renorm_", "combinations",
)  # fmt: skip
"""Beginnings of names that set global state, read files or memory, or are missing in tracecomp."""


ACCESSORS = (
    "dim", "ndimension", "numel", "nelement", "size", "stride", "element_size", "storage_offset", "is_contiguous",
    "is_inference", "dense_dim", "sparse_dim", "detach", "detach_", "numpy", "tolist", "requires_grad_",
)  # fmt: skip
"""Methods of ``Tensor`` that do not check their object: a check would cost every call."""


def functions(torch: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions to call, by name."""
    spaces = {"torch": torch, "F": torch.nn.functional, "Tensor": torch.Tensor, "linalg": torch.linalg,
              "fft": torch.fft, "special": torch.special}  # fmt: skip
    for space, holder in spaces.items():
        for name in sorted(dir(holder)):
            value: Any = getattr(holder, name, None)
            plain = callable(value) and not isinstance(value, type) and not name.startswith(("_", *BESIDE))
            plain = plain and not (space == "Tensor" and name in ACCESSORS)
            if plain and type(value).__name__ != "module":
                yield f"{space}.{name}", value


def made(torch: Any, x: Any) -> Any:
    """An argument of ``CALLS`` in a library."""
    if isinstance(x, str) and x.startswith("="):
        return MAKERS[x[1:]](torch)
    return type(x)(made(torch, v) for v in x) if isinstance(x, list | tuple) else x


def outcome(torch: Any, fn: Callable[..., Any], args: Args, place: int | None = None, spoiled: str = "") -> Any:
    """The exception of a call with one argument spoiled; None for none."""
    given = [made(torch, x) for x in args]
    if place is not None:
        given[place] = SPOILED[spoiled](torch)
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            fn(*given)
    except Exception as error:  # any error is compared
        return error
    return None


def kind(ours: Any, theirs: Any) -> str | None:
    """How an outcome differs from PyTorch's; None: it agrees."""
    if ours is None or theirs is None:
        return None if ours is theirs else "accepted" if ours is None else _raw(ours) or "refused"
    if type(ours) is type(theirs) or isinstance(ours, type(theirs)):
        return "raw" if any(words in str(ours) for words in FROM_PYTHON) else None
    return _raw(ours) or "other type"


def _raw(error: Exception) -> str | None:
    text = str(error)
    if "must fit" in text:  # the words for numbers that are too large
        return None
    if any(words in text for words in FROM_PYTHON):
        return "raw"
    return "raw" if isinstance(error, RAW) or type(error).__module__.startswith("numpy") else None


@dataclass(frozen=True)
class Seen:
    """The outcome of a call. Kind ``"begins"`` announces a call instead, and ``said`` names the library."""

    kind: str
    call: str
    said: str
    place: tuple[int, int]
    """The numbers of the function and of its call; the search for the first arguments is call 0."""


Pairs = list[tuple[str, Callable[..., Any], Callable[..., Any]]]


def shared(torch: Any, ours: Any, wanted: Callable[[str], bool]) -> Pairs:
    """The functions that both libraries have: name, PyTorch's and tracecomp's."""
    own = dict(functions(ours))
    return [(name, theirs, own[name]) for name, theirs in functions(torch) if name in own and wanted(name)]


def differences(torch: Any, ours: Any, pairs: Pairs, first: tuple[int, int] = (0, 0)) -> Iterator[Seen]:
    """Yield how each call from ``first`` on differs from PyTorch; calls that agree have the kind ``"equal"``."""
    for number, (name, theirs, own) in enumerate(pairs[first[0] :], first[0]):
        yield Seen("begins", name, "search", (number, 0))
        args = next((a for a in CALLS if outcome(torch, theirs, a) is None), None)
        if args is None or outcome(ours, own, args) is not None:
            continue
        # A method that is a function as well is called with other objects there.
        start = name.startswith("Tensor.") and own is getattr(ours, name.removeprefix("Tensor."), None)
        spoils = [(place, spoiled) for place in range(start, len(args)) for spoiled in SPOILED]
        for count, (place, spoiled) in enumerate(spoils, 1):
            at, call = (number, count), f"{name}{args} [{place}] = {spoiled}"
            if at < first:
                continue
            yield Seen("begins", call, "PyTorch", at)
            expected = outcome(torch, theirs, args, place, spoiled)
            yield Seen("begins", call, "tracecomp", at)
            found = outcome(ours, own, args, place, spoiled)
            said = f"{type(found).__name__}: {str(found)[:110]!r} instead of {type(expected).__name__}"
            yield Seen(kind(found, expected) or "equal", call, said, at)


class Ended(Exception):
    """The process crashed, or took too long for one item."""


def from_process(items: Callable[[], Iterator[T]], seconds: float) -> Iterator[T]:
    """Yield the items that a forked process makes; ``Ended`` if it crashes or makes none for ``seconds``."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(items, sender, receiver), daemon=True)
    process.start()
    sender.close()
    try:
        while receiver.poll(seconds):
            item = receiver.recv()
            if item is None:
                return
            yield item
        raise Ended
    except EOFError:
        raise Ended from None
    finally:
        process.kill()
        process.join()
        receiver.close()


def _send(items: Callable[[], Iterator[T]], sender: Any, receiver: Any) -> None:
    receiver.close()  # so that a pipe without a reader ends this process
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for item in items():
        sender.send(item)
    sender.send(None)


def bounded_differences(torch: Any, ours: Any, wanted: Callable[[str], bool], seconds: float) -> Iterator[Seen]:
    """Yield ``differences`` from processes; a call that ended its process has the kind ``"ended"``."""
    pairs = shared(torch, ours, wanted)
    first, seen = (0, 0), None
    while True:
        try:
            for seen in from_process(partial(differences, torch, ours, pairs, first), seconds):
                yield seen
            return
        except Ended:
            assert seen is not None
            number, count = seen.place
            yield Seen("ended", seen.call, seen.said, seen.place)
            first = (number, count + 1) if count else (number + 1, 0)


def main() -> int:
    import torch

    import tracecomp

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--part", default="1/1", help="which part of how many")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--seconds", type=float, default=20, help="the longest time of a call")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))

    def wanted(name: str) -> bool:
        return zlib.crc32(name.encode()) % parts == part - 1 and (not options.names or name in options.names)

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begin, counts, done = time.monotonic(), collections.Counter[str](), 0
    for seen in bounded_differences(torch, tracecomp, wanted, options.seconds):
        what = f"ended ({seen.said})" if seen.kind == "ended" else seen.kind
        counts[what] += 1
        if what in FAULTS or (options.all and what not in ("equal", "begins")):
            print(f"{what}: {seen.call}: {seen.said}", flush=True)
        if seen.place[0] != done and seen.place[0] % 20 == 0:
            print(f"{seen.place[0]} functions, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        done = seen.place[0]
    del counts["begins"]
    print(dict(counts))
    return any(counts[fault] for fault in FAULTS)


if __name__ == "__main__":
    sys.exit(main())
