"""Invariants of DESIGN section 13 that the executor keeps, on lab fleets that drift, lie and fail.

Before each write, an InvariantChecker between the run and the lab compares it with the true state of the lab.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from reconciler.converge.apply import ApplyReport
from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.model.desired import BudgetLimit, SpecHold
from reconciler.model.errors import LeaseHeld
from reconciler.model.plan import Goal
from tests import builders as b
from tests.converge.invariant_checker import InvariantChecker, counters
from tests.converge.world import IMAGE, PROFILE, World

# Each example is a whole run of a fleet: few of them, and a failing one is told as it was found.
few = settings(max_examples=settings().max_examples // 5, phases=(Phase.explicit, Phase.reuse, Phase.generate))
MEMORY = Path("/dev/shm")  # a ledger waits for the disk at every commit

DRIFTS: tuple[Any, ...] = (
    "old_image", "bios_off", {"old_firmware": {"component": "nic0"}}, {"old_firmware": {"component": "bmc"}},
    {"old_firmware": {"component": "bios"}}, "powered_off", "missing_label", "sysctl_off", "service_stopped",
    "wrong_hostname", "secure_boot_off", "foreign_cordon", "not_a_member",
)  # fmt: skip
FAULTS: tuple[dict[str, dict[str, Any]], ...] = (
    {"bmc_unreachable": {}}, {"bmc_503": {"times": 5}}, {"bmc_garbage": {"times": 4}}, {"wrong_machine": {}},
    {"bios_write_ignored": {"times": 1}}, {"bios_write_ignored": {}}, {"boot_override_ignored": {"times": 1}},
    {"boot_override_ignored": {"when": "boot", "times": 1}}, {"stale_media": {}}, {"firmware_task_lost": {}},
    {"firmware_fails": {"times": 1}}, {"firmware_fails": {}}, {"power_on_conflict": {"seconds": 25.0}},
    {"bios_flash_resets": {}}, {"post_hang": {"times": 1}}, {"xid_79": {"gpu": 1}},
    {"xid_79": {"gpu": 1, "persistent": True}}, {"ecc_errors": {"gpu": 0}}, {"host_hung": {}}, {"ssh_refused": {}},
    {"ssh_hang": {}}, {"installer_fails": {}}, {"installer_dies": {"times": 1}},
    {"slot_fails": {}}, {"kubelet_not_ready": {}}, {"pdb_never_yields": {}},
)  # fmt: skip


SLOTS = replace(
    PROFILE, digest="slots",
    image=replace(IMAGE, layout=d.DiskLayout(2**30, 20 * 2**30, 4 * 2**30), preserve=("/state", "/data")),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    drift: tuple[tuple[Any, ...], ...]  # by node
    faults: tuple[dict[str, dict[str, Any]], ...]
    budgets: tuple[BudgetLimit, ...]
    slots: bool = False  # whether nodes that are well write images themselves


@st.composite
def cases(draw: st.DrawFn, *, most: int = 4, drifts: tuple[Any, ...] = DRIFTS, faults: Any = FAULTS) -> Case:
    count = draw(st.integers(1, most))
    chosen = st.lists(st.sampled_from(drifts), max_size=3, unique_by=str).map(tuple)
    broken = st.sampled_from(({}, *[{}] * len(faults), *faults))
    budgets = draw(st.sampled_from(["1", "2", "50%", "100%"]))
    rack = draw(st.sampled_from([(), (BudgetLimit("rack", "1"),)]))
    return Case(
        tuple(draw(chosen) for _ in range(count)),
        tuple(draw(broken) for _ in range(count)),
        (BudgetLimit("fleet", budgets), *rack),
        draw(st.booleans()),
    )


@contextmanager
def fleet_of(case: Case, profile: d.Profile | None = None, **settings: Any) -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        here = World(
            Path(name),
            nodes=len(case.drift),
            drift={f"n{at}": drift for at, drift in enumerate(case.drift) if drift},
            faults={f"n{at}": fault for at, fault in enumerate(case.faults) if fault},
            settings={"budgets": case.budgets, **settings},
            profile=profile or (SLOTS if case.slots else PROFILE),
        )
        here.adopt()
        try:
            yield here
        finally:
            here.ledger.close()


def watched(
    case: Case, check: Callable[[World, InvariantChecker, ApplyReport], None], profile: d.Profile | None = None
) -> None:
    with fleet_of(case, profile) as here:
        checker = InvariantChecker(here)
        report = here.apply(wait_s=3600.0)
        check(here, checker, report)


@few
@given(cases())
def test_never_disrupt_unquiesced(case: Case) -> None:
    """Invariant 5."""

    def check(_here: World, checker: InvariantChecker, _report: ApplyReport) -> None:
        assert checker.seen.get("never_disrupt_unquiesced", []) == []

    watched(case, check)


@few
@given(cases())
def test_never_admit_without_gate_and_trust(case: Case) -> None:
    """Invariant 6."""

    def check(_here: World, checker: InvariantChecker, _report: ApplyReport) -> None:
        assert checker.seen.get("never_admit_without_gate_and_trust", []) == []

    watched(case, check)


MEASURED = replace(
    PROFILE, digest="measured", image=replace(IMAGE, measurements=b.MEASURED.measurements), measurements=b.PLATFORM
)


@few
@given(cases(most=2))
def test_never_admit_without_a_quote_of_the_present_boot(case: Case) -> None:
    """Invariant 6, where measurements are declared: reboots on the way need a quote of their own."""

    def check(_here: World, checker: InvariantChecker, _report: ApplyReport) -> None:
        assert checker.seen.get("never_admit_without_gate_and_trust", []) == []

    watched(case, check, MEASURED)


@few
@given(cases(most=6, drifts=("bios_off", "old_image", "foreign_cordon", "powered_off", "sysctl_off")))
def test_budget_never_exceeded(case: Case) -> None:
    """Invariant 7: at the moment of each mark, whoever else is out."""

    def check(_here: World, checker: InvariantChecker, _report: ApplyReport) -> None:
        assert checker.seen.get("budget_never_exceeded", []) == []

    watched(case, check)


@few
@given(cases(), st.sets(st.integers(0, 3), max_size=2), st.booleans())
def test_forget_never_touches(case: Case, forgotten: set[int], marked: bool) -> None:
    """Invariant 8: nodes that left the spec keep their power, their disks and their cordons."""
    with fleet_of(case) as here:
        names = {f"n{at}" for at in forgotten} & set(here.fleet.nodes)
        if marked and names and here.lab.cluster is not None:
            name = min(names)
            if any(node.name == name for node in here.lab.cluster.nodes()):
                here.act("mark", name)
        checker = InvariantChecker(here)
        kept = {name: desired for name, desired in here.fleet.nodes.items() if name not in names}
        before = {name: here.machine(name).dump() for name in names}
        here.apply(fleet=replace(here.fleet, nodes=kept), wait_s=600.0)
        assert [write for node, write in checker.writes if node in names and write != "unmark"] == []
        for name in names:
            after = here.machine(name).dump()
            for key in ("power", "disks", "bios", "pending_bios", "counters", "media", "boot_order"):
                assert after[key] == before[name][key], (name, key)


@few
@given(cases())
def test_foreign_cordon_is_kept(case: Case) -> None:
    """Invariant 9, first half."""

    def check(here: World, _witness: InvariantChecker, _report: ApplyReport) -> None:
        assert here.lab.cluster is not None
        for at, drift in enumerate(case.drift):
            if "foreign_cordon" in drift and "not_a_member" not in drift:
                assert here.lab.cluster.node(f"n{at}").unschedulable

    watched(case, check)


@few
@given(cases())
def test_own_mark_is_not_leaked(case: Case) -> None:
    """Invariant 9, second half: our mark is on nodes that are reported as failed or isolated, and on no other."""

    def check(here: World, _witness: InvariantChecker, report: ApplyReport) -> None:
        assert here.lab.cluster is not None
        members = {node.name for node in here.lab.cluster.nodes()}
        for name, result in report.results.items():
            if name not in members or not here.marked(name):
                continue
            plan = report.plan.nodes[name]
            isolated = plan.goal is Goal.ISOLATED or bool(plan.isolated)  # whose repair may wait for budget
            assert isolated or result.state is Ended.FAILED, (name, result, here.did(name))
            if not isolated:
                assert set(here.did(name)) - {"mark", "drain"}, (name, result)

    watched(case, check)


@few
@given(cases(), st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1500), st.booleans()), max_size=3))
def test_held_node_is_never_disrupted(case: Case, holds: list[tuple[int, float, bool]]) -> None:
    """Invariant 10: holds come and go while the run works; what has begun ends, and nothing begins."""
    with fleet_of(case) as here:
        checker = InvariantChecker(here)

        async def hold(at: int, after: float, pool: bool) -> None:
            await here.clock.sleep(after)
            subject = "pool/train" if pool else f"n{at}"
            here.ledger.hold(subject, "a test", "ops", None, here.clock.now())
            checker.held |= set(here.fleet.nodes) if pool else {f"n{at}"}

        async def both() -> None:
            held = [asyncio.create_task(hold(*one)) for one in holds]
            here.events = _Events(checker)
            await here.applying(wait_s=1200.0)
            for task in held:
                task.cancel()

        here.run(both())
        assert checker.seen.get("held_node_is_never_disrupted", []) == []
        before = counters(here)
        here.apply(wait_s=0.0, fleet=here.fleet)
        for name in checker.held & set(here.fleet.nodes):
            assert counters(here)[name] == before[name], "a hold outlives the run that first saw it"


@few
@given(cases(), st.integers(0, 3), st.booleans())
def test_held_node_is_never_disrupted_though_its_line_is_deleted(case: Case, at: int, pool: bool) -> None:
    """Invariant 10: what the spec held when apply last saw it, is held until somebody releases it."""
    with fleet_of(case) as here:
        checker = InvariantChecker(here)
        here.events = _Events(checker)
        subject = "pool/train" if pool else f"n{at}"
        checker.held = set(here.fleet.nodes) if pool else {subject}
        before = counters(here)
        hold = SpecHold(subject, "a test", "ops", None, "pools/a.yaml:1:1")
        for fleet in (replace(here.fleet, holds=(hold,)), here.fleet):
            here.apply(wait_s=1200.0, fleet=fleet)
            assert checker.seen.get("held_node_is_never_disrupted", []) == []
            for name in checker.held & set(here.fleet.nodes):
                assert counters(here)[name] == before[name]
        assert here.ledger.release(subject, "ops", here.clock.now()) == 1


class _Events(list[Any]):
    """Hands each event to the checker at the moment it is told."""

    def __init__(self, checker: InvariantChecker) -> None:
        super().__init__()
        self._witness = checker

    def append(self, event: Any) -> None:
        super().append(event)
        self._witness.world.events, mine = [], self._witness.world.events
        self._witness.told(event)
        self._witness.world.events = mine


@few
@given(cases(faults=({"wrong_machine": {}},)))
def test_identity_before_any_bmc_write(case: Case) -> None:
    """Invariant 17."""

    def check(_here: World, checker: InvariantChecker, _report: ApplyReport) -> None:
        assert checker.seen.get("identity_before_any_bmc_write", []) == []

    watched(case, check)


CURABLE = tuple(drift for drift in DRIFTS if drift != "foreign_cordon")


@few
@given(cases(most=2, drifts=CURABLE, faults=()), st.lists(st.floats(1, 2500), min_size=1, max_size=3))
def test_crash_anywhere_converges(case: Case, kills: list[float]) -> None:
    """Invariant 11: killed at any point, the next run finishes, and nothing destructive happens twice."""
    with fleet_of(case) as calm:
        calm.apply(wait_s=36000.0)
        expected = counters(calm)
        serving = {name: calm.serves(name) for name in calm.fleet.nodes}
    with fleet_of(case) as here:

        async def killed(after: float) -> None:
            work = asyncio.create_task(here.applying(wait_s=36000.0))
            await asyncio.wait([work], timeout=after)
            work.cancel()
            await asyncio.wait([work])
            here.lab.installs.dies(here.clock.elapsed)  # the process that served them is gone

        for after in kills:
            here.run(killed(after))
        here.apply(wait_s=36000.0)
        assert {name: here.serves(name) for name in here.fleet.nodes} == serving
        assert counters(here) == expected, here.events


@few
@given(cases(most=2, drifts=CURABLE, faults=()), st.floats(0, 2000))
def test_two_runners_never_act_twice(case: Case, later: float) -> None:
    """Invariant 12: the second one is refused until the first has ended, and then finds nothing to do."""
    with fleet_of(case) as calm:
        calm.apply(wait_s=36000.0)
        expected = counters(calm)
    with fleet_of(case) as here:

        async def second() -> None:
            await here.clock.sleep(later)
            while True:
                try:
                    await here.applying(wait_s=36000.0)
                except LeaseHeld:
                    await here.clock.sleep(60)
                else:
                    return

        async def both() -> None:
            await asyncio.gather(here.applying(wait_s=36000.0), second())

        here.run(both())
        assert counters(here) == expected
