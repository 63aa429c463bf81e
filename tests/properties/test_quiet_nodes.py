"""quiet_equals_whole: a leader that asks no quiet node learns what one learns that asks all, whatever happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.converge.observation_pass import ObservationPass
from reconciler.health.signals import BOOT_REFUTED, Signal, signals
from reconciler.health.table import table_of
from reconciler.lab.inprocess.virtual_time import VirtualClock
from reconciler.model.desired import Desired, IgnoreRule
from reconciler.model.observed import Answered, HostFacts, Observation, Observed, Silent
from reconciler.model.records import BAD, COUNTED, Applied, Hold, NodeRecord
from reconciler.model.vocab import Power, UnknownReason
from reconciler.planner.fleet import quiet_nodes
from reconciler.planner.fleet.quiet_nodes import QuietNodes
from reconciler.planner.fleet.signal_history import tally_states
from reconciler.planner.fleet.tally import Tally
from reconciler.planner.node.moment import Moment
from tests import builders as b
from tests.properties.test_incremental import EDITS, NAMES, STEPS, WORN, Passes, read_again


@dataclass
class Told:
    """A ledger that only notes what it is told. `records`: those that it would have."""

    records: Mapping[str, NodeRecord]
    id: str = b.LEDGER
    identities: dict[str, Any] = field(default_factory=dict)
    silences: list[tuple[str, str, bool]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)

    @contextmanager
    def batch(self) -> Iterator[None]:
        yield

    def nodes(self, names: Sequence[str]) -> Mapping[str, NodeRecord]:
        return {name: self.records.get(name) or NodeRecord(name) for name in names}

    def holds(self) -> Sequence[Hold]:
        return ()

    def hold(self, subject: str, reason: str, *_: object) -> None:
        self.held.append((subject, reason))

    def remember_identities(self, found: Mapping[str, Any], _now: datetime) -> None:
        self.identities |= found

    def note_silences(self, changes: Sequence[tuple[str, str, bool]], _now: datetime) -> None:
        self.silences += changes


def learn(here: Passes, quiet: QuietNodes, met: Counter[str], *, whole: bool = False) -> None:
    """Learn in both ways, compare, and put into the records what was learnt."""
    observation = Observation("1.0", "test", "", here.now, here.now, dict(here.seen))
    told = []
    for anew in (True, False):
        ledger: Any = Told(dict(here.records))
        look = ObservationPass(here.fleet, observation, NAMES, ledger, VirtualClock(here.now), dict(here.records))
        if anew:
            assert look.learn_anew(quiet, whole=whole) == frozenset()
        else:
            look.learn(acts=True)
        told.append(ledger)
    made, fully = told
    assert made == fully
    assert dict(quiet.states._counts) == dict(tally_states(here.fleet, observation)._counts) or look.outage
    met.update(["storm"] * bool(fully.held), asked=len(NAMES))
    for name, identity in fully.identities.items():
        here.record(name, serial=identity[0], uuid=identity[1])
    for name, key, kept in fully.silences:
        since = {**here.records.get(name, NodeRecord(name)).silent_since}
        if kept:
            since.setdefault(key, here.now)
        else:
            since.pop(key, None)
        here.records[name] = replace(here.records.get(name, NodeRecord(name)), silent_since=since)


class Watched(QuietNodes):
    """Counts in `met` the nodes that are skipped, apart by whether they were read again."""

    def __init__(self, met: Counter[str]) -> None:
        super().__init__()
        self._met = met

    def _is_quiet(self, desired: Desired, seen: Observed, *rest: Any) -> bool:
        known = self._quiet.get(desired.node)
        how = "the same" if known is not None and known.seen is seen else "read again"
        found = super()._is_quiet(desired, seen, *rest)
        self._met[how] += found
        return found


def inventory_anew(here: Passes, _draw: Any, name: str) -> None:
    seen = here.seen[name]
    if isinstance(seen.inventory, Answered):
        here.seen[name] = replace(seen, inventory=replace(seen.inventory, at=here.now))


def off(here: Passes, _draw: Any, name: str) -> None:
    seen = here.seen[name]
    if isinstance(seen.hot, Answered):
        dark = Silent(here.now, UnknownReason.EXPLAINED, "off")
        hot = Answered(here.now, replace(seen.hot.value, power=Power.OFF))
        here.seen[name] = replace(seen, hot=hot, host=dark)


def many_not_ready(here: Passes, draw: Any, _name: str) -> None:
    for name in NAMES[: draw(st.integers(1, 3))]:
        here.seen[name] = replace(here.seen[name], member=Answered(here.now, b.member(name, ready=False)))
        here.record(name, serial="S", applied={"cluster.member": Applied("x", "d", "c", here.now)})


MORE = (inventory_anew, off, many_not_ready)
SOON = tuple(timedelta(seconds=seconds) for seconds in (5, 20, 60, 120, 300, 590, -3))


def edited_passes(draw: Callable[[Any], Any], met: Counter[str]) -> None:
    here, quiet = Passes(), Watched(met)
    for _ in range(draw(st.integers(3, 9))):
        learn(here, quiet, met, whole=draw(st.integers(0, 7)) == 7)
        here.now += draw(st.sampled_from(SOON) | st.sampled_from(STEPS))
        for edit in draw(st.lists(st.sampled_from((*EDITS, *MORE)), max_size=2)):
            edit(here, draw, draw(st.sampled_from(NAMES)))
            met[edit.__name__] += 1
        if draw(st.booleans()):
            for name in NAMES:
                read_again(here, draw, name)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_quiet_equals_whole(data: st.DataObject) -> None:
    """Invariant 24, of what the ledger learns."""
    edited_passes(data.draw, Counter())


def test_nodes_are_quiet_among_all_edits() -> None:
    """The property is worth something only if nodes are quiet, and every edit is met."""
    met: Counter[str] = Counter()

    @settings(max_examples=40, derandomize=True, database=None, deadline=None)
    @given(st.data())
    def visit(data: st.DataObject) -> None:
        edited_passes(data.draw, met)

    visit()
    assert met.keys() >= {edit.__name__ for edit in (*EDITS, *MORE)}
    assert met["the same"] > met["asked"] / 20
    assert met["read again"] > 10


def settled(**facts: Any) -> tuple[Passes, QuietNodes]:
    """Return nodes all of which are quiet."""
    here, quiet = Passes(), QuietNodes()
    for name in NAMES if facts else ():
        here.seen[name] = replace(here.seen[name], host=Answered(here.now, b.facts(name, **facts)))
    for _ in range(3):
        learn(here, quiet, Counter())
    assert len(quiet._quiet) == len(NAMES)
    return here, quiet


def test_a_look_at_counters_ends_by_time_alone() -> None:
    """Each look is replaced when its window is over: the answer of a quiet node holds no longer than that."""
    here, quiet = settled(counters=WORN)
    looks = {key for key in here.records["n0"].silent_since if key.startswith(COUNTED)}
    assert looks
    for _ in range(5):
        here.now += timedelta(hours=7)
        for name in NAMES:
            seen = here.seen[name]
            here.seen[name] = replace(seen, host=replace(seen.host, at=here.now), hot=replace(seen.hot, at=here.now))
        learn(here, quiet, Counter())
    assert all(here.records["n0"].silent_since[key] > b.NOW for key in looks)


def test_without_a_horizon_an_old_answer_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moment, "_meets", lambda moment, _: moment._at)
    with pytest.raises(AssertionError):
        test_a_look_at_counters_ends_by_time_alone()


def shows(here: Passes, **facts: Any) -> None:
    host = here.seen["n0"].host
    assert isinstance(host, Answered)
    assert isinstance(host.value, HostFacts)
    here.seen["n0"] = replace(here.seen["n0"], host=replace(host, value=replace(host.value, **facts)))


def test_readings_left_out_of_what_is_compared_hide_news(monkeypatch: pytest.MonkeyPatch) -> None:
    for compared in (True, False):
        if not compared:
            monkeypatch.setattr(quiet_nodes, "values_of", lambda _: ())
        here, quiet = settled()
        shows(here, gpus=None)
        if compared:
            learn(here, quiet, Counter())
            assert "gpus" in here.records["n0"].silent_since
            continue
        with pytest.raises(AssertionError):
            learn(here, quiet, Counter())


def test_a_whole_pass_finds_news_of_a_quiet_node(monkeypatch: pytest.MonkeyPatch) -> None:
    here, quiet = settled()
    values = quiet._quiet["n0"].values
    monkeypatch.setattr(quiet_nodes, "values_of", lambda _: values)
    shows(here, gpus=None)
    observation = Observation("1.0", "test", "", here.now, here.now, dict(here.seen))
    ledger: Any = Told(dict(here.records))
    look = ObservationPass(here.fleet, observation, NAMES, ledger, VirtualClock(here.now), dict(here.records))
    assert look.learn_anew(quiet, whole=True) == {"n0"}
    assert ledger.silences


def test_a_crash_costs_the_news_of_its_own_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invariant 22: that three others went bad is noted all the same, and the node is asked again with each pass."""
    here, quiet = settled()

    def crashing(profile: Any, seen: Observed) -> Any:
        if seen.node == "n0":
            raise KeyError("nobody expects it")
        return signals(profile, seen)

    monkeypatch.setattr("reconciler.planner.node.signal_cache.signals", crashing)
    for name in NAMES[1:4]:
        here.seen[name] = replace(here.seen[name], member=Answered(here.now, b.member(name, ready=False)))
        here.record(name, serial="S", applied={"cluster.member": Applied("x", "d", "c", here.now)})
    here.record("n0", uuid="another")
    met: Counter[str] = Counter()
    learn(here, quiet, met)
    assert met["storm"]
    assert all(BAD in here.records[name].silent_since for name in NAMES[1:4])
    assert "n0" not in quiet._quiet


