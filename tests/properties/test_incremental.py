"""incremental_equals_whole: plans that are kept between passes change no plan, whatever happens in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.converge.observation_pass import ObservationPass
from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.plan import Plan
from reconciler.model.records import COUNTED, IN_BOOT, UNHEALED, Hold, NodeRecord
from reconciler.model.vocab import NodeState
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest, records_needed, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.node.counted import counter_updates, without_looks
from reconciler.planner.node.kept_keys import boot_digest
from reconciler.planner.node.kept_plans import KeptPlans
from reconciler.planner.node.moment import Moment
from reconciler.planner.node.node_inputs import NodeInputs
from tests import builders as b
from tests import strategies as s
from tests.properties.test_execute import DRIFTS, FAULTS, Case, cases, few, fleet_of

NAMES = ("n0", "n1", "n2", "n3")
# Results end, and are renewed before, within the time that passes here.
ACCEPTANCE = replace(b.ACCEPTANCE, validity_s=3 * 86400.0, revalidate=d.Revalidation(86400.0, drain=False))
PROFILE = b.profile(acceptance=ACCEPTANCE)
ARRAY = b.profile(acceptance=replace(ACCEPTANCE, validity_s=None), gpu=None)
UP, DOWN = o.Link("eth0", True, 100.0), o.Link("eth0", False)
WORN = {"0000:0a:00.0": {"aer_corrected": 4}}
MANY = {"0000:0a:00.0": {"aer_corrected": 90_000}}
BOOT = IN_BOOT + boot_digest("b1")
# What a host may show, beside what it shows while it is well.
SHOWN: tuple[dict[str, Any], ...] = (
    {}, {"links": (DOWN,)}, {"links": (UP,)}, {"sysctls": {"vm.swappiness": "60"}}, {"xids": (o.Xid(79, "0", 1),)},
    {"dimm_errors": (o.DimmErrors("mc0/dimm1", "A1", 40, 0),)}, {"gpus": None}, {"boot_id": "b2", "uptime_s": 60.0},
    {"counters": WORN}, {"counters": MANY}, {"counters": MANY, "boot_id": "b1"}, {"clock": o.ClockState(True, 900.0)},
    {"image": None}, {"driver": "550.0"},
)  # fmt: skip
STEPS = tuple(timedelta(minutes=m) for m in (1, 5, 11, 61, 700, 1500, 3000, -3, -90))


@dataclass
class Passes:
    """A fleet between its passes. `told`: what is changed of all plans' inputs since the first pass, in words."""

    now: datetime = b.NOW
    nodes: dict[str, d.Desired] = field(default_factory=dict)
    settings: d.Settings = b.SETTINGS
    seen: dict[str, o.Observed] = field(default_factory=dict)
    records: dict[str, NodeRecord] = field(default_factory=dict)
    signatures: Mapping[tuple[str, str], bool | None] = field(default_factory=lambda: b.CONTEXT.signatures)
    holds: tuple[Hold, ...] = ()
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at, name in enumerate(NAMES):
            self.nodes[name] = b.node(name, profile=PROFILE, domains={"rack": f"r{at % 2}"})
            self.seen[name] = b.observed(name, host=b.facts(name, links=(UP,)))
            self.records[name] = b.record(self.nodes[name], self.seen[name])
        self.respecify()

    def respecify(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)
        self.fleet = d.Fleet(self.settings, d.SpecSource("spec"), dict(self.nodes), "d")

    def plan(self, kept: KeptPlans | None) -> Plan:
        observation = o.Observation("1.0", "test", "", self.now, self.now, dict(self.seen))
        snapshot = LedgerSnapshot(b.LEDGER, dict(self.records), holds=self.holds)
        return plan_fleet(self.fleet, observation, snapshot, self.now, PlanRequest("p", self.signatures), kept)

    def host(self, name: str) -> o.HostFacts | None:
        answer = self.seen[name].host
        return None if isinstance(answer, o.Silent) else answer.value

    def record(self, name: str, **changes: Any) -> None:
        self.records[name] = replace(self.records[name], **changes)


