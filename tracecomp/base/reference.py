"""Documentation of public names: composed of docstring, signature, and tables of text in ``examples``.

``arguments.txt`` describes an argument name once for all occurrences. The other files have an example for every name of
a namespace; tests run them. All this happens during the import of the package, so it is optimized: repeated lines are
built once, and everything is indented like docstrings, which ``help`` undoes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "examples"


@cache
def arguments() -> dict[str, str]:
    """Descriptions of arguments by name."""
    lines = (_FOLDER / "arguments.txt").read_text(encoding="utf-8").splitlines()
    return dict([line.split(": ", 1) for line in lines])


@cache
def examples(space: str) -> dict[str, str]:
    """The examples of a namespace, indented."""
    path = _FOLDER / f"{space}.txt"
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8").rstrip("\n").replace("\n    ", "\n        ")
    return dict([part.split("\n", 1) for part in text.split("\n\n")])


def reference(
    doc: str | None, forms: Iterable[Callable[..., object]], sections: Iterable[tuple[str, str]], example: str
) -> str:
    """The whole text: description, arguments of all ``forms``, other sections, example."""
    text = (doc or "").rstrip()
    if "\n" in text:  # from Python 3.13 on, docstrings are no longer indented
        text = inspect.cleandoc(text).replace("\n", "\n    ").replace("\n    \n", "\n\n")
    lines: dict[str, str] = {}
    for form in forms:
        _describe(form, lines)
    if lines:
        text += "\n\n    Args:\n" + "\n".join(lines.values())
    for title, section in sections:
        if section:
            text += f"\n\n    {title}:\n{section}"
    return f"{text}\n\n    Example:\n{example}" if example else text


def _describe(form: Callable[..., object], lines: dict[str, str]) -> None:
    """Add the line of each argument of a function."""
    code, kinds, keywords = form.__code__, form.__annotations__, form.__kwdefaults__ or ()
    positional = code.co_argcount
    required = positional - len(form.__defaults__ or ())
    count = positional + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    for k, name in enumerate(code.co_varnames[:count]):
        if name != "self":
            lines[name] = _line(name, kinds.get(name, "Any"), required <= k < positional or name in keywords)


@cache
def _line(name: str, kind: str, optional: bool) -> str:
    return f"        {name} ({kind}{', optional' if optional else ''}): {arguments().get(name, name)}."


def document(space: str, names: Mapping[str, object]) -> None:
    """Complete the docstrings of the classes and functions of a namespace."""
    for name, example in examples(space).items():
        value: Any = names[name]
        made = getattr(value, "__init__", None) if isinstance(value, type) else inspect.unwrap(value)
        plain = inspect.isfunction(made) and not made.__code__.co_flags & inspect.CO_VARARGS
        value.__doc__ = reference(value.__doc__, [made] if plain and made is not None else (), (), example)
