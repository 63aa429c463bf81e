"""Invariants of DESIGN section 13 that the pure planner keeps. Each test bears the invariant's name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.gate.asked import TESTS
from reconciler.gate.attestation.expected import reference_of
from reconciler.model.desired import IgnoreRule
from reconciler.model.drift import DriftClass
from reconciler.model.gpus import Gpu
from reconciler.model.observed import Answered
from reconciler.model.plan import Goal
from reconciler.model.records import Applied, Hold
from reconciler.model.vocab import Activation, Concern, Disruption
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import NodeTraits, Staged, admission_requires, spec_of
from reconciler.planner.node.catalogue import Catalogue, Row, catalogue
from reconciler.planner.node.estimates import Estimate, Estimates
from reconciler.planner.node.evaluate import evaluate
from reconciler.planner.node.reasons import starting_conditions
from reconciler.planner.node.search import apply, search
from tests import builders as b
from tests import strategies as s

DESTRUCTIVE = {"drain", "soft_restart", "power_cycle", "reimage", "update_firmware", "reset_bmc", "set_gpu_mode"}


def state_of(wanted: Any, seen: Any, record: Any) -> Any:
    planner = b.planner()
    items = planner.comparer.compare(wanted, seen, record)
    return evaluate(wanted, seen, items, record, planner.context)


@given(s.wanted_nodes())
def test_converged_plans_nothing(wanted: Any) -> None:
    """Invariant 1."""
    mig = wanted.profile.gpu.mig if wanted.profile.gpu else None
    gpus: tuple[Gpu, ...] = (b.gpu(0), b.gpu(1))
    if mig:
        from reconciler.model.gpus import MigDevice

        gpus = tuple(
            b.gpu(
                i,
                mig_current=True,
                mig_pending=True,
                mig_devices=tuple(MigDevice(i, "3g.40gb", f"m{n}") for n in range(2)),
            )
            for i in range(2)
        )
    seen = b.observed(host=b.facts(gpus=gpus))
    record = b.record(wanted, seen)
    plan = b.planner().plan(wanted, seen, record)
    assert b.actions(plan) == []
    assert plan.blocked is None
    assert [item for item in plan.drift if item.kind is not DriftClass.CONVERGED] == []


@given(s.situations())
def test_plan_converges(case: Any) -> None:
    """Invariant 2, first half: a plan leads to its goal step by step, each step allowed when its turn comes."""
    wanted, seen, record = case
    plan = b.planner().plan(wanted, seen, record)
    state = state_of(wanted, seen, record)
    reached = starting_conditions(_full(wanted, state), state)
    for action in plan.actions:
        assert set(action.requires) <= reached, (action.id, set(action.requires) - reached)
        reached = _after(wanted, seen, state, action, reached)
    if plan.blocked is None and plan.goal is Goal.IN_SERVICE and plan.actions:
        assert c.IN_SERVICE in reached


def _full(wanted: Any, state: Any) -> Catalogue:
    registered, cordoned = c.REGISTERED in state.true, state.foreign_cordon
    return catalogue(NodeTraits(wanted, clustered=True, registered=registered, busy=False, cordoned=cordoned))


def _after(wanted: Any, seen: Any, state: Any, action: Any, reached: frozenset[str]) -> frozenset[str]:
    full = _full(wanted, state)
    row = next(row for row in full.rows if row.id == action.id)
    return apply(full, replace(row, achieves=action.achieves, breaks=action.breaks), reached)


NAMES = ["a", "b", "c", "d", "e"]
subsets = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    return Row(
        name=draw(st.sampled_from(["r1", "r2", "r3", "r4", "r5", "r6"])), concern=Concern.HOST, requires=draw(subsets),
        achieves=draw(subsets), breaks=draw(subsets), disruption=Disruption.NONE,
        seconds=draw(st.integers(1, 9)), drains=draw(st.integers(0, 1)), reboots=draw(st.integers(0, 1)),
        forbids=draw(subsets), activates=frozenset(draw(st.sampled_from([(), (Activation.REBOOT,)]))),
    )  # fmt: skip


def cost(path: tuple[Row, ...]) -> tuple[int, int, float, int]:
    return (sum(r.drains for r in path), sum(r.reboots for r in path), sum(r.seconds for r in path), len(path))


def exhaustive(full: Catalogue, start: frozenset[str], goal: frozenset[str]) -> tuple[int, int, float, int] | None:
    """The least cost by relaxing every edge until nothing changes: slow, and written apart from the search."""
    best: dict[frozenset[str], tuple[int, int, float, int]] = {start: (0, 0, 0.0, 0)}
    changed = True
    while changed:
        changed = False
        for state, spent in list(best.items()):
            for row in full.rows:
                if not set(row.requires) <= state or set(row.forbids) & state:
                    continue
                then = apply(full, row, state)
                step = cost((row,))
                total = (spent[0] + step[0], spent[1] + step[1], spent[2] + step[2], spent[3] + 1)
                if then not in best or total < best[then]:
                    best[then] = total
                    changed = True
    reached = [spent for state, spent in best.items() if goal <= state]
    return min(reached) if reached else None


@given(
    st.lists(rows(), max_size=6),
    st.lists(st.sampled_from(NAMES), unique=True),
    st.lists(st.sampled_from(NAMES), unique=True),
)
def test_plan_converges_and_is_minimal(table: list[Row], start: list[str], goal: list[str]) -> None:
    """Invariant 2 on random catalogues, with a staged condition in play."""
    full = Catalogue(tuple(table), (Staged("a", Activation.REBOOT, "b", ("c",)),))
    found = search(full, frozenset(start), frozenset(goal))
    least = exhaustive(full, frozenset(start), frozenset(goal))
    assert (found is None) == (least is None)
    if found is not None:
        assert cost(found) == least
        reached = frozenset(start)
        for row in found:
            reached = apply(full, row, reached)
        assert set(goal) <= reached


@given(s.situations())
def test_plan_is_minimal_on_the_real_catalogue(case: Any) -> None:
    """Invariant 2, second half: no cheaper plan exists, by exhaustive search of the real table, cut to what is off."""
    wanted, seen, record = case
    state = state_of(wanted, seen, record)
    full = catalogue(
        NodeTraits(wanted, clustered=True, registered=c.REGISTERED in state.true, busy=False, cordoned=False)
    )
    goal = frozenset(sorted(set(admission_requires(wanted)) - state.true)[:3]) | {c.IN_SERVICE}
    start = state.true | (frozenset(admission_requires(wanted)) - goal)
    found = search(full, start, goal)
    least = exhaustive(full, start, goal)
    assert (None if found is None else cost(found)) == least


@given(s.situations(), st.randoms(use_true_random=False))
def test_plan_is_deterministic(case: Any, random: Any) -> None:
    """Invariant 3: reordered input gives the same plan."""
    wanted, seen, record = case
    first = b.planner().plan(wanted, seen, record)

    def shuffled(values: Any) -> Any:
        pairs = list(values.items())
        random.shuffle(pairs)
        return dict(pairs)

    profile = wanted.profile
    mixed = replace(
        profile, bios=shuffled(profile.bios), firmware=tuple(random.sample(profile.firmware, len(profile.firmware)))
    )
    second = b.planner().plan(replace(wanted, profile=mixed), seen, record)
    assert b.actions(first) == b.actions(second)
    assert [item.path for item in first.drift] == [item.path for item in second.drift]
    assert first.fingerprint == second.fingerprint


@given(s.situations())
def test_unknown_never_disrupts(case: Any) -> None:
    """Invariant 4: no disruptive action acts on what is not known, and none needs what is not known."""
    wanted, seen, record = case
    state = state_of(wanted, seen, record)
    plan = b.planner().plan(wanted, seen, record)
    for action in plan.actions:
        if action.name in DESTRUCTIVE:
            assert not set(action.achieves) & set(state.unknown), action.id
            assert not set(action.requires) & set(state.unknown), action.id
    first = next((action for action in plan.actions if action.disruption >= Disruption.REBOOT), None)
    if first is not None and first.name == "reimage" and c.IMAGE in state.explained and not state.unread.cause:
        # It is looked at before it is wiped, but for one whose disk is known to hold no whole system, as an install of
        # ours has failed (converge/test_provision.py): booted, it shows nothing.
        assert c.POWER_ON in first.requires


@given(s.situations())
def test_never_disrupt_unquiesced(case: Any) -> None:
    """Invariant 5."""
    wanted, seen, record = case
    plan = b.planner().plan(wanted, seen, record)
    state = state_of(wanted, seen, record)
    reached = starting_conditions(_full(wanted, state), state)
    for action in plan.actions:
        if action.disruption >= Disruption.REBOOT or action.name in (
            "set_gpu_mode",
            "reset_bmc",
            "set_bios",
            "set_boot",
        ):
            assert c.QUIESCED in reached, action.id
        reached = _after(wanted, seen, state, action, reached)


@given(
    bios=st.sampled_from(["Enabled", "Disabled"]),
    order=st.sampled_from([("Hdd", "Pxe"), ("Pxe", "Hdd")]),
    swappiness=st.sampled_from(["1", "60"]),
    mig=st.booleans(),
)
def test_never_admit_without_gate_before_a_wave(bios: str, order: tuple[str, ...], swappiness: str, mig: bool) -> None:
    """Invariant 6: what is done to a node before its wave takes it out only if today's tests bring it back."""
    wanted = b.node()
    inventory = b.inventory(bios={"SriovGlobalEnable": bios, "NumaNodesPerSocket": "NPS1"}, boot_order=order)
    gpus = (b.gpu(0), b.gpu(1, mig_current=mig, mig_pending=mig))
    seen = b.observed(inventory=inventory, host=b.facts(sysctls={"vm.swappiness": swappiness}, gpus=gpus))
    lower = {"gate.tests.dcgm": Applied("dcgmi-diag level=2, x >= 0.1", "", "", b.NOW)}
    record = b.record(wanted, applied=lower, certificate=b.certificate(wanted, b.observed(), x=0.5))
    whole, rest = b.planner().plan_parts(wanted, seen, record)
    [moved] = [item for item in whole.drift if item.path.startswith(TESTS)]
    assert moved.kind is DriftClass.PENDING
    assert "run_gate" in b.actions(whole)
    done = b.actions(rest) if rest is not None else []
    assert ("mark" in done) == ("run_gate" in done) == ("admit" in done)


