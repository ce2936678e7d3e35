"""A file with the loaded versions, defaults and traffic. A restarted server continues with them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter, ValidationError

from tracecomp.base.errors import TracecompError
from tracecomp.serve.engine import Engine
from tracecomp.serve.repository import Entry
from tracecomp.serve.traffic import Traffic


@dataclass
class _Model:
    files: list[str]
    default: str
    traffic: Traffic = field(default_factory=Traffic)

    __pydantic_config__: ClassVar[Any] = {"strict": True, "extra": "forbid"}


_READER = TypeAdapter(dict[str, _Model])


class Snapshot:
    """The file ``path`` of a server whose models are in ``folder``."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path, self._folder = path, folder
        self._models: Mapping[str, _Model] | None = None

    def select(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
        """The entries that the file names, and its files that the folder lacks; all entries if there is no file.

        TracecompError if the file cannot be read.
        """
        try:
            self._models = _READER.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return [*entries], []
        except (OSError, ValidationError) as error:
            raise TracecompError(f"{self._path} is not a snapshot: {error}") from None
        known = {self._url(entry): entry for entry in entries}
        wanted = [url for model in self._models.values() for url in model.files]
        return [known[url] for url in wanted if url in known], [url for url in wanted if url not in known]

    def restore(self, engine: Engine) -> None:
        """Set the defaults and the traffic of a started engine, and write the file after each change."""
        for name, model in (self._models or {}).items():
            engine.restore(name, model.default, model.traffic)
        engine.changed = lambda: self._write(engine)

    def _write(self, engine: Engine) -> None:
        told = {
            name: {
                "files": [self._url(model.entry) for model in versions.values()],
                "default": engine.find(name).version,
                "traffic": {"weights": engine.traffic(name).weights, "shadow": engine.traffic(name).shadow},
            }
            for name, versions in engine.models.items()
        }
        new = self._path.with_name(f"{self._path.name}.new")
        with open(new, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
            file.flush()
            os.fsync(file.fileno())  # a crash leaves the old file or the new one
        os.replace(new, self._path)

    def _url(self, entry: Entry) -> str:
        return str(entry.path.relative_to(self._folder))
