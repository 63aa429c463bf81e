"""host_down needs sources that are proved to be the node's own; any other leaves it unknown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.remember import agreed_identity
from reconciler.model.desired import Fleet, SpecSource
from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.planner import answering_domains
from reconciler.planner.node.assessment import assess
from reconciler.planner.node.conditions import HOST_UP
from reconciler.planner.node.corroboration import host_down, host_is_own, identity, not_installed
from tests import builders as b

OWN = "4c4c4544-0042-3510-8057-b4c04f4d4e32"
SWAPPED = "44454c4c-4200-1035-8057-b4c04f4d4e32"  # the same machine, whose BMC turns the first three fields round
OTHER = "11111111-2222-3333-4444-555555555555"
SINCE = b.NOW - timedelta(hours=1)
NEIGHBOURS = frozenset({"rack=r1"})


def silent() -> Silent:
    return Silent(b.NOW, UnknownReason.UNREACHABLE, "no route to host")


def down(**member: Any) -> Observed:
    """SSH is silent, the node object is not Ready, the BMC answers."""
    seen = b.observed()
    said: dict[str, Any] = {"ready": False, "system_uuid": OWN} | member
    return replace(
        seen,
        host=silent(),
        hot=Answered(b.NOW, b.hot(uuid=OWN)),
        member=Answered(b.NOW, b.member(**said)),
    )


def record(**changes: Any) -> NodeRecord:
    silences = {"ssh": SINCE, "not_ready": SINCE}
    return NodeRecord(
        **({"node": "gpu-a001", "serial": "SN-gpu-a001", "uuid": OWN, "silent_since": silences} | changes)
    )


def agreed(seen: Observed, known: NodeRecord, **desired: Any) -> bool:
    return host_down(b.node(**desired), seen, known, b.NOW, NEIGHBOURS)


def test_sources_of_the_node_agree_that_it_is_down() -> None:
    assert agreed(down(), record())
    assert agreed(down(), record(serial=None, uuid=None)), "the spec has its serial number"
    assert agreed(down(system_uuid=SWAPPED.upper()), record(), serial=None)


@pytest.mark.parametrize(
    ("bmc", "known", "desired"),
    [
        ({"serial": "ANOTHER"}, {}, {}),
        ({"serial": "ANOTHER"}, {}, {"serial": None}),
        ({"serial": None, "uuid": None}, {}, {}),
        ({"uuid": OTHER}, {}, {}),
        ({}, {"serial": None}, {"serial": None}),  # nobody can tell whose it is
        ({}, {"serial": "ANOTHER"}, {}),
        ({}, {}, {"uuid": OTHER}),
    ],
)
def test_a_bmc_that_is_not_proved_to_be_its_own_does_not_count(
    bmc: dict[str, Any], known: dict[str, Any], desired: dict[str, Any]
) -> None:
    seen = replace(down(), hot=Answered(b.NOW, b.hot(**({"uuid": OWN} | bmc))))
    assert not agreed(seen, record(**known), **desired)
    absent = replace(seen, member=Answered(b.NOW, None))
    assert not not_installed(b.node(**desired), absent, record(**known), b.NOW, NEIGHBOURS)


@pytest.mark.parametrize("said", ["", OTHER, "not a uuid"])
def test_a_node_object_of_another_machine_does_not_count(said: str) -> None:
    assert not agreed(down(system_uuid=said), record())


def test_a_node_object_that_nothing_can_be_compared_with_does_not_count() -> None:
    seen = replace(down(), hot=Answered(b.NOW, b.hot(uuid=None)))
    assert not agreed(seen, record(uuid=None))
    assert agreed(seen, record(uuid=None), uuid=OWN)


def test_the_plan_says_which_source_is_not_proved() -> None:
    seen = down(system_uuid=OTHER)
    found = assess(b.node(), seen, record(), replace(b.CONTEXT, neighbours_answer=NEIGHBOURS))
    why = found.conditions.unknown[HOST_UP]
    assert f"the node object gpu-a001 is of the machine with UUID {OTHER}, not of this one ({OWN})" in why
    assert "delete the object, or correct the node's addresses" in why


@pytest.mark.parametrize(("serial", "bmc", "counts"), [
    ("SN-gpu-a002", "SN-gpu-a002", True), (None, "SN-gpu-a002", True), ("SN-gpu-a002", None, True),
    ("ANOTHER", "SN-gpu-a002", False), ("SN-gpu-a002", "ANOTHER", False), (None, None, False),
])  # fmt: skip
def test_a_neighbour_counts_if_it_is_proved_to_be_itself(serial: str | None, bmc: str | None, counts: bool) -> None:
    """A host that answers at this neighbour's address may be in another rack."""
    nodes = [b.node("gpu-a001"), b.node("gpu-a002", serial=serial)]
    answers = b.observed("gpu-a002")
    hot = silent() if bmc is None else Answered(b.NOW, b.hot("gpu-a002", serial=bmc))
    fleet = Fleet(b.SETTINGS, SpecSource("spec", "c0ffee"), {node.node: node for node in nodes}, "digest")
    seen = Observation(
        format_version="1.0", fleet="test", spec_commit="", started_at=b.NOW, finished_at=b.NOW,
        nodes={"gpu-a001": down(), "gpu-a002": replace(answers, hot=hot)},
    )  # fmt: skip
    assert bool(answering_domains(fleet, seen)) is counts


