"""Comments: they fit, nothing that a machine says breaks them, and they read well (tests/render/comments)."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from reconciler.model.bars import BarSpread, Histogram, Limits, Measured, MovedBar, NewTest
from reconciler.model.change import BarFailure, Change, EndpointChange, VoidCertificate
from reconciler.model.desired import LineOrigin, SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import BlockCode, Blocked, NodePlan, Offline, Plan, Scope, Wave, WaveState
from reconciler.model.report import ActionEnd, ApplyOutcome, DriftReport, NodeEnd
from reconciler.model.vocab import Concern, Disruption
from reconciler.render.comment import Document, Kind, Missing, Place, comment, failure, key_of, mark_of, with_status
from reconciler.render.headline import Verdict
from reconciler.render.markdown import CHARACTERS
from reconciler.render.text import NodeNames
from tests import builders as b
from tests.golden.plans import read
from tests.render.test_plan import DRAIN, node, plan, rollout

GOLDEN = Path(__file__).parent / "comments"
CASES = Path(__file__).parents[1] / "golden"
PLACE = Place("prod", "https://github.com/acme/fleet/actions/runs/7", "c" * 40)

TEETH = (
    "|", "`", "```", "````", "*", "_", "[x](http://evil.example)", "![x](//e)", "<details>", "</details>", "<!--",
    "-->", "<script>", "</summary>", "<b>", "&lt;", "@octocat", "@org/team", "#123", "GH-7", "owner/repo#1",
    "www.evil.example", "https://evil.example", "\n", "\r", "\t", "\n\n## x", "- ", "> ", "\\", "~~~", "😀",
    "👩\u200d🔬", "\u202e", "\u2066", "مرحبا", "\x1b[31m", "\x00", "\ud800", "%", "$", ":tada:", "a",
)  # fmt: skip
HOSTILE = st.lists(st.sampled_from(TEETH), max_size=12).map("".join)
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = re.compile(
    r"<details><summary>[^<>]*</summary>|</details>|<sub>[^<>]*</sub>|<!-- reconciler:v1 \{[^<>]*\} -->|<sub>|</sub>"
)


def balanced(text: str) -> None:
    """It fits; every tag is one of ours and closed; fences end; tables have as many cells as columns; no @mention."""
    length, size = len(text), len(text.encode(errors="replace"))
    assert length <= CHARACTERS
    assert size <= 240_000
    tokens = MARKDOWN.parse(text)
    html = "".join(token.content for token in tokens if token.type == "html_block")
    assert html.count("<details>") == html.count("</details>") == html.count("<summary>")
    said = []
    for token in tokens:
        assert token.type != "code_block", token.content
        if token.type == "html_block":
            assert OURS.sub("", token.content).strip() == "", token.content
            said.append(re.sub(r"<[^>]*>", "", token.content))
        for child in token.children or ():
            assert child.type not in ("image", "s_open"), token.content[:500]
            assert child.type != "code_inline" or child.content.startswith(
                ("reconciler ", "/reconciler ", "ignore:")
            ), child.content
            if child.type == "html_inline":
                assert OURS.fullmatch(child.content), child.content
            if child.type == "link_open":
                assert str(child.attrs["href"]).startswith(PLACE.run_url)
            if child.type == "text":
                said.append(child.content)
    for words in said:
        assert not re.search(r"@[A-Za-z0-9]|https?://|www\.", re.sub(r"<!--.*?-->", "", words)), words
    fences = [token for token in tokens if token.type == "fence"]
    assert len(re.findall(r"^`{3,}\w+$", text, re.MULTILINE)) == len(fences)
    columns = 0
    for line in text.splitlines():
        if line.startswith("| "):
            cells = re.sub(r"\\\\|\\\|", "", line).count("|")
            columns = columns or cells
            assert cells == columns, line
        elif not line.startswith("|"):
            columns = 0


def drift(name: str, path: str, found: Any, kind: DriftClass = DriftClass.DRIFTED) -> DriftItem:
    return DriftItem(name, Concern.BIOS, path, kind, f"not {found}", found, detail=str(found))


def changed(names: list[str], text: str) -> Change:
    items = tuple(drift(name, f"bios.{text}", text) for name in names)
    where = f"fleet-spec/{text}:1:2"
    return Change(
        SpecSource("spec", "a" * 40), SpecSource(text, "b" * 40, rev=text), items, items, items,
        {"reimage": tuple(names[:5]), "drain": tuple(names[5:]), "none": ()}, 3.5, tuple(names), tuple(names),
        tuple(EndpointChange(name, text, text, text, where) for name in names),
        tuple(VoidCertificate(name, (text,), b.NOW) for name in names),
        tuple(BarFailure(name, (f"{text}: x 1 < 2",), b.NOW) for name in names),
        unmeasured=tuple(names), unseen=items, set_by={f"bios.{text}": (where,)}, held_up=tuple(names),
        origins={where: LineOrigin("d" * 40, text, b.NOW, text)}, states={"retired": tuple(names)}, settings=(text,),
        nodes=len(names),
        bars=(moved_bar(names, text),), new_tests=(NewTest(text, text, where, tuple(names), 8, 60.0),),
    )  # fmt: skip


def moved_bar(names: list[str], text: str) -> MovedBar:
    """A bar and its peers' version of the tool, in untrusted words."""
    spread = BarSpread(text, Limits(1.0), Limits(2.0), Histogram((1.0, 2.0), (0, len(names), 0)))
    below = tuple(Measured(name, 1.5, 2.0, 0.25) for name in names)
    return MovedBar(text, text, text, (text,), (text,), f"{text}:1:2", below, below, 3, tuple(names), (spread,), 8, 1.0)


