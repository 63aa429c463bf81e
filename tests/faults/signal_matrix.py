"""Each row of the table of signals against each rung of its ladder, on the loop, in virtual time.

A cause is laid into a node that one remedy ends and no milder one does. What is written down: when the node was out,
what was done to it, when it served again, and who was told. A person comes when the ladder is at its end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from reconciler.converge.observe import observe
from reconciler.health.cure import proved_by_reset
from reconciler.health.table import Effect, health_table
from reconciler.lab.signal_scenes import HOUR, SCENES, Scene
from reconciler.model.desired import DesiredImage, DesiredInventory, Profile, Rung
from reconciler.model.drift import DriftClass
from reconciler.model.played_signal import PERSON
from reconciler.model.vocab import Concern
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.spec.kinds.remediation_policy import RungAction
from reconciler.spec.kinds.signals import Next
from tests.converge.test_ac_cycle import outlets
from tests.converge.test_isolation import POLICY
from tests.converge.world import IMAGE, PROFILE, SIGNATURES
from tests.notify.test_loop import Telling

NODE: Final = "n1"
RUNGS: Final = tuple(rung.value for rung in RungAction)
_DRIVERS_WORD: Final = ("gpu_recovery",)
_INVENTORY: Final = DesiredInventory(
    gpus=8, nvlinks_per_gpu=18, drives=3, rdma_ports=8, rdma_rate_gbps=400, nics=10, dimms=32, processors=2
)
_LONGEST_S: Final = 8 * HOUR
_STEP_S: Final = 1.0
_MEMORY: Final = Path("/dev/shm")

ELSEWHERE: Final[Mapping[str, str]] = {
    "facts_silent": "tests/planner/test_watchdog.py",  # no fault of the lab makes a host answer and withhold a fact
    "boot_refuted": "tests/converge/test_measured_boot.py",
    "boot_unproved": "tests/converge/test_measured_boot.py",
    "gray_decline_": "tests/converge/test_retest.py",
    "port_down": "tests/planner/test_peer_ports.py",  # whose machine of the lab has peers
    "amd_ecc": "tests/converge/test_amd.py",  # on machines without GPUs of NVIDIA's
    "amd_deferred": "tests/converge/test_amd.py",
}


@dataclass(frozen=True)
class Played:
    """The end of one cell. Times in seconds since the sign; None: that did not happen.

    `shown`: the signals that the node showed. `out_s`: when it was out of service, or, of what is only reported, shown.
    `did`: the rungs, in order. `back_s`: when it served for good. `told`: what the people on call were told of.
    """

    shown: tuple[str, ...]
    out_s: float | None
    did: tuple[str, ...]
    back_s: float | None
    told: tuple[str, ...]


def rungs_of(name: str) -> tuple[str, ...]:
    """Return the rungs of a row's ladder, as the table says, and PERSON, who comes at its end."""
    row = health_table().rule_of(name).row
    if row.next is None:
        return ()
    if row.next is Next.PERSON:
        return (PERSON,)
    kept = [rung for rung in RUNGS if _may_help(name, rung)]
    return (*(rung for rung in kept if row.rungs is None or rung in row.rungs), PERSON)


def _may_help(name: str, rung: str) -> bool:
    row = health_table().rule_of(name).row
    if rung == "reset_bmc":
        return False  # it treats no node: tests/converge/test_bmc_reset.py
    if rung == "restart_service":
        return row.service is not None
    if rung == "gpu_reset":
        return name in _DRIVERS_WORD or name == "xid_" or proved_by_reset(name, row)
    return rung != "reimage" or row.next is Next.LADDER


