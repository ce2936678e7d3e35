"""The HTML page: style, scripts and data in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("state.js", "graph.js", "charts.js", "panes.js", "main.js")


def page(data: Mapping[str, object]) -> str:
    """A page that shows ``data``, which stands in it as JSON. It loads nothing: a policy in its head forbids it."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no text in it ends the script
    found = _read("index.html")
    parts = {
        "title": escape(f"{data['name']}: what tracecomp made of it"),
        "style": _read("style.css"),
        "script": "\n".join(map(_read, _SCRIPTS)),
        "data": text,
    }
    for name, part in parts.items():
        before, mark, after = found.partition(f"{{{{{name}}}}}")
        assert mark, name
        found = f"{before}{part}{after}"
    return found


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
