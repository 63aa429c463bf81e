"""The storm brake against an oracle that is told, node by node, what has happened; and what it must never do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model import desired as d
from reconciler.model.limits import Brake
from reconciler.model.observed import Observation, Observed, Xid
from reconciler.model.records import BAD, Applied, Attempt, Hold, NodeRecord
from reconciler.model.vocab import BootPhase, NodeState, Power
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.storm import Storm, bad_nodes, storm
from reconciler.planner.node.holds import by_subject
from tests import builders as b

BADNESS: Mapping[str, Mapping[str, Any]] = {
    "not ready": {"host": b.silent()},
    "gone from the cluster": {"member": None},
    "kubelet dead": {},
    "all dark": {"hot": b.silent("timeout"), "inventory": b.silent(), "host": b.silent(), "member": b.silent()},
    "off": {"hot": b.hot(power=Power.OFF, boot_phase=BootPhase.OFF), "host": b.silent("explained"), "member": None},
    "XID": {"host": b.facts(xids=(Xid(79, "0", 1),))},
}
FINE: Mapping[str, Mapping[str, Any]] = {
    "fine": {},
    "BMC dead": {"hot": b.silent(), "inventory": b.silent()},
    "SSH dead": {"host": b.silent("timeout")},
    "locked out": {"hot": b.silent("auth"), "inventory": b.silent("auth"), "host": b.silent("auth")},
    "a program's XID": {"host": b.facts(xids=(Xid(31, "0", 1),))},
}
WITHOUT_READY = ("not ready", "kubelet dead")
BEFORE = ("our mark", "another's mark", "cordon", "hold", "hold of its pool", "our action", "unfinished action")
AFTER = ("", "our mark later", "admitted before", "our action later", "an old action")


@dataclass(frozen=True)
class Node:
    """`ago`: minutes since it was first seen to be bad; None: this pass is the first."""

    state: str
    ago: int | None
    served: bool
    taken: str
    active: bool
    domains: Mapping[str, str]

    def news(self, within: int) -> bool:
        fresh = self.ago is None or self.ago <= within
        return self.state in BADNESS and fresh and self.served and self.taken in AFTER and self.active


nodes = st.builds(
    Node,
    state=st.sampled_from([*BADNESS, *FINE, "fine", "fine"]),
    ago=st.sampled_from([None, None, 0, 3, 10, 11, 4000]),
    served=st.sampled_from([True, True, True, False]),
    taken=st.sampled_from([*AFTER] * 3 + [*BEFORE]),
    active=st.sampled_from([True, True, True, False]),
    domains=st.fixed_dictionaries({}, optional={"rack": st.sampled_from("123"), "pdu": st.sampled_from("ab")}),
)
fleets = st.lists(nodes, min_size=1, max_size=12).map(lambda found: {f"n{at}": node for at, node in enumerate(found)})
shares = st.one_of(st.sampled_from(["1%", "10%", "25%", "33%", "50%", "99%"]), st.integers(1, 5).map(str))
brakes = st.builds(Brake, fleet=shares, domain=shares, within_s=st.just(600.0))


def fleet_of(told: Mapping[str, Node], brake: Brake) -> d.Fleet:
    desired = {
        name: b.node(
            name, domains=node.domains, state=NodeState.ACTIVE if node.active else NodeState.QUARANTINED,
            pool="held" if node.taken == "hold of its pool" else "train",
        )
        for name, node in told.items()
    }  # fmt: skip
    return d.Fleet(replace(b.SETTINGS, brake=brake), d.SpecSource("spec"), desired, "digest")


def since(node: Node) -> datetime:
    return b.NOW - timedelta(minutes=node.ago or 0)


def seen(name: str, node: Node) -> Observed:
    sources = dict({**BADNESS, **FINE}[node.state])
    changes: dict[str, Any] = {"ready": False} if node.state in WITHOUT_READY else {}
    early, late = (since(node) - timedelta(minutes=1)).isoformat(), (since(node) + timedelta(seconds=1)).isoformat()
    if node.taken == "cordon":
        changes["unschedulable"] = True
    marks = {"our mark": ("ledger-1", early), "another's mark": ("other", early), "our mark later": ("ledger-1", late)}
    mark = marks.get(node.taken)
    if "member" not in sources or mark is not None or node.taken == "cordon":
        if sources.get("member", "") is None or "member" in sources:
            changes["ready"] = False  # a mark is on a node object: there is one, and it says so
        sources["member"] = b.member(
            name, mark=None if mark is None else b.our_mark(ledger=mark[0], at=mark[1]), **changes
        )
    return b.observed(name, **sources)


def record(name: str, node: Node) -> NodeRecord:
    at = since(node)
    applied = {"cluster.member": Applied("ready", "", "", at)} if node.served else {}
    minute = timedelta(minutes=1)
    attempts = {
        "our action": (Attempt("soft_restart", "", "drift", at - 2 * minute, "done", "", at - minute),),
        "unfinished action": (Attempt("reimage", "", "drift", at - 60 * minute, "started"),),
        "admitted before": (
            Attempt("soft_restart", "", "drift", at - 4 * minute, "done", "", at - 3 * minute),
            Attempt("admit", "", "drift", at - 2 * minute, "done", "", at - 2 * minute),
        ),
        "our action later": (Attempt("power_cycle", "", "remediation", at + minute, "done", "", at + minute),),
        "an old action": (Attempt("configure_host", "", "drift", at - 90 * minute, "done", "", at - 89 * minute),),
    }.get(node.taken, ())
    noted = {} if node.ago is None else {BAD: at}
    return NodeRecord(name, "SN", applied=applied, attempts=attempts, silent_since=noted)


def looked(told: Mapping[str, Node], brake: Brake, now: datetime = b.NOW) -> Storm | None:
    fleet = fleet_of(told, brake)
    observation = observed(told)
    subjects = [(name if n.taken == "hold" else "pool/held") for name, n in told.items() if n.taken.startswith("hold")]
    holds = by_subject((), [Hold(1, subject, "a cable", "ops", b.NOW) for subject in subjects])
    records = {name: record(name, node) for name, node in told.items()}
    return storm(fleet, observation, bad_nodes(fleet, observation), records, holds, now)


def observed(told: Mapping[str, Node]) -> Observation:
    return Observation("1.0", "test", "", b.NOW, b.NOW, {name: seen(name, node) for name, node in told.items()})


def too_many(limit: str, count: int, total: int, least: int) -> bool:
    if limit.endswith("%"):
        return count >= least and Fraction(count, total) > Fraction(int(limit[:-1]), 100)
    return count > int(limit)


@settings(max_examples=200)
@given(fleets, brakes)
def test_it_trips_when_too_many_go_bad_and_never_else(told: Mapping[str, Node], brake: Brake) -> None:
    news = {name for name, node in told.items() if node.news(10)}
    active = {name for name, node in told.items() if node.active}
    groups = {("the fleet", brake.fleet, 3): active}
    for label in ("rack", "pdu"):
        for value in "123ab":
            members = {name for name in active if told[name].domains.get(label) == value}
            groups[f"{label} {value}", brake.domain, 2] = members
    trips = {
        scope: members
        for (scope, limit, least), members in groups.items()
        if members and too_many(limit, len(news & members), len(members), least)
    }
    found = looked(told, brake)
    assert (found is not None) == bool(trips), trips
    if found is not None:
        members = trips[found.scope]
        assert set(found.nodes) == news & members
        assert found.total == len(members)
        assert len(found.nodes) == max(len(news & others) for others in trips.values())
        assert found.since == min(since(told[name]) for name in found.nodes)
        assert found.sentence.startswith(f"{len(found.nodes)} of {len(members)} nodes of {found.scope} went bad")


@given(fleets, brakes)
def test_one_node_is_never_a_storm(told: Mapping[str, Node], brake: Brake) -> None:
    name, node = next(iter(told.items()))
    others = {other: replace(one, state="fine") for other, one in told.items() if other != name}
    assert looked({name: node, **others}, brake) is None


@given(fleets, brakes, st.data())
def test_one_more_that_goes_bad_does_not_end_it(told: Mapping[str, Node], brake: Brake, data: Any) -> None:
    more = data.draw(st.sampled_from(sorted(told)))
    worse = {**told, more: replace(told[more], state="not ready", ago=None, served=True, taken="", active=True)}
    if looked(told, brake) is not None and told[more].active:
        assert looked(worse, brake) is not None


@given(fleets, brakes)
def test_what_is_long_known_is_no_storm(told: Mapping[str, Node], brake: Brake) -> None:
    """So that a person's resume holds."""
    noted = {name: replace(node, ago=node.ago or 0) for name, node in told.items()}
    assert looked(noted, brake, b.NOW + timedelta(minutes=11)) is None


# --- the observer's own sight ----------------------------------------------------------------------------------------


@given(fleets)
def test_the_observer_is_at_fault_when_hardly_anybody_answers_it(told: Mapping[str, Node]) -> None:
    fleet = fleet_of(told, Brake())
    observation = observed(told)
    answers = ("all dark", "locked out")
    dark = {name for name, node in told.items() if node.state in answers and "ready" not in missed(observation, name)}
    blind = len(dark) >= 3 and Fraction(len(dark), len(told)) >= Fraction(9, 10)
    assert bool(observer_outage(fleet, observation)) == blind


def missed(observation: Observation, name: str) -> str:
    member = getattr(observation.nodes[name].member, "value", "unread")
    return "not ready" if member is None or getattr(member, "ready", None) is False else ""


@given(st.integers(3, 40))
def test_a_pass_without_any_answer_proves_nothing(count: int) -> None:
    told = {f"n{at}": Node("all dark", None, True, "", True, {}) for at in range(count)}
    said = observer_outage(fleet_of(told, Brake()), observed(told))
    assert said.startswith(f"this machine can't reach {count} of {count} nodes over any way of its own (BMC timeout")