@given(s.situations())
def test_never_admit_without_gate_and_trust(case: Any) -> None:
    """Invariant 6."""
    wanted, seen, record = case
    plan = b.planner().plan(wanted, seen, record)
    state = state_of(wanted, seen, record)
    reached = starting_conditions(_full(wanted, state), state)
    for action in plan.actions:
        if action.name == "admit":
            assert set(admission_requires(wanted)) <= reached
            assert not set(admission_requires(wanted)) & set(state.unknown) - set().union(
                *(a.achieves for a in plan.actions)
            )
        if action.name in ("power_on", "power_cycle", "soft_restart", "reimage") and c.REGISTERED in state.true:
            assert c.MARKED in reached, "a node that comes back unmarked serves at once"
        reached = _after(wanted, seen, state, action, reached)


@given(s.situations(), st.booleans())
def test_never_admit_without_a_quote_of_the_present_boot(case: Any, only_marked: bool) -> None:
    """Invariant 6: where measurements are declared, a quote of the boot that is admitted, and of no earlier one."""
    wanted, seen, record = case
    profile = replace(wanted.profile, digest="measured", image=b.MEASURED)
    wanted, proved = replace(wanted, profile=profile), False
    if only_marked:  # nothing is left to do but to admit it
        seen = b.observed(member=b.member(mark=b.our_mark(), unschedulable=True))
        record = replace(b.record(wanted, seen), attestation=record.attestation)
    if record.attestation is not None and isinstance(seen.host, Answered):
        known = (record.attestation.boot_id, record.attestation.reference)
        proved = known == (seen.host.value.boot_id, reference_of(profile))
    for action in b.planner().plan(wanted, seen, record).actions:
        if spec_of(action.name).boots:
            proved = False
        if action.name == "check_trust":
            proved = True
        assert proved or action.name != "admit"


