"""Load, unload and list the models of a server's folder, for those who have the token. Independent of protocols."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracecomp.base.errors import TracecompError
from tracecomp.serve.engine import Engine
from tracecomp.serve.errors import InvalidRequest, NotFound, Unauthorized
from tracecomp.serve.repository import Entry, entries


@dataclass(frozen=True)
class Control:
    """The models of an engine, whose files are in ``folder``."""

    engine: Engine
    folder: Path
    token: str
    allow_code: bool

    def check(self, authorization: str) -> None:
        """Raise Unauthorized unless the header ``authorization`` has the token."""
        if not secrets.compare_digest(authorization.encode(), f"Bearer {self.token}".encode()):
            raise Unauthorized("send the header 'Authorization: Bearer TOKEN' with the server's token")

    def files(self) -> Sequence[Entry]:
        """The model files of the folder. InvalidRequest if it cannot be read."""
        try:
            return entries(self.folder, self.allow_code)
        except TracecompError as error:
            raise InvalidRequest(str(error)) from None

    def index(self, only_ready: bool) -> list[dict[str, str]]:
        """Names, versions, states and reasons of the models of the server and of its folder."""
        known = []
        for model in self.engine:
            state = "READY" if model.is_ready else "UNAVAILABLE" if model.process.is_given_up else "LOADING"
            told = {"name": model.name, "version": model.version, "state": state, "reason": model.process.failure}
            known.append(told)
        names = {(state["name"], state["version"]) for state in known}
        known += [
            {"name": e.name, "version": e.version, "state": "UNAVAILABLE", "reason": "unloaded"}
            for e in self.files() if (e.name, e.version) not in names
        ]  # fmt: skip
        return [state for state in known if not only_ready or state["state"] == "READY"]

    async def load(self, name: str) -> None:
        """Load every version in the folder again, and unload those that the folder does not have."""
        wanted = [entry for entry in self.files() if entry.name == name]
        if not wanted:
            raise NotFound(f"the server's folder has no model {name!r}")
        for entry in wanted:
            await self.engine.load(entry)
        for version in {*self.engine.models.get(name, ())} - {entry.version for entry in wanted}:
            await self.engine.unload(name, version)

    async def unload(self, name: str) -> None:
        """Unload all versions."""
        self.engine.find(name)
        for version in [*self.engine.models[name]]:
            await self.engine.unload(name, version)
