"""Nodes that share outlets are cut off together: marked, empty and in the budget, or nobody is (pitfalls C4, K6)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.converge import brake, siblings
from reconciler.converge.actions.ac_cycle import TRIES_A_DAY
from reconciler.converge.events import ActionStarted
from reconciler.converge.fleet_limits import FleetLimits
from reconciler.converge.partner_pool import CUT
from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.model.k3s import DesiredK3s, K3sRole
from reconciler.model.records import FLEET, RETRACTED
from reconciler.model.vocab import Activation, DriftMode, NodeState
from reconciler.planner.fleet import isolation
from reconciler.spec.shared_outlets import with_bars
from tests import builders as b
from tests.converge.test_ac_cycle import LADDER, TREATED, A, B, Killed, all_on, cuts
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.world import PROFILE, QuickGate, World, desired_node

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
ONLY = replace(TREATED, digest="only", remediation=replace(PROFILE.remediation, ladder=LADDER[2:]))
ILL = {"n0": {"xid": {"code": 79, "heals": "ac"}}}


@pytest.fixture
def shared(world: Worlds, monkeypatch: pytest.MonkeyPatch) -> Worlds:
    """Worlds in which n0 and n1 hang on the same two outlets, and n2 on others of the same PDUs."""

    def build(**differences: Any) -> World:
        def feeds(node: d.Desired) -> d.Desired:
            other = {"n0": ("n1",), "n1": ("n0",)}.get(node.node, ())
            name = "A1" if other else "A2"
            return replace(node, outlets=(d.Outlet(A, name, other), d.Outlet(B, name, other)))

        each = differences.pop("each", lambda node: node)
        here = world(each=lambda node: each(feeds(node)), **{"nodes": 3, "profile": ONLY, "faults": ILL, **differences})
        here.fleet = replace(here.fleet, nodes=with_bars(here.fleet.nodes))
        here.adopt()
        watch(here, monkeypatch)
        return here

    return build


def watch(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check at every cut: what loses power is off, charged to the budget, out of service by our mark, and empty."""
    asked: list[FleetLimits] = []
    charge = FleetLimits.charge_together

    def charging(limits: FleetLimits, names: Collection[str]) -> str:
        asked.append(limits)
        return charge(limits, names)

    monkeypatch.setattr(FleetLimits, "charge_together", charging)
    for name, machine in here.lab.machines.items():
        set_mains = machine.set_mains

        def checked(*, on: bool, name: str = name, set_mains: Any = set_mains) -> None:
            if not on and here.machine(name).state.mains:
                assert name in ("n0", "n1")
                assert here.machine(name).state.power == "off"
                assert here.marked(name)
                assert asked[-1].permit().budget.is_out(name)
                assert any(map(asked[-1].is_charged_partner, ("n0", "n1")))
                assert not here.serves(name)
                assert not pods(here, name)
                assert here.ledger.node(name).attempts[-1].action == "ac_cycle"
            set_mains(on=on)

        machine.set_mains = checked  # type: ignore[method-assign]


def pods(here: World, name: str) -> list[str]:
    assert here.lab.cluster is not None
    here_now = [pod for pod in here.lab.cluster.pods(name) if pod.phase in ("Running", "Pending")]
    return [pod.name for pod in here_now if pod.owner_kind not in ("DaemonSet", "Node")]


def meanwhile(here: World, node: str, action: str, do: Callable[[], object]) -> None:
    """Do something as soon as the first action of this name on a node begins."""
    begun: list[object] = []

    class Events(list[Any]):
        def append(self, event: Any) -> None:
            super().append(event)
            if isinstance(event, ActionStarted) and (event.node, event.action.name) == (node, action) and not begun:
                begun.append(event)
                do()

    here.events = Events(here.events)


def test_both_are_cut_off_and_both_serve_again_after_their_gates(shared: Worlds) -> None:
    here = shared(settings={"budgets": (d.BudgetLimit("fleet", "2"),)})
    assert "ac_cycle:n1" in [action.id for action in here.plan().nodes["n0"].actions]
    report = here.apply()
    assert cuts(here) == [1, 1, 0]
    assert report.results["n0"].state is Ended.DONE
    assert all(here.serves(name) for name in ("n0", "n1", "n2"))
    assert {"n0", "n1"} <= set(here.gate.runs)
    assert [word for word in here.did("n1") if word != "join"] == ["mark", "drain", "ac_cycle", "run_gate", "admit"]
    assert here.ledger.node("n1").attempts[2].treated == ()


# --- never ---


