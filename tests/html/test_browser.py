"""The page in a real browser: what people see, what they do with keys and fingers, and what they are told."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from reconciler.render.explain_waiting import headline
from reconciler.render.explanation import values
from reconciler.render.text import position
from tests.html import hostile
from tests.html.conftest import Opened, Pages

pytestmark = [pytest.mark.tool, pytest.mark.xdist_group("chromium")]


def fragment(tab: Page) -> str:
    return str(tab.evaluate("location.hash"))


def focused(tab: Page) -> str:
    """The node, or what else has the focus."""
    return str(tab.evaluate("nodes.name[document.activeElement.dataset.node] ?? document.activeElement.id"))


def matching(tab: Page) -> int:
    return tab.locator(".cell:not(.off)").count()


def test_every_node_has_its_place(opened: Opened, pages: Pages) -> None:
    tab = opened()
    assert tab.locator(".cell").count() == len(pages.fleet.plan.nodes)
    racks = {node.domains["rack"] for node in pages.fleet.fleet.nodes.values()}
    assert tab.locator(".rack").count() == len(racks)
    name = sorted(pages.fleet.plan.nodes)[17]
    cell = tab.get_by_role("gridcell", name=re.compile(f"^{name}, "))
    rack = tab.get_by_role("row", name=f"rack {pages.fleet.fleet.nodes[name].domains['rack']}, 16 nodes")
    assert rack.locator(cell).count() == 1
    status = pages.fleet.statuses[name].value.replace("_", " ")
    assert f"{name}, {status}, " in (cell.get_attribute("aria-label") or "")


def test_a_pool_in_no_rack_is_a_block_of_its_own(opened: Opened, pages: Pages) -> None:
    own = [node for node in pages.small.plan.nodes.values() if node.pool == "inference-1"]
    block = opened("small").get_by_role("row", name=f"pool inference-1, {len(own)} nodes")
    assert block.locator(".cell").count() == len(own)


# --- filters ---------------------------------------------------------------------------------------------------------


def test_filters_narrow_the_map_say_how_many_and_can_be_passed_on(opened: Opened, pages: Pages) -> None:
    tab = opened()
    statuses = pages.fleet.statuses
    waiting = {name for name, status in statuses.items() if status.value == "waiting"}
    tab.locator(".tile", has_text="Waiting").click()
    assert matching(tab) == len(waiting)
    expect(tab.locator("#found")).to_have_text(f"{len(waiting)} of 320 nodes match")
    pool = min(pages.fleet.plan.nodes[name].pool for name in waiting)
    tab.locator("#pool").select_option(pool)
    both = {name for name in waiting if pages.fleet.plan.nodes[name].pool == pool}
    assert matching(tab) == len(both)
    assert fragment(tab) == f"#pool={pool}&status=waiting"

    again = opened("fleet", fragment(tab))
    assert matching(again) == len(both)
    assert again.locator("#status").input_value() == "waiting"
    again.get_by_role("button", name="Clear").click()
    assert (matching(again), fragment(again)) == (320, "")


def test_text_finds_names_racks_and_values_that_differ(opened: Opened, pages: Pages) -> None:
    tab, find = opened(), "gpu-000017"
    tab.get_by_label("Find").fill(find)
    assert matching(tab) == 1
    assert tab.locator(".rack:visible").count() == 1, "racks without any are out of the way"
    tab.get_by_label("Find").fill("r0003")
    assert matching(tab) == 16
    tab.get_by_label("Find").fill("no such thing")
    assert matching(tab) == 0
    tab.get_by_label("Find").fill("")
    row = tab.locator("#differences tr", has_text="host.sysctls.vm.swappiness").first
    row.get_by_role("button", name="on the map").click()
    differ = [
        name
        for name, node in pages.fleet.plan.nodes.items()
        if any(item.path == "host.sysctls.vm.swappiness" for item in node.drift)
    ]
    assert matching(tab) == len(differ)


def test_concerns_colour_and_filter(opened: Opened, pages: Pages) -> None:
    tab = opened()
    tab.get_by_role("radio", name="Concern").check()
    ill = [name for name, node in pages.fleet.plan.nodes.items() if any(i.concern.value == "boot" for i in node.drift)]
    tab.locator("#concern").select_option("boot")
    assert matching(tab) == tab.locator(".cell.c-boot:not(.off)").count() == len(ill) > 0
    assert {"firmware", "image", "nothing differs"} <= set(tab.locator("#legend li").all_inner_texts())


def test_nodes_are_grouped_by_any_domain(opened: Opened, pages: Pages) -> None:
    tab = opened()
    tab.get_by_label("Group by").select_option("pool")
    pools = {node.pool for node in pages.fleet.plan.nodes.values()}
    assert tab.locator(".rack").count() == len(pools)
    assert tab.locator(".cell").count() == 320


def test_a_large_map_comes_in_parts_and_comes_whole(opened: Opened) -> None:
    tab = opened("many")
    cells, blocks = tab.locator(".cell"), tab.locator(".rack")
    expect(cells).to_have_count(1510)
    tab.evaluate("change({ by: 'pool' }); change({ by: 'rack' }); change({ by: 'pool' })")
    expect(cells).to_have_count(1510)
    expect(blocks).to_have_count(8)
    assert (
        tab.evaluate("new Set([...document.querySelectorAll('.cell')].map((each) => each.dataset.node)).size") == 1510
    )
    tab.locator('.cell[tabindex="0"]').focus()
    tab.keyboard.press("Control+End")
    assert focused(tab) == "gpu-001507", "the last of the last block"


# --- one node --------------------------------------------------------------------------------------------------------


def test_a_node_in_full_says_what_explain_says(opened: Opened, pages: Pages) -> None:
    """Desired, observed, drift, plan, evidence and history of a node that waits, and failed its bar."""
    name = "gpu-000007"
    made, tab = pages.fleet.explained(name), opened("fleet", "#node=gpu-000007")
    panel = tab.get_by_role("dialog", name=name)
    told = panel.inner_text()
    assert headline(made) in told
    found = values(made)
    assert sum(value.item is not None for value in found) == panel.locator(".value").count() > 0
    for value in (value for value in found if value.item is not None):
        entry = panel.locator(".value", has_text=value.path).first.inner_text()
        assert position(value.place) in entry
        assert value.item is not None
        assert value.item.kind.value in entry
        assert value.item.first_seen is not None
        assert f"{value.item.first_seen:%Y-%m-%d %H:%M:%S} UTC" in entry
    panel.locator("summary", has_text="as specified").click()
    kept = next(value for value in found if value.item is None and value.path == "firmware.bmc")
    row = panel.locator("tr", has_text="firmware.bmc").inner_text()
    assert str(kept.wanted) in row
    assert "Redfish inventory, " in row
    plan = pages.fleet.plan.nodes[name]
    assert [action.id for action in plan.actions] == panel.locator(".steps b").all_inner_texts()
    assert plan.blocked is not None
    assert plan.blocked.detail in told
    evidence = panel.locator("tr", has_text="busbw_peak").inner_text()
    certificate = pages.fleet.records[name].certificate
    assert certificate is not None
    measured = next(result.metrics["busbw_peak"] for result in certificate.results if result.test == "nccl")
    assert f"{measured:.2f}".rstrip("0") in evidence
    assert "at least 440" in evidence
    assert "fail" in evidence
    history = panel.get_by_role("group", name="History").locator("tbody tr").all_inner_texts()
    begun = pages.fleet.now - timedelta(days=2) + timedelta(seconds=70)  # after the drain (tests/html/world.py)
    assert f"{begun:%Y-%m-%d %H:%M:%S} UTC\trun_gate\tdone, 23m20s\tas asked; required by run_gate" in history


def test_a_node_that_is_held_or_silent_says_why(opened: Opened) -> None:
    held = opened("fleet", "#node=gpu-000002").get_by_role("dialog")
    assert "a person is looking, ticket 4711" in held.inner_text()
    silent = opened("fleet", "#node=gpu-000001").get_by_role("dialog")
    assert "no route to host" in silent.inner_text()


def test_strings_of_machines_are_shown_and_never_run(opened: Opened, pages: Pages) -> None:
    tab = opened("hostile")
    name = next(name for name, node in sorted(pages.small.plan.nodes.items()) if node.drift and node.blocked)
    tab.get_by_role("gridcell", name=re.compile(f"^{name}, ")).click()
    panel = tab.get_by_role("dialog", name=name)
    assert hostile.SHOWN in panel.inner_text()
    tab.get_by_role("button", name="Close").click()
    tab.get_by_role("radio", name="Table").check()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator("img").count() == 0
    assert hostile.SHOWN in tab.locator("#plan").inner_text()
    assert "49" not in tab.locator(".alert").first.inner_text(), "nor read as a template"


# --- keys, readers, screens ------------------------------------------------------------------------------------------


def place_in_page(tab: Page) -> dict[str, float]:
    """Where the focused element is in the document, in CSS pixels.

    A bounding box counts from the window, and the browser may scroll a cell into view between two readings.
    """
    place: dict[str, float] = tab.evaluate(
        """() => {
          const box = document.activeElement.getBoundingClientRect();
          return { x: box.x + scrollX, y: box.y + scrollY };
        }"""
    )
    return place


def test_all_of_it_goes_by_keyboard(opened: Opened) -> None:
    tab = opened()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the map"
    tab.keyboard.press("Enter")
    assert focused(tab) == "map"
    stops = tab.locator('.cell[tabindex="0"]')
    assert stops.count() == 1, "one stop for the whole map"
    stops.focus()
    tab.keyboard.press("ArrowRight")
    assert focused(tab) == "gpu-000001"
    tab.keyboard.press("End")
    assert focused(tab) == "gpu-000015"
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowDown")
    assert focused(tab) == "gpu-000008", "the cell below, in the same rack"
    above = place_in_page(tab)
    tab.keyboard.press("ArrowDown")
    below = place_in_page(tab)
    assert abs(below["x"] - above["x"]) < 2
    assert below["y"] > above["y"]
    tab.keyboard.press("ArrowUp")
    assert focused(tab) == "gpu-000008"
    tab.keyboard.press("Control+End")
    assert focused(tab) == "gpu-000319"
    assert stops.count() == 1


def test_a_panel_takes_the_focus_and_gives_it_back(opened: Opened) -> None:
    tab = opened()
    tab.locator('.cell[tabindex="0"]').focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("dialog", name="gpu-000001")).to_be_visible()
    assert focused(tab) == "node-title"
    tab.get_by_role("button", name="Next node").press("Enter")
    expect(tab.get_by_role("dialog", name="gpu-000002")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("#node")).to_be_hidden()
    assert (focused(tab), fragment(tab)) == ("gpu-000002", "")


def test_the_table_says_what_the_map_says(opened: Opened, pages: Pages) -> None:
    tab = opened("fleet", "#view=table&status=blocked")
    blocked = sorted(name for name, status in pages.fleet.statuses.items() if status.value == "blocked")
    rows = tab.locator("#list tbody tr")
    assert [text.split("\t")[0] for text in rows.all_inner_texts()] == blocked
    tab.get_by_role("button", name="Clear").click()
    assert rows.count() == 100
    tab.get_by_role("button", name="Next", exact=True).press("Enter")
    expect(tab.locator(".pages [role=status]")).to_have_text("101 to 200 of 320")
    tab.locator("[data-sort=status]").press("Enter")
    assert tab.locator("th[aria-sort=ascending]").inner_text().startswith("status")
    assert focused(tab) == "", "the heading keeps the focus"
    name = rows.nth(3).get_by_role("button")
    name.press("Enter")
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.textContent") == name.inner_text()


@pytest.mark.parametrize(
    ("shown", "scheme"),
    [("", "light"), ("#colour=concern", "dark"), ("#view=table", "light"), ("#node=gpu-000007", "light"),
     ("#node=gpu-000007", "dark")],
)  # fmt: skip
def test_readers_and_weak_eyes_can_use_it(opened: Opened, shown: str, scheme: str) -> None:
    """By the rules of axe-core: names, roles, order of headings, contrast."""
    tab = opened("small", shown, color_scheme=scheme)
    for part in tab.locator("details").all():
        part.evaluate("(details) => { details.open = true; }")
    tab.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")
    found = Axe().run(tab)
    assert found.violations_count == 0, found.generate_report()


# Colours of every kind of cell as the browser paints them: ground, sign, rim, and of what it lies on.
COLOURS = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const card = getComputedStyle(byId("map")).backgroundColor;
  const kinds = [...data.statuses.map((each) => `s-${each}`), ...data.concerns.map((each) => `c-${each}`), "c-none"];
  return kinds.map((kind) => {
    const cell = byId("map").appendChild(sample(kind)), style = getComputedStyle(cell);
    return [kind, ...[style.backgroundColor, style.color, style.borderTopColor, card].map(rgb)];
  });
}"""