@given(s.situations(), s.STATES)
def test_forget_never_touches(case: Any, state: Any) -> None:
    """Invariant 8, for nodes that the spec sets aside; a node that the spec no longer names is never planned at all."""
    wanted, seen, record = case
    plan = b.planner().plan(replace(wanted, state=state), seen, record)
    assert plan.actions == ()
    assert plan.goal is Goal.NOTHING


@given(s.situations())
def test_foreign_cordon_is_kept(case: Any) -> None:
    """Invariant 9: no plan admits a node that somebody else cordoned, or acts on one that another ledger marked."""
    wanted, seen, record = case
    state = state_of(wanted, seen, record)
    plan = b.planner().plan(wanted, seen, record)
    if state.foreign_cordon:
        assert "admit" not in b.actions(plan)
        assert all(action.disruption < Disruption.DRAIN for action in plan.actions)
    if state.foreign_mark is not None:
        assert plan.actions == ()


@given(s.situations(), s.holds())
def test_held_node_is_never_disrupted(case: Any, hold: Any) -> None:
    """Invariant 10."""
    wanted, seen, record = case
    assert b.planner(holds=(hold,)).plan(wanted, seen, record).actions == ()


@given(s.situations())
def test_fingerprint_ignores_commit_and_time_but_not_actions(case: Any) -> None:
    """Invariant 13."""
    from datetime import timedelta

    wanted, seen, record = case
    plan = b.planner().plan(wanted, seen, record)
    later = b.planner(now=b.NOW + timedelta(seconds=50)).plan(wanted, seen, record)
    if b.actions(plan) == b.actions(later):
        assert plan.fingerprint == later.fingerprint
    held = b.planner(holds=(Hold(1, wanted.node, "r", "o", b.NOW),)).plan(wanted, seen, record)
    if plan.actions:
        assert held.fingerprint != plan.fingerprint
    slower = b.planner()
    slow = Estimate(9000.0, 20_000.0, 7, same_hardware=False)
    slower.estimates = Estimates({}, {(action.name, action.target): slow for action in plan.actions})
    measured = slower.plan(wanted, seen, record)
    assert [action.p90_s for action in measured.actions] == [20_000.0] * len(plan.actions)
    assert (b.actions(measured), measured.fingerprint) == (b.actions(plan), plan.fingerprint)