def test_a_sibling_that_can_never_be_taken_along_is_named_before_the_drain(shared: Worlds) -> None:
    """no_drain_in_vain: the ladder goes on to its next rung, or to a person."""

    def quarantined(node: d.Desired) -> d.Desired:
        return replace(node, state=NodeState.QUARANTINED) if node.node == "n1" else node

    here = shared(each=quarantined)
    here.apply()
    assert cuts(here) == [0, 0, 0]
    assert "drain" not in here.did("n0")
    assert "ac_cycle is impossible: its outlets give n1 power, too, and n1 is quarantined" in (
        here.plan().nodes["n0"].situation
    )


SERVER = cast(DesiredK3s, SimpleNamespace(role=K3sRole.SERVER))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda node: replace(node, endpoints=replace(node.endpoints, bmc="")), "has no BMC"),
        (lambda node: replace(node, profile=replace(node.profile, acceptance=None)), "no acceptance profile"),
        (lambda node: replace(node, profile=replace(node.profile, membership=None)), "not drained through the cluster"),
        (lambda node: replace(node, profile=replace(node.profile, k3s=SERVER)), "is a server of a K3s cluster"),
        (lambda node: replace(node, outlets=(*node.outlets, d.Outlet(A, "A9"))), "has other outlets, too"),
    ],
)
def test_what_the_spec_says_of_a_sibling_may_bar_the_cut_for_good(
    change: Callable[[d.Desired], d.Desired], why: str
) -> None:
    feeds = {name: (d.Outlet(A, "A1", (other,)),) for name, other in (("n0", "n1"), ("n1", "n0"))}
    nodes = {name: desired_node(name, at, outlets=feeds[name]) for at, name in enumerate(feeds)}
    assert with_bars(nodes)["n0"].uncut == ""
    assert why in with_bars({**nodes, "n1": change(nodes["n1"])})["n0"].uncut


def test_firmware_cuts_nobody_else_off(shared: Worlds) -> None:
    cpld = replace(ONLY, digest="cpld", firmware=(b.firmware("cpld", 1, Activation.AC_CYCLE),))
    here = shared(profile=cpld, faults={}, drift={"n0": [{"old_firmware": {"component": "cpld"}}]})
    assert "its outlets give n1 power, too" in str(here.plan().nodes["n0"])
    here.apply()
    assert not {"drain", "update_firmware:cpld", "ac_cycle:n1"} & set(here.did("n0"))
    assert here.serves("n0")


def test_firmware_that_was_staged_before_the_outlets_were_shared_cuts_nobody_off(shared: Worlds) -> None:
    cpld = replace(ONLY, digest="cpld", firmware=(b.firmware("cpld", 1, Activation.AC_CYCLE),))
    here = shared(profile=cpld, faults={}, drift={"n0": [{"old_firmware": {"component": "cpld"}}]})
    here.act("update_firmware", "n0", "cpld")
    assert not here.plan().nodes["n0"].actions


# --- not now: the ill node is isolated, and waits ---


def held(here: World) -> None:
    here.ledger.hold("n1", "a demo runs there", "anna", None, here.clock.now())


@pytest.mark.parametrize(
    ("settings", "before", "why"),
    [
        ({}, held, "n1 is held by anna"),
        ({"budgets": (d.BudgetLimit("fleet", "1"),)}, lambda _: None, "n1: budget of fleet is used up"),
    ],
    ids=["held", "budget"],
)
def test_nothing_is_drained_while_a_sibling_can_not_be_taken(
    shared: Worlds, settings: Any, before: Callable[[World], None], why: str
) -> None:
    here = shared(settings=settings)
    before(here)
    report = here.apply(wait_s=0.0)
    assert why in report.results["n0"].detail
    assert here.did("n0") == ["mark"], "it is isolated"
    assert here.did("n1") == []
    assert here.ledger.node("n1").certificate is not None
    assert here.serves("n1")


def test_three_on_one_outlet_are_cut_off_together(tmp_path: Path) -> None:
    def feeds(node: d.Desired) -> d.Desired:
        others = tuple(name for name in ("n0", "n1", "n2") if name != node.node)
        return replace(node, outlets=(d.Outlet(A, "A1", others),))

    here = World(tmp_path, each=feeds, nodes=3, profile=ONLY, faults=ILL)
    here.adopt()
    here.apply(wait_s=1200.0)
    assert cuts(here) == [1, 1, 1]
    assert all(here.serves(name) for name in here.fleet.nodes)


