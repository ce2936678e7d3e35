"""The HTML page: style, scripts and data in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("state.js", "graph.js", "charts.js", "panes.js", "main.js")


def page(data: Mapping[str, object]) -> str:
    """A page that shows ``data``, which stands in it as JSON. It loads nothing: a policy in its head forbids it."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no text in it ends the script
    parts = {
        "title": escape(f"{data['name']}: tracecomp report").encode("ascii", "xmlcharrefreplace").decode(),
        "style": _read("style.css"),
        "script": "\n".join(map(_read, _SCRIPTS)),
        "data": text,
    }
    # At once: a part may hold what looks like the place of another.
    return re.sub(r"\{\{(title|style|script|data)\}\}", lambda place: parts[place[1]], _read("index.html"))


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
