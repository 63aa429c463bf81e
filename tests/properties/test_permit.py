"""Budgets and windows against oracles that are written apart from them, minute by minute and node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.desired import (
    BreakGlass,
    BudgetLimit,
    Desired,
    Fleet,
    Floor,
    Hours,
    Settings,
    SpecSource,
    Window,
)
from reconciler.model.limits import Guards
from reconciler.model.observed import FirmwareItem, Observation
from reconciler.model.plan import BlockCode, NodePlan, Plan, PlannedAction
from reconciler.model.records import Applied, Attempt, NodeRecord
from reconciler.model.vocab import BootPhase, Certainty, Concern, Disruption, NodeState, Power, Reason, WindowKind
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.fleet.windows import Windows
from reconciler.planner.node.backoff import MOST_S, SPREAD, backing_off, pause_s
from reconciler.planner.node.workload import Need
from tests import builders as b

UTC_ONLY = st.just("UTC")
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"])
MINUTES = st.integers(0, 1440 - 1)


@st.composite
def hours(draw: st.DrawFn, zones: Any = ZONES) -> Hours:
    days = draw(st.sets(st.integers(0, 6), min_size=1))
    start, length = draw(MINUTES), draw(st.one_of(st.integers(1, 1440), st.sampled_from([60, 720, 1440])))
    end = start + length if start + length <= 1440 else start + length - 1440
    return Hours(tuple(sorted(days)), start, end, draw(zones))


def within(told: Hours, at: datetime) -> bool:
    """By the clock on the wall, and no arithmetic of time zones."""
    local = at.astimezone(ZoneInfo(told.timezone))
    minute, day = local.hour * 60 + local.minute, local.weekday()
    if told.end > told.start:
        return day in told.days and told.start <= minute < told.end
    return (day in told.days and minute >= told.start) or ((day - 1) % 7 in told.days and minute < told.end)


# --- budgets ---------------------------------------------------------------------------------------------------------


@dataclass
class Nodes:
    """What is true of a fleet, as the oracle sees it."""

    nodes: Mapping[str, Desired]
    members: Mapping[str, bool]  # of the control plane, beside those that are nodes -> ready
    ours: frozenset[str]  # members of the control plane that are nodes
    out: set[str]
    taken: list[tuple[datetime, str]]

    def active(self) -> dict[str, Desired]:
        return {name: node for name, node in self.nodes.items() if node.state is NodeState.ACTIVE}

    def control_plane(self) -> dict[str, bool]:
        return {**self.members, **{name: name not in self.out for name in self.ours}}

    def takings(self) -> dict[str, list[datetime]]:
        return {name: [at for at, other in self.taken if other == name] for _, name in self.taken}

    def breaks(
        self, name: str, why: set[Reason], now: datetime, limits: tuple[BudgetLimit, ...], floors: tuple[Floor, ...]
    ) -> bool:
        """Whether one limit would be exceeded, were `name` taken out now."""
        active, node = self.active(), self.nodes[name]
        out = (self.out | {name}) & active.keys()
        covered: set[Reason] = set()
        for limit in limits:
            value = {"fleet": "all", "pool": node.pool}.get(limit.scope, node.domains.get(limit.scope))
            if value is None or (limit.during and not within(limit.during, now)):
                continue
            if limit.reasons and not why & set(limit.reasons):
                continue
            scope = {
                other
                for other, found in active.items()
                if {"fleet": "all", "pool": found.pool}.get(limit.scope, found.domains.get(limit.scope)) == value
            }
            if limit.per_s is None:
                covered |= set(limit.reasons) or set(Reason)
                counted = len(out & scope)
            else:  # each taking out, of whichever node
                since = now - timedelta(seconds=limit.per_s)
                counted = 1 + len([at for at, other in self.taken if at > since and other in scope])
            if counted > rounded(limit.nodes, len(scope)):
                return True
        if not why <= covered and len(out) > 1:
            return True
        for floor in floors:
            alike = {other for other, found in active.items() if found.persona == floor.persona}
            if name in alike and len(alike - out) < min(rounded(floor.nodes, len(alike)), len(alike)):
                return True
        if name in self.ours:
            ready = [other for other, is_ready in self.control_plane().items() if is_ready and other != name]
            return len(ready) < len(self.control_plane()) // 2 + 1
        return False


def rounded(share: str, total: int) -> int:
    return -(-total * int(share[:-1]) // 100) if share.endswith("%") else int(share)


shares = st.one_of(st.integers(0, 4).map(str), st.integers(0, 100).map(lambda percent: f"{percent}%"))
reasons = st.sets(st.sampled_from(list(Reason)), min_size=1)


@st.composite
def limits(draw: st.DrawFn) -> BudgetLimit:
    return BudgetLimit(
        draw(st.sampled_from(["fleet", "fleet", "pool", "rack"])),
        draw(shares),
        tuple(sorted(draw(st.one_of(st.just(set[Reason]()), reasons)))),
        draw(st.sampled_from([None, None, 1800.0, 3600.0, 7200.0])),
        draw(st.one_of(st.none(), st.none(), hours(st.just("Asia/Kolkata")))),
    )


@st.composite
def fleets(draw: st.DrawFn) -> Nodes:
    nodes = {}
    for at in range(draw(st.integers(1, 9))):
        domains = {"rack": f"r{at % 3}"} if draw(st.integers(0, 4)) else {}
        state = NodeState.QUARANTINED if draw(st.integers(0, 7)) == 0 else NodeState.ACTIVE
        nodes[f"n{at}"] = b.node(
            f"n{at}", pool=f"p{at % 2}", domains=domains, state=state, persona=draw(st.sampled_from(["t", "i"]))
        )
    others = {f"c{at}": draw(st.booleans()) for at in range(draw(st.integers(0, 3)))}
    elected = draw(st.one_of(st.just(set()), st.sets(st.sampled_from(sorted(nodes)))))
    out = draw(st.sets(st.sampled_from(sorted(nodes))))
    return Nodes(nodes, others, frozenset(elected), out, [])


@given(st.data())
def test_budget_never_exceeded(data: Any) -> None:
    """Invariant 7: whoever takes nodes out and brings them back, at no time does a charge exceed a limit on it.

    And no limit holds up what none of them forbids: the budget and the oracle agree both ways.
    """
    truth = data.draw(fleets())
    declared = tuple(data.draw(st.lists(limits(), max_size=4)))
    floors = tuple(data.draw(st.lists(st.builds(Floor, st.sampled_from(["t", "i"]), shares), max_size=2)))
    effective = declared or (BudgetLimit("fleet", "1"),)
    now = b.NOW
    for _ in range(data.draw(st.integers(1, 5))):
        now += timedelta(minutes=data.draw(st.integers(0, 90)))
        truth.out -= data.draw(st.sets(st.sampled_from(sorted(truth.nodes)), max_size=4))
        truth.out |= data.draw(st.sets(st.sampled_from(sorted(truth.nodes)), max_size=1))
        budget = b.budget(
            declared, truth.nodes, now=now, out=truth.out, floors=floors, control_plane=truth.control_plane(),
            taken=truth.takings(),
        )  # fmt: skip
        wishes = data.draw(st.lists(st.tuples(st.sampled_from(sorted(truth.active()) or [""]), reasons), max_size=6))
        for name, why in wishes if truth.active() else ():
            refused = budget.allows(name, why)
            if name in truth.out:
                assert refused is None
                continue
            assert (refused is not None) == truth.breaks(name, why, now, effective, floors), (name, why, refused)
            if refused is None:
                budget.charge(name)
                truth.out.add(name)
                truth.taken.append((now, name))


@given(st.data())
def test_a_rate_says_when_the_next_one_may_go(data: Any) -> None:
    nodes = {f"n{at}": b.node(f"n{at}") for at in range(6)}
    often = st.lists(st.integers(0, 200), min_size=1, max_size=3)
    ages = data.draw(st.dictionaries(st.sampled_from(sorted(nodes)), often, min_size=1))
    taken = {name: [b.NOW - timedelta(minutes=age) for age in sorted(each)[::-1]] for name, each in ages.items()}
    rate = (BudgetLimit("fleet", "100%"), BudgetLimit("fleet", str(data.draw(st.integers(1, 4))), per_s=3600.0))

    def refused(now: datetime) -> Any:
        return b.budget(rate, nodes, now=now, out=(), taken=taken).allows("n5")

    blocked = refused(b.NOW)
    if blocked is not None:
        assert refused(blocked.until) is None
        assert refused(blocked.until - timedelta(seconds=1)) is not None


# --- windows ---------------------------------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn, zones: Any = ZONES) -> tuple[Window, ...]:
    one = st.builds(
        Window, st.sampled_from(list(WindowKind)), hours(zones), st.sampled_from([(), (), ("a",), ("b",), ("a", "b")])
    )
    return tuple(draw(st.lists(one, max_size=4)))


def allowed(told: tuple[Window, ...], pool: str, at: datetime) -> bool:
    mine = [window for window in told if not window.pools or pool in window.pools]
    allows = [window for window in mine if window.kind is WindowKind.ALLOW]
    denied = any(within(window.hours, at) for window in mine if window.kind is WindowKind.DENY)
    return not denied and (not allows or any(within(window.hours, at) for window in allows))


def fits(told: tuple[Window, ...], pool: str, now: datetime, need: int) -> bool:
    return all(allowed(told, pool, now + timedelta(minutes=minute)) for minute in range(need))


needs = st.sampled_from([1, 5, 30, 95, 240])
CHANGES = [(3, 8), (3, 29), (4, 4), (10, 3), (10, 25), (11, 1)]  # of the clocks, in all of the zones
moments = st.one_of(
    st.tuples(st.just(1), st.just(1), st.integers(0, 365 * 1440)),
    st.sampled_from(CHANGES).flatmap(lambda day: st.tuples(st.just(day[0]), st.just(day[1]), st.integers(0, 2000))),
).map(lambda at: datetime(2026, at[0], at[1], tzinfo=UTC) + timedelta(minutes=at[2]))


@given(windows(), moments, needs)
def test_windows_are_never_overrun(told: tuple[Window, ...], now: datetime, need: int) -> None:
    """Deny wins, and all of the work lies in what is allowed; also on the days on which the clocks change."""
    verdict = Windows(told, None, now).refusal("a", Need(need * 60))
    if verdict is None:
        assert fits(told, "a", now, need)
    elif verdict.until is not None:
        assert verdict.until > now
        assert Windows(told, None, verdict.until).refusal("a", Need(need * 60)) is None
        assert fits(told, "a", verdict.until, need)


@given(windows(), moments, needs, st.integers(0, 3000))
def test_what_begins_early_and_waits_lies_in_windows_to_its_end(
    told: tuple[Window, ...], now: datetime, need: int, minutes: int
) -> None:
    """Work that ends by a known time before ours begins is over, or its end is in the same window."""
    after = now + timedelta(minutes=minutes)
    verdict = Windows(told, None, now).refusal("a", Need(need * 60, after))
    begins = now if verdict is None else verdict.until
    if begins is None:
        return
    assert Windows(told, None, begins).refusal("a", Need(need * 60, after)) is None
    assert fits(told, "a", begins, need + max(0, int((after - begins).total_seconds() // 60)))
    at_once = Windows(told, None, now).refusal("a", Need(need * 60))
    assert begins >= (now if at_once is None or at_once.until is None else at_once.until)


@given(windows(UTC_ONLY), moments, needs)
def test_windows_hold_up_nothing_else(told: tuple[Window, ...], now: datetime, need: int) -> None:
    """Where no clock changes, what fits may go, and it is said to go at the first minute at which it does."""
    verdict = Windows(told, None, now).refusal("a", Need(need * 60))
    assert (verdict is None) == fits(told, "a", now, need)
    if verdict is not None:
        waits = 7 * 1440 if verdict.until is None else int((verdict.until - now).total_seconds() // 60)
        free = 0
        for minute in range(waits + need - 1):  # nowhere before that are `need` minutes in a row free
            free = free + 1 if allowed(told, "a", now + timedelta(minutes=minute)) else 0
            assert free < need


@given(windows(), moments, st.integers(-90, 90))
def test_breaking_the_glass_lifts_windows_until_it_ends(told: tuple[Window, ...], now: datetime, minutes: int) -> None:
    glass = BreakGlass("fire", "ops", (now + timedelta(minutes=minutes)).isoformat())
    verdict = Windows(told, glass, now).refusal("a", Need(600))
    assert verdict == (None if minutes > 0 else Windows(told, None, now).refusal("a", Need(600)))


# --- plans of fleets -------------------------------------------------------------------------------------------------

STATES = ("well", "bios", "image", "firmware", "off", "off_firmware", "blank", "sysctl")


def planned(states: Mapping[str, str], settings: Settings, now: datetime = b.NOW, **known: Any) -> Plan:
    nodes = {name: b.node(name, pool=name[0]) for name in states}
    seen = {name: observed(name, state) for name, state in states.items()}
    records = {name: record(node, seen[name], states[name]) for name, node in nodes.items()}
    return plan_fleet(
        Fleet(settings, SpecSource("spec"), nodes, "d"), Observation("1.0", "test", "", b.NOW, b.NOW, seen),
        LedgerSnapshot(b.LEDGER, **{"records": records, **known}), now, PlanRequest("p", b.CONTEXT.signatures),
    )  # fmt: skip


def observed(name: str, state: str) -> Any:
    changed: dict[str, Any] = {}
    old = {item.inventory_id: FirmwareItem("2.0") for item in b.FIRMWARE} | {"BIOS": FirmwareItem("1.0")}
    if "bios" in state:
        changed["inventory"] = b.inventory(bios={"SriovGlobalEnable": "Disabled", "NumaNodesPerSocket": "NPS1"})
    if "firmware" in state:
        changed["inventory"] = b.inventory(firmware=old)
    if state == "image":
        changed["host"] = b.facts(name, driver="550.0")
    if state == "sysctl":
        changed["host"] = b.facts(name, sysctls={"vm.swappiness": "60"})
    if "off" in state or state == "blank":
        changed |= {
            "hot": b.hot(name, power=Power.OFF, boot_phase=BootPhase.OFF),
            "host": b.silent("explained", "powered off"),
            "member": b.member(name, ready=False),
        }
    return b.observed(name, **changed)


def record(node: Desired, seen: Any, state: str) -> NodeRecord:
    applied = {} if state == "blank" else {"image.version": Applied("2026.11.1", "", "", b.NOW)}
    return NodeRecord(
        node.node, serial=node.serial, certificate=b.certificate(node, b.observed(node.node)), applied=applied
    )


fleet_states = st.dictionaries(
    st.sampled_from([f"{pool}{at}" for pool in "ab" for at in range(6)]), st.sampled_from(STATES), min_size=1
)
ALL = (BudgetLimit("fleet", "100%"),)


def disruptive_minutes(plan: NodePlan) -> int:
    steps = list(plan.actions)
    while steps and steps[-1].disruption < Disruption.DRAIN:
        steps.pop()
    return int(sum(step.estimate_s for step in steps) // 60)


@given(fleet_states, windows(), moments)
def test_bringing_a_node_back_is_always_allowed(
    states: Mapping[str, str], told: tuple[Window, ...], now: datetime
) -> None:
    """Nobody is taken out and no firmware is started outside of the windows; everything else goes on."""
    made = planned(states, replace(b.SETTINGS, budgets=ALL, windows=told), now=now)
    for plan in made.nodes.values():
        held = plan.blocked is not None and plan.blocked.code is BlockCode.WINDOW
        flashes = any(action.name == "update_firmware" for action in plan.actions)
        disrupts = any(a.name == "mark" or a.disruption >= Disruption.DRAIN for a in plan.actions)
        if not flashes and (plan.in_service is False or not disrupts):
            assert not held
        elif not held:
            assert fits(told, plan.pool, now, disruptive_minutes(plan))


@given(fleet_states, st.sampled_from(["0", "1", "3", "25%", "100%"]), st.sampled_from(["0", "2", "50%", "100%"]),
       st.sets(st.sampled_from(["x", "y", "z"])), st.sampled_from(["0", "1", "5%", "50%"]))  # fmt: skip
def test_guards_refuse_what_goes_beyond_them(
    states: Mapping[str, str], reimage: str, reboot: str, gone: set[str], forget: str
) -> None:
    settings = replace(b.SETTINGS, budgets=ALL, guards=Guards(reimage, reboot, forget))
    known = sorted(gone | set(states))
    made = planned(states, settings, known=known)
    counted = {name: plan for name, plan in made.nodes.items() if states[name] != "blank"}
    worst = {name: max((a.disruption for a in plan.actions), default=Disruption.NONE) for name, plan in counted.items()}
    reimages = sum(disruption is Disruption.REIMAGE for disruption in worst.values())
    reboots = sum(disruption >= Disruption.REBOOT for disruption in worst.values())
    expected = {
        "reimage": reimages > rounded(reimage, len(states)),
        "reboot": reboots > rounded(reboot, len(states)),
        "forget": len(gone) > rounded(forget, len(known)),
    }
    for guard, refused in expected.items():
        assert any(f"guards.{guard} " in sentence for sentence in made.refused) is refused, (guard, made.refused)


# --- pauses after failures -------------------------------------------------------------------------------------------

outcomes = st.sampled_from(["done", "transient", "permanent", "ambiguous", "refused", "started"])


tried = st.sampled_from(["drain", "drain", "reimage", "admit"])


def planned_action(name: str) -> PlannedAction:
    return PlannedAction(name, "", Concern.CLUSTER, ("drift",), Disruption.DRAIN, 60.0, Certainty.EXACT, (), ())


@given(st.lists(st.tuples(tried, outcomes, st.integers(0, 600)), max_size=12))
def test_back_off(history: list[tuple[str, str, int]]) -> None:
    """After n failures in a row an action waits 15 s x 4^(n-1), at most 4 h, and up to a quarter longer."""
    attempts, at = [], b.NOW - timedelta(days=1)
    for action, outcome, minutes in history:
        at += timedelta(minutes=minutes)
        attempts.append(Attempt(action, "", "drift", at, outcome, ended_at=at + timedelta(seconds=30)))
    record = NodeRecord("n1", attempts=tuple(attempts))
    mine = [one for one in attempts if one.action == "drain" or (one.action, one.outcome) == ("admit", "done")]
    since = max((at for at, attempt in enumerate(mine) if attempt.outcome == "done"), default=-1)
    failed = [one for one in mine[since + 1 :] if one.outcome in ("transient", "permanent", "ambiguous")]
    if not failed:
        assert backing_off(record, [planned_action("drain")], (), b.NOW - timedelta(days=2)) is None
        return
    ended = failed[-1].ended_at
    assert ended is not None
    least = min(15 * 4 ** (len(failed) - 1), MOST_S)
    blocked = backing_off(record, [planned_action("drain")], (), ended)
    assert blocked is not None
    assert blocked.until is not None
    pause = (blocked.until - ended).total_seconds()
    assert least <= pause <= least * (1 + SPREAD)
    assert backing_off(record, [planned_action("drain")], (), blocked.until) is None
    assert backing_off(record, [planned_action("drain")], (), ended) == blocked, "no chance in it"
    assert backing_off(record, [planned_action("join")], (), ended) is None


def test_nodes_that_failed_together_are_not_tried_again_together() -> None:
    """Pitfall I9."""
    pauses = [pause_s(f"n{at}", "drain", 1) for at in range(40)]
    assert max(pauses) - min(pauses) > 15 * SPREAD / 2
    assert len({round(pause, 3) for pause in pauses}) > 35


@given(fleet_states, st.integers(1, 4), st.integers(0, 300))
def test_what_failed_is_not_planned_again_at_once(states: Mapping[str, str], failures: int, ago: int) -> None:
    """Its actions stay in the plan, it does not use the budget up, and others go on."""
    settings = replace(b.SETTINGS, budgets=(BudgetLimit("fleet", "1"),))
    calm = planned(states, settings)
    ill = sorted(name for name, plan in calm.nodes.items() if any(a.name == "drain" for a in plan.actions))[:1]
    at = b.NOW - timedelta(minutes=ago)
    attempts = tuple(Attempt("drain", "", "x", at, "transient", "it hangs", at) for _ in range(failures))
    records = {name: record(b.node(name), observed(name, state), state) for name, state in states.items()}
    records |= {name: replace(records[name], attempts=attempts) for name in ill}
    made = planned(states, settings, records=records)
    for name in ill:
        blocked = backing_off(records[name], [planned_action("drain")], (), b.NOW)
        plan = made.nodes[name]
        assert (plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF) == (
            blocked is not None and any(action.name == "drain" for action in plan.actions)
        )
        if plan.blocked is not None and plan.blocked.code is BlockCode.BACKOFF:
            goes = [p for p in made.nodes.values() if p.wave == 0 and p.in_service and p.node not in ill and p.actions]
            wants = [n for n, p in calm.nodes.items() if p.in_service and n not in ill and "drain" in b.actions(p)]
            out = any(p.in_service is False for p in made.nodes.values())
            assert not wants or out or any("drain" in b.actions(p) for p in goes)