def test_a_sibling_that_does_not_drain_is_given_back_and_a_person_is_told_in_the_end(shared: Worlds) -> None:
    here = shared(faults={**ILL, "n1": {"pdb_never_yields": {}}})
    for tries in range(1, TRIES_A_DAY + 1):
        here.apply(wait_s=0.0)
        assert cuts(here) == [0, 0, 0]
        assert here.serves("n1"), "it is given back at once"
        assert not here.marked("n1")
        assert bool(here.ledger.holds()) is (tries == TRIES_A_DAY)
        assert here.plan().nodes["n0"].blocked is not None
        here.clock.elapsed += 5 * 3600 - 4000 * tries
    [hold] = here.ledger.holds()
    assert hold.subject == "n0"
    assert "n1 can't be taken out of service" in hold.reason
    assert [one.outcome for one in here.ledger.node("n0").attempts if one.action == "ac_cycle"] == ["refused"] * 4


def test_a_sibling_that_falls_ill_while_it_drains_keeps_its_mark(shared: Worlds) -> None:
    here = shared(faults={**ILL, "n1": {"pdb_never_yields": {}}})
    meanwhile(here, "n1", "drain", lambda: falls_ill(here))
    here.apply(wait_s=0.0)
    assert here.did("n1")[0] == "mark"
    assert here.did("n1").count("mark") == 1, "it never served in between"
    assert not here.serves("n1")


class LongGate(QuickGate):
    """A gate that takes long on n1."""

    async def run(self, desired: d.Desired, host: Any, observed: Any, clock: Any, *rest: Any, **more: Any) -> Any:
        await clock.sleep(20 * MINUTE if desired.node == "n1" else 0.0)
        return await super().run(desired, host, observed, clock, *rest, **more)


def test_the_gate_of_a_sibling_is_waited_for_before_the_drain_and_is_no_try(tmp_path: Path) -> None:
    here = looped(tmp_path, {"budgets": (d.BudgetLimit("fleet", "4"),)}, gate=LongGate())
    for step in ("mark", "drain"):
        here.act(step, "n1")
    now = here.clock.now()
    intent = {"at": now.isoformat(), "boot_id": "x", "signals": ["health.xid_48"]}
    treated = here.ledger.begin("test", "n1", "power_cycle", "", "remediation", intent, here.lease().token(), now)
    here.ledger.finish(treated, "done", "rebooted", now)
    here.events = []
    here.go(28 * MINUTE)
    gate = next(one for one in here.ledger.node("n1").attempts if one.action == "run_gate")
    drain = next(one for one in here.ledger.node("n0").attempts if one.action == "drain")
    assert gate.outcome == "done"
    assert drain.begun >= gate.ended
    assert not any(word.endswith("!refused") for word in here.did("n0"))
    assert not here.ledger.holds()


def crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any share of the small fleet be isolated, and no storm be seen in it."""
    monkeypatch.setattr(isolation, "OF_FLEET", "100%")
    monkeypatch.setattr(brake, "storm", lambda *_: None)


def test_of_two_pairs_that_exceed_the_budget_neither_goes_and_a_person_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ill node is isolated, and counts. To take a well one along would leave three out where two may be."""
    crowded(monkeypatch)
    here = looped(tmp_path, nodes=4, faults={"n0": ILL["n0"], "n2": ILL["n0"]})
    here.go(12 * MINUTE)
    assert cuts(here) == [0, 0, 0, 0]
    assert here.serves("n1")
    assert here.serves("n3")
    here.clock.elapsed += 24 * HOUR
    here.go(12 * MINUTE)
    assert cuts(here) == [0, 0, 0, 0]
    assert all(
        "for a day not all of them could be cut off" in here.plan().nodes[name].situation for name in ("n0", "n2")
    )


def test_an_ill_node_waits_a_day_for_its_siblings_and_then_a_person_is_told(shared: Worlds) -> None:
    here = shared(settings={"budgets": (d.BudgetLimit("fleet", "1"),)})
    here.apply(wait_s=0.0)
    assert "next rung of the ladder: ac_cycle" in here.plan().nodes["n0"].situation
    here.clock.elapsed += 24 * HOUR
    for _ in range(2):  # its drain for a person is no new wait
        here.apply(wait_s=0.0)
        plan = here.plan().nodes["n0"]
        assert plan.waits_for_person, plan.situation
        assert "for a day not all of them could be cut off" in plan.situation
    assert cuts(here) == [0, 0, 0]


def uncordoned(here: World) -> None:
    assert here.lab.cluster is not None
    here.lab.cluster.node("n0").unschedulable = False


def retracted(here: World) -> None:
    here.ledger.hold(f"{RETRACTED}xid_79", "it was a false alarm", "anna", None, here.clock.now())


