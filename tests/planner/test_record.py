"""What earlier attempts mean for a node that carries our mark."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.model.desired import DrainPolicy, GateTest
from reconciler.model.host_services import AmdGpu
from reconciler.model.records import Attempt, NodeRecord
from reconciler.model.vocab import DrainProvider
from reconciler.planner.node.record import isolating_signals
from reconciler.planner.node.retest import is_idle, voided_since_certificate
from tests import builders as b

LOST = "health.gpu_missing"
MARK = replace(b.our_mark(), reason="isolated: " + LOST)


def record(*tried: tuple[str, str], cause: str = "isolated: " + LOST) -> NodeRecord:
    return NodeRecord(
        "n1",
        attempts=tuple(
            Attempt(action, "", cause if action == "mark" else "x", b.NOW + timedelta(minutes=at), outcome)
            for at, (action, outcome) in enumerate(tried)
        ),
    )


@pytest.mark.parametrize(
    ("tried", "undrained"),
    [
        ([], True),
        ([("mark", "done")], True),
        ([("mark", "started")], True),
        ([("mark", "ambiguous"), ("mark", "transient")], True),
        ([("mark", "done"), ("drain", "refused")], True),
        ([("mark", "done"), ("drain", "started")], False),
        ([("mark", "done"), ("drain", "transient")], False),
        ([("mark", "done"), ("configure_host", "done"), ("set_labels", "done")], True),
        ([("mark", "done"), ("sync_serving", "done"), ("degrade_serving", "started")], True),  # on other nodes alone
        ([("mark", "done"), ("sync_serving", "transient"), ("degrade_serving", "done")], True),
        ([("mark", "done"), ("degrade_serving", "done"), ("drain", "started")], False),
        ([("mark", "done"), ("admit", "transient")], True),  # jobs run on under a mark that could not be lifted
        ([("mark", "done"), ("admit", "ambiguous"), ("check_trust", "done")], True),
        ([("mark", "done"), ("drain", "done"), ("admit", "transient")], False),
        ([("mark", "done"), ("drain", "done"), ("admit", "done"), ("mark", "done")], True),
        ([("mark", "done"), ("power_cycle", "done")], False),
        ([("mark", "done"), ("run_gate", "permanent")], False),
    ],
)
def test_an_isolated_node_keeps_its_signals_until_it_is_drained(tried: list[tuple[str, str]], undrained: bool) -> None:
    assert isolating_signals(record(*tried), MARK) == ((LOST,) if undrained else ())
    assert isolating_signals(record(*tried), b.our_mark()) == (), "a mark of something else"


@pytest.mark.parametrize(("cause", "void"), [("health.leak", True), ("health.gpu_missing", False), ("image", False)])
def test_a_repair_by_a_person_voids_the_certificate(cause: str, void: bool) -> None:
    desired = b.node("gpu-a001")
    known = b.record(desired)
    drain = Attempt("drain", "", cause, b.NOW + timedelta(minutes=1), "done")
    assert bool(voided_since_certificate(replace(known, attempts=(drain,)), b.ACCEPTANCE)) is void


@pytest.mark.parametrize(
    ("cause", "now", "asked"),
    [
        ("health.dimm_ue", ("D1", "D3"), {"memory"}),
        ("health.dimm_ue", ("D1", "D2"), {"memory", "dcgm"}),  # nobody knows what was done
        ("health.dimm_ue", (), {"memory", "dcgm"}),
        ("health.leak", ("D1", "D3"), {"memory", "dcgm"}),  # coolant gets everywhere
        ("health.nvme_critical", ("D1", "D3"), {"memory", "dcgm"}),  # another part than the one at fault
        ("health.dimm_ue, health.leak", ("D1", "D3"), {"memory", "dcgm"}),
    ],
)
def test_a_repair_that_exchanged_the_part_at_fault_costs_the_tests_of_that_part(
    cause: str, now: tuple[str, ...], asked: set[str]
) -> None:
    [phase] = b.ACCEPTANCE.phases
    memory = GateTest("memory", "memtester", {}, (), 600.0)
    acceptance = replace(b.ACCEPTANCE, phases=(replace(phase, tests=(*phase.tests, memory)),))
    known = b.record(b.node("gpu-a001", profile=b.profile(acceptance=acceptance)))
    assert known.certificate is not None
    bound = replace(known.certificate.binding, parts={"dimm_exchanged": ("D1", "D2")})
    drain = Attempt("drain", "", cause, b.NOW + timedelta(minutes=1), "done")
    known = replace(known, certificate=replace(known.certificate, binding=bound), attempts=(drain,))
    found = replace(bound, parts={"dimm_exchanged": now})
    assert set(voided_since_certificate(known, acceptance, found)) == asked


def test_an_idle_node_is_due_and_one_that_has_got_work_is_left_alone() -> None:
    """The ledger says that it was idle; what the cluster says now counts."""
    wanted = b.node()
    known = b.record(wanted)
    assert known.certificate is not None
    old = b.NOW - timedelta(days=60)
    known = replace(known, certificate=replace(known.certificate, issued_at=old), idle_since=old)
    idle, busy = (b.observed(member=b.member(pods=pods)) for pods in ((), (b.pod(),)))
    assert "run_gate" in b.actions(b.planner().plan(wanted, idle, known))
    assert b.actions(b.planner().plan(wanted, busy, known)) == []
    assert b.actions(b.planner().plan(wanted, idle, replace(known, idle_since=None))) == []


@pytest.mark.parametrize("provider", list(DrainProvider))
def test_a_node_whose_work_the_cluster_does_not_see_is_never_idle(provider: DrainProvider) -> None:
    """Of LSF, Ray or a systemd unit the cluster shows no pod: a test would run beside it, or a drain would end it."""
    wanted = b.node(profile=b.profile(drain=DrainPolicy(provider)))
    seen, known = b.observed(member=b.member(pods=())), b.record(wanted)
    assert is_idle(wanted, seen) is provider.asks_cluster
    assert known.certificate is not None
    old = b.NOW - timedelta(days=60)
    known = replace(known, certificate=replace(known.certificate, issued_at=old), idle_since=old)  # by an older spec
    assert ("run_gate" in b.actions(b.planner().plan(wanted, seen, known))) is provider.asks_cluster


def test_who_serves_from_a_daemon_set_or_on_a_gpu_is_not_idle() -> None:
    agent = b.pod(owner_kind="DaemonSet", evictable=False)
    loaded = b.gpu(0, cells=replace(b.CELLS, loaded=True))
    for seen, idle in (
        (b.observed(member=b.member(pods=(agent,))), True),
        (b.observed(member=b.member(pods=(replace(agent, on_gpus=True),))), False),
        (b.observed(member=b.member(pods=()), host=b.facts(gpus=(loaded, b.gpu(1)))), False),
        (b.observed(member=b.member(pods=()), host=b.facts(gpus=(), amd_gpus=(AmdGpu(0, 0, 0),))), False),
        (b.observed(member=None, host=b.facts(gpus=(), amd_gpus=None)), False),
        (b.observed(member=b.member(pods=(b.pod(),))), False),
        (b.observed(member=None), True),
        (b.observed(member=b.silent()), None),
    ):
        assert is_idle(b.node(), seen) is idle
