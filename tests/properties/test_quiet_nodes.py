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
from reconciler.lab.inprocess.virtual_time import VirtualClock
from reconciler.model.observed import Answered, HostFacts, Observation
from reconciler.model.records import COUNTED, Hold, NodeRecord
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
    met["quiet"] += len(quiet._quiet)


def edited_passes(draw: Callable[[Any], Any], met: Counter[str]) -> None:
    here, quiet = Passes(), QuietNodes()
    for _ in range(draw(st.integers(3, 7))):
        learn(here, quiet, met, whole=draw(st.integers(0, 7)) == 7)
        here.now += draw(st.sampled_from(STEPS))
        for edit in draw(st.lists(st.sampled_from(EDITS), max_size=2)):
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
    assert met["quiet"] > met["asked"] / 8
    assert met.keys() >= {edit.__name__ for edit in EDITS}


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


def test_a_tally_counts_what_nodes_have_now() -> None:
    tally = Tally[str]()
    tally.take("n0", ("a", "b"))
    tally.take("n1", ("b",))
    tally.take("n0", ("c",))
    assert (set(tally), tally.count("b"), tally.count("a")) == ({"b", "c"}, 1, 0)
    tally.keep({"n0"})
    assert set(tally) == {"c"}