def respelled(here: World) -> None:
    """Another node joins the outlets, as a new spec of a loop says."""
    nodes = dict(here.fleet.nodes)
    nodes["n0"] = replace(nodes["n0"], outlets=(d.Outlet(A, "A1", ("n1", "n2")), *nodes["n0"].outlets[1:]))
    here.fleet.nodes.clear()  # type: ignore[attr-defined]
    here.fleet.nodes.update(nodes)  # type: ignore[attr-defined]


def stopped(here: World) -> None:
    here.ledger.hold(FLEET, "fire", "anna", None, here.clock.now())


def switched_off(here: World) -> None:
    here.lab.mains.on[A, "A1"] = False


@pytest.mark.parametrize("change", [held, uncordoned, retracted, respelled, stopped, switched_off])
def test_all_is_asked_again_once_all_are_empty(shared: Worlds, change: Callable[[World], None]) -> None:
    """Two reviews found cuts of machines that people had taken back while the others drained."""
    here = shared()
    meanwhile(here, "n1", "drain", lambda: change(here))
    here.apply(wait_s=0.0)
    assert cuts(here) == [0, 0, 0]
    assert [here.machine(name).state.power for name in ("n0", "n1")] == ["on", "on"]
    assert "ac_cycle" not in here.did("n1")
    assert [word for word in here.did("n0") if word.startswith("ac_cycle")] == ["ac_cycle:n1!refused"]
    if change is not stopped:
        assert here.serves("n1")
        assert "run_gate" not in here.did("n1"), "nothing was done to it"


# --- what goes wrong at the cut ---


def test_a_sibling_that_does_not_shut_down_keeps_its_power_and_is_judged_by_its_gate(shared: Worlds) -> None:
    here = shared(faults={**ILL, "n1": {"power_ignored": {"times": 2}}})
    here.apply(wait_s=0.0)
    assert cuts(here) == [0, 0, 0]
    assert here.machine("n0").state.power == "on"
    assert here.did("n1")[:3] == ["mark", "drain", "ac_cycle!transient"]
    assert "n1" in here.gate.runs


def test_two_ill_nodes_of_one_outlet_are_treated_by_one_cut(shared: Worlds) -> None:
    here = shared(faults={"n[0-1]": ILL["n0"]})
    here.apply()
    assert cuts(here) == [1, 1, 0]
    assert all(here.serves(name) for name in ("n0", "n1"))
    rows = [one for name in ("n0", "n1") for one in here.ledger.node(name).attempts if one.action == "ac_cycle"]
    assert [one.treated for one in rows if one.outcome == "done"] == [("health.xid_79",)] * 2