def everything(text: str, number: int, *, change: bool, alike: bool) -> Plan:
    """A plan in which `text` stands wherever a machine, a spec or a person has a say."""
    action = replace(DRAIN, target=text, because=(text,), disruption=Disruption.REIMAGE)
    nodes: list[NodePlan] = []
    for at in range(number):
        own = text if alike else f"{text}{at}"
        nodes.append(
            node(
                f"n{at}{text if at % 2 else ''}", pool=text if alike else f"{text}{at % 150}", situation=own,
                drift=(drift(f"n{at}", f"bios.{own}", own), drift(f"n{at}", "identity.serial", own)),
                actions=(action, action) if at % 3 else (), blocked=Blocked(BlockCode.BUDGET, own),
                incomplete=(own,) if at % 5 == 0 else (), wave=at, start=b.NOW, end=b.NOW,
            )
        )  # fmt: skip
    names = [one.node for one in nodes]
    wave = Wave(tuple(names), WaveState.OPEN, text)
    one = rollout(pool=text, waves=(wave, wave), halted=text or "x", resume=(text,), changes={text: (text,)})
    return plan(
        *nodes, fleet=text, id=text, notes=(text,) * min(number, 50), refused=(text,), insecure=(text,), stopped=text,
        rollouts=(one,) * min(number, 30), source=SpecSource(text, text),
        change=changed(names, text) if change else None,
    )  # fmt: skip


def report(text: str, number: int) -> DriftReport:
    items = tuple(drift(f"n{at}", f"bios.{text}{at % 7}", f"{text}{at}", kind) for at in range(number)
                  for kind in (DriftClass.DRIFTED, DriftClass.UNKNOWN))  # fmt: skip
    return DriftReport(
        "1.0", "0", text, SpecSource(text), b.NOW, b.NOW, b.NOW, Scope((), (), number, number), (text,), True, True,
        items, {}, (text,), 60.0, text, text,
    )  # fmt: skip


