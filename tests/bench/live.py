"""The live page: until it is painted, until it shows every node, and until a change of what runs or a pass is shown."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.report import Table

if TYPE_CHECKING:
    from tests.web.conftest import Live

TARGET_PAINT_MS, TARGET_UPDATE_MS = 1_000, 200
RUNS: Final = 5
# Milliseconds since the loop told it, by the clock that both share, until the frame that shows it.
_SHOWN: Final = """(text) => new Promise((done) => {
  const look = () => document.body.textContent.includes(text)
    ? requestAnimationFrame(() => done(performance.timeOrigin + performance.now())) : setTimeout(look, 2);
  look();
})"""
_PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_LISTED: Final = """() => new Promise((done) => {
  const look = () => everyNode.length ? done(performance.now()) : setTimeout(look, 5);
  look();
})"""
# The least that any page takes for such news: a word from the server, one answer, one word shown.
_FLOOR: Final = """async (at) => {
  const begun = performance.now();
  await (await fetch(`/healthz?${at}`)).text();
  document.title = `floor ${at}`;
  return new Promise((done) => requestAnimationFrame(() => done(performance.now() - begun)));
}"""


def section(sizes: tuple[int, ...]) -> list[Table]:
    chromium = shutil.which("chromium")
    if chromium is None:
        return [Table("Live page: not measured, there is no chromium", ("",), [], ())]
    found = [_of_size(chromium, size) for size in sizes]
    return [
        Table(
            "Live page: ms (median of some runs), in headless Chromium, with the server on the same machine",
            ("nodes", *(f"{size:,}" for size in sizes)),
            [(name, *(one[name] for one in found)) for name in found[0]],
            (f"targets for 5,000 nodes: first paint within {TARGET_PAINT_MS} ms, update within {TARGET_UPDATE_MS} ms",),
        )
    ]


def _of_size(chromium: str, nodes: int) -> dict[str, float | None]:
    from playwright.sync_api import sync_playwright

    from tests.html.world import make
    from tests.web.conftest import live_fleet, serving
    from tests.web.test_page import ASSETS

    material = make(nodes)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        live_fleet(Path(name), material) as live,
        serving(live, assets=ASSETS) as url,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium)
        paints, lists = [], []
        for _ in range(RUNS):
            tab = browser.new_page(viewport={"width": 1440, "height": 1000})
            tab.goto(url)
            lists.append(float(tab.evaluate(_LISTED)))
            paints.append(float(tab.evaluate(_PAINT)))
        tab.wait_for_selector("#matrix details")
        tab.wait_for_timeout(1_000)
        floors = [float(tab.evaluate(_FLOOR, at)) for at in range(4 * RUNS)]
        works = [_work(live, tab, at) for at in range(RUNS)]
        passes = [_pass(live, tab, at) for at in range(RUNS)]
        browser.close()
    floor, work, whole = map(statistics.median, (floors, works, passes))
    return {
        "first paint": statistics.median(paints),
        "every node listed": statistics.median(lists),
        "floor: one request of the same page, and a frame": floor,
        "what runs has changed": work,
        "a node's status has changed in a pass": whole,
        "what runs: times the floor": work / floor,
        "a pass: times the floor": whole / floor,
    }


def _work(live: Live, tab: Any, at: int) -> float:
    """Tell a step of an action, and return the time until it is shown."""
    from reconciler.converge.events import ActionStep, ignore

    name, plan = next((name, plan) for name, plan in live.material.plan.nodes.items() if plan.actions)
    tab.wait_for_timeout(500)
    begun = time.time()
    live.view.follow(ignore)(ActionStep(name, plan.actions[0].id, f"installer: step {at} of the bench"))
    return float(tab.evaluate(_SHOWN, f"step {at} of the bench")) - 1e3 * begun


def _pass(live: Live, tab: Any, at: int) -> float:
    """End a pass after which the first node waits for something else, and return the time until it is shown."""
    from reconciler.model.plan import BlockCode, Blocked

    name = min(live.material.plan.nodes)
    nodes = dict(live.material.plan.nodes)
    nodes[name] = replace(nodes[name], blocked=Blocked(BlockCode.GATE, f"pass {at} of the bench"))
    live.material = replace(live.material, plan=replace(live.material.plan, nodes=nodes))
    tab.wait_for_timeout(1_000)
    live.pass_again()
    begun = time.time()
    live.lead()
    return float(tab.evaluate(_SHOWN, f"pass {at} of the bench")) - 1e3 * begun
