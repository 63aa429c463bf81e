"""`python -m tests.web.pictures [DIRECTORY]`: take the pictures of the live page that the docs show, in Chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from reconciler.converge.events import ActionStarted, ActionStep, ignore
from reconciler.drivers.web.access import WebOptions
from reconciler.drivers.web.application import Asset
from reconciler.model.vocab import DriftMode
from reconciler.render.html import Material
from reconciler.render.html.live import live_page
from tests.conftest import ROOT
from tests.html import world
from tests.web.conftest import TOKENS, Live, live_fleet, secret_store, serving
from tests.web.past import remember, under_way

PICTURES = ROOT / "docs" / "pictures"
NODES = 320
ASSETS = {path: Asset(text.encode(), media) for path, (text, media) in live_page().items()}


def main(directory: Path = PICTURES) -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print("chromium is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    material = under_way(world.make(NODES), datetime.now(UTC))
    options = WebOptions("127.0.0.1:0", tokens=TOKENS)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, live_fleet(Path(name), _proposing(material)) as live:
        remember(live)
        working = _work(live)
        with (
            serving(live, options, store=secret_store(Path(name)), assets=ASSETS) as url,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=chromium)
            _take(browser, url, working, directory)
            browser.close()
    return 0


def _work(live: Live) -> str:
    """Have somebody approve two plans, and both be under way. Return the node that is reimaged."""
    plans = live.material.plan.nodes.values()
    images, drains = (
        next((one, step) for one in plans for step in one.actions if step.name == name) for name in ("reimage", "drain")
    )
    nodes = {one.node: one.fingerprint for one, _ in (images, drains)}
    live.view.approved.grant(live.material.plan, nodes, "eve", live.workspace.clock.now())
    tell = live.view.follow(ignore)
    for (one, step), said in ((images, "installer: writing 64 %, 812 MB/s"), (drains, "3 of 11 pods are gone")):
        tell(ActionStarted(one.node, step))
        tell(ActionStep(one.node, step.id, said))
    return images[0].node


def _proposing(material: Material) -> Material:
    """Return a fleet whose plans wait for an approval."""
    settings = replace(material.fleet.settings, drift_mode=DriftMode.PROPOSE)
    return replace(material, fleet=replace(material.fleet, settings=settings))


def _take(browser: Browser, url: str, working: str, directory: Path) -> None:
    page = _open(browser, url, 1280)
    page.screenshot(path=directory / "live-page.png")
    page.locator("#approvals").screenshot(path=directory / "live-approvals.png")
    expect(page.locator("#waves .drawing svg").first).to_be_visible()
    page.locator("#rollouts").screenshot(path=directory / "live-rollouts.png")
    page.locator("#measured summary").first.click()
    expect(page.locator("#spreads .drawing svg").first).to_be_visible()
    page.locator("#spreads .part").first.screenshot(path=directory / "live-measured.png")
    page.locator("#availability summary").first.click()
    expect(page.locator("#service .drawing svg").first).to_be_visible()
    page.locator("#availability").screenshot(path=directory / "live-availability.png")
    page = _open(browser, url, 1280)
    page.evaluate(f"openNode('{working}')")
    expect(page.locator("#node-body .drawing svg").first).to_be_visible()
    page.screenshot(path=directory / "live-node.png")
    phone = _open(browser, url, 390, device_scale_factor=2, is_mobile=True, has_touch=True)
    phone.screenshot(path=directory / "live-phone.png")


def _open(browser: Browser, url: str, width: int, **more: Any) -> Page:
    """Open the page as an admin sees it."""
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light", **more).new_page()
    page.goto(url)
    page.evaluate(f"sessionStorage.setItem('reconciler-token', 'eve-{'x' * 30}')")
    page.reload()
    expect(page.locator("#stream")).to_have_text("live")
    expect(page.locator("#who")).to_have_text("eve (admin)")
    expect(page.locator("#matrix details").first).to_be_visible()
    return page


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
