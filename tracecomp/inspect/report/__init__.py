"""The report of a compiled function: one self-contained HTML file, and the same data as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tracecomp.compiled.function import Compiled
from tracecomp.inspect.report.assemble import page
from tracecomp.inspect.report.changes import changes
from tracecomp.inspect.report.data import FORMAT, report_data

AnyPath = str | PathLike[str]


def write_report(
    compiled: Compiled,
    path: AnyPath,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    against: AnyPath | None = None,
    errors: bool = False,
) -> Path:
    """Write ``path`` (HTML) and its JSON version (``.json``) in the same folder; return the HTML path.

    ValueError if ``against`` is not a report of this format.
    """
    data = report_data(compiled, args, kwargs, errors)
    if against is not None:
        data["changes"] = changes(_read(Path(against)), data)
    target = Path(path)
    target.write_text(page(data), encoding="utf-8")
    target.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    return target


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] == FORMAT:
            return dict(found)
    except (json.JSONDecodeError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not the JSON file of a report of format {FORMAT}")


__all__ = ["write_report"]