def test_a_refuted_boot_is_noted_when_the_rule_that_ignores_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the ledger shows it, so the readings of the node are those of a quiet one."""
    here, quiet = Passes(), QuietNodes()
    monkeypatch.setattr("reconciler.planner.fleet.quiet_nodes.boot_signals", lambda desired, *_: told(desired))
    monkeypatch.setattr("reconciler.planner.fleet.signal_history.boot_signals", lambda desired, *_: told(desired))

    def told(desired: Desired) -> tuple[Signal, ...]:
        rule = table_of(desired.profile).rule_of(BOOT_REFUTED)
        return (Signal(BOOT_REFUTED, "refuted", rule),) if desired.node == "n0" else ()

    here.respecify(ignore=(IgnoreRule("health.boot_refuted", "known", expires=f"{here.now:%Y-%m-%d}"),))
    for _ in range(3):
        learn(here, quiet, Counter())
        here.now += timedelta(minutes=1)
    assert "n0" not in quiet._quiet


def test_a_tally_counts_what_nodes_have_now() -> None:
    tally = Tally[str]()
    tally.take("n0", ("a", "b"))
    tally.take("n1", ("b",))
    tally.take("n0", ("c",))
    assert (set(tally), tally.count("b"), tally.count("a")) == ({"b", "c"}, 1, 0)
    tally.keep({"n0"})
    assert set(tally) == {"c"}
