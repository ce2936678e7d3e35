"""Arguments of the wrong kind are errors for every function, before it does anything; so are keywords of none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
import tracecomp.nn.functional
from tracecomp.functional.plain_arguments import BY_TRUTH, fitting
from tracecomp.functional.publish import NAMESPACES

ANY: Any = torch
SPACES = ("torch", "linalg", "fft", "special", "Tensor", "nn.functional")
GOOD = (
    torch.float32,
    0,
    0.5,
    True,
    "sum",
    None,
    (1,),
    (0.5,),
    torch.ones(2, 3),
    (torch.ones(2, 3),),
    torch.Generator(),
)
"""A value of each kind."""


def functions() -> Iterator[tuple[str, Any]]:
    """The functions that the decorator has made."""
    for space in SPACES:
        for name, call in NAMESPACES[space].items():
            if inspect.isfunction(inspect.unwrap(call)) and hasattr(call, "__takes__") and name[0] != "_":
                yield f"{space}.{name}", call


def right(kind: str) -> Any:
    """An argument that will do."""
    fits = fitting(kind)
    return torch.ones(2, 3) if fits is None else next(x for x in GOOD if fits(x))


def given(fn: Callable[..., Any], upto: int) -> list[Any]:
    """Arguments for the first positions, tensors where nothing else is said."""
    code = fn.__code__
    return [right(fn.__annotations__.get(p, "")) for p in code.co_varnames[: code.co_argcount][:upto]]


def plain() -> Iterator[tuple[str, Any, int, str]]:
    """Every argument of a plain kind: the function, the position and its name."""
    for name, call in functions():
        fn = call.__wrapped__
        code = fn.__code__
        for k, p in enumerate(code.co_varnames[: code.co_argcount]):
            kind = fn.__annotations__.get(p, "")
            by_truth = call.__module__ == "tracecomp.nn.functional" or name.partition(".")[2] in BY_TRUTH
            if fitting(kind) is not None and not (by_truth and ("bool" in kind or "str" in kind)):
                yield name, call, k, p


def test_plain_arguments_of_another_kind_are_refused() -> None:
    found, silent = 0, []
    for name, call, k, p in plain():
        found += 1
        args = [*given(call.__wrapped__, k), object()]
        try:
            call(*args)
        except TypeError as error:
            if p in str(error):
                continue
        except Exception:  # the function has run, whatever it found: it has taken the argument
            pass
        silent.append(f"{name}: {p}")
    assert found > 700
    assert not silent


INNER = (AttributeError, KeyError, NameError, RecursionError, StopIteration)
"""Errors that Python raises inside a function that took a wrong argument."""
WRONG: tuple[Any, ...] = (
    object(),
    None,
    "text",
    [object()],
    {},
    torch.tensor(0.5),
    torch.ones(2, dtype=torch.complex64),
)


def test_no_wrong_argument_raises_an_inner_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # from_file() writes one
    inner = []
    for name, call in functions():
        fn = call.__wrapped__
        code = fn.__code__
        needed = code.co_argcount - len(fn.__defaults__ or ())
        for k, p in enumerate(code.co_varnames[: code.co_argcount]):
            for wrong in WRONG:
                args = given(fn, max(needed, k + 1))
                args[k] = wrong
                try:
                    call(*args)
                except INNER as error:
                    inner.append(f"{name}: {p}={type(wrong).__name__}: {type(error).__name__}: {error}")
                except Exception:  # a sentence, or the function took the argument
                    pass
    assert not inner


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ANY.cumsum(x, True), lambda x: ANY.sum(x, True), lambda x: ANY.sum(x, 1, 1),
        lambda x: ANY.select(x, 0, 1.5), lambda x: x.topk(2, largest=1), lambda x: x.max(1, keepdim=3),
        lambda x: ANY.sort(x, 1, bogus=1), lambda x: x.to(ANY.float64, bogus=1), lambda x: x.max(1, True, 3, 4),
        lambda x: ANY.randint(0, 5, (2,), mode=1), lambda x: ANY.argmax(x, 1, None),
    ],
)  # fmt: skip
def test_these_are_type_errors(call: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        call(torch.ones(3, 4))


def test_no_function_takes_a_keyword_that_it_does_not_know() -> None:
    silent = []
    for name, call in functions():
        fn = call.__wrapped__
        code = fn.__code__
        needed = code.co_argcount - len(fn.__defaults__ or ())
        try:
            call(*given(fn, needed), unheard_of=1)
        except TypeError:
            continue
        except Exception:  # the function has run: it has taken the keyword
            pass
        silent.append(name)
    assert not silent


def test_a_derivative_of_any_order_ends() -> None:
    x = torch.tensor([0.5, 2.0])
    assert torch.polygamma(5, x).isfinite().all()
    assert torch.polygamma(2**62, x).shape == (2,)
