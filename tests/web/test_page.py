"""The live page in a real browser: what comes first, that it follows, what people may do, that it asks nobody else."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from reconciler.converge.events import ActionFinished, ActionStep, ignore
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.web import stream
from reconciler.drivers.web.access import WebOptions
from reconciler.drivers.web.application import Asset
from reconciler.model.outcome import Done
from reconciler.model.plan import BlockCode, Blocked, Incident, WaveState
from reconciler.model.status import NodeStatus, Role
from reconciler.model.vocab import DriftMode
from reconciler.render.html import Material
from reconciler.render.html.live import live_page
from tests.cli.shell import until
from tests.html import world
from tests.web.conftest import TOKENS, Live, live_fleet, serving
from tests.web.past import remember, under_way

pytestmark = [pytest.mark.tool, pytest.mark.wire, pytest.mark.xdist_group("chromium")]

ASSETS = {path: Asset(text.encode(), media) for path, (text, media) in live_page().items()}
HOSTILE = '<img src=x onerror="document.title=1"><b>'
Opened = Callable[..., Page]


@pytest.fixture(scope="module")
def fleet() -> Material:
    """Made before a browser is started: its loop runs for as long as it is open, and lab machines need one, too."""
    return world.make(320)


@pytest.fixture(scope="module")
def browser(fleet: Material) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program)
        yield started
        started.close()


@pytest.fixture
def live(fleet: Material, browser: Browser, tmp_path: Path) -> Iterator[Live]:
    with live_fleet(tmp_path, replace(fleet)) as found:
        yield found


@pytest.fixture
def opened(live: Live, browser: Browser, store: SecretStore) -> Iterator[Opened]:
    """Opens the page. Whatever goes wrong in it, or is asked of anybody else, fails the test."""
    wrong: list[str] = []
    contexts = []
    options = WebOptions("127.0.0.1:0", tokens=TOKENS)
    with serving(live, options, store=store, assets=ASSETS) as url:

        def complaints(text: str, kind: str) -> None:
            if kind in ("error", "warning") and not re.search(
                "status of 4(09|22)", text
            ):  # a refusal, which the page shows
                wrong.append(text)

        def open_page(
            fragment: str = "", *, width: int = 1280, without: str = "", timed: bool = False, **more: Any
        ) -> Page:
            context = browser.new_context(viewport={"width": width, "height": 900}, **more)
            contexts.append(context)
            tab = context.new_page()
            tab.on("console", lambda said: complaints(said.text, said.type))
            tab.on("pageerror", lambda error: wrong.append(str(error)))
            ours = (url, "data:,")
            tab.on("request", lambda asked: None if asked.url.startswith(ours) else wrong.append(asked.url))
            if timed:
                tab.clock.install()
            if without:
                tab.route(without, lambda route: route.fulfill(status=422))
            tab.goto(url + fragment)
            expect(tab.locator("#stream")).to_have_text("live", timeout=30_000)  # of a busy machine
            return tab

        yield open_page
        for context in contexts:
            context.close()
    assert wrong == []


def test_what_runs_comes_first_and_follows(live: Live, opened: Opened) -> None:
    name = live.begin()
    tab = opened()
    expect(tab.locator("#now-title")).to_contain_text("1 node at work")
    row = tab.locator("#work tbody tr")
    expect(row).to_contain_text(name)
    expect(row).to_contain_text("installer: writing 40 %")
    expect(row.locator("progress")).to_have_attribute("value", "40")
    action = live.material.plan.nodes[name].actions[0]
    tell = live.view.follow(ignore)
    tell(ActionStep(name, action.id, "installer: writing 88 %, 790 MB/s"))
    expect(row).to_contain_text("writing 88 %")
    tell(ActionFinished(name, action, Done(), 60.0))
    expect(tab.locator("#work tbody tr")).to_have_count(0)
    expect(tab.locator("#now-title")).to_contain_text("Nothing runs")


def test_exceptions_come_before_what_is_as_specified(live: Live, opened: Opened) -> None:
    tab = opened()
    expect(tab.locator("#list tbody tr").first).to_be_visible()
    shown = tab.locator("#list tbody .status").all_inner_texts()
    order = list(tab.evaluate("ORDER"))
    ranks = [order.index(one.replace(" ", "_")) for one in shown]
    assert ranks == sorted(ranks)
    trouble = [name for name, line in _lines(live).items() if line == NodeStatus.BLOCKED]
    for name in trouble:
        expect(tab.locator("#attention")).to_contain_text(name)
    tops = {part: tab.locator(f"#{part}").bounding_box() for part in ("now", "attention", "nodes")}
    ys = [box["y"] for box in tops.values() if box is not None]
    assert ys == sorted(ys)


def _lines(live: Live) -> dict[str, NodeStatus]:
    return {line.name: line.status for line in live.view.nodes()}


def test_tiles_and_text_narrow_the_list(live: Live, opened: Opened) -> None:
    tab = opened()
    many = sum(status is NodeStatus.HELD for status in _lines(live).values())
    tab.locator(".tile", has_text="Held").click()
    expect(tab.locator("#found")).to_have_text(f"{many} of 320 nodes")
    assert tab.locator("#list tbody tr").count() == many
    tab.locator(".tile", has_text="Held").click()
    tab.get_by_label("Find").fill("gpu-000017")
    expect(tab.locator("#found")).to_have_text("1 of 320 nodes")
    tab.get_by_label("Find").fill("")
    tab.get_by_role("button", name="Show all 320").click()
    assert tab.locator("#list tbody tr").count() == 320


def test_a_node_shows_its_difference_its_past_and_can_be_linked_to(live: Live, opened: Opened) -> None:
    item = next(
        item
        for plan in live.material.plan.nodes.values()
        for item in plan.drift
        if item.path.startswith("host.sysctls.") and isinstance(item.observed, str) and item.kind.value == "drifted"
    )
    live.ledger.hold(item.node, "ticket 12", "ann", None, live.workspace.clock.now())
    tab = opened(f"#node={item.node}")
    expect(tab.locator("#node-title")).to_have_text(item.node)
    expect(tab.locator(".diff .minus", has_text=str(item.desired)).first).to_be_visible()
    expect(tab.locator(".diff .plus", has_text=str(item.observed)).first).to_be_visible()
    expect(tab.locator("#node-body .feed")).to_contain_text("ann: ticket 12")
    expect(tab.locator("#node-body .strip .b-baking circle")).to_have_count(1)
    expect(tab.locator("#node-body .strip svg")).to_contain_text("hold")
    tab.get_by_role("button", name="Close").click()
    expect(tab).to_have_url(re.compile("^[^#]*#?$"))  # a dialog tells that it closed only after it did


def test_an_entry_of_the_journal_is_told_at_once(live: Live, opened: Opened) -> None:
    tab = opened()
    live.ledger.note("gpu-000017", "note", HOSTILE, live.workspace.clock.now())
    expect(tab.locator("#feed li").first).to_contain_text(HOSTILE)
    assert tab.locator("#feed img").count() == 0, "words are text"


def test_a_pass_is_seen_when_it_ends(live: Live, opened: Opened) -> None:
    """As the loop tells it: the pass, then its metrics, and last its own status."""
    tab = opened()
    expect(tab.locator("#matrix details").first).to_be_visible()
    tab.wait_for_timeout(1500)
    name = min(live.material.plan.nodes)
    blocked = replace(live.material.plan.nodes[name], blocked=Blocked(BlockCode.GATE, "its gate failed just now"))
    nodes = {**live.material.plan.nodes, name: blocked}
    live.material = replace(live.material, plan=replace(live.material.plan, nodes=nodes))
    live.pass_again()
    live.lead()
    expect(tab.locator("#attention")).to_contain_text("its gate failed just now")
    expect(tab.locator("#nodes").get_by_role("row", name=re.compile(f"^{name} "))).to_contain_text("blocked")


def test_a_stop_is_seen_at_once(live: Live, opened: Opened) -> None:
    tab = opened()
    live.metrics.loop_status(replace(live.metrics.status, stopped="by ops: smoke in hall 3"))
    expect(tab.locator("#alerts")).to_contain_text("Stopped: by ops: smoke in hall 3")


def test_an_incident_and_the_versions_of_a_pool_are_shown(live: Live, opened: Opened) -> None:
    nodes = tuple(sorted(live.material.plan.nodes)[:3])
    incident = Incident("xid-79", "rack r0001", nodes, "three GPUs fell off the bus within an hour")
    live.material = replace(live.material, plan=replace(live.material.plan, incidents=(incident,)))
    live.pass_again()
    tab = opened()
    alert = tab.locator("#attention .alert", has_text="Incident: xid-79 in rack r0001, 3 nodes")
    expect(alert).to_contain_text("three GPUs fell off the bus within an hour")
    pool = next(one for one in live.view.pools() if any(not line.wanted for line in one.versions))
    other = next(line for line in pool.versions if not line.wanted)
    row = tab.locator("#matrix details", has_text=f"{pool.name}:").locator("tr", has_text=re.compile(f"^{other.what}"))
    expect(row.locator("td").nth(2)).to_contain_text(re.compile(rf"{re.escape(other.version)} . {other.nodes}"))


def test_what_is_insecure_stands_on_top(live: Live, opened: Opened) -> None:
    told = "2 of 60 BMCs take the login that Dell comes with"
    live.material = replace(live.material, plan=replace(live.material.plan, insecure=(told,)))
    live.pass_again()
    expect(opened().locator("#attention .alert", has_text="INSECURE")).to_contain_text(f"INSECURE: {told}")


def test_a_standby_says_who_leads(live: Live, opened: Opened) -> None:
    live.lead(Role.STANDBY)
    expect(opened().locator("#alerts")).to_contain_text("This process does not lead")


# --- charts -----------------------------------------------------------------------------------------------------------


def by_keyboard(tab: Page, within: str, summary: str) -> None:
    """Open details as one does who has no mouse."""
    tab.locator(within).locator("summary", has_text=summary).first.focus()
    tab.keyboard.press("Enter")


def figures(chart: Locator, column: int) -> list[str]:
    return chart.locator(f"tbody td:nth-child({column})").all_inner_texts()


def test_a_rollout_is_drawn_with_its_past_and_now(live: Live, opened: Opened) -> None:
    live.material = under_way(live.material, live.workspace.clock.now())
    live.pass_again()
    remember(live)
    rollout = live.material.plan.rollouts[0]
    over = [wave for wave in rollout.waves if wave.state is WaveState.DONE]
    tab = opened()
    chart = tab.locator("#waves .chart").first
    drawing = chart.locator("svg[role=img]")
    expect(drawing.locator(".b-done rect")).to_have_count(len(over))
    expect(drawing).to_have_attribute("aria-label", re.compile(f"{sum(len(wave.nodes) for wave in over)} of "))
    assert len(over) == 2
    now = drawing.locator(".now line").bounding_box()
    assert now is not None
    for bar in drawing.locator(".b-done rect").all():
        box = bar.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] < now["x"], "what is over is before now"
    coming = drawing.locator(".b-open rect, .b-waiting rect, .b-baking rect")
    expect(coming).to_have_count(len([wave for wave in rollout.waves if wave.state is not WaveState.DONE]))
    by_keyboard(tab, "#waves .chart", "As a table")
    assert figures(chart, 3) == [wave.state.value for wave in rollout.waves]
    assert [int(text) for text in figures(chart, 4)] == [
        len(wave.nodes) if wave in over else 0 for wave in rollout.waves
    ]


def test_the_spread_of_results_shows_bars_and_names_outliers(live: Live, opened: Opened) -> None:
    remember(live)
    tab = opened()
    by_keyboard(tab, "#measured", "What the gate measured")
    part = tab.locator("#spreads .part", has_text="busbw_peak").first
    drawing = part.locator("svg[role=img]")
    expect(drawing).to_contain_text("bar >= 440 GB/s")
    expect(drawing.locator(".b-refused rect")).to_have_count(1)
    expect(drawing.locator(".limit line")).to_have_count(1)
    part.locator("summary", has_text="As a table").click()
    refused = [int(text) for text in figures(part, 3)]
    named = part.locator("li button").all_inner_texts()
    assert sum(refused) == len(named) == 4
    part.get_by_role("button", name=named[0]).click()
    expect(tab.locator("#node-title")).to_have_text(named[0])


def test_availability_is_drawn_and_told(live: Live, opened: Opened) -> None:
    remember(live)
    tab = opened()
    by_keyboard(tab, "#availability", "Availability")
    chart = tab.locator("#service .chart")
    expect(chart.locator("svg[role=img]")).to_have_attribute(
        "aria-label", re.compile(r"9\d\.\d % of \d+ node-hours seen")
    )
    by_keyboard(tab, "#service", "As a table")
    shares = figures(chart, 2)
    assert len(shares) == 30
    known = [share for share in shares if share != "not known"]
    assert chart.locator(".b-open circle").count() == len(known) > 10
    assert "not known" in shares, "days on which nobody looked are no days out of service"


def test_a_chart_that_cannot_be_read_says_so(live: Live, opened: Opened) -> None:
    remember(live)
    tab = opened(without="**/charts.js")
    expect(tab.locator("#waves .drawing .alert").first).to_contain_text("the charts could not be read")
    by_keyboard(tab, "#waves .chart", "As a table")
    assert figures(tab.locator("#waves .chart").first, 1)[0] == "wave 1", "its figures are there"


# --- what people may do -----------------------------------------------------------------------------------------------


def sign_in(tab: Page, name: str) -> None:
    tab.get_by_role("button", name="Sign in").first.click()
    tab.get_by_label("Token").fill(f"{name}-{'x' * 30}")
    tab.locator("#sign-in").get_by_role("button", name="Sign in").click()
    expect(tab.locator("#who")).to_have_text(re.compile(rf"^{name} "))


def test_only_a_role_can_hold_and_the_journal_says_who(live: Live, opened: Opened) -> None:
    name = next(name for name, status in _lines(live).items() if status is NodeStatus.CONVERGED)
    tab = opened(f"#node={name}")
    expect(tab.locator("#node-body details")).to_be_visible()
    assert tab.locator("#node-body").get_by_role("button", name="Hold").count() == 0
    assert not tab.locator("#stop").is_visible()
    tab.get_by_role("button", name="Close").click()
    sign_in(tab, "bob")
    tab.evaluate(f"openNode('{name}')")
    tab.locator("#node-body").get_by_role("button", name="Hold").click()
    tab.get_by_label("Reason").fill("ticket 12")
    tab.locator("#ask-do").click()
    expect(tab.locator("#node-body").get_by_role("button", name="Release")).to_be_visible()
    (hold,) = live.ledger.holds()
    assert (hold.subject, hold.owner, hold.reason) == (name, "bob", "ticket 12")
    expect(tab.locator("#feed li").first).to_contain_text("bob: ticket 12")
    tab.locator("#node-body").get_by_role("button", name="Release").click()
    tab.locator("#ask-do").click()
    expect(tab.locator("#node-body").get_by_role("button", name="Release")).to_have_count(0)
    assert live.ledger.holds() == ()


def test_an_admin_approves_what_was_shown_and_lifts_a_stop(live: Live, opened: Opened) -> None:
    fleet = live.material.fleet
    live.material = replace(
        live.material, fleet=replace(fleet, settings=replace(fleet.settings, drift_mode=DriftMode.OBSERVE))
    )
    live.pass_again()
    first, second = live.view.approvals().nodes[:2]
    tab = opened()
    rows = tab.locator("#waiting")
    expect(rows).to_contain_text(first.fingerprint[:12])
    assert tab.locator("#waiting").get_by_role("button", name="Approve").count() == 0, "a viewer may not"
    sign_in(tab, "bob")
    expect(rows).to_contain_text(first.node)
    assert tab.locator("#waiting").get_by_role("button", name="Approve").count() == 0, "an operator may not"
    tab = opened()
    sign_in(tab, "eve")

    def row_of(node: str) -> Locator:
        return tab.locator("#waiting tr", has=tab.get_by_role("button", name=node, exact=True))

    row = row_of(first.node)
    row.get_by_role("button", name="Approve").click()
    tab.get_by_label("Reason").fill("ticket 12")
    tab.locator("#ask-do").click()
    expect(row).to_contain_text("by eve")
    assert live.view.approved.by(first.node, first.fingerprint) == "eve"
    expect(tab.locator("#feed li").first).to_contain_text("ticket 12")
    until(
        lambda: bool(tab.evaluate("!reading && !again")), 20
    )  # of the approval: what is read after this would show the other plan
    other = replace(live.material.plan.nodes[second.node], fingerprint="f" * 64)
    plans = {**live.material.plan.nodes, second.node: other}
    live.view.saw(live.material.fleet, replace(live.material.plan, nodes=plans), live.material.observation)
    row_of(second.node).get_by_role("button", name="Approve").click()
    tab.get_by_label("Reason").fill("ticket 13")
    tab.locator("#ask-do").click()
    expect(tab.locator("#ask-error")).to_contain_text("is another one now than was shown")
    assert live.view.approved.by(second.node, "f" * 64) == ""
    tab.locator("#ask-no").click()
    assert not tab.locator("#resume").is_visible()
    tab.locator("#stop").click()
    tab.get_by_label("Reason").fill("smoke")
    tab.locator("#ask-do").click()
    expect(tab.locator("#ask")).to_be_hidden()
    live.metrics.loop_status(replace(live.metrics.status, stopped="eve: smoke"))
    tab.locator("#resume").click()
    tab.locator("#ask-do").click()
    expect(tab.locator("#ask")).to_be_hidden()
    assert live.ledger.holds() == ()


def test_a_node_at_work_waits_for_no_approval(live: Live, opened: Opened) -> None:
    fleet, now = live.material.fleet, live.workspace.clock.now()
    settings = replace(fleet.settings, drift_mode=DriftMode.OBSERVE)
    plan = replace(live.material.plan, created_at=now)
    live.material = replace(live.material, fleet=replace(fleet, settings=settings), plan=plan)
    live.pass_again()
    name = next(name for name, plan in live.material.plan.nodes.items() if len(plan.actions) > 1)
    tab = opened()
    row = tab.locator("#waiting").get_by_role("button", name=name, exact=True)
    shown = live.view.approvals().nodes[:10]
    assert name in {one.node for one in live.view.approvals().nodes}
    assert shown[0].node == name, "it is in the rows that are shown"
    expect(row).to_be_visible()
    whole = tab.evaluate("approvable.nodes.length")
    assert live.begin() == name
    expect(tab.locator("#work tbody tr")).to_contain_text(name)
    expect(row).to_have_count(0)
    expect(tab.locator("#waiting").get_by_role("button", name=shown[1].node, exact=True)).to_be_visible()
    assert name not in {one.node for one in live.view.approvals().nodes}
    tell, action = live.view.follow(ignore), live.material.plan.nodes[name].actions[0]
    tell(ActionFinished(name, action, Done(), 60.0))
    assert name not in {one.node for one in live.view.approvals().nodes}, "its plan is of before the work"
    plan = replace(live.material.plan, created_at=live.workspace.clock.now())
    live.view.saw(live.material.fleet, plan, live.material.observation)
    assert len(live.view.approvals().nodes) == whole, "a pass has planned it anew"


def test_what_a_browser_has_is_not_sent_again(opened: Opened) -> None:
    tab = opened()

    def sent() -> dict[str, int]:
        """What came over the network of each file, once the charts are drawn with it."""
        expect(tab.locator("#waves .drawing svg").first).to_be_visible()
        found = tab.evaluate("performance.getEntriesByType('resource').map(one => [one.name, one.transferSize])")
        return {name.rpartition("/")[2]: size for name, size in found if name.endswith((".js", ".css"))}

    first = sent()
    assert {"page.css", "page.js", "charts.js"} == first.keys()
    tab.reload()
    for name, size in sent().items():
        assert size < 1000 < first[name], f"{name} is sent anew, and was not changed"


def test_a_refusal_is_shown_where_it_was_asked_for(live: Live, opened: Opened) -> None:
    tab = opened()
    sign_in(tab, "bob")
    tab.locator("#stop").click()
    tab.get_by_label("Reason").fill("   ")
    tab.locator("#ask-do").click()
    expect(tab.locator("#ask-error")).to_contain_text("give a reason")
    assert live.ledger.holds() == ()


# --- for everybody ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_axe_finds_nothing(live: Live, opened: Opened, width: int, scheme: Any) -> None:
    name = live.begin()
    now = live.workspace.clock.now()
    live.ledger.hold(name, "ticket 12", "ann", None, now)
    remember(live)
    tab = opened(width=width, color_scheme=scheme)
    expect(tab.locator("#matrix details").first).to_be_visible()
    for part, chart in (("measured", "#spreads .drawing svg"), ("availability", "#service .drawing svg")):
        tab.locator(f"#{part} summary").first.click()
        expect(tab.locator(chart).first).to_be_visible()
    expect(tab.locator("#waves .drawing svg").first).to_be_visible()
    for table in tab.locator(".chart summary").all():
        table.click()
    assert violations(tab) == []
    tab.evaluate(f"openNode('{name}')")
    expect(tab.locator("#node-body details")).to_be_visible()
    tab.locator("#node-body summary").click()
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is cut off at the side"


def violations(tab: Page) -> list[str]:
    found = Axe().run(tab).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]


def test_a_stream_in_which_nothing_comes_is_asked_for_anew(
    live: Live, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a sleep, or behind a network that has forgotten the connection: nothing ends, and nothing comes."""
    monkeypatch.setattr(stream, "_ALIVE_S", 1e6)
    tab = opened(timed=True)
    tab.clock.fast_forward("50")
    expect(tab.locator("#stream")).to_have_text("reconnecting", timeout=30_000)
    expect(tab.locator("#stream")).to_have_text("live", timeout=30_000)
    live.ledger.note("gpu-000017", "note", "heard again", live.workspace.clock.now())
    expect(tab.locator("#events")).to_contain_text("heard again", timeout=30_000)