@pytest.mark.parametrize(("spec", "host", "ledger", "proved"), [
    (OWN, None, None, True), (None, OWN, None, True), (None, None, OWN, True), (None, None, None, None),
    (OTHER, None, None, False), (None, OTHER, None, False), (None, None, OTHER, False), (OWN, OTHER, None, False),
    (None, OWN.upper(), None, True), (None, SWAPPED, None, True),
])  # fmt: skip
def test_a_uuid_is_enough_where_the_bmc_gives_no_serial(
    spec: str | None, host: str | None, ledger: str | None, proved: bool | None
) -> None:
    """GB200 and GH200: System_0 has a UUID and no SerialNumber (NVIDIA/libredfish, tests/mockups)."""
    facts = None if host is None else b.facts(uuid=host)
    system = b.hot(serial=None, uuid=OWN)
    found, why = identity(b.node(serial=None, uuid=spec), system, facts, record(serial=None, uuid=ledger))
    assert found is proved
    assert bool(why) is not bool(proved)


def test_a_serial_that_the_bmc_gives_is_compared_and_no_uuid_stands_in_for_it() -> None:
    system = b.hot(serial="SN-gpu-a001", uuid=OWN)
    assert identity(b.node(serial=None, uuid=OWN), system, None, record(serial=None, uuid=None))[0] is None


def test_the_identity_of_a_machine_without_a_serial_is_remembered_and_counts_for_its_neighbours() -> None:
    seen = b.observed()
    bmc = Answered(b.NOW, b.hot(serial=None, uuid=OWN))
    seen = replace(seen, host=Answered(b.NOW, b.facts(serial=None, uuid=OWN)), hot=bmc)
    assert agreed_identity(seen) == (None, OWN)
    assert host_is_own(b.node(serial=None), seen)
    other = replace(seen, host=Answered(b.NOW, b.facts(serial=None, uuid=OTHER)))
    assert agreed_identity(other) == (None, None)
    assert not host_is_own(b.node(serial=None), other)


def test_the_uuid_of_a_host_is_remembered_where_its_bmc_has_none() -> None:
    seen = b.observed()
    seen = replace(seen, host=Answered(b.NOW, b.facts(uuid=OWN)), hot=Answered(b.NOW, b.hot(uuid=None)))
    assert agreed_identity(seen) == ("SN-gpu-a001", OWN)
    other = replace(seen, hot=Answered(b.NOW, b.hot(uuid=OTHER)))
    assert agreed_identity(other) == ("SN-gpu-a001", None)
