"""Holds of the spec: which nodes they are about, which line says so, and that one whose time is over is told."""

from __future__ import annotations

from datetime import UTC, datetime

from reconciler.model.desired import SpecHold
from reconciler.spec import check_spec
from tests.spec.example import changed, load

POOL = ("pool.yaml", "  state: active", "  hold: {reason: freeze, owner: ops, until: 2027-06-30T18:00:00+02:00}")
RANGE = (
    "pool.yaml",
    'host: "10.20.1.[11-18]", domains',
    'host: "10.20.1.[11-18]", hold: {reason: r, owner: o}, domains',
)


def test_a_hold_is_about_a_pool_or_about_each_node_of_an_entry() -> None:
    holds = load(POOL, RANGE).holds
    assert holds[0] == SpecHold("pool/train", "freeze", "ops", "2027-06-30T18:00:00+02:00", "pool.yaml:5:9")
    assert [hold.subject for hold in holds[1:]] == [f"gpu-a00{at}" for at in range(1, 9)]
    assert {(hold.reason, hold.owner, hold.until) for hold in holds[1:]} == {("r", "o", None)}
    assert {hold.position.partition(":")[0] for hold in holds} == {"pool.yaml"}


def test_a_hold_changes_nothing_of_what_nodes_shall_be() -> None:
    plain, held = load(), load(POOL, RANGE)
    assert plain.digest == held.digest
    assert {node.profile.digest for node in plain.nodes.values()} == {n.profile.digest for n in held.nodes.values()}


def test_one_whose_time_is_over_is_a_warning() -> None:
    def told(year: int) -> list[str]:
        fleet, found = check_spec(changed(POOL), directory="", now=datetime(year, 7, 1, tzinfo=UTC))
        assert fleet is not None
        return [f"{one.severity}: {one}" for one in found]

    assert told(2026) == []
    assert told(2028) == ["warning: pool.yaml:5:45 spec.hold.until: this hold has ended (remove it)"]
