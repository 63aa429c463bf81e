"""An AC cycle cuts off one node and nobody else, and a wrong cable is noticed and undone (pitfalls C4, K6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import ActionContext
from reconciler.converge.run import Ended
from reconciler.model import desired as d
from reconciler.model.outcome import Done, Outcome, Permanent, Transient
from reconciler.model.plan import BlockCode
from reconciler.model.records import FLEET
from reconciler.model.vocab import Activation, DriftMode
from tests import builders as b
from tests.converge.test_loop import MINUTE, Looped
from tests.converge.world import PROFILE, World

Worlds = Callable[..., World]

assert PROFILE.remediation is not None
LADDER = (d.Rung("soft_restart"), d.Rung("power_cycle"), d.Rung("ac_cycle"))
TREATED = replace(PROFILE, digest="treated", remediation=replace(PROFILE.remediation, ladder=LADDER))
A, B = "https://pdu-a", "https://pdu-b"


def outlets(number: int) -> tuple[d.Outlet, ...]:
    return d.Outlet(A, f"A{number}"), d.Outlet(B, f"A{number}")


def looped(directory: Path, **settings: Any) -> Looped:
    """A loop over nodes of which n0 has an illness that only a cut heals."""
    return Looped(
        directory,
        each=lambda node: replace(node, outlets=outlets(int(node.node[1:]))),
        nodes=3,
        profile=TREATED,
        faults={"n0": {"xid": {"code": 79, "heals": "ac"}}},
        settings=settings,
    )


@pytest.fixture
def fed(world: Worlds) -> Worlds:
    """Worlds in which each node hangs on two outlets of its own, of two PDUs."""

    def build(**differences: Any) -> World:
        def feeds(node: d.Desired) -> d.Desired:
            return replace(node, outlets=outlets(int(node.node[1:])))

        here = world(each=feeds, **{"nodes": 3, "profile": TREATED, **differences})
        here.adopt()
        return here

    return build


def cuts(here: World) -> list[int]:
    return [machine.state.counters.cuts for machine in here.lab.machines.values()]


def all_on(here: World) -> bool:
    return all(here.lab.mains.on.values())


def test_one_node_is_cut_off_and_comes_back(fed: Worlds) -> None:
    here = fed()
    before = here.machine("n1").system().boot_id
    assert isinstance(here.act("ac_cycle", "n1"), Done)
    assert cuts(here) == [0, 1, 0]
    assert all_on(here)
    assert here.lab.mains.switched == 4, "each outlet once off and once on"
    assert here.machine("n1").system().boot_id != before


def test_a_machine_is_shut_down_before_its_power_is_cut(fed: Worlds) -> None:
    here = fed()
    machine = here.machine("n0")
    seen: list[str] = []
    cut = machine.set_mains

    def noting(*, on: bool) -> None:
        if on is False and machine.state.mains:
            seen.append(machine.state.power)
        cut(on=on)

    machine.set_mains = noting  # type: ignore[method-assign]
    assert isinstance(here.act("ac_cycle"), Done)
    assert seen == ["off"]


@pytest.mark.parametrize("swapped", [True, False], ids=["another machine's", "not all of them"])
def test_outlets_that_are_not_the_nodes_own_give_power_again_at_once(fed: Worlds, swapped: bool) -> None:
    here = fed(faults={"n0": {"outlets_elsewhere": {"node": "n1" if swapped else ""}}})
    outcome = here.act("ac_cycle")
    assert isinstance(outcome, Permanent)
    assert ("give n1 power: its BMC fell silent" if swapped else "it has others") in outcome.detail
    assert all_on(here)
    assert cuts(here) == ([0, 1, 0] if swapped else [0, 0, 0])
    [hold] = here.ledger.holds()
    assert hold.subject == "n0"
    assert "n0" in hold.reason
    blocked = here.plan().nodes["n0"].blocked
    assert blocked is not None
    assert blocked.code is BlockCode.HELD
    assert here.machine("n1").state.mains


def test_a_wrong_cable_costs_its_neighbour_seconds_not_half_a_minute(fed: Worlds) -> None:
    """Nothing waits for capacitors there."""
    here = fed(faults={"n0": {"outlets_elsewhere": {"node": "n1"}}})
    lost: list[float] = []
    machine = here.machine("n1")
    cut = machine.set_mains

    def noting(*, on: bool) -> None:
        if machine.state.mains is not on:
            lost.append(here.clock.elapsed)
        cut(on=on)

    machine.set_mains = noting  # type: ignore[method-assign]
    here.act("ac_cycle")
    gone, back = lost
    assert back - gone < 30


def test_an_outlet_that_is_off_already_is_left_to_who_switched_it(fed: Worlds) -> None:
    here = fed()
    here.lab.mains.switch([(A, "A0")], on=False)
    switched = here.lab.mains.switched
    outcome = here.act("ac_cycle")
    assert outcome == Transient("outlet A0 is off already: somebody works there")
    assert here.lab.mains.switched == switched


def test_a_pdu_that_does_not_answer_cuts_nothing(fed: Worlds) -> None:
    here = fed()
    here.lab.mains.silent.add(B)
    assert isinstance(here.act("ac_cycle"), Transient)
    assert cuts(here) == [0, 0, 0]
    assert here.machine("n0").state.power == "on", "it is not even shut down"


@pytest.mark.parametrize("dark", [True, False], ids=["proved dark", "not proved"])
@pytest.mark.parametrize("off", [True, False], ids=["off", "still on"])
def test_a_run_that_died_with_the_outlets_off_gives_power_again(fed: Worlds, dark: bool, off: bool) -> None:
    """And it makes the cut anew unless it was proved: it may have died between its word and the deed."""
    here = fed()
    boot_id = here.machine("n0").system().boot_id
    here.machine("n0").power("force_off")
    if off:
        here.lab.mains.switch([(A, "A0"), (B, "A0")], on=False)
    resumed = {"boot_id": boot_id, "cut": [[A, "A0"], [B, "A0"]], **({"dark": True} if dark else {})}
    outcome = here.act("ac_cycle", resumed=resumed)
    assert isinstance(outcome, Done)
    assert all_on(here)
    assert cuts(here)[0] == off + (not dark)


def test_it_is_the_rung_that_heals_what_no_power_cycle_does(fed: Worlds) -> None:
    here = fed(faults={"n0": {"xid": {"code": 79, "heals": "ac"}}})
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE
    done = [
        word for word in here.did("n0") if word.split(":")[0] in ("soft_restart", "power_cycle", "ac_cycle", "admit")
    ]
    assert done == ["soft_restart", "power_cycle", "ac_cycle", "admit"]
    assert here.serves("n0")
    assert cuts(here) == [1, 0, 0]


def test_nodes_of_one_profile_have_the_rung_where_they_have_outlets(world: Worlds) -> None:
    only = replace(TREATED, digest="only", remediation=replace(PROFILE.remediation, ladder=(d.Rung("ac_cycle"),)))  # type: ignore[type-var]
    ill = {"xid": {"code": 119, "heals": "ac"}}

    def feeds(node: d.Desired) -> d.Desired:
        return replace(node, outlets=outlets(1)) if node.node == "n1" else node

    here = world(each=feeds, nodes=2, profile=only, faults={"n0": ill, "n1": ill})
    here.adopt()
    planned = {name: "ac_cycle" in [one.name for one in node.actions] for name, node in here.plan().nodes.items()}
    assert planned == {"n0": False, "n1": True}


def test_firmware_that_waits_for_mains_gets_an_ac_cycle(fed: Worlds) -> None:
    firmware = (b.firmware("cpld", 1, Activation.AC_CYCLE),)
    here = fed(
        profile=replace(TREATED, digest="cpld", firmware=firmware),
        drift={"n0": [{"old_firmware": {"component": "cpld"}}]},
    )
    report = here.apply()
    assert report.results["n0"].state is Ended.DONE, report.results["n0"]
    assert [word for word in here.did("n0") if word in ("update_firmware:cpld", "ac_cycle")] == [
        "update_firmware:cpld", "ac_cycle",
    ]  # fmt: skip
    assert cuts(here) == [1, 0, 0]
    assert here.serves("n0")


class Killed(BaseException):
    """The end of a process."""


def dies_in_the_dark(here: World, monkeypatch: pytest.MonkeyPatch, *, cut: bool = True) -> None:
    """Apply until the run is killed in the midst of the cut. `cut`: after the outlets were switched off."""

    async def killed(ctx: ActionContext) -> Outcome:
        here.machine("n0").power("force_off")
        if cut:
            ctx.journal(cut=[[A, "A0"], [B, "A0"]])
            here.lab.mains.switch([(A, "A0"), (B, "A0")], on=False)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setitem(FUNCTIONS, "ac_cycle", killed)
        with pytest.raises(BaseException):  # noqa: B017 - the group that asyncio makes of it
            here.apply()


@pytest.mark.parametrize("mode", [DriftMode.CORRECT, DriftMode.OBSERVE])
def test_the_next_leader_gives_power_again_before_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: DriftMode
) -> None:
    """It did not: the BMC was dark, so nothing was planned, and the machine stayed so for good."""
    here = looped(tmp_path, drift_mode=mode)
    dies_in_the_dark(here, monkeypatch)
    here.go(MINUTE / 2)
    assert all_on(here)
    here.go(30 * MINUTE)
    assert here.serves("n0") is (mode is DriftMode.CORRECT), here.did("n0")


def test_a_leader_leaves_the_outlets_of_a_stopped_fleet_until_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = looped(tmp_path)
    dies_in_the_dark(here, monkeypatch)
    assert not all_on(here)
    here.ledger.hold(FLEET, "fire", "anna", None, here.clock.now())

    async def meanwhile() -> None:
        await asyncio.sleep(10 * MINUTE)
        assert not all_on(here)
        here.ledger.release(FLEET, "anna", here.clock.now())

    here.go(20 * MINUTE, meanwhile)
    assert all_on(here)


def test_outlets_that_somebody_switches_off_after_that_stay_off(fed: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    here = fed(faults={"n0": {"xid": {"code": 79, "heals": "ac"}}})
    dies_in_the_dark(here, monkeypatch)
    here.ledger.hold("n0", "I look at its cables", "anna", None, here.clock.now())
    here.apply()
    assert all_on(here)
    here.lab.mains.switch([(A, "A0")], on=False)
    here.apply()
    here.ledger.release("n0", "anna", here.clock.now())
    here.apply()
    assert not all_on(here)


@pytest.mark.parametrize("cut", [False, True], ids=["off", "cut off"])
def test_a_run_that_is_killed_in_its_midst_is_gone_on_with(
    fed: Worlds, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """A dark BMC tells nothing, so nothing could be planned for its node: the outlets are switched on before a look."""
    here = fed(faults={"n0": {"xid": {"code": 79, "heals": "ac"}}})
    dies_in_the_dark(here, monkeypatch, cut=cut)
    here.clock.elapsed += 4000
    for _ in range(2):
        here.apply()
        assert all_on(here)
        here.clock.elapsed += 900
    assert here.serves("n0"), here.did("n0")
    assert cuts(here)[0] == 1
    assert sum(attempt.action == "ac_cycle" for attempt in here.ledger.node("n0").attempts) == 1


def test_outlets_that_stay_off_are_told_by_a_hold(fed: Worlds) -> None:
    here = fed()
    mains = here.lab.mains
    switch = mains.switch

    def one_way(sockets: Any, *, on: bool) -> None:
        if not on:
            switch(sockets, on=on)

    mains.switch = one_way  # type: ignore[method-assign]
    outcome = here.act("ac_cycle")
    assert isinstance(outcome, Permanent)
    [hold] = here.ledger.holds()
    assert "switch them on by hand" in hold.reason
