"""The HTML page: the time to generate it, and the time of a browser to open it and to respond."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.report import Table

if TYPE_CHECKING:
    from playwright.sync_api import Page

TARGET_LOAD_MS, TARGET_ANSWER_MS = 2_000, 100
RUNS: Final = 5

# Until the next frame after a user action.
_TIMED = """(act) => new Promise((done) => {
  const begun = performance.now();
  new Function(act)();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
})"""
_INTERACTIONS: Final = {
    "filter by text": ("change({ q: '0042' })", "change({ q: '' })"),
    "filter by status": ("change({ status: 'waiting' })", "change({ status: '' })"),
    "colour by concern": ("change({ colour: 'concern' })", "change({ colour: 'status' })"),
    "group by pool": ("change({ by: 'pool' })", "change({ by: 'rack' })"),
    "show the table": ("change({ view: 'table' })", "change({ view: 'map' })"),
    "open a node": ("openNode(matching[7])", "closeNode()"),
    "arrow down in the map": ("moveTo(across(true))", "moveTo(across(false))"),
}


def section(sizes: Sequence[int]) -> list[Table]:
    chromium = shutil.which("chromium")
    if chromium is None:
        return [Table("HTML page: not measured, there is no chromium", ("",), [], ())]
    found = [_of_size(chromium, size) for size in sizes]
    rows = [(name, *(one[name] for one in found)) for name in found[0]]
    return [
        Table(
            "HTML page: ms until the frame after it is drawn (median of some runs), in headless Chromium",
            ("nodes", *(f"{size:,}" for size in sizes)),
            rows,
            (f"targets for 5,000 nodes: open within {TARGET_LOAD_MS} ms, answer within {TARGET_ANSWER_MS} ms",),
        )
    ]


def _of_size(chromium: str, nodes: int) -> dict[str, float | None]:
    from playwright.sync_api import sync_playwright

    from reconciler.render.html import page
    from tests.html.world import make

    material = make(nodes)
    begun = time.perf_counter()
    text = page(material)
    figures: dict[str, float | None] = {"make the page": 1e3 * (time.perf_counter() - begun)}
    figures["size, KiB"] = len(text) / 1024
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sync_playwright() as playwright:
        file = Path(name) / "index.html"
        file.write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium)
        tab = browser.new_page(viewport={"width": 1440, "height": 1000})
        figures["open it"] = statistics.median(_opened(tab, file) for _ in range(RUNS))
        for what, (act, undo) in _INTERACTIONS.items():
            figures[what] = statistics.median(_answered(tab.evaluate, act, undo) for _ in range(RUNS))
        browser.close()
    return figures


def _opened(tab: Page, file: Path) -> float:
    tab.goto(file.as_uri())
    tab.evaluate(_TIMED, "")
    return float(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))


def _answered(evaluate: Callable[..., Any], act: str, undo: str) -> float:
    took = float(evaluate(_TIMED, act))
    evaluate(_TIMED, undo)
    return took
