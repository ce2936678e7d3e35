"""The page in a browser: run a model with JSON, draw a picture, and fit a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracecomp as torch
from tests.inspect.report.browser import MISSING, Browser, available, browser
from tests.serve.conftest import Server
from tests.serve.test_handlers import FUNCTION, archive
from tracecomp.export import Dim
from tracecomp.serve.page import _picture
from tracecomp.serve.signature import TensorSpec


@pytest.mark.parametrize(
    ("shape", "size"),
    [((-1, 64), (8, 8)), ((-1, 1, 28, 28), (28, 28)), ((-1, 16, 32), (16, 32)), ((-1, 6), None), ((-1, 65), None),
     ((-1, 3, 28, 28), None), ((), None), ((-1, -1, -1), None), ((-1, 128, 128), None)],
)  # fmt: skip
def test_inputs_that_are_pictures(shape: tuple[int, ...], size: tuple[int, int] | None) -> None:
    assert _picture([TensorSpec("x", "FP32", shape)]) == size
    assert _picture([TensorSpec("x", "INT64", shape)]) is None


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not available():
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("digits")
    program = torch.compile(lambda x: torch.stack([x[:, :32].sum(1), x[:, 32:].sum(1)], 1))
    program.save(folder / "halves.tcp", torch.ones(2, 64), kind="graph", dynamic_shapes={"x": {0: Dim("n", max=8)}})
    server = Server(folder)
    yield server
    assert server.stop() == 0


def until(window: Browser, script: str) -> str:
    """The text that ``script`` returns once it is not empty."""
    while not (text := window.run(f"return ({script}) || ''")):
        pass
    return str(text)


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True])
def test_draw_and_run(digits: Server, phone: bool, tmp_path: Path) -> None:
    with browser(390 if phone else 1200, 900, phone) as window:
        window.open(f"http://127.0.0.1:{digits.port}/")
        until(window, "document.querySelector('canvas') && 'yes'")
        window.run("document.querySelector('details').open = true")
        assert window.run("return document.documentElement.scrollWidth <= innerWidth")
        box = window.run(
            "const c = document.querySelector('canvas'); c.scrollIntoView(); "
            "const b = c.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
        )
        window.click(box[0] + box[2] / 2, box[1] + box[3] * 0.8)
        value = "document.querySelector('textarea').value"
        data = json.loads(until(window, f"JSON.parse({value}).inputs[0].data.some(Boolean) && {value}"))
        data = data["inputs"][0]["data"]
        assert len(data) == 64 and sum(data[:32]) == 0 < sum(data[32:])
        window.run("document.querySelector('form > button').click()")
        note = until(window, "document.querySelector('form > span').textContent.match(/Status.*/)?.[0]")
        assert note.startswith("Status 200, ") and note.endswith("ms, output_0 is largest at 1")
        (tmp_path / "page.png").write_bytes(window.screenshot())
        assert window.errors() == []


@pytest.mark.slow
def test_send_a_text_to_a_handler(tmp_path: Path) -> None:
    if not available():
        pytest.skip(MISSING)
    archive(tmp_path / "backwards.mar", "main:entry", {"main.py": FUNCTION})
    server = Server(tmp_path, "--allow-code")
    with browser(390, 900, True) as window:
        window.open(f"http://127.0.0.1:{server.port}/")
        until(window, "document.querySelector('select') && 'yes'")
        window.run(
            "document.querySelector('details').open = true; document.querySelector('textarea').value = 'a text'; "
            "document.querySelector('select').value = 'text/plain'; document.querySelector('form > button').click()"
        )
        assert until(window, "document.querySelector('pre').textContent") == "txet a"
        assert window.run("return document.documentElement.scrollWidth <= innerWidth")
        (tmp_path / "page.png").write_bytes(window.screenshot())
        assert window.errors() == []
    assert server.stop() == 0