def contrast(one: list[int], other: list[int]) -> float:
    """As WCAG 2 measures it."""

    def light(colour: list[int]) -> float:
        parts = [part / 255 for part in colour]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_signs_of_cells_can_be_read_and_cells_seen(opened: Opened, scheme: str) -> None:
    """The rules above look at no generated text, which signs are."""
    for kind, ground, sign, rim, card in opened("small", color_scheme=scheme).evaluate(COLOURS):
        assert contrast(ground, sign) >= 4.5, f"{kind}: sign on its ground"
        assert max(contrast(rim, card), contrast(ground, card)) >= 3, f"{kind}: cell on the map"


def test_light_and_dark_follow_the_system_until_somebody_switches(opened: Opened) -> None:
    def ground(tab: Page) -> str:
        return str(tab.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = opened(color_scheme="light"), opened(color_scheme="dark")
    assert ground(light) != ground(dark)
    light.get_by_role("button", name="Switch to dark colours").click()
    assert ground(light) == ground(dark)
    light.reload()
    assert ground(light) == ground(dark), "it is remembered"


@pytest.mark.parametrize("name", ["fleet", "small"])
@pytest.mark.parametrize("shown", ["", "#view=table", "#node=gpu-000007"])
def test_a_phone_never_scrolls_sideways(opened: Opened, name: str, shown: str) -> None:
    tab = opened(name, shown, width=360, has_touch=True)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    if "node" in shown:
        assert tab.evaluate("document.querySelector('#node').scrollWidth") == 360
        tab.get_by_role("button", name="Close").tap()
        expect(tab.locator("#node")).to_be_hidden()


def test_who_wants_no_motion_gets_none(opened: Opened) -> None:
    tab = opened("fleet", "#node=gpu-000007", reduced_motion="reduce")
    assert tab.evaluate("document.getAnimations().length") == 0
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_on_paper_there_is_nothing_to_press(opened: Opened) -> None:
    tab = opened(color_scheme="dark")
    tab.emulate_media(media="print")
    for part in ("#filters", "nav", "#theme", ".skip"):
        expect(tab.locator(part)).to_be_hidden()
    expect(tab.locator(".cell").last).to_be_visible()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_without_scripts_the_summary_is_there(opened: Opened, pages: Pages) -> None:
    tab = opened(java_script_enabled=False)
    assert " from the spec" in tab.locator("h1").inner_text()
    expect(tab.locator("noscript p")).to_be_visible()
    expect(tab.locator("#filters")).to_be_hidden()
    assert tab.locator("#differences tbody tr").count() > 5


# --- what the gate measured ------------------------------------------------------------------------------------------


def test_a_distribution_shows_the_bar_between_who_passes_and_who_is_refused(opened: Opened) -> None:
    """By what is on the screen: refused columns stand left of the line of a lower bar, and the others right of it."""
    tab = opened()
    figure = tab.locator(".distribution").first
    figure.scroll_into_view_if_needed()
    expect(figure).to_contain_text("nccl: busbw_peak in GB/s")
    expect(figure.locator("figcaption")).to_contain_text("bar >= 440 GB/s")
    line = figure.locator("svg.columns line.limit")
    assert line.count() == 1
    assert line.locator("title").text_content() == "bar >= 440 GB/s"
    at, tick = line.bounding_box(), figure.locator("svg.ticks text", has_text=re.compile("^440$")).bounding_box()
    assert at is not None
    assert tick is not None
    assert abs(at["x"] - tick["x"]) < 3, "the line stands where the axis says 440"
    for kind, is_left in (("refused", True), ("passes", False)):
        columns = figure.locator(f"svg.columns rect.b-{kind}")
        boxes = [box for n in range(columns.count()) if (box := columns.nth(n).bounding_box()) is not None]
        assert boxes, kind
        assert all(box["height"] >= 2 for box in boxes), "a single node is high enough to be seen"
        for box in boxes:
            middle = box["x"] + box["width"] / 2
            assert (middle < at["x"]) is is_left, (kind, box, at)


def test_a_distribution_names_its_outliers_and_leads_to_them(opened: Opened, pages: Pages) -> None:
    tab = opened("declined")
    named = tab.get_by_role("list", name=re.compile("^Nodes that stand out in nccl: busbw_peak"))
    refused = named.get_by_role("listitem").filter(has_text="below the bar 440")
    assert refused.count() >= 3
    gray = named.get_by_role("listitem").filter(has_text=pages.declined)
    expect(gray).to_contain_text(re.compile(r"4\.8% less than the [0-9.]+ GB/s when it first passed, on \d{4}-"))
    gray.get_by_role("button", name=pages.declined).click()
    expect(tab.get_by_role("dialog", name=pages.declined)).to_be_visible()
    assert fragment(tab) == f"#node={pages.declined}"
