"""Apply: nodes side by side under one budget, approval, waiting, retries, parking, what earlier runs left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.apply import AllNodesStale, ApplyInterrupted, ApplyReport
from reconciler.converge.events import ActionFinished, ActionStarted, NodeObserved
from reconciler.converge.run import Ended
from reconciler.model.desired import BudgetLimit, Fleet
from reconciler.model.drift import DriftClass
from reconciler.model.errors import LeaseHeld, LedgerError, StalePlan
from reconciler.model.gate import Verdict
from reconciler.model.inputs import RECIPE
from reconciler.model.observed import Answered
from reconciler.model.records import OWNER_ANNOTATION, Mark, read_mark, write_mark
from reconciler.model.vocab import DrainProvider, NodeState
from tests.converge.world import IMAGE, PROFILE, QuickGate, World

Worlds = Callable[..., World]


@pytest.fixture
def adopted(world: Worlds) -> Worlds:
    """Every node has a certificate, so that drift alone leads to work."""

    def build(**differences: Any) -> World:
        here = world(**differences)
        here.adopt()
        return here

    return build


def ends(report: ApplyReport) -> dict[str, Ended]:
    return {name: result.state for name, result in report.results.items()}


ONE = (BudgetLimit("fleet", "1"),)
BIOS = {"n0": ["bios_off"]}


# --- to the goal -----------------------------------------------------------------------------------------------------


def test_a_converged_fleet_is_left_alone(adopted: Worlds) -> None:
    here = adopted(nodes=3)
    report = here.apply()
    assert set(ends(report).values()) == {Ended.CONVERGED}
    assert report.executed == ()
    assert not report.plan.changes


@pytest.mark.parametrize(
    "drift",
    [
        ["old_image"], ["bios_off"], [{"old_firmware": {}}], ["secure_boot_off", "wrong_boot_order"],
        ["powered_off"], ["not_a_member"], ["missing_label", "sysctl_off", "wrong_hostname"],
        ["service_stopped"], ["old_image", "bios_off", {"old_firmware": {}}, "secure_boot_off"],
    ],
)  # fmt: skip
def test_drift_of_every_sort_is_removed(adopted: Worlds, drift: list[Any]) -> None:
    here = adopted(nodes=3, drift={"n0": drift})
    report = here.apply()
    assert ends(report) == {"n0": Ended.DONE, "n1": Ended.CONVERGED, "n2": Ended.CONVERGED}, report.results["n0"]
    assert here.serves("n0")
    assert not here.marked("n0")
    assert not report.plan.changes
    assert here.apply().executed == ()


def test_one_drain_and_one_installation_for_all_that_is_wrong(adopted: Worlds) -> None:
    drift = ["old_image", "bios_off", {"old_firmware": {"component": "nic0"}}, "secure_boot_off"]
    here = adopted(nodes=1, drift={"n0": drift})
    here.apply()
    counters = here.machine("n0").state.counters
    assert here.did("n0").count("drain") == 1
    assert (counters.installs, counters.flashes, counters.bios_writes) == (1, 1, 1)
    assert counters.boots == 2, "into the installer, and into the system"


def test_applied_values_tell_drift_of_the_node_from_a_change_of_the_spec(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n0": ["sysctl_off"]})
    here.apply()
    assert here.ledger.node("n0").applied["host.sysctls.vm.swappiness"].value == "1"
    assert here.ledger.node("n1").applied["bios.NumaNodesPerSocket"].commit == "c0ffee"
    here.machine("n0").sysctl_write("vm.swappiness", "60")
    [item] = here.plan().nodes["n0"].drift
    assert item.kind is DriftClass.DRIFTED


def test_the_journal_records_each_action_before_it_is_tried(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    here.apply()
    entries = [(entry.event, entry.action) for entry in here.ledger.history("n0") if entry.event != "drift"]
    assert [pair for pair in entries if pair[0] == "intent"] == [
        ("intent", name) for name in ("mark", "drain", "set_bios", "soft_restart", "run_gate", "admit")
    ]
    assert here.ledger.unfinished() == []


# --- the budget ------------------------------------------------------------------------------------------------------


def test_a_budget_of_one_takes_nodes_one_after_another(adopted: Worlds) -> None:
    here = adopted(nodes=3, drift={"n*": ["bios_off"]}, settings={"budgets": ONE})
    report = here.apply()
    assert set(ends(report).values()) == {Ended.DONE}
    spans = [
        [e.started_at for e in report.executed if e.node == name and e.action in ("mark", "admit")]
        for name in ("n0", "n1", "n2")
    ]
    for (_, admitted), (marked, _) in itertools.pairwise(spans):
        assert admitted < marked


def test_one_pass_does_not_wait_for_the_budget(adopted: Worlds) -> None:
    here = adopted(nodes=3, drift={"n*": ["bios_off"]}, settings={"budgets": ONE})
    report = here.apply(wait_s=0.0)
    assert sorted(ends(report).values()) == [Ended.DONE, Ended.NOT_STARTED, Ended.NOT_STARTED]
    assert all("used up" in result.detail for result in report.of(Ended.NOT_STARTED))


def test_nodes_that_others_took_out_use_up_the_budget_and_are_waited_for(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n0": ["bios_off"], "n1": ["foreign_cordon"]}, settings={"budgets": ONE})
    began = here.clock.elapsed
    report = here.apply(wait_s=300.0)
    assert ends(report)["n0"] is Ended.NOT_STARTED
    assert "budget of fleet is used up: 1 of 1 out (n1)" in report.results["n0"].detail
    assert 300 <= here.clock.elapsed - began < 400
    assert here.serves("n0")

    async def uncordoned() -> ApplyReport:
        work = asyncio.create_task(here.applying())
        await asyncio.sleep(200)
        assert here.lab.cluster is not None
        here.lab.cluster.update_node("n1", unschedulable=False)
        return await work

    assert ends(here.run(uncordoned()))["n0"] is Ended.DONE


def test_the_budget_counts_nodes_that_were_not_selected(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n0": ["bios_off"], "n1": ["foreign_cordon"]}, settings={"budgets": ONE})
    assert ends(here.apply(selected=["n0"], wait_s=0.0)) == {"n0": Ended.NOT_STARTED}


async def observed_all(here: World) -> None:
    """Wait until the pass that plans are made from is over, while nothing has been started yet."""
    while sum(isinstance(event, NodeObserved) for event in here.events) < len(here.fleet.nodes):
        await here.clock.sleep(0.1)


def test_a_node_that_somebody_takes_out_after_the_plan_was_made_counts(adopted: Worlds) -> None:
    """I3."""
    here = adopted(nodes=2, drift=BIOS, settings={"budgets": ONE})

    async def overtaken() -> ApplyReport:
        work = asyncio.create_task(here.applying(wait_s=120.0))
        await observed_all(here)
        assert here.lab.cluster is not None
        here.lab.cluster.update_node("n1", unschedulable=True)
        return await work

    report = here.run(overtaken())
    assert ends(report)["n0"] is Ended.NOT_STARTED
    assert not here.marked("n0")
    assert here.serves("n0")


def test_two_nodes_that_turn_out_to_need_more_do_not_both_go(adopted: Worlds) -> None:
    """Both start with what no budget is needed for; only then do they turn out to have drifted further."""
    here = adopted(nodes=2, drift={"n*": ["sysctl_off"]}, settings={"budgets": ONE})
    most = 0

    async def worse() -> ApplyReport:
        nonlocal most
        work = asyncio.create_task(here.applying())
        await observed_all(here)
        for name in here.fleet.nodes:
            here.machine(name).state.bios["NumaNodesPerSocket"] = "NPS4"
            here.machine(name)._touch()
        while not work.done():
            most = max(most, sum(not here.serves(name) for name in here.fleet.nodes))
            await here.clock.sleep(1)
        return await work

    assert set(ends(here.run(worse())).values()) == {Ended.DONE}
    assert most == 1


def test_a_cluster_that_goes_down_before_a_node_is_taken_out_stops_it(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    assert here.lab.cluster is not None
    here.lab.cluster.down = True
    report = here.apply(wait_s=0.0)
    assert ends(report) == {"n0": Ended.NOT_STARTED}
    assert here.machine("n0").state.counters.boots == 0


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_node_that_fails_stays_out_and_holds_nobody_up(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n*": ["bios_off"]}, faults={"n0": {"bios_write_ignored": {}}})
    report = here.apply()
    assert ends(report) == {"n0": Ended.FAILED, "n1": Ended.DONE}
    assert "set_bios" in report.results["n0"].detail
    assert here.did("n0") == ["mark", "drain", *["set_bios!transient"] * 3]
    assert here.marked("n0"), "drained, and left as it stands for a person to look at"


def test_a_passing_failure_is_tried_again(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS, faults={"n0": {"bios_write_ignored": {"times": 1}}})
    assert ends(here.apply()) == {"n0": Ended.DONE}
    assert here.did("n0").count("set_bios!transient") == 1


def test_attempts_persist_so_the_next_run_does_not_begin_to_count_again(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS, faults={"n0": {"bios_write_ignored": {}}})
    here.apply()
    writes = here.machine("n0").state.counters.bios_writes
    report = here.apply()
    assert ends(report) != {"n0": Ended.DONE}
    assert here.machine("n0").state.counters.bios_writes == writes


def test_a_drain_that_fails_gives_the_node_back(adopted: Worlds) -> None:
    """H1, H3."""
    here = adopted(nodes=1, drift=BIOS, faults={"n0": {"pdb_never_yields": {}}})
    report = here.apply()
    assert ends(report) == {"n0": Ended.FAILED}
    assert "never-n0" in report.results["n0"].detail
    assert "it serves as before" in report.results["n0"].detail
    assert here.serves("n0")
    assert not here.marked("n0")


def test_a_setting_that_does_not_hold_ends_the_node_s_run(adopted: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = adopted(nodes=1, drift={"n0": ["secure_boot_off"]})
    machine = here.machine("n0")
    stubborn = machine._end_post

    def forgets() -> None:
        machine.state.pending_secure_boot = None
        stubborn()

    monkeypatch.setattr(machine, "_end_post", forgets)  # a BMC that takes secure boot and never applies it
    report = here.apply()
    assert ends(report) == {"n0": Ended.FAILED}
    assert "set_boot was done 2 times and does not hold" in report.results["n0"].detail
    assert machine.state.counters.boots == 2


def test_a_failed_gate_keeps_the_node_out(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS, gate=QuickGate(n0=Verdict.FAIL))
    report = here.apply()
    assert ends(report) == {"n0": Ended.FAILED}
    assert not here.serves("n0")
    assert here.gate.runs == ["n0"], "a failure is evidence; it is not tried again"


def test_a_node_whose_installation_failed_for_good_stays_out(adopted: Worlds) -> None:
    """L1: the disk is written, and the machine boots the old system, which answers and is Ready."""
    here = adopted(nodes=1, drift={"n0": ["old_image"]})
    state = here.machine("n0").state
    state.disks[state.drives[1].serial] = replace(state.disks[state.drives[0].serial])
    state.drives.insert(0, state.drives.pop(1))
    here.machine("n0").inject("wrong_boot_disk")
    report = here.apply()
    assert ends(report) == {"n0": Ended.FAILED}
    assert "L1" in report.results["n0"].detail
    assert here.marked("n0")
    assert not here.serves("n0")
    seen = report.observation.nodes["n0"].host
    assert isinstance(seen, Answered)
    assert seen.at > report.executed[-1].started_at, "the report shows the node as it was left"


def test_remediation_is_journaled_as_such_and_bounded(adopted: Worlds) -> None:
    fault = {"xid_79": {"gpu": 1, "persistent": True}}
    here = adopted(nodes=2, faults={"n0": fault})
    report = here.apply()
    assert not here.serves("n0")
    assert here.marked("n0")
    causes = [attempt.cause for attempt in here.ledger.node("n0").attempts if attempt.action == "power_cycle"]
    assert causes == ["remediation"]
    assert ends(report)["n0"] is Ended.FAILED
    here.apply()
    assert here.machine("n0").state.counters.power_cycles == 1, "the ladder has one rung of one attempt"


def test_a_fault_that_a_power_cycle_cures_is_cured(adopted: Worlds) -> None:
    here = adopted(nodes=2, faults={"n0": {"xid_79": {"gpu": 1}}})
    assert ends(here.apply())["n0"] is Ended.DONE
    assert here.serves("n0")


def test_an_identity_that_bmc_and_host_agreed_on_proves_the_bmc_when_the_host_is_gone(adopted: Worlds) -> None:
    """A14, with nothing declared in the spec."""
    here = adopted(nodes=1, node={"serial": None})
    here.apply()
    assert here.ledger.node("n0").serial == here.machine("n0").state.serial
    here.machine("n0").power("force_off")
    here.clock.elapsed += 60
    assert ends(here.apply()) == {"n0": Ended.DONE}
    here.machine("n0").power("force_off")
    here.machine("n0").inject("wrong_machine")
    here.clock.elapsed += 60
    report = here.apply()
    assert ends(report) == {"n0": Ended.NOT_STARTED}
    assert "the ledger says" in report.results["n0"].detail


# --- hands off -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [NodeState.QUARANTINED, NodeState.RETIRED])
def test_quarantined_and_retired_nodes_are_not_acted_upon(adopted: Worlds, state: NodeState) -> None:
    here = adopted(nodes=1, drift={"n0": ["bios_off", "sysctl_off", "missing_label"]}, node={"state": state})
    assert here.apply().executed == ()


@pytest.mark.parametrize("subject", ["n0", "pool/train"])
def test_a_hold_set_while_a_node_is_worked_on_stops_it_before_the_next_action(adopted: Worlds, subject: str) -> None:
    """I11."""
    here = adopted(nodes=1, drift=BIOS)

    async def held() -> ApplyReport:
        work = asyncio.create_task(here.applying())
        await here.started("set_bios")
        here.ledger.hold(subject, "wait", "ops", None, here.clock.now())
        return await work

    report = here.run(held())
    assert ends(report) == {"n0": Ended.FAILED}
    assert "held by ops: wait" in report.results["n0"].detail
    assert here.machine("n0").state.counters.boots == 0
    assert here.did("n0")[-1] == "set_bios"
    here.ledger.release(subject, "ops", here.clock.now())
    assert ends(here.apply()) == {"n0": Ended.DONE}


def test_a_hold_on_the_pool_holds_its_nodes(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    here.ledger.hold("pool/train", "freeze", "ops", None, here.clock.now())
    assert here.apply().executed == ()
    here.ledger.hold("n0", "until tonight", "ops", here.clock.now() + timedelta(hours=1), here.clock.now())
    here.ledger.release("pool/train", "ops", here.clock.now())
    assert here.apply().executed == ()
    here.clock.elapsed += 3700
    assert ends(here.apply()) == {"n0": Ended.DONE}


def test_a_bmc_of_another_machine_stops_everything_before_it_begins(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS, faults={"n0": {"wrong_machine": {}}})
    report = here.apply()
    assert ends(report) == {"n0": Ended.NOT_STARTED}
    assert "is this the right machine?" in report.results["n0"].detail
    assert here.serves("n0")


# --- an approved plan ------------------------------------------------------------------------------------------------


def test_an_approved_plan_is_carried_out_and_used_up(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift=BIOS)
    plan = here.plan()
    assert ends(here.apply(approved=plan, plan_id=plan.id))["n0"] is Ended.DONE
    with pytest.raises(StalePlan, match="used up"):
        here.apply(approved=plan, plan_id=plan.id)


def test_a_plan_for_another_fleet_or_past_its_time_is_refused(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    plan = here.plan()
    with pytest.raises(StalePlan, match="for fleet other"):
        here.apply(approved=replace(plan, fleet="other"))
    here.clock.elapsed += 3 * 3600
    with pytest.raises(StalePlan, match="expired"):
        here.apply(approved=plan)


def test_a_node_that_needs_more_than_was_approved_is_skipped_and_others_go_on(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n*": ["bios_off"]})
    plan = here.plan()
    here.machine("n0").state.firmware["NIC0"].version = "1.0"
    here.machine("n0")._touch()
    report = here.apply(approved=plan, plan_id=plan.id)
    assert ends(report) == {"n0": Ended.STALE, "n1": Ended.DONE}
    assert "update_firmware:nic0" in report.results["n0"].detail
    assert here.serves("n0")


def test_when_every_node_is_stale_nothing_is_done(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift=BIOS)
    plan = here.plan()
    desired = replace(
        here.fleet.nodes["n0"],
        profile=replace(PROFILE, digest="other", bios={"SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": "NPS2"}),
    )
    fleet = replace(here.fleet, nodes={**here.fleet.nodes, "n0": desired})
    with pytest.raises(AllNodesStale, match=r'bios\.NumaNodesPerSocket: "NPS1" -> "NPS2"') as stale:
        here.apply(approved=plan, plan_id=plan.id, fleet=fleet)
    assert Ended.STALE in ends(stale.value.report).values()
    assert here.serves("n0")
    assert not here.ledger.plan_used(plan.id)


def test_a_plan_of_a_foreign_mark_that_was_lifted_is_stale(adopted: Worlds) -> None:
    """The plan leaves the node alone; it needs a change now, which nobody approved."""
    here = adopted(nodes=2, drift=BIOS)
    theirs = write_mark(Mark("another ledger", "p", "theirs", here.clock.now().isoformat(), True))
    assert here.lab.cluster is not None
    here.lab.cluster.update_node("n0", annotations={OWNER_ANNOTATION: theirs})
    plan = here.plan()
    assert not plan.changes
    here.lab.cluster.update_node("n0", annotations={})
    with pytest.raises(StalePlan, match=r"every node changed since; n0: .*beyond what was approved; make a new one"):
        here.apply(approved=plan, plan_id=plan.id)
    assert here.serves("n0")
    assert not here.ledger.plan_used(plan.id)


def drained_by_a_command(fleet: Fleet) -> Fleet:
    """Another drain provider: no drift, and nothing that the actions of a plan would show."""
    nodes = {}
    for name, node in fleet.nodes.items():
        drain = replace(node.profile.drain, provider=DrainProvider.COMMAND, command=("sh", "-c", "wipe"))
        nodes[name] = replace(node, profile=replace(node.profile, digest="drain", drain=drain))
    return replace(fleet, nodes=nodes)


def test_work_that_has_begun_is_parked_when_the_spec_wants_it_otherwise(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift={"n*": ["bios_off"]})
    plan = here.plan()

    async def interrupted(action: str) -> None:
        work = asyncio.create_task(here.applying(approved=plan, plan_id=plan.id))
        await here.started(action)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    here.run(interrupted("soft_restart"))
    before = replace(here.machine("n0").state.counters)
    here.clock.elapsed += 600
    with pytest.raises(StalePlan, match=r'drain\.provider: "kubernetes" -> "command".* left parked') as caught:
        here.apply(approved=plan, plan_id=plan.id, fleet=drained_by_a_command(here.fleet))
    assert "drain.command" in str(caught.value)
    assert here.tainted("n0"), "it stays drained and marked"
    assert not here.serves("n0")
    assert here.machine("n0").state.counters == before
    assert not here.ledger.plan_used(plan.id)
    assert ends(here.apply(approved=plan, plan_id=plan.id)) == {"n0": Ended.DONE}, "with what was approved it goes on"
    assert here.machine("n0").state.counters.boots == 1


def test_a_machine_that_is_exchanged_under_our_hands_is_parked(adopted: Worlds) -> None:
    """Its disk is another one when the node has been drained: nothing further is done, and the mark stays."""
    here = adopted(nodes=1, drift={"n0": ["old_image"]})
    plan = here.plan()
    assert "machine.root_disk" in plan.nodes["n0"].inputs

    async def exchanged() -> None:
        work = asyncio.create_task(here.applying(approved=plan, plan_id=plan.id))
        await here.started("drain")
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    here.run(exchanged())
    bound = json.loads(plan.nodes["n0"].inputs["machine.root_disk"])
    [disk] = [drive for drive in here.machine("n0").state.drives if drive.serial.casefold() == bound]
    disk.serial = "EXCHANGED"
    here.machine("n0")._touch()
    with pytest.raises(StalePlan, match=r"machine\.root_disk: .* left parked"):
        here.apply(approved=plan, plan_id=plan.id)
    assert here.tainted("n0")


def test_a_plan_of_another_recipe_is_refused(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    with pytest.raises(
        StalePlan, match=rf"binds other inputs \(recipe 1, this version reads {RECIPE}\); make a new one"
    ):
        here.apply(approved=replace(here.plan(), recipe=""))


def test_drift_that_has_gone_meanwhile_does_not_make_a_plan_stale(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift={"n0": ["sysctl_off", "bios_off"]})
    plan = here.plan()
    here.machine("n0").sysctl_write("vm.swappiness", "1")
    assert ends(here.apply(approved=plan, plan_id=plan.id)) == {"n0": Ended.DONE}


def test_a_plan_that_was_partly_applied_is_resumed(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n*": ["bios_off"]}, settings={"budgets": ONE})
    plan = here.plan()
    first = here.apply(approved=plan, plan_id=plan.id, wait_s=0.0)
    assert sorted(ends(first).values()) == [Ended.DONE, Ended.NOT_STARTED]
    assert sorted(ends(here.apply(approved=plan, plan_id=plan.id)).values()) == [Ended.CONVERGED, Ended.DONE]
    assert here.ledger.plan_used(plan.id)


def test_what_lies_behind_a_reimage_is_within_its_approval(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift={"n0": ["old_image"]})
    plan = here.plan()
    assert ends(here.apply(approved=plan, plan_id=plan.id)) == {"n0": Ended.DONE}


# --- two runners, and runs that die ----------------------------------------------------------------------------------


def test_a_second_runner_is_refused_and_told_who_works(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)

    async def two() -> None:
        first = asyncio.create_task(here.applying(holder="ci job 7"))
        await asyncio.sleep(60)
        with pytest.raises(LeaseHeld, match="ci job 7"):
            await here.applying()
        await first

    here.run(two())
    assert here.machine("n0").state.counters.boots == 1


def test_a_runner_that_lost_its_lease_stops_at_once(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)

    async def robbed() -> None:
        work = asyncio.create_task(here.applying())
        await here.started("drain")
        later = here.clock.now() + timedelta(hours=1)
        here.ledger.acquire("test", "a thief", 36000.0, later)
        with pytest.raises(LeaseHeld, match="a thief"):
            await work

    here.run(robbed())
    assert here.machine("n0").state.counters.bios_writes == 0
    assert len(here.ledger.unfinished()) == 1


def test_an_interrupted_run_parks_reports_and_is_continued(adopted: Worlds) -> None:
    here = adopted(nodes=2, drift={"n*": ["bios_off"]})

    async def interrupted() -> float:
        work = asyncio.create_task(here.applying())
        await here.started("soft_restart")
        await asyncio.sleep(60)
        work.cancel()
        began = here.clock.elapsed
        with pytest.raises(ApplyInterrupted) as cancelled:
            await work
        reports.append(cancelled.value.report)
        return here.clock.elapsed - began

    reports: list[ApplyReport] = []
    assert here.run(interrupted()) < 7
    [ended] = reports
    assert ended.interrupted
    assert set(ends(ended).values()) == {Ended.PARKED}
    assert len(here.ledger.unfinished()) == 2
    assert set(ends(here.apply()).values()) == {Ended.DONE}
    assert [here.machine(name).state.counters.boots for name in ("n0", "n1")] == [1, 1]


def test_an_action_that_many_runs_died_in_was_still_tried_once(adopted: Worlds) -> None:
    """A runner that is killed again and again is no evidence against the node."""
    here = adopted(nodes=1, drift={"n0": [{"old_firmware": {"component": "bmc"}}]})

    async def killed() -> None:
        work = asyncio.create_task(here.applying())
        await asyncio.wait([work], timeout=90)
        work.cancel()
        await asyncio.wait([work])

    for _ in range(5):
        here.run(killed())
    assert ends(here.apply()) == {"n0": Ended.DONE}
    assert here.machine("n0").state.counters.flashes == 1
    flashes = [a.outcome for a in here.ledger.node("n0").attempts if a.action == "update_firmware"]
    assert flashes == ["done"]


def test_an_attempt_that_is_needless_when_the_next_run_looks_is_closed(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    lease = here.ledger.acquire("test", "dead", 1.0, here.clock.now())
    intent = {"at": here.clock.now().isoformat()}
    here.ledger.begin("dead", "n0", "soft_restart", "", "", intent, lease.token, here.clock.now())
    here.clock.elapsed += 60
    assert ends(here.apply()) == {"n0": Ended.CONVERGED}
    assert here.ledger.unfinished() == []
    assert here.machine("n0").state.counters.boots == 0


def test_an_old_attempt_says_nothing_about_what_is_needed_now(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    lease = here.ledger.acquire("test", "dead", 1.0, here.clock.now())
    intent = {"at": here.clock.now().isoformat(), "boot_id": "long ago"}
    here.ledger.begin("dead", "n0", "soft_restart", "", "", intent, lease.token, here.clock.now())
    here.clock.elapsed += 3 * 3600
    assert ends(here.apply()) == {"n0": Ended.DONE}
    assert here.machine("n0").state.counters.boots == 1
    assert here.ledger.unfinished() == []


def test_an_installation_whose_run_died_is_finished_not_repeated(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift={"n0": ["old_image"]})

    async def dies() -> None:
        work = asyncio.create_task(here.applying())
        while here.machine("n0").state.phase != "installer":
            await asyncio.sleep(1)
            here.machine("n0").catch_up()
        work.cancel()
        await asyncio.wait([work])
        here.lab.installs.dies(here.clock.elapsed)  # the process that served them is gone

    here.run(dies())
    assert ends(here.apply()) == {"n0": Ended.DONE}
    assert here.machine("n0").state.counters.installs == 1
    assert here.machine("n0").disk().version == IMAGE.version


def test_a_defect_of_ours_ends_the_work_on_its_node_and_names_itself(
    adopted: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 22; what the action had begun is journaled as nobody's knowledge."""
    here = adopted(nodes=2, drift=BIOS)

    def broken(*_: object) -> Any:
        raise KeyError("ours")

    monkeypatch.setattr(here.gate, "judge", broken)
    result = here.apply().results["n0"]
    assert result.state is Ended.CRASHED
    assert "KeyError: 'ours'" in result.detail
    assert here.ledger.unfinished() == []
    here.ledger.acquire("test", "next", 60.0, here.clock.now())  # the lease was dropped: nobody has to wait for it


