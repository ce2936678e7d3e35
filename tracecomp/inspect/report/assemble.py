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
    """Return a page that shows ``data``, embedded as JSON. A policy in its head forbids it to load anything."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no text can end the script
    parts = {
        "title": escape(f"{data['name']}: tracecomp report").encode("ascii", "xmlcharrefreplace").decode(),
        "style": _read("style.css"),
        "script": "\n".join(map(_read, _SCRIPTS)),
        "data": text,
    }
    # One pass: a part may contain a placeholder of another.
    return re.sub(r"\{\{(title|style|script|data)\}\}", lambda place: parts[place[1]], _read("index.html"))


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