def outcome(text: str, number: int) -> ApplyOutcome:
    states = ("failed", "stale", "done", "converged")
    return ApplyOutcome(
        "1.0", "0", text, text, text, SpecSource(text), Scope((), (), number, number), b.NOW, b.NOW, True,
        {f"n{at}{text}": NodeEnd(states[at % 4], f"{text}{at}") for at in range(number)},
        tuple(ActionEnd(f"n{at}{text}", f"{text}{at}", "done", text, b.NOW, 1.0) for at in range(number)),
        (text,) * number, (text,), False, True, (text,), 60.0, (rollout(halted=text or "x", resume=(text,)),),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plan", "change", "fork", "drift", "outcome", *(f"no {what}" for what in Missing)])
@settings(max_examples=12)
@given(text=HOSTILE, number=st.sampled_from([0, 1, 2, 7]), alike=st.booleans())
@example("```</details>|@octocat\n" * 3, 400, False)
@example("x" * 1_000_000, 3, True)
@example("|`<😀@" * 30, 300, False)
def test_report_fits_and_balances(kind: str, text: str, number: int, alike: bool) -> None:
    """Invariant 16."""
    document: Document
    match kind:
        case "plan" | "change":
            document = everything(text, number, change=kind == "change", alike=alike)
        case "fork":
            unjudged = {text: tuple(f"n{at}{text}" for at in range(number)), "identity.serial": (text,)}
            document = everything(text, number, change=True, alike=alike)
            document = replace(document, offline=Offline(b.NOW - timedelta(days=number), unjudged))
        case "drift":
            document = report(text, number)
        case "outcome":
            document = outcome(text, number)
        case _:
            balanced(failure(Missing(kind.removeprefix("no ")), text, text * number, PLACE).text)
            return
    made = comment(document, PLACE)
    balanced(made.text)
    assert made.title.isprintable(), "a status, a check and an issue have it as it is"
    assert mark_of(made.text)["key"] == made.key
    balanced(with_status(made.text, "Applied by run 1"))


def test_of_many_nodes_the_dangerous_and_the_blocked_stay() -> None:
    made = comment(everything("|`<", 2000, change=True, alike=False), PLACE)
    assert made.truncated
    assert mark_of(made.text)["truncated"] is True
    order = ["[!CAUTION]", "Held back, and why", "pool by pool"]
    assert sorted(order, key=made.text.index) == order, (
        "what is dangerous, what waits, and then details (conventions R4)"
    )
    for part in ("[!CAUTION]", "**reimage**", "Held back, and why", "pool by pool", "all of it is in plan.json"):
        assert part in made.text, part


def test_two_thousand_nodes_that_drifted_alike_need_no_cut() -> None:
    nodes = [
        node(f"gpu-{at:04d}", drift=(drift(f"gpu-{at:04d}", "bios.X", "Off"),), start=b.NOW, end=b.NOW)
        for at in range(2000)
    ]
    made = comment(plan(*nodes), PLACE)
    assert not made.truncated
    assert len(made.text) < 4000
    assert "@@ gpu-[0000-1999] (2000): up to drain" in made.text


def test_names_are_cut_between_nodes() -> None:
    names = NodeNames(tuple(f"{letter}-node" for letter in "abcdefgh"))
    assert names.within(100) == str(names)
    assert names.within(30) == "a-node, b-node and 6 more"
    assert names.within(3) == "8 nodes"


def test_a_comment_is_found_by_its_key_alone() -> None:
    text = comment(plan(node("a1")), PLACE).text
    assert mark_of(text)["key"] == key_of(Kind.PLAN, "f", "prod")
    assert mark_of(text.replace("\n", "\r\n"))["key"] == "plan/f/prod", "as a browser sends what a person has edited"
    for other in ("quoted:\n> " + text, "", "<!-- reconciler:v1 {} --", "<!-- reconciler:v1 {x} -->", "x" + text):
        assert mark_of(other) == {}


def test_a_status_line_stands_once_and_leaves_the_report_alone() -> None:
    text = comment(plan(node("a1")), PLACE).text
    marked = with_status(text, "Applied by run 9.")
    assert marked.replace("> Applied by run 9.\n\n", "") == text
    assert marked.index("> Applied by run 9.") < marked.index("1 node to change, ")
    assert with_status(marked, "Applied by run 9.") == marked


def test_serials_of_machines_are_nobodys_business() -> None:
    """Pitfall M5."""
    item = DriftItem("a1", Concern.IDENTITY, "identity.serial", DriftClass.DRIFTED, "SN-SECRET-1", "SN-SECRET-2")
    made = plan(node("a1", drift=(item,)))
    found = DriftReport(
        "1.0", "0", "f", SpecSource("s"), b.NOW, b.NOW, b.NOW, Scope((), (), 1, 1), (), True, True, (item,), {}
    )
    for document in (made, found):
        assert "SN-SECRET" not in comment(document, PLACE).text


@pytest.mark.parametrize(
    ("offline", "verdict", "said"),
    [
        (Offline(b.NOW - timedelta(minutes=30)), Verdict.GOOD, "30m"),
        (Offline(b.NOW - timedelta(hours=25)), Verdict.BAD, "too old to rely on"),
        (Offline(b.NOW, {"identity.serial": ("a1",)}), Verdict.BAD, "Not judged: identity.serial of a1"),
    ],
)
def test_an_offline_plan_says_what_it_goes_by(offline: Offline, verdict: Verdict, said: str) -> None:
    made = comment(plan(node("a1"), offline=offline), PLACE)
    assert made.verdict is verdict
    assert said in made.text
    assert "going by what was known" in made.title
    assert "reconciler apply" not in made.text, "nothing is applied by it"


def test_a_change_is_marked_by_what_it_does_itself() -> None:
    """Many nodes that had drifted before are told of, and are not its doing."""
    nodes = [node(f"a{at}", actions=(replace(DRAIN, disruption=Disruption.REIMAGE),)) for at in range(3)]
    blank = replace(changed(["a0"], "x"), caused=(), removed=(), touched={}, joining=(), forgotten=(), endpoints=(),
                    void_certificates=(), below_bar=(), unmeasured=(), unseen=(), states={}, settings=(), bars=(),
                    new_tests=())  # fmt: skip
    signs: list[tuple[dict[str, Any], str]] = [
        ({}, "✅"), ({"touched": {"drain": ("a0",)}}, "🔶"), ({"settings": ("budgets",)}, "🔶"),
        ({"touched": {"reboot": ("a0",)}}, "🔴"), ({"forgotten": ("a9",)}, "🔴"),
    ]  # fmt: skip
    for does, sign in signs:
        change = replace(blank, **does)
        made = comment(plan(*nodes, change=change), PLACE)
        assert made.text.splitlines()[1].startswith(f"## {sign} Plan for"), (change, made.text[:300])


def test_what_is_left_alone_is_not_all_well() -> None:
    """A tick would say that nobody has to look."""
    left = node("a1", actions=(), blocked=Blocked(BlockCode.NO_PATH, "no sequence of actions"))
    made = comment(plan(left), PLACE)
    assert made.title.endswith("nothing is done, 1 node left alone")
    assert "⚠️" in made.text
    held = node("a1", actions=(), blocked=Blocked(BlockCode.HELD, "ticket 4711"))
    assert "✅" in comment(plan(held), PLACE).text, "somebody has looked, and said so"


def test_many_limits_that_hold_back_many_nodes_are_one_row() -> None:
    nodes = [
        node(f"a{at:02d}", blocked=Blocked(BlockCode.BUDGET, f"rack r{at} is full"), start=b.NOW) for at in range(40)
    ]
    text = comment(plan(*nodes, node("b1", blocked=Blocked(BlockCode.WINDOW, "at night"), start=b.NOW)), PLACE).text
    assert text.count("| budget |") == 1
    assert "40 reasons, such as: rack r0 is full" in text
    assert "| window |" in text


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.GOOD),
        ({"refused": ("too many",)}, Verdict.BAD),
        ({"tolerated": False, "incomplete": ("a1",)}, Verdict.BAD),
        ({"stopped": "stopped by ops: fire"}, Verdict.BAD),
    ],
)
def test_the_verdict_is_that_of_the_exit_code(changes: dict[str, Any], verdict: Verdict) -> None:
    assert comment(plan(node("a1"), **changes), PLACE).verdict is verdict


def test_a_failure_says_why_and_what_nobody_checked() -> None:
    made = failure(Missing.PLAN, "lab", "contacting\nreconciler: pools/a.yaml:3:1: no such `image`\n", PLACE)
    assert made.verdict is Verdict.BROKEN
    assert "nobody knows what this change would do" in made.text
    assert "no such `image`" in made.text
    balanced(made.text)


def steady(text: str) -> str:
    """Return a comment without the digits of its fingerprint, which each new field of the spec changes."""
    text = re.sub(r'(?<="fingerprint": ")[0-9a-f]{64}', "0" * 64, text)
    return re.sub(r"(?<=fingerprint )[0-9a-f]{12}", "0" * 12, text)


@pytest.mark.parametrize("name", ["guard_reimage", "rollout_halted", "unknown", "rollout_canary"])
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    """`pytest tests/render --update` writes them anew: read what has changed."""
    text = steady(comment(read(CASES / f"{name}.yaml").plan(), PLACE).text)
    path = GOLDEN / f"{name}.md"
    if request.config.getoption("--update"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    balanced(text)