def test_a_stop_spares_the_siblings_until_the_last_moment(shared: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    """No gate may begin under a stop: a well node that was shut down by then would stay out until it ends."""
    here = shared()
    amend = here.ledger.amend

    def amending(attempt: int, facts: Any, now: Any) -> None:
        amend(attempt, facts, now)
        if "off" in facts:
            stopped(here)

    monkeypatch.setattr(here.ledger, "amend", amending)
    here.apply(wait_s=0.0)
    assert cuts(here) == [0, 0, 0]
    assert here.machine("n0").state.power == "on"
    assert here.did("n1") == ["mark", "drain"]


def test_a_cut_that_is_not_made_uses_up_no_rung_of_an_ill_sibling(
    shared: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody works at the outlet once the sibling is off: it was never cut off, so that is still to be tried."""
    here = shared(faults={"n[0-1]": ILL["n0"]})
    begin = here.ledger.begin

    def beginning(run: str, node: str, action: str, target: str, *rest: Any) -> int:
        if target.startswith("with "):
            switched_off(here)
        return begin(run, node, action, target, *rest)

    monkeypatch.setattr(here.ledger, "begin", beginning)
    here.apply(wait_s=600.0)
    assert cuts(here) == [0, 0, 0]
    taken = {name: one for name in ("n0", "n1") for one in here.ledger.node(name).attempts if one.target[:4] == "with"}
    [(name, row)] = taken.items()
    assert row.treated == ("health.xid_79",)
    assert "next rung of the ladder: ac_cycle" in here.plan().nodes[name].situation


def test_a_sibling_whose_bmc_goes_on_answering_has_other_outlets(shared: Worlds) -> None:
    here = shared(faults={**ILL, "n1": {"outlets_elsewhere": {"node": ""}}})
    here.apply()
    assert cuts(here) == [1, 0, 0]
    assert all_on(here)
    [hold] = here.ledger.holds()
    assert hold.subject == "n0"
    assert "the BMC of n1 still answers" in hold.reason
    assert here.serves("n1")
    assert "n1" in here.gate.runs


def test_an_approved_plan_that_could_not_bring_a_sibling_back_cuts_nobody_off(shared: Worlds) -> None:
    here = shared()
    report = here.apply(approved=here.plan(), wait_s=0.0)
    assert "n1 has no approved plan to test and admit it again" in report.results["n0"].detail
    assert here.did("n1") == []


# --- runs that die ---


def looped(tmp_path: Path, settings: Any = None, **differences: Any) -> Looped:
    """A loop over a fleet in which n0, which is ill, and n1 hang on one outlet, and n2 and n3 on another."""

    def feeds(node: d.Desired) -> d.Desired:
        number = int(node.node[1:])
        return replace(node, outlets=(d.Outlet(A, f"A{number // 2}", (f"n{number ^ 1}",)),))

    settings = {"budgets": (d.BudgetLimit("fleet", "2"),), **(settings or {})}
    return Looped(
        tmp_path, each=feeds, settings=settings, **{"nodes": 4, "profile": ONLY, "faults": ILL, **differences}
    )


ONLY_LOOKS = {"drift_mode": DriftMode.OBSERVE}


def falls_ill(here: World) -> None:
    here.machine("n1").inject("xid", code=79, heals="ac")


def flashed(here: World) -> None:
    here.act("update_firmware", "n1", "bios")
    here.act("soft_restart", "n1")


@pytest.mark.parametrize("change", [falls_ill, flashed])
def test_a_loop_that_only_looks_gives_back_none_that_is_ill_or_was_changed(
    tmp_path: Path, change: Callable[[World], None]
) -> None:
    drift = {"n1": [{"old_firmware": {"component": "bios"}}]}
    here = looped(tmp_path, ONLY_LOOKS, faults={}, drift=drift)
    here.act("mark", "n1", because=(CUT + "n0",))
    here.act("drain", "n1")
    change(here)
    here.go(5 * MINUTE)
    assert not here.serves("n1")


@pytest.mark.parametrize("point", ["drain", "begun"])
def test_a_loop_that_only_looks_gives_back_what_was_not_shut_down(tmp_path: Path, point: str) -> None:
    """And what was, keeps its mark: no gate has judged it."""

    def die() -> None:
        raise Killed

    here = looped(tmp_path, ONLY_LOOKS)
    meanwhile(here, "n1", point.replace("begun", "ac_cycle"), die)
    with pytest.raises(BaseException):  # noqa: B017 - the group that asyncio makes of it
        here.apply()
    assert not here.serves("n1")
    here.events = []
    here.go(5 * MINUTE)
    assert here.serves("n1") is (point == "drain"), here.did("n1")


@pytest.mark.parametrize("point", ["mark", "drain", "begun", "off", "cut", "dark", "booting"])
def test_a_run_that_is_killed_leaves_no_machine_dark_and_admits_none_without_its_gate(
    shared: Worlds, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """crash_anywhere_converges, and whatever was shut down is judged before it serves."""
    here = shared()
    boots = {name: here.machine(name).system().boot_id for name in ("n0", "n1")}
    amend, switch = here.ledger.amend, here.lab.mains.switch
    dead = []

    def die(*_: Any, **__: Any) -> None:
        dead.append(point)
        raise Killed

    def amending(attempt: int, facts: Any, now: Any) -> None:
        amend(attempt, facts, now)
        if point in facts:
            die()

    def switching(sockets: Any, *, on: bool) -> None:
        if dead:
            raise Killed  # nobody is left who could
        switch(sockets, on=on)

    monkeypatch.setattr(here.ledger, "amend", amending)
    monkeypatch.setattr(here.lab.mains, "switch", switching)
    if point in ("mark", "drain", "begun"):
        meanwhile(here, "n1", point.replace("begun", "ac_cycle"), die)
    if point == "booting":
        monkeypatch.setattr(siblings, "wait_for_host", die)
    with pytest.raises(BaseException):  # noqa: B017 - the group that asyncio makes of it
        here.apply()
    monkeypatch.undo()
    assert dead == [point]
    here.events = []
    here.clock.elapsed += 4000
    if point == "dark":
        held(here)
        here.apply(wait_s=0.0)
        assert here.serves("n0"), "what is left to be done for it takes nobody along"
        here.ledger.release("n1", "anna", here.clock.now())
    for _ in range(3):
        here.apply()
        assert all_on(here)
        here.clock.elapsed += 1000
    for name, boot in boots.items():
        assert here.serves(name), (name, here.did(name), here.ledger.node(name).attempts)
        assert name in here.gate.runs or here.machine(name).system().boot_id == boot
    assert ("n1" in here.gate.runs) is (cuts(here)[1] > 0 or point == "begun")
