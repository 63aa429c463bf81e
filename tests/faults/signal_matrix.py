"""Each row of the table of signals against each rung of its ladder, as `reconciler lab matrix` plays it.

The ladder has every rung, and the machines every part that a scene needs. What the product's play does is not written
here again: reconciler/app/rehearsal/signals.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from reconciler.app.rehearsal.signals import Stage, stage_of
from reconciler.lab.signal_scenes import SCENES, Scene
from reconciler.model.desired import DesiredImage, DesiredInventory, Profile, Rung
from reconciler.model.signal_changes import SignalChange
from reconciler.spec.kinds.remediation_policy import RungAction
from tests.converge.test_ac_cycle import outlets
from tests.converge.test_isolation import POLICY
from tests.converge.world import IMAGE, PROFILE, desired_node, fleet_of

GATE_S: Final = 60.0  # so that the page tells what everything else takes
RUNGS: Final = tuple(rung.value for rung in RungAction)
_INVENTORY: Final = DesiredInventory(
    gpus=8, nvlinks_per_gpu=18, drives=3, rdma_ports=8, rdma_rate_gbps=400, nics=10, dimms=32, processors=2
)

ELSEWHERE: Final[Mapping[str, str]] = {
    "facts_silent": "tests/planner/test_watchdog.py",  # no fault of the lab makes a host answer and withhold a fact
    "boot_refuted": "tests/converge/test_measured_boot.py",
    "boot_unproved": "tests/converge/test_measured_boot.py",
    "gray_decline_": "tests/converge/test_retest.py",
    "port_down": "tests/planner/test_peer_ports.py",  # whose machine of the lab has peers
    "amd_ecc": "tests/converge/test_amd.py",  # on machines without GPUs of NVIDIA's
    "amd_deferred": "tests/converge/test_amd.py",
}


def profile_of(scene: Scene) -> Profile:
    """Return the profile of a node in a scene."""
    image: DesiredImage = replace(IMAGE, contents={**IMAGE.contents, "driver": scene.driver}) if scene.driver else IMAGE
    inventory = _INVENTORY if scene.ports else replace(_INVENTORY, rdma_ports=None, rdma_rate_gbps=None)
    return replace(PROFILE, digest="matrix", image=image, inventory=inventory, remediation=POLICY)


@cache
def stage(name: str) -> Stage:
    """Return two nodes on which a row of the packaged table is played."""
    return stage_with(name, tuple(Rung(rung) for rung in RUNGS))


def stage_with(name: str, ladder: tuple[Rung, ...], health: tuple[SignalChange, ...] = ()) -> Stage:
    """Return two nodes on which a row is played with this ladder, in a fleet that has these rows otherwise."""
    profile = profile_of(SCENES.get(name, Scene()))
    policy = replace(POLICY, ladder=ladder)
    profile = replace(profile, digest=repr((name, ladder, health)), remediation=policy, health=health)
    nodes = [desired_node(f"n{at}", at, profile=profile, outlets=outlets(at)) for at in range(2)]
    found = stage_of(fleet_of(nodes, inventory_max_age_s=1800.0, health=health), "")
    return replace(found, gate_s=GATE_S)
