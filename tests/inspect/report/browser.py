"""A headless chromium, driven by its own driver over plain HTTP (https://www.w3.org/TR/webdriver2/)."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MISSING = "no chromium with its driver here (Debian: chromium, chromium-driver): the page was not looked at"


def available() -> bool:
    return bool(shutil.which("chromedriver") and (shutil.which("chromium") or shutil.which("google-chrome")))


class Browser:
    """One window."""

    def __init__(self, port: int, width: int, height: int, phone: bool) -> None:
        self.url = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"]
        options: dict[str, Any] = {"args": arguments}
        if phone:
            metrics = {"width": width, "height": height, "pixelRatio": 2, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options}
        self.session = ""
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}{path}", body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, url: str) -> None:
        self._ask("POST", f"{self.session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """Return the result of JavaScript."""
        return self._ask("POST", f"{self.session}/execute/sync", {"script": script, "args": []})

    def press(self, keys: str) -> None:
        """Type into whatever has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        data = {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        self._ask("POST", f"{self.session}/actions", data)

    def click(self, x: float, y: float) -> None:
        """Click a place of the window."""
        moves: list[dict[str, Any]] = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}]
        moves += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        data = {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]}
        self._ask("POST", f"{self.session}/actions", data)

    def screenshot(self) -> bytes:
        return base64.b64decode(self._ask("GET", f"{self.session}/screenshot"))

    def errors(self) -> list[str]:
        """Return the errors of the page."""
        return [e["message"] for e in self._ask("POST", f"{self.session}/se/log", {"type": "browser"})]

    def close(self) -> None:
        self._ask("DELETE", self.session)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(driver: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the driver takes connections; False if it has ended, since another process took the port first."""
    while driver.poll() is None:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return driver.poll() is None
        time.sleep(0.1)
    return False


@contextmanager
def browser(width: int = 1400, height: int = 950, phone: bool = False) -> Iterator[Browser]:
    """A window that is closed afterwards, with its driver."""
    while True:
        port = _free_port()
        with subprocess.Popen(["chromedriver", f"--port={port}", "--silent"]) as driver:
            try:
                if not _answers(driver, port):
                    continue
                window = Browser(port, width, height, phone)
                yield window
                window.close()
                return
            finally:
                driver.terminate()