@given(
    s.situations(),
    st.sampled_from(["bios.*", "firmware", "host.sysctls.vm.swappiness", "cluster.labels.workload", "boot.*"]),
)
def test_ignore_rules_same_in_drift_plan_apply(case: Any, pattern: str) -> None:
    """Invariant 15: what a rule ignores is reported as ignored and is the reason of no action."""
    wanted, seen, record = case
    rule = IgnoreRule(pattern, "the vendor's tool rewrites it")
    plan = b.planner(rules=(rule,)).plan(wanted, seen, record)
    prefix = pattern.removesuffix(".*")
    for item in plan.drift:
        assert (item.kind is DriftClass.IGNORED) == (item.path.startswith(prefix) and item.detail == rule.reason)
    for action in plan.actions:
        assert not any(
            why.startswith(prefix + ".") for why in action.because if action.name in ("set_bios", "update_firmware")
        )


@given(s.situations())
def test_only_a_known_identity_is_written_to(case: Any) -> None:
    """Invariant 17, planner's half: what writes to a BMC requires identity_ok, and it is true from the start."""
    wanted, seen, record = case
    state = state_of(wanted, seen, record)
    plan = b.planner().plan(wanted, seen, record)
    writes = {"power_on", "power_cycle", "reimage", "set_bios", "set_boot", "update_firmware", "reset_bmc"}
    if writes & {action.name for action in plan.actions}:
        assert c.IDENTITY in state.true
        assert all(c.IDENTITY in action.requires for action in plan.actions if action.name in writes)


# Goals that a person, or the fleet, gives a node: tests/converge/test_decommission.py, test_gate_by_hand.py,
# test_repair.py and test_spares.py have them.
ELSEWHERE = (Goal.DECOMMISSIONED, Goal.TESTED, Goal.REPAIR, Goal.SPARE)


def test_strategies_reach_what_matters() -> None:
    """The properties above are worth something only if the generator gets to plans, isolation and blocks."""
    met: set[str] = set()

    @settings(max_examples=500, derandomize=True, database=None)
    @given(s.situations())
    def visit(case: Any) -> None:
        plan = b.planner().plan(*case)
        met.update(b.actions(plan))
        met.add(plan.goal.value)
        met.update(["blocked"] if plan.blocked else [])
        met.update(["long"] if len(plan.actions) > 8 else [])

    visit()
    assert {
        "reimage",
        "power_cycle",
        "power_on",
        "set_bios",
        "run_gate",
        "admit",
        "set_gpu_mode",
        "blocked",
        "long",
    } <= met
    assert {goal.value for goal in Goal if goal not in ELSEWHERE} <= met
