"""Comments about fleets as reviewers meet them, kept in tests/render/comments: planned from facts, not made up.

`pytest tests/render --update` writes them anew: read what has changed as who is woken by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from reconciler.app.drift_report import drift_report
from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.gate import Certificate
from reconciler.model.limits import Brake, Guards
from reconciler.model.plan import Plan
from reconciler.model.records import NodeRecord
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render.comment import Comment, comment
from reconciler.render.headline import Verdict
from tests import builders as b
from tests.planner.test_change import SIGNATURES, acceptance, fleet, pass_over, planned
from tests.render.test_comment import PLACE, balanced, steady

GOLDEN = Path(__file__).parent / "comments"
HEAD = d.SpecSource("fleet-spec", "d" * 40, rev="d" * 40)


def read(name: str, made: Comment, request: pytest.FixtureRequest) -> str:
    balanced(made.text)
    path = GOLDEN / f"{name}.md"
    text = steady(made.text)
    if request.config.getoption("--update"):
        path.write_text(text)
    assert text == path.read_text()
    return made.text


# --- threshold what-if --------------------------------------------------------------------------------------------


def measured(node: d.Desired, value: float) -> Certificate:
    """As its tests found it ten days ago."""
    return replace(b.certificate(node, b.observed(node.node), x=value), issued_at=b.NOW - timedelta(days=10))


def bar(minimum: float) -> d.Profile:
    said = acceptance(minimum, name="nccl", tool="nccl-tests")
    test = replace(said.phases[0].tests[0], thresholds=(d.Threshold("busbw_peak", min=minimum),))
    return replace(b.PROFILE, digest=f"bar-{minimum}", acceptance=replace(said, phases=(d.GatePhase("burn", (test,)),)))


def test_a_bar_that_a_change_raises(request: pytest.FixtureRequest) -> None:
    """Which nodes would fail, by how much, and that nothing has been run for it."""
    names = [f"gpu-a{at:03d}" for at in range(1, 13)]
    base = {name: b.node(name, profile=bar(440.0), domains={"rack": f"r{at % 3}"}) for at, name in enumerate(names)}
    head = {name: replace(node, profile=bar(470.0)) for name, node in base.items()}
    known = {}
    for at, (name, node) in enumerate(base.items()):
        found = measured(node, 0)
        results = tuple(replace(result, metrics={"busbw_peak": 462.5 + 2.5 * at}) for result in found.results)
        known[name] = NodeRecord(name, serial=node.serial, certificate=replace(found, results=results))
    adopted = known[names[11]].certificate
    assert adopted is not None
    known[names[11]] = replace(known[names[11]], certificate=replace(adopted, adopted=True, results=()))
    seen = {name: b.observed(name) for name in names}
    budgets = (d.BudgetLimit("fleet", "25%"), d.BudgetLimit("rack", "1"))
    made, change = planned(
        fleet(*base.values(), budgets=budgets),
        replace(fleet(*head.values(), budgets=budgets), source=HEAD),
        seen,
        known,
    )
    assert [failure.node for failure in change.below_bar] == names[:3]
    assert change.unmeasured == (names[11],)
    text = read("bar", comment(made, PLACE), request)
    assert "3 drained, 3 below a bar that the change moves" in text


# --- two thousand nodes -------------------------------------------------------------------------------------------


def drifted(at: int, name: str) -> o.Observed:
    """Every node drifts, most in one of a few ways, some each in its own; some do not answer."""
    if at % 97 == 0:
        return b.observed(name, hot=b.silent("timeout"), inventory=b.silent("timeout"))
    host, inventory = b.facts(name), b.inventory()
    match at % 5:
        case 0:
            host = replace(host, sysctls={"vm.swappiness": str(10 + at % 50)})
        case 1:
            inventory = b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"})
        case 2:
            assert inventory.firmware is not None
            inventory = b.inventory(firmware={**inventory.firmware, "BIOS": o.FirmwareItem("1.9")})
        case 3:
            host = replace(host, hostname=f"localhost-{at}", services={"containerd": o.Service(False, True)})
        case _:
            assert host.image is not None
            host = replace(host, image=replace(host.image, version="2026.10.0", sha256="ee" * 32))
    return b.observed(name, host=host, inventory=inventory)


@cache
def large() -> tuple[Plan, Mapping[str, o.Observed]]:
    pools = ("train-a", "train-b", "infer-a", "infer-b")
    nodes = [
        b.node(f"gpu-{at:04d}", pool=pools[at // 500], domains={"rack": f"r{at // 8:03d}"}, uuid=None)
        for at in range(2000)
    ]
    budgets = (d.BudgetLimit("fleet", "5%"), d.BudgetLimit("rack", "2"))
    guards, brake = Guards("100%", "100%", "100%"), Brake("100%", "100%")
    wanted = fleet(*nodes, budgets=budgets, guards=guards, brake=brake, tolerate="5%")
    seen = {node.node: drifted(at, node.node) for at, node in enumerate(nodes)}
    known = {node.node: b.record(node) for node in nodes}
    made = plan_fleet(wanted, pass_over(seen), LedgerSnapshot(b.LEDGER, known), b.NOW, PlanRequest("p", SIGNATURES))
    return made, seen


def test_two_thousand_drifted_nodes(request: pytest.FixtureRequest) -> None:
    made, _ = large()
    text = read("two-thousand", comment(made, PLACE), request)
    for part in ("[!CAUTION]", "**reimage**", "Held back, and why", "pool by pool", "plan.json"):
        assert part in text, part


def test_the_drift_of_two_thousand_nodes(request: pytest.FixtureRequest) -> None:
    made, seen = large()
    text = read("two-thousand-drift", comment(drift_report(made, pass_over(seen)), PLACE), request)
    assert "firmware.bios" in text


# --- machines that say what they like -----------------------------------------------------------------------------

EVIL = (
    "```\n</details>@everyone <img src=x onerror=alert(1)> [click](https://evil.example) | a | b | #1 "
    "**owned** \u202egnp.exe\x1b[2J"
)


def test_a_bmc_that_returns_hostile_strings(request: pytest.FixtureRequest) -> None:
    """All of it is shown as the text that it is: whoever reads must be able to tell what the machine said."""
    profile = replace(b.PROFILE, digest="m", inventory=replace(b.PROFILE.inventory, model="SYS-821GE-TNHR"))
    bios = b.inventory(bios={"SriovGlobalEnable": EVIL, "NumaNodesPerSocket": "NPS1"})
    seen = {
        "gpu-a001": b.observed("gpu-a001", hot=b.hot("gpu-a001", model="SYS-821GE-TNHR"), inventory=bios),
        "gpu-a002": b.observed("gpu-a002", hot=b.silent("malformed", EVIL), inventory=b.silent("malformed", EVIL)),
        "gpu-a003": b.observed("gpu-a003", hot=b.hot("gpu-a003", model=EVIL)),
    }
    wanted = fleet(
        *(b.node(name, profile=profile, domains={"rack": f"r{at}"}) for at, name in enumerate(seen)), tolerate="1"
    )
    known = {name: b.record(b.node(name)) for name in seen}
    made = plan_fleet(wanted, pass_over(seen), LedgerSnapshot(b.LEDGER, known), b.NOW, PlanRequest("p", SIGNATURES))
    assert made.nodes["gpu-a001"].actions
    assert not made.nodes["gpu-a003"].actions
    read("hostile", comment(made, PLACE), request)
    read("hostile-drift", comment(drift_report(made, pass_over(seen)), PLACE), request)


# --- plans that must not be taken for good ones -------------------------------------------------------------------


def test_a_plan_that_a_guard_refuses_while_nodes_are_dark_says_both(request: pytest.FixtureRequest) -> None:
    names = [f"gpu-a{at:03d}" for at in range(1, 9)]
    wanted = fleet(*(b.node(name, domains={"rack": f"r{name[-1]}"}) for name in names), guards=Guards("1", "1", "1"))
    seen = {name: drifted(4, name) for name in names[:6]} | {
        name: b.observed(name, hot=b.silent("auth", "HTTP 401"), host=b.silent("unreachable")) for name in names[6:]
    }
    known = {name: b.record(wanted.nodes[name]) for name in names}
    made = plan_fleet(wanted, pass_over(seen), LedgerSnapshot(b.LEDGER, known), b.NOW, PlanRequest("p", SIGNATURES))
    said = comment(made, PLACE)
    assert said.verdict is Verdict.BAD
    text = read("failing", said, request)
    assert text.index("REFUSED: it would reimage") < text.index("Who is disturbed")
    assert "Could not be read in full" in text
