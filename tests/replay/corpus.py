"""The corpus: graphs as text with how they were compiled, and what came of them when the reference was written."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
GRAPHS = FOLDER / "graphs.jsonl.xz"
REFERENCE = FOLDER / "reference.json"


@dataclass(frozen=True)
class Recorded:
    """A graph in the printed language, which outputs overwrite which inputs, which inputs last, and settings."""

    name: str
    graph: str
    aliases: dict[int, int] = field(default_factory=dict)
    frozen: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> Recorded:
        found = json.loads(line)
        aliases = {int(o): i for o, i in found["aliases"].items()}
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in found["settings"].items()}
        return Recorded(found["name"], found["graph"], aliases, tuple(found["frozen"]), settings)


def load() -> list[Recorded]:
    with lzma.open(GRAPHS, "rt", encoding="utf-8") as file:
        return [Recorded.from_json(line) for line in file]


def save(graphs: Iterable[Recorded]) -> None:
    with lzma.open(GRAPHS, "wt", encoding="utf-8", preset=9 | lzma.PRESET_EXTREME) as file:
        file.writelines(g.to_json() + "\n" for g in graphs)


def load_reference() -> dict[str, dict[str, str]]:
    """Per graph the digests by kind, as ``digests.of`` makes them."""
    return dict(json.loads(REFERENCE.read_text(encoding="utf-8")))


def save_reference(reference: dict[str, dict[str, str]]) -> None:
    """One line per graph, so that a diff shows which graphs changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(reference[name])}" for name in sorted(reference)]
    REFERENCE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
