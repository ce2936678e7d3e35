"""An engine's process, seen from the one that asks."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.engines import environment

ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """The process died or did not answer in time."""


class Process:
    """A worker that answers one command at a time, and is stopped in between: its spinning threads do not disturb
    others. ``folder`` has the packages that it runs."""

    def __init__(
        self, engine: str, threads: int, cache: Path, patience: float, place: int = 0, folder: Path = ROOT
    ) -> None:
        self.engine = engine
        self.patience = patience
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in stop
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", engine, str(threads), str(cache), str(place)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=environment(threads, cache), cwd=folder,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self.ready = self._answer()
        except Failed:
            self.stop()
            raise
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        """The answer to a command; Failed when there is none."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps({"do": do, **options}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed(self._last_words()) from None
        answer = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def stop(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None and not stream.closed:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self.patience)
        except queue.Empty:
            raise Failed(f"no answer in {self.patience:.0f} s") from None
        if not line:
            raise Failed(self._last_words())
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        last = next((x for x in lines if x.startswith("Fatal")), lines[-1] if lines else "no message")
        return f"process ended with {code}: {last[:200]}"
