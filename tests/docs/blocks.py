"""Code blocks of a page, run in order, with the output that each of them really gives.

In a page, a block marked ``python`` runs, all of them in one namespace; its output is a ``text`` block right after it.
One that begins with ``# name.py`` is written into that file instead. In a ``console`` block each line that begins with
``$`` is a command of ``python -m tracecomp``; its output follows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tracecomp.__main__ import main

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def with_real_output(page: str, folder: Path) -> str:
    """``page`` with the outputs in it replaced by those that its code gives when run in ``folder``."""
    namespace: dict[str, Any] = {"__name__": "page"}
    parts, at, printed = [], 0, None
    for block in _BLOCK.finditer(page):
        kind, text = block.group(1), block.group(2)
        if kind == "text" and printed is not None and not page[at : block.start()].strip():
            text = printed
        elif kind == "console":
            text = "".join(_session(text, folder))
        printed = _run(text, namespace, folder) if kind == "python" else None
        parts += [page[at : block.start()], f"```{kind}\n{text}```"]
        at = block.end()
    return "".join([*parts, page[at:]])


def _run(code: str, namespace: dict[str, Any], folder: Path) -> str | None:
    """Return the output of the code, or None for code that is only written into a file."""
    if named := re.match(r"# (\w+\.py)\n", code):
        (folder / named.group(1)).write_text(code)
        return None
    path = folder / "page.py"  # tracebacks and graphs name lines of a file
    path.write_text(code)
    with redirect_stdout(StringIO()) as out:
        exec(compile(code, str(path), "exec"), namespace)
    return out.getvalue().replace(f"{folder}/", "").rstrip("\n") + "\n"


def _session(text: str, folder: Path) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("$ "):
            yield f"{line}\n"
            words = [str(folder / w) if w.endswith(".py") or ".py:" in w else w for w in shlex.split(line[2:])]
            assert words[:3] == ["python", "-m", "tracecomp"], line
            with redirect_stdout(StringIO()) as out:
                assert main(words[3:]) == 0, line
            yield out.getvalue().replace(f"{folder}/", "")


def without_code_blocks(page: str) -> str:
    """The prose and tables of a page."""
    return _BLOCK.sub("", page)