def play(name: str, rung: str) -> Played:
    """Play a row with a cause that `rung` ends; "" for a row that is only reported."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as where:
        cell = _Cell(Path(where), SCENES[name], name, rung)
        try:
            return cell.play()
        finally:
            cell.here.ledger.close()


def profile_of(scene: Scene) -> Profile:
    """Return the profile of a node in a scene."""
    image: DesiredImage = replace(IMAGE, contents={**IMAGE.contents, "driver": scene.driver}) if scene.driver else IMAGE
    inventory = _INVENTORY if scene.ports else replace(_INVENTORY, rdma_ports=None, rdma_rate_gbps=None)
    ladder = tuple(Rung(rung) for rung in RUNGS)
    policy = replace(POLICY, ladder=ladder)
    return replace(PROFILE, digest="matrix", image=image, inventory=inventory, remediation=policy)


class _Cell:
    def __init__(self, where: Path, scene: Scene, name: str, rung: str) -> None:
        self.scene, self.name, self.rung = scene, name, rung
        self.here = Telling(
            where,
            nodes=2,
            profile=profile_of(scene),
            settings={"inventory_max_age_s": 1800.0},
            each=lambda node: replace(node, outlets=outlets(int(node.node[1:]))),
        )
        self.machine = self.here.machine(NODE)
        self.shown: tuple[str, ...] = ()
        self.out_s: float | None = None
        self.back_s: float | None = None
        self._began = 0.0

    def play(self) -> Played:
        self.here.go(_LONGEST_S + 2 * HOUR, self._work)
        return Played(self.shown, self.out_s, tuple(self._rungs()), self.back_s, self._told())

    @property
    def _since(self) -> float:
        return self.here.clock.elapsed - self._began

    async def _work(self) -> None:
        here = self.here
        await here.clock.sleep(10 * 60.0)
        self.scene.play_on(self.machine, self.rung)
        if self.scene.fault == "node_condition":
            assert here.lab.cluster is not None
            here.lab.cluster.sync(NODE)
        self._began = here.clock.elapsed
        repairs = health_table().effect_of(self.name) is not Effect.REPORTS
        if not await self._until(lambda: here.marked(NODE) if repairs else self._is_reported()):
            raise TimeoutError
        self.out_s = self._since
        self.shown = await self._signals()
        if repairs:
            await self._until(lambda: self._is_healed() or self._is_for_a_person())
            if not self._is_healed():
                await self._person()
            if await self._until(self._is_healed):
                self.back_s = self._since
        await here.clock.sleep(15 * 60.0)
        raise TimeoutError

    async def _until(self, done: Any) -> bool:
        """Wait until it is so; return False when it takes too long."""
        while not done():
            if self._since > _LONGEST_S:
                return False
            await self.here.clock.sleep(_STEP_S)
        return True

    def _is_reported(self) -> bool:
        fleet = self.here.status.fleet
        return fleet is not None and fleet.drift.get((Concern.HEALTH, DriftClass.REPORTED), 0) > 0

    def _is_healed(self) -> bool:
        return self.here.serves(NODE) and self.scene.fault not in self.machine.state.faults

    def _is_for_a_person(self) -> bool:
        return any("needs a repair" in title for title in self.here.receiver.titles())

    async def _signals(self) -> tuple[str, ...]:
        here = self.here
        seen = await observe(here.fleet, list(here.fleet.nodes), here.fabric, here.clock, fresh_inventory=True)
        snapshot = replace(take_snapshot(here.ledger, here.fleet, list(here.fleet.nodes)), known=())
        plan = plan_fleet(here.fleet, seen, snapshot, here.clock.now(), PlanRequest("matrix", SIGNATURES))
        return tuple(sorted(item.path for item in plan.nodes[NODE].drift if item.path.startswith("health.")))

    async def _person(self) -> None:
        """Have a person exchange the part, or mend what else it was, and say so."""
        machine, here = self.machine, self.here
        machine.power("force_off")
        await here.clock.sleep(60.0)
        self.scene.mend(machine)
        here.ledger.hold(NODE, "exchanged", "ops", None, here.clock.now())
        here.ledger.release(NODE, "ops", here.clock.now())

    def _rungs(self) -> Iterator[str]:
        for word in self.here.did(NODE):
            action = word.partition(":")[0].partition("!")[0]
            if action in RUNGS:
                yield word

    def _told(self) -> tuple[str, ...]:
        """Return what was told, whatever came together in one message."""
        found = set()
        for _, message in self.here.receiver.taken:
            if "needs a repair" in message.title:
                found.add("it needs a repair")
            if "is out of service" in message.title:
                found.add("it is out of service")
            if message.over:
                found.add("it is over")
        if "it needs a repair" in found:  # says both, whichever of the two a pass saw last
            found.discard("it is out of service")
        return tuple(sorted(found))
