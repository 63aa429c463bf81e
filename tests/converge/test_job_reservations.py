"""Reservations in Slurm before windows, kept by the loop on the lab's Slurm through the driver of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.slurm import SlurmCluster
from reconciler.lab.hardware.slurm import SlurmTruth
from reconciler.lab.hardware.slurm_objects import LabReservation
from reconciler.lab.inprocess import LabFabric
from reconciler.lab.inprocess.slurm_login import SlurmLogin
from reconciler.model import desired as d
from reconciler.model.access import ClusterAccess, SlurmAccess
from reconciler.model.desired import BudgetLimit, Hours, SpecHold, Window
from reconciler.model.gate import CommandResult
from reconciler.model.vocab import DrainProvider, WindowKind
from tests.converge.test_loop import HOUR, MINUTE, Looped
from tests.converge.world import PROFILE

# The clock begins on 2027-01-01 at 01:00 UTC, and the window opens at 06:00.
DAYS = tuple(range(7))
WINDOW = Window(WindowKind.ALLOW, Hours(DAYS, 6 * 60, 10 * 60, "UTC"))
ACCESS = SlurmAccess("login:22", reserve_s=24 * HOUR)
HELD = SpecHold("n0", "a cable is out", "ops", None, "pools/a.yaml:12:5")
OPENS = 6 * HOUR  # by the machines' clock


class Queued(Looped):
    """A loop over a fleet with a Slurm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        access = ClusterAccess("hpc", None, kubernetes=False, slurm=ACCESS)
        self.put(replace(self.fleet, settings=replace(self.fleet.settings, cluster=access)))
        self.truth = SlurmTruth(self.lab.machines, self.clock.seconds, {})
        self.login = SlurmLogin(self.truth, self.clock)
        port = SlurmCluster(self.login, ACCESS, timeout_s=30.0, now=self.clock.now, ledger=self.ledger.id)
        self.fabric = LabFabric(self.lab, self.clock, scheduler=port, reservations=port.reservations())

    def name(self, node: str) -> str:
        return f"reconciler-{self.ledger.id}-{node}"

    def found(self) -> dict[str, LabReservation]:
        return {one.name: one for one in self.truth.reservations()}

    def created(self) -> Sequence[str]:
        return [
            argv[3].partition("=")[2] for argv in self.login.ran if argv[:3] == ("scontrol", "create", "reservation")
        ]


@pytest.fixture
def queued(tmp_path: Path) -> Callable[..., Queued]:
    drain = d.DrainPolicy(DrainProvider.SLURM, timeout_s=300.0, wait_for_jobs_s=24 * HOUR)
    profile = replace(PROFILE, drain=drain, membership=d.DesiredMembership({}, (), ()))

    def build(**differences: Any) -> Queued:
        settings = {"windows": (WINDOW,), **differences.pop("settings", {})}
        return Queued(tmp_path, profile=profile, settings=settings, **differences)

    return build


def test_a_node_is_reserved_from_the_opening_of_its_window_to_the_end_of_its_work(
    queued: Callable[..., Queued],
) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    here.go(HOUR)
    assert list(here.found()) == [here.name("n0")]
    (one,) = here.found().values()
    assert (one.start, one.nodes, one.flags) == (OPENS, ("n0",), ("MAINT", "IGNORE_JOBS"))
    assert 10 * MINUTE < one.end - one.start < 4 * HOUR
    assert "n0 is reserved in Slurm from 2027-01-01 06:00Z to " in " ".join(here.said("reservation"))
    assert len(here.created()) == 1  # once, and not with each pass


