"""Components that must sign what they run before a node is admitted, on lab machines: a lie is never admitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.lab.hardware.spdm import AUTHORITY, LIES
from reconciler.model.measurements import ComponentMeasurements, ComponentReference, PlatformMeasurements
from tests.converge.world import PROFILE, World
from tests.gate.attestation.test_components import GPUS, VALUES, WHY

Worlds = Callable[..., World]


def profile(*references: ComponentReference, ids: tuple[str, ...] = GPUS) -> Any:
    declared = ComponentMeasurements(ids, AUTHORITY, references or (ComponentReference({}, VALUES),))
    return replace(PROFILE, measurements=PlatformMeasurements(None, components=(declared,)))


@pytest.fixture
def declared(world: Worlds) -> Worlds:
    def make(found: Any = None, **changes: Any) -> World:
        return world(nodes=1, drift={"n*": ["old_image"]}, profile=found or profile(), **changes)

    return make


def evidence(here: World) -> Any:
    (entry,) = [entry for entry in here.ledger.history(node="n0") if entry.event == "attested"]
    return entry


def test_a_node_is_admitted_once_its_components_have_signed(declared: Worlds) -> None:
    here = declared()
    report = here.apply()
    assert here.serves("n0"), report.results["n0"].detail
    proved = here.ledger.node("n0").attestation
    assert proved is not None
    assert (proved.phase, proved.boot_id) == ("", here.machine("n0").system().boot_id)
    assert here.gate.attested == [], "no quote is declared, so no TPM is asked"
    entry = evidence(here)
    assert entry.detail == f"the signatures of its components prove its boot {proved.boot_id}"
    assert {name: found["values"] for name, found in entry.evidence["components"].items()} == dict.fromkeys(
        GPUS, VALUES
    )


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_never_admitted(declared: Worlds, lie: str) -> None:
    here = declared(faults={"n*": {"spdm": {"lie": lie}}})
    report = here.apply(wait_s=0.0)
    assert not here.serves("n0")
    assert here.ledger.node("n0").attestation is None
    why = WHY.get(lie, "signed with the same key: one of them answered for the others")
    assert why in report.results["n0"].detail, report.results["n0"].detail
    here.machine("n0").clear("spdm")
    here.apply()
    assert here.serves("n0")


def test_firmware_without_a_reference_is_not_admitted(declared: Worlds) -> None:
    here = declared(profile(ComponentReference({"bios": "0.1"}, VALUES)))
    report = here.apply(wait_s=0.0)
    assert not here.serves("n0")
    assert "no reference is declared for bios " in report.results["n0"].detail


def test_a_boot_and_a_reference_of_the_same_firmware_ask_again_and_others_do_not(declared: Worlds) -> None:
    here = declared()
    here.apply()
    before = here.ledger.node("n0").attestation
    assert before is not None
    here.machine("n0").reboot()
    here.clock.elapsed += 3600.0
    assert [action.name for action in here.plan().nodes["n0"].actions] == ["check_trust"]
    here.apply()
    assert here.serves("n0")
    again = here.ledger.node("n0").attestation
    assert again is not None
    assert again.boot_id != before.boot_id
    _declare(here, profile(ComponentReference({}, VALUES), ComponentReference({"bios": "9.9"}, {"1": "00"})))
    assert here.plan().nodes["n0"].actions == (), "a reference for the next wave changes nothing"
    _declare(here, profile(ComponentReference({}, {"1": VALUES["1"]})))
    assert [action.name for action in here.plan().nodes["n0"].actions] == ["check_trust"]


def test_a_component_that_is_not_there_is_named(declared: Worlds) -> None:
    here = declared(profile(ids=(*GPUS, "HGX_IRoT_GPU_7")))
    machine = here.machine("n0")
    machine.components = (replace(machine.components[0], ids=GPUS),)
    report = here.apply(wait_s=0.0)
    assert not here.serves("n0")
    assert "HGX_IRoT_GPU_7: the BMC lists no HGX_IRoT_GPU_7 in ComponentIntegrity" in report.results["n0"].detail


def _declare(here: World, found: Any) -> None:
    node = here.fleet.nodes["n0"]
    here.fleet = replace(here.fleet, nodes={"n0": replace(node, profile=found)})
