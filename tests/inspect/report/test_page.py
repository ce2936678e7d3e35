"""The page in a browser: everything lights everything else up, by pointer and by keys, wide and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tests.inspect.report.browser import MISSING, Browser, available, browser
from tests.inspect.report.test_report import Step, operands

pytestmark = pytest.mark.skipif(not available(), reason=MISSING)

LIT = """return {
  kernels: [...state.kernels], nodes: state.nodes.size, lines: [...state.lines],
  rows: document.querySelectorAll("#kernel-table tr.on").length,
  source: document.querySelectorAll("#source .on").length,
  code: document.querySelector("#code .file")?.dataset.key,
  detail: document.getElementById("detail").textContent,
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = torch.compile(Step()).report(tmp_path_factory.mktemp("page") / "step.html", *operands(), errors=True)
    return path


@pytest.fixture(scope="module")
def window(page: Path) -> Iterator[Browser]:
    with browser() as found:
        found.open(page.as_uri())
        yield found
        assert found.errors() == []


@pytest.fixture(autouse=True)
def nothing_selected(request: pytest.FixtureRequest) -> None:
    if "window" in request.fixturenames:
        request.getfixturevalue("window").run("document.activeElement?.blur(); select({})")


def lit(window: Browser) -> Any:
    return window.run(LIT)


def test_it_is_there_at_once_and_complete(window: Browser) -> None:
    assert window.run("return document.documentElement.dataset.ready") == "yes"
    answer = window.run("return document.getElementById('verdict').textContent")
    assert "step is one graph of" in answer and "times as" in answer
    rows = window.run("return document.querySelectorAll('#kernel-table tbody tr').length")
    assert rows == window.run("return Object.keys(program().kernels).length")


def test_a_kernel_lights_up_its_lines_nodes_and_code(window: Browser) -> None:
    window.run("document.querySelector('#kernel-table tr[data-kernel]').click()")
    found = lit(window)
    assert len(found["kernels"]) == 1 and found["rows"] == 1 and found["nodes"] > 0
    assert found["source"] == len(found["lines"]) > 0 and found["code"] == found["kernels"][0]


def test_a_line_lights_up_its_kernels(window: Browser) -> None:
    line = "document.querySelector('#source [data-line] .heat[style*=rgb]').parentElement"
    window.run(f"{line}.click()")
    found = lit(window)
    assert len(found["lines"]) == 1 and found["rows"] == len(found["kernels"]) > 0 and found["nodes"] > 0
    assert found["code"] in found["kernels"] and "nodes" in found["detail"]


def test_a_dot_of_the_roofline_is_a_kernel(window: Browser) -> None:
    window.run("document.querySelector('#roofline circle').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert len(lit(window)["kernels"]) == 1


def test_a_reason_leads_to_its_kernel(window: Browser) -> None:
    window.run("document.querySelector('#decision-tables tr[data-kernel]').click()")
    assert lit(window)["rows"] == 1


def choose(window: Browser, name: str, value: str) -> None:
    window.run(
        f"const s = document.getElementById('{name}'); s.value = '{value}'; s.dispatchEvent(new Event('change'))"
    )


def test_a_node_of_any_step_is_the_same_in_the_graph_beside_it(window: Browser) -> None:
    choose(window, "stage", "0")
    choose(window, "beside", "2")
    window.run("document.getElementById('work').scrollIntoView({behavior: 'instant'}); views.left.openAll()")
    both = "const ids = (v) => program().tables[program().stages[Number(v.choice)].table].ids;"
    same = window.run(
        f"{both} const other = new Set(ids(views.right)); views.left.fit(true);"
        "return ids(views.left).findIndex((id) => other.has(id) && index().callsOfNode.has(id))"
    )
    assert same >= 0
    at = window.run(
        f"const [x, y, w, h] = views.left.rect({same}), v = views.left, r = v.canvas.getBoundingClientRect();"
        "return [r.left + (x + w / 2) * v.scale + v.x, r.top + (y + h / 2) * v.scale + v.y]"
    )
    window.click(*at)
    assert window.run("return state.from") == "left" and lit(window)["nodes"] == 1
    assert window.run("return views.right.chosen().length") == 1
    assert lit(window)["kernels"] and lit(window)["source"] == 1
    choose(window, "beside", "")
    choose(window, "stage", "kernels")


def test_scopes_open_and_close(window: Browser) -> None:
    window.run("document.getElementById('close').click()")
    closed = window.run("return views.left.closed.size")
    window.run("document.getElementById('open').click()")
    assert window.run("return views.left.closed.size") == 0 <= closed


def test_changes_of_a_step_are_marked(window: Browser) -> None:
    choose(window, "stage", "2")
    choose(window, "colour", "changes")
    kinds = window.run("return [...new Set(views.left.table.inputs.map((_, n) => views.left.changed(n)))]")
    assert "" in kinds and set(kinds) <= {"", "added", "gone"}
    choose(window, "colour", "time")
    choose(window, "stage", "kernels")


@pytest.mark.parametrize("stage", ["kernels", "2"])
def test_every_colour_has_shades_and_a_legend(window: Browser, stage: str) -> None:
    choose(window, "stage", stage)
    for kind in ("time", "share", "memory", "error"):
        choose(window, "colour", kind)
        shades = window.run("return new Set(views.left.table.inputs.map((_, n) => views.left.colour(n))).size")
        assert shades > 2, kind
        assert window.run("return document.getElementById('legend').textContent.trim()")
    choose(window, "colour", "time")
    choose(window, "stage", "kernels")


def test_search_and_keys(window: Browser) -> None:
    window.press("/")
    assert window.run("return document.activeElement.id") == "search"
    window.press("contract")
    assert "contract" in lit(window)["kernels"][0]
    window.press("\ue00c")  # Escape
    assert lit(window)["kernels"] == [] and lit(window)["rows"] == 0
    scale = window.run("return views.left.scale")
    window.press("+")
    assert window.run("return views.left.scale") > scale
    before = window.run("return document.documentElement.dataset.theme")
    window.press("d")
    assert window.run("return document.documentElement.dataset.theme") != before
    window.press("d")


def test_arrow_keys_walk_along_edges(window: Browser) -> None:
    window.run("views.left.openAll(); views.left.focus = 0; views.left.canvas.focus()")
    window.press("\ue015")  # down
    there = window.run("return [views.left.focus, views.left.users[0]]")
    assert there[0] in there[1] and lit(window)["kernels"]


def test_tabs_of_the_code(window: Browser) -> None:
    window.run("document.querySelector('#kernel-table tr[data-kernel]').click()")
    for tab, part in (("assembly", "ret"), ("schedule", ""), ("loops", "kernel k")):
        window.run(f"document.querySelector('[data-tab={tab}]').click()")
        assert part in window.run("return document.getElementById('code').textContent")
    assert window.run("return document.querySelector('[data-tab=loops]').getAttribute('aria-selected')") == "true"


def test_everything_that_can_be_used_has_a_name(window: Browser) -> None:
    nameless = window.run(
        "return [...document.querySelectorAll('button, input, select, canvas, svg[role], [tabindex]')].filter((e) =>"
        "!e.matches('tr, .l, .code, pre') && !(e.ariaLabel || e.title || e.textContent.trim() || e.labels?.length))"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(window: Browser, theme: str) -> None:
    window.run(f"document.documentElement.dataset.theme = '{theme}'")
    ratios = window.run("""
        const light = (hex) => { const part = (n) => { const v = parseInt(hex.slice(n, n + 2), 16) / 255;
          return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
          return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5); };
        const ratio = (a, b) => { const [x, y] = [light(css(a)), light(css(b))];
          return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
        return [["ink", "paper"], ["soft", "paper"], ["soft", "card"], ["mark-ink", "mark"]].map((p) => ratio(...p));
    """)
    window.run("document.documentElement.dataset.theme = 'light'")
    assert min(ratios) >= 4.5  # https://www.w3.org/TR/WCAG22/#contrast-minimum


def test_on_a_phone_nothing_is_wider_than_the_screen(page: Path) -> None:
    with browser(390, 844, phone=True) as window:
        window.open(page.as_uri())
        width, screen = window.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width <= screen
        window.run("document.querySelector('#kernel-table tr[data-kernel]').click()")
        assert lit(window)["source"] > 0
        assert window.screenshot().startswith(b"\x89PNG") and window.errors() == []


@pytest.mark.parametrize("tab", ["loops", "assembly"])
def test_a_line_of_code_leads_to_the_users_line_and_back(window: Browser, tab: str) -> None:
    window.run("document.querySelector('#kernel-table tr[data-kernel]').click()")
    window.run(f"document.querySelector('[data-tab={tab}]').click()")
    line = window.run(
        "const row = document.querySelector('#code div.l[data-line]'); row.click(); return row.dataset.line"
    )
    assert lit(window)["lines"] == [line] and lit(window)["source"] == 1
    window.run("document.querySelector('#source div.on').click()")
    assert window.run(f"return [...document.querySelectorAll('#code .on')].every((r) => r.dataset.line === '{line}')")
    assert window.run("return document.querySelectorAll('#code .on').length") > 0
    window.run("document.querySelector('[data-tab=loops]').click()")