def test_a_job_that_ends_before_the_window_keeps_no_node_out_of_it(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    here.truth.submit("n0", limit_s=4 * HOUR, runs_s=3 * HOUR)  # by 05:00; from now on, that and the work is 5 hours
    here.go(HOUR)
    (one,) = here.found().values()
    assert one.start == OPENS
    assert one.end - one.start < 2 * HOUR


def test_a_job_that_ends_too_late_for_tonight_has_the_node_reserved_tomorrow(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    here.truth.submit("n0", limit_s=9 * HOUR)  # until 10:00, when the window ends
    here.go(8 * HOUR)
    (one,) = here.found().values()
    assert one.start == pytest.approx(OPENS + 24 * HOUR)


def test_only_nodes_whose_turn_is_in_the_window_are_reserved_and_one_after_the_other(
    queued: Callable[..., Queued],
) -> None:
    here = queued(drift={"*": ["bios_off"]}, settings={"budgets": (BudgetLimit("fleet", "1"),)})
    here.go(HOUR)
    starts = sorted(one.start for one in here.found().values())
    assert len(starts) == 3
    assert starts[0] == OPENS
    assert starts[0] < starts[1] < starts[2]


def test_it_ends_with_the_work_and_not_when_its_time_is_over(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    here.go(8 * HOUR)
    assert here.did("n0")[0] == "mark"
    assert here.did("n0")[-1] == "admit"
    assert here.found() == {}
    assert here.truth.states(here.truth.nodes("n0")[0]) == ["IDLE"]
    assert any(argv[:2] == ("scontrol", "delete") for argv in here.login.ran)


def test_work_that_is_taken_back_frees_its_node(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})

    async def take_back() -> None:
        await here.clock.sleep(30 * MINUTE)
        assert here.found()
        here.put(replace(here.fleet, holds=(HELD,)))

    here.go(2 * HOUR, take_back)
    assert here.found() == {}


def test_reservations_of_others_are_kept_and_go_first(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    theirs = LabReservation("conference", ("n0",), OPENS, OPENS + HOUR, (), "ada")
    like_ours = LabReservation("reconciler-01ANOTHER-n1", ("n1",), OPENS, OPENS + HOUR, ("MAINT",))
    here.truth.reserve(theirs)
    here.truth.reserve(like_ours)
    here.go(2 * HOUR)
    assert here.found() == {"conference": theirs, like_ours.name: like_ours}
    (said,) = here.said("reservation")
    assert said.startswith("n0 is not reserved from 2027-01-01 06:00Z to ")
    assert said.endswith("somebody else has reserved it in Slurm until 2027-01-01 07:00Z")


def test_a_runner_that_ends_leaves_them_to_the_next(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})
    here.go(HOUR)
    here.go(8 * HOUR, holder="b")
    assert len(here.created()) == 1
    assert here.found() == {}
    assert here.did("n0")[-1] == "admit"


def test_a_silent_slurmctld_is_told_once_and_asked_again(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]})

    async def outage() -> None:
        await here.clock.sleep(30 * MINUTE)
        here.truth.down = True
        await here.clock.sleep(30 * MINUTE)
        here.truth.down = False

    here.go(2 * HOUR, outage)
    assert list(here.found()) == [here.name("n0")]


def refuse(here: Queued, monkeypatch: pytest.MonkeyPatch, node: str, answer: CommandResult) -> None:
    """Let Slurm answer so when a reservation of this node is made; "" = of any."""
    run = here.login.run

    async def refused(argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        if "create" not in argv or not any(
            word.startswith("reservationname=") and word.endswith(node) for word in argv
        ):
            return await run(argv, timeout=timeout, stdin=stdin)
        here.login.ran.append(tuple(argv[list(argv).index("scontrol") :]))
        return answer

    monkeypatch.setattr(here.login, "run", refused)


def test_a_write_that_gets_no_answer_is_the_last_of_its_pass(
    queued: Callable[..., Queued], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for half a minute, and the pass with it."""
    here = queued(drift={"*": ["bios_off"]})
    refuse(here, monkeypatch, "", CommandResult(-1, "", timed_out=True))
    here.go(HOUR)
    assert here.created()
    assert set(here.created()) == {here.created()[0]}
    (said,) = here.said("reservation")
    assert "could not be reserved or released in Slurm: scontrol did not end within 30 s" in said


def test_a_node_that_slurm_does_not_know_is_told_and_holds_back_no_other(
    queued: Callable[..., Queued], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = queued(drift={"*": ["bios_off"]})
    refuse(here, monkeypatch, "n0", CommandResult(1, "", "Error creating the reservation: Invalid node name specified"))
    here.go(HOUR)
    assert here.found().keys() == {here.name("n1"), here.name("n2")}
    (said,) = [one for one in here.said("reservation") if one.startswith("n0 ")]
    assert "n0 could not be reserved or released in Slurm: " in said
    assert "Invalid node name" in said


def test_without_windows_or_without_the_setting_nothing_is_reserved(queued: Callable[..., Queued]) -> None:
    here = queued(drift={"n0": ["bios_off"]}, settings={"windows": ()})
    here.go(HOUR)
    assert here.created() == []
