"""Write reports of three models for people to view: ``python -m tests.inspect.report.look FOLDER``.

Writes each report with pictures of it, wide and on a phone, light and dark. Prints its size, when the browser painted
first, and the page's errors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tracecomp as torch
from benchmarks.cases.nets import gpt, resnet
from tests.inspect.report.browser import MISSING, Browser, available, browser
from tracecomp import nn

SECTIONS = ("answer", "kernels", "work", "memory", "decisions")


def gpt_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step of a small GPT."""
    model = gpt(torch, vocabulary=65, context=32, width=64, heads=4, layers=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, 65, (8, 32))
    return _step(lambda x: model(x).view(-1, 65), optimizer), (tokens, tokens.view(-1))


def resnet_step() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step of ResNet-18 on small pictures."""
    model = resnet(torch, (64, 128, 256, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return _step(model, optimizer), (torch.randn(2, 3, 32, 32), torch.randint(0, 10, (2,)))


def transformer() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Inference of a transformer of 12 layers."""
    model = gpt(torch, vocabulary=1000, context=32, width=96, heads=4, layers=12).eval()
    return model, (torch.randint(0, 1000, (2, 32)),)


def _step(model: Callable[[Any], Any], optimizer: Any) -> Callable[..., Any]:
    def train_step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


def look(page: Path) -> str:
    """Write pictures of a page next to it, and return the browser's report."""
    paints: list[float] = []
    complaints: list[str] = []
    for name, width, height in (("wide", 1400, 950), ("phone", 390, 844)):
        for theme in ("light", "dark"):
            with browser(width, height, phone=name == "phone") as window:
                window.open(page.as_uri())
                paints += window.run("return performance.getEntriesByType('paint').map((e) => e.startTime)")
                if window.run("return document.documentElement.dataset.theme") != theme:
                    window.run("theme()")
                _pictures(window, page.with_name(f"{page.stem}-{name}-{theme}"))
                complaints += window.errors()
    size = page.stat().st_size / 1e6
    return f"{page.stem}: {size:.2f} MB, painted after {max(paints) / 1e3:.2f} s, complaints {complaints or 'none'}"


def _pictures(window: Browser, stem: Path) -> None:
    for section in SECTIONS:
        window.run(f"document.getElementById('{section}').scrollIntoView({{behavior: 'instant'}})")
        time.sleep(0.3)  # animations have ended
        stem.with_name(f"{stem.name}-{section}.png").write_bytes(window.screenshot())


def main(folder: Path) -> None:
    """All reports, one after the other."""
    if not available():
        raise SystemExit(MISSING)
    folder.mkdir(parents=True, exist_ok=True)
    for make in (transformer, gpt_step, resnet_step):
        torch.manual_seed(0)
        fn, args = make()
        print(look(torch.compile(fn).report(folder / f"{make.__name__}.html", *args)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