def read_again(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    """Read a node again: it answers the same, at another time, and with what is never the same."""
    seen, facts = here.seen[name], here.host(name)
    readings = {
        one: replace(reading, at=here.now) for one in ("hot", "host", "member") if (reading := getattr(seen, one))
    }
    if facts is not None:
        up = None if facts.uptime_s is None else facts.uptime_s + draw(st.sampled_from([0.0, 60.0, 4000.0]))
        clock = draw(st.sampled_from([facts.clock, o.ClockState(True, 0.003)]))
        readings["host"] = o.Answered(here.now, replace(facts, uptime_s=up, clock=clock))
    if isinstance(seen.member, o.Answered) and seen.member.value is not None:
        version = str(draw(st.integers(2, 9)))
        readings["member"] = o.Answered(here.now, replace(seen.member.value, resource_version=version))
    here.seen[name] = replace(seen, **readings)


def break_something(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    facts = b.facts(name, **{"links": (UP,), **draw(st.sampled_from(SHOWN))})
    here.seen[name] = replace(here.seen[name], host=o.Answered(here.now, facts))


def silence(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    source = draw(st.sampled_from(["hot", "inventory", "host", "member"]))
    here.seen[name] = replace(here.seen[name], **{source: replace(draw(s.silents()), at=here.now)})


def show_anything(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    here.seen[name] = replace(draw(s.seen_nodes()), node=name)


def mend(here: Passes, _draw: Callable[[Any], Any], name: str) -> None:
    here.seen[name] = b.observed(name, host=b.facts(name, links=(UP,)))
    here.records[name] = b.record(here.nodes[name], here.seen[name])


def stop_pods(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    """Leave a pod that a finalizer keeps, which is no work on a dead node once its time is over."""
    ends = here.now + timedelta(minutes=draw(st.sampled_from([-1, 4, 30])))
    pod = b.pod(finalizers=("x",), ends_at=ends, terminating_since=here.now)
    taints = (*b.member(name).taints, o.Taint(o.OUT_OF_SERVICE, "", "NoExecute"))
    member = b.member(name, pods=(pod,), taints=taints, ready=draw(st.booleans()))
    here.seen[name] = replace(here.seen[name], member=o.Answered(here.now, member))


def recall_anything(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    here.records[name] = replace(draw(s.records(here.nodes[name])), node=name)


def remember(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    """Let the ledger keep an event, a look at counters or a silence, or forget them all."""
    ago = here.now - timedelta(minutes=draw(st.sampled_from([0, 5, 50, 700])))
    kept = draw(
        st.sampled_from([
            (), (f"{UNHEALED}health.xid_79{BOOT}",), (f"{UNHEALED}health.ecc{IN_BOOT}",), ("ssh", "not_ready"),
            ("gpus",), (f"{COUNTED}counters 1h{BOOT}", f"{COUNTED}counters 1h 0000:0a:00.0 aer_corrected=1{BOOT}"),
        ])
    )  # fmt: skip
    here.record(name, silent_since=dict.fromkeys(kept, ago))


def look_again(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    """Replace the looks at counters, by some after which nothing has risen, or something has."""
    looked_at(here, name, draw(st.sampled_from([{}, WORN, MANY])))


def looked_at(here: Passes, name: str, counters: Any) -> None:
    facts, record = here.host(name), without_looks(here.records[name])
    if facts is not None:
        then = replace(here.seen[name], host=o.Answered(here.now, replace(facts, counters=counters)))
        looks = [key for key, is_kept in counter_updates(here.nodes[name], then, record, ()) if is_kept]
        here.record(name, silent_since={**record.silent_since, **dict.fromkeys(looks, here.now)})


def certify(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    known = here.records[name].certificate
    if known is not None:
        ago = timedelta(minutes=draw(st.sampled_from([0, 2000, 4310, 5000, -30])))
        here.record(name, certificate=replace(known, issued_at=here.now - ago))


def release(here: Passes, _draw: Callable[[Any], Any], name: str) -> None:
    here.record(name, released_at=here.now)


def hold(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    until = draw(st.sampled_from([None, here.now + timedelta(minutes=7)]))
    subject = draw(st.sampled_from([name, "pool/train", "fleet/*", "isolation/xid_79"]))
    here.holds = draw(st.sampled_from([(), (Hold(1, subject, "looking at it", "ops", here.now, until),)]))


def hold_one(here: Passes, _draw: Callable[[Any], Any], name: str) -> None:
    ends = here.now + timedelta(minutes=7)
    here.record(name, holds=(Hold(2, name, "looking at it", "ops", here.now, ends),))


def distrust(here: Passes, draw: Callable[[Any], Any], _name: str) -> None:
    here.signatures = dict.fromkeys(b.CONTEXT.signatures, draw(st.sampled_from([True, False, None])))


def ignore(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    path = draw(st.sampled_from(["host.*", "health.*", "bios.*"]))
    day = f"{here.now + timedelta(days=draw(st.integers(-1, 2))):%Y-%m-%d}"
    rule = d.IgnoreRule(path, "known", nodes=draw(st.sampled_from([(), (name,)])), expires=day)
    here.respecify(ignore=draw(st.sampled_from([(), (rule,)])))


def specify(here: Passes, draw: Callable[[Any], Any], name: str) -> None:
    changes: dict[str, Any] = draw(
        st.sampled_from([
            {"state": NodeState.QUARANTINED}, {"state": NodeState.ACTIVE}, {"profile": PROFILE}, {"profile": ARRAY},
            {"hostname": "other"}, {"domains": {"rack": "r9"}}, {"pool": "other"},
        ])
    )  # fmt: skip
    here.nodes[name] = replace(here.nodes[name], **changes)
    here.respecify()


EDITS = (
    read_again, break_something, silence, show_anything, mend, stop_pods, recall_anything, remember, look_again,
    certify, release, hold, hold_one, distrust, ignore, specify,
)  # fmt: skip


def moments(value: Any, where: str = "plan") -> Iterator[str]:
    """Yield where a plan holds a moment, which is no instant to keep or to print."""
    if type(value) is Moment:
        yield where
    elif is_dataclass(value):
        for one in fields(value):
            yield from moments(getattr(value, one.name), f"{where}.{one.name}")
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            yield from moments(entry, f"{where}[{key}]")
    elif isinstance(value, tuple | list | set | frozenset):
        for entry in value:
            yield from moments(entry, f"{where}[]")


def edited_passes(draw: Callable[[Any], Any], met: Counter[str]) -> None:
    here, kept = Passes(), KeptPlans()
    for _ in range(draw(st.integers(2, 6))):
        made = here.plan(kept)
        assert kept.made + kept.served == len(NAMES)
        met.update({"served": kept.served, "made": kept.made})
        whole = here.plan(None)
        assert made == whole, {
            (name, one.name): (getattr(plan, one.name), getattr(whole.nodes[name], one.name))
            for name, plan in made.nodes.items()
            for one in fields(plan)
            if getattr(plan, one.name) != getattr(whole.nodes[name], one.name)
        } or "of the fleet"
        assert list(moments(made)) == []
        here.now += draw(st.sampled_from(STEPS))
        for edit in draw(st.lists(st.sampled_from(EDITS), max_size=3)):
            edit(here, draw, draw(st.sampled_from(NAMES)))
            met[edit.__name__] += 1
        if draw(st.booleans()):
            for name in NAMES:
                read_again(here, draw, name)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_incremental_equals_whole(data: st.DataObject) -> None:
    """Invariant 24, of any spec, readings, records and clocks."""
    edited_passes(data.draw, Counter())


def test_edits_reach_what_matters() -> None:
    """The property is worth something only if plans are served, and every edit is met."""
    met: Counter[str] = Counter()

    @settings(max_examples=60, derandomize=True, database=None, deadline=None)
    @given(st.data())
    def visit(data: st.DataObject) -> None:
        edited_passes(data.draw, met)

    visit()
    assert met["served"] > met["made"] / 4
    assert met.keys() >= {edit.__name__ for edit in EDITS}


BREAK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bmc_unreachable", {"times": 4}), ("xid_79", {"gpu": 1}), ("ecc_errors", {"gpu": 0}), ("ssh_refused", {}),
    ("kubelet_not_ready", {}), ("bmc_garbage", {"times": 3}), ("host_hung", {}),
)  # fmt: skip


@few
@given(cases(drifts=DRIFTS[:5], faults=FAULTS[:1]), st.data())
def test_incremental_equals_whole_in_the_lab(case: Case, data: st.DataObject) -> None:
    """Invariant 24, of what the lab's machines answer and the ledger learns, with the faults that come and go."""
    with fleet_of(case) as here:
        kept, seen = KeptPlans(), None
        for _ in range(data.draw(st.integers(2, 5))):
            seen = here.observe(previous=seen)
            names = list(here.fleet.nodes)
            records = here.ledger.nodes(records_needed(here.fleet, names))
            ObservationPass(here.fleet, seen, names, here.ledger, here.clock, records).learn(acts=True)
            snapshot, now = take_snapshot(here.ledger, here.fleet, names), here.clock.now()
            request = PlanRequest("p", here.signatures)
            made, whole = (plan_fleet(here.fleet, seen, snapshot, now, request, one) for one in (kept, None))
            assert made == whole
            here.clock.elapsed += data.draw(st.sampled_from([1.0, 300.0, 4000.0, 100_000.0]))
            machine = here.machine(data.draw(st.sampled_from(names)))
            if data.draw(st.booleans()):
                fault, options = data.draw(st.sampled_from(BREAK))
                machine.inject(fault, **options)
            elif data.draw(st.booleans()):
                here.apply()


# --- each part of the key is needed ----------------------------------------------------------------------------------


def shows(**facts: Any) -> Callable[[Passes], None]:
    def edit(here: Passes) -> None:
        told = b.facts("n0", **{"links": (UP,), **facts})
        here.seen["n0"] = replace(here.seen["n0"], host=o.Answered(here.now, told))

    return edit


def tells(source: str, value: Any) -> Callable[[Passes], None]:
    def edit(here: Passes) -> None:
        reading: dict[str, Any] = {source: o.Answered(here.now, value)}
        here.seen["n0"] = replace(here.seen["n0"], **reading)

    return edit


def keeps(**changes: Any) -> Callable[[Passes], None]:
    return lambda here: here.record("n0", **changes)


def others(**facts: Any) -> Callable[[Passes], None]:
    def edit(here: Passes) -> None:
        for name in NAMES[1:]:
            here.seen[name] = replace(here.seen[name], host=o.Answered(here.now, b.facts(name, **facts)))

    return edit


def dark(here: Passes) -> None:
    """Let all hosts be silent, and the first look down: whether it is, its neighbours tell."""
    for name in NAMES:
        here.seen[name] = replace(here.seen[name], host=b.silent())
    member = b.member("n0", ready=False, system_uuid="4c4c4544-0000-4000-8000-000000000000")
    tells("member", member)(here)
    tells("hot", b.hot("n0", uuid="4c4c4544-0000-4000-8000-000000000000"))(here)
    keeps(silent_since=dict.fromkeys(("ssh", "not_ready"), b.NOW - timedelta(hours=1)))(here)


def nothing(_here: Passes) -> None:
    pass


EVENT = {f"{UNHEALED}health.xid_79{IN_BOOT}": b.NOW - timedelta(minutes=50)}
# Part of the key -> what is so first, and what then changes of that part alone.
PARTS: Mapping[str, tuple[Callable[[Passes], None], Callable[[Passes], None]]] = {
    "record": (nothing, keeps(nonce="another")),
    "hot": (nothing, tells("hot", b.hot("n0", serial="SN-other"))),
    "inventory": (nothing, tells("inventory", b.inventory(bios={"SriovGlobalEnable": "Disabled"}))),
    "host": (nothing, shows(sysctls={"vm.swappiness": "60"})),
    "told_anew": (
        lambda here: (keeps(silent_since=EVENT)(here), shows(uptime_s=4000.0)(here))[0], shows(uptime_s=60.0),
    ),
    "member": (nothing, tells("member", b.member("n0", labels={}))),
    "signals": (nothing, shows(clock=o.ClockState(True, 900.0))),
    "neighbours": (dark, others()),
    "peers": (lambda here: (shows(links=(DOWN,))(here), others(links=(DOWN,))(here))[0], others(links=(UP,))),
}  # fmt: skip


def differs_without(part: str, monkeypatch: pytest.MonkeyPatch, first: Any, then: Any) -> bool:
    """Return whether the plan is an old one where this part is taken out of the key. With it, it never is."""
    made = []
    for names in (
        [one.name for one in fields(NodeInputs)],
        [one.name for one in fields(NodeInputs) if one.name != part],
    ):
        here, kept = Passes(holds=(Hold(1, "n0", "looking at it", "ops", b.NOW),)), KeptPlans()
        first(here)
        monkeypatch.setattr(
            NodeInputs,
            "__eq__",
            lambda one, other, names=names: all(getattr(one, name) == getattr(other, name) for name in names),
        )
        here.plan(kept)
        then(here)
        made.append((here.plan(kept), here.plan(None), kept.served))
    (right, whole, _), (old, _, served) = made
    assert right == whole
    assert served
    return old != whole


@pytest.mark.parametrize("part", PARTS)
def test_a_part_taken_out_of_the_key_serves_an_old_plan(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differs_without(part, monkeypatch, *PARTS[part])


def test_what_was_decided_by_the_clock_holds_until_it_is_decided_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for noted in (True, False):
        if not noted:
            monkeypatch.setattr(Moment, "_meets", lambda moment, _: moment._at)
        here, kept = Passes(), KeptPlans()
        here.plan(kept)
        here.now += timedelta(minutes=1)
        assert here.plan(kept) == here.plan(None)
        assert kept.served == len(NAMES)
        here.now += timedelta(days=4)  # the results have ended
        assert (here.plan(kept) == here.plan(None)) is noted


def test_looks_that_are_replaced_cost_no_plan_while_nothing_has_risen(monkeypatch: pytest.MonkeyPatch) -> None:
    for judged in (True, False):
        if not judged:
            monkeypatch.setattr("reconciler.planner.node.kept_plans.rests", lambda *_: True)
        here, kept = Passes(), KeptPlans()
        shows(counters=MANY, boot_id="b1")(here)
        for _ in range(2):
            looked_at(here, "n0", MANY)
            assert here.plan(kept) == here.plan(None)
            here.now += timedelta(minutes=30)
        assert kept.served == len(NAMES)
        looked_at(here, "n0", {})
        assert (here.plan(kept) == here.plan(None)) is judged