def test_a_ledger_that_fails_in_the_middle_stops_the_run(adopted: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = adopted(nodes=1, drift=BIOS)
    begin = here.ledger.begin

    def full(*args: Any) -> int:
        if args[2] == "set_bios":
            raise LedgerError("the disk is full")
        return begin(*args)

    monkeypatch.setattr(here.ledger, "begin", full)
    with pytest.raises(LedgerError, match="disk is full"):
        here.apply()
    assert here.machine("n0").state.counters.bios_writes == 0


# --- leftovers -------------------------------------------------------------------------------------------------------


def forget(here: World, node: str) -> Any:
    return replace(here.fleet, nodes={name: desired for name, desired in here.fleet.nodes.items() if name != node})


def test_our_mark_on_a_forgotten_node_that_nothing_was_done_to_is_lifted(adopted: Worlds) -> None:
    here = adopted(nodes=2)
    here.act("mark", "n1")
    report = here.apply(fleet=forget(here, "n1"))
    assert here.serves("n1")
    assert report.abandoned == ()


def test_our_mark_on_a_forgotten_node_that_was_changed_is_reported(adopted: Worlds) -> None:
    here = adopted(nodes=2)
    here.act("mark", "n1")
    here.act("soft_restart", "n1")
    report = here.apply(fleet=forget(here, "n1"))
    assert report.abandoned == ("n1",)
    assert here.marked("n1")


def test_marks_of_others_on_forgotten_nodes_are_none_of_our_business(adopted: Worlds) -> None:
    here = adopted(nodes=2)
    assert here.lab.cluster is not None
    theirs = Mark("other", "p", "r", "2026-01-01T00:00:00+00:00", True)
    here.lab.cluster.update_node("n1", annotations={OWNER_ANNOTATION: write_mark(theirs)}, unschedulable=True)
    assert here.apply(fleet=forget(here, "n1")).abandoned == ()
    assert read_mark(here.lab.cluster.node("n1").annotations[OWNER_ANNOTATION]) == theirs


def test_a_mark_that_a_dead_run_left_on_a_healthy_node_does_not_stay(adopted: Worlds) -> None:
    here = adopted(nodes=1)
    here.act("mark")
    here.apply()
    assert here.serves("n0")


def test_progress_tells_each_action_once_started_once_finished(adopted: Worlds) -> None:
    here = adopted(nodes=1, drift=BIOS)
    report = here.apply()
    started = [event.action.id for event in here.events if isinstance(event, ActionStarted)]
    finished = [event.action.id for event in here.events if isinstance(event, ActionFinished)]
    assert started == finished == [done.action for done in report.executed]
