"""What a worker sends, laid over what the leader knows, is what the worker read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from reconciler.drivers.engine.access import label, wall_clock
from reconciler.drivers.engine.answers import (
    NO_DIGESTS,
    Digests,
    Known,
    ShardAnswer,
    packed,
    received,
    sent_of,
    unpacked,
)
from reconciler.drivers.engine.workers import CERTIFICATE, HUNG_S, WorkerTable
from reconciler.model import observed as o
from reconciler.model.observer_port import Readings
from tests.strategies import seen_nodes

AT = datetime(2026, 11, 27, 19, 0, tzinfo=UTC)


def readings_of(seen: o.Observed) -> Readings:
    return Readings(seen.hot, seen.inventory, seen.host)


def carried(known: Digests, last: Known | None, now: Readings, leader: Known | None) -> tuple[Known, bytes]:
    """Send readings over the wire, and return what the leader then knows."""
    sent, digests = sent_of(known, last, now)
    data = packed(ShardAnswer(AT, {"n1": sent}, ("a login",)))
    answer = unpacked(data)
    assert (answer.at, answer.insecure) == (AT, ("a login",))
    found = received(answer.nodes["n1"], leader)
    assert found.digests == digests
    return found, data


@given(seen_nodes(), seen_nodes(), seen_nodes())
def test_three_passes_arrive_as_they_were_read(first: o.Observed, second: o.Observed, third: o.Observed) -> None:
    leader, last = None, None
    for now in map(readings_of, (first, second, second, third)):
        leader, _ = carried(leader.digests if leader else NO_DIGESTS, last, now, leader)
        assert leader.readings == now
        last = Known(now, leader.digests)


@given(seen_nodes(), seen_nodes())
def test_a_worker_that_was_restarted_sends_what_differs_from_what_the_leader_has(
    first: o.Observed, second: o.Observed
) -> None:
    leader, _ = carried(NO_DIGESTS, None, readings_of(first), None)
    again, _ = carried(leader.digests, None, readings_of(first), leader)
    assert again == leader
    assert all(
        isinstance(old, o.Silent) or new.value is old.value  # type: ignore[union-attr]
        for old, new in zip(leader.readings, again.readings, strict=True)
    )
    other, _ = carried(leader.digests, None, readings_of(second), leader)
    assert other.readings == readings_of(second)


@given(seen_nodes(), seen_nodes(), seen_nodes())
def test_tasks_may_run_twice(first: o.Observed, second: o.Observed, third: o.Observed) -> None:
    """The leader may get the answer of either run, and the next pass goes on from it."""
    for run in (0, 1):
        leader, _ = carried(NO_DIGESTS, None, readings_of(first), None)
        last, runs = Known(readings_of(first), leader.digests), []
        for now in (readings_of(second), readings_of(third)):  # the same task, of the same `known`
            sent, digests = sent_of(leader.digests, last, now)
            last = Known(now, digests)
            runs.append(received(sent, leader))
        assert [one.readings for one in runs] == [readings_of(second), readings_of(third)]
        after, _ = carried(runs[run].digests, last, readings_of(first), runs[run])
        assert after.readings == readings_of(first)


@given(seen_nodes())
def test_a_pass_without_news_costs_next_to_nothing(seen: o.Observed) -> None:
    now = readings_of(seen)
    leader, _ = carried(NO_DIGESTS, None, now, None)
    later: Any = Readings(*(replace(one, at=one.at + timedelta(minutes=2)) for one in now))  # type: ignore[arg-type]
    sent, _ = sent_of(leader.digests, leader, later)
    assert all(one.value is None for one in sent)
    assert received(sent, leader).readings == later


@given(seen_nodes())
def test_only_changed_fields_are_sent(seen: o.Observed) -> None:
    now = readings_of(seen)
    leader, _ = carried(NO_DIGESTS, None, now, None)
    if isinstance(now.host, o.Silent):
        return
    later = now._replace(host=o.Answered(AT, replace(now.host.value, uptime_s=12345.5)))
    sent, _ = sent_of(leader.digests, leader, later)
    value: Any = sent[2].value
    assert value.model_fields_set == {"uptime_s"}
    assert received(sent, leader).readings == later


@given(seen_nodes())
def test_changes_of_something_else_are_refused(seen: o.Observed) -> None:
    now = readings_of(seen)
    leader, _ = carried(NO_DIGESTS, None, now, None)
    sent, _ = sent_of(leader.digests, leader, now)
    if any(one.base for one in sent):
        with pytest.raises(ValueError, match="changes of readings that nobody knows"):
            received(sent, None)


def test_what_is_no_answer_is_refused() -> None:
    for data in (b"", b"x", packed(ShardAnswer(AT, {}))[:-3]):
        with pytest.raises(ValueError, match="not an answer of a worker"):
            unpacked(data)


# --- the workers ----------------------------------------------------------------------------------------------------


class Scheduler:
    """What a scheduler says, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.workers: dict[str, dict[str, Any]] = {}
        self.table = WorkerTable()

    def hears(self, *names: str, site: str = "fra") -> None:
        for name in names:
            self.workers[f"tls://{name}"] = {"name": name, "last_seen": self.now, "resources": {label(site): 8}}
        self.table.update({"workers": self.workers}, self.now)


def test_a_shard_goes_to_the_same_worker_while_that_is_well() -> None:
    here = Scheduler()
    here.hears("a", "b", "c")
    chosen = {f"fra#{at}": here.table.choose(label("fra"), f"fra#{at}") for at in range(30)}
    assert {one[1] for one in chosen.values() if one} == {"a", "b", "c"}
    del here.workers["tls://b"]
    here.hears("a", "c")
    moved = {key: here.table.choose(label("fra"), key) for key in chosen}
    assert {key for key in chosen if moved[key] != chosen[key]} == {
        k for k, one in chosen.items() if one and one[1] == "b"
    }
    assert here.table.lost("tls://b", "b") == "worker b has died"
    assert here.table.choose(label("ams"), "ams#0") is None


def test_a_worker_of_which_nothing_is_heard_hangs() -> None:
    here = Scheduler()
    here.hears("a", "b")
    here.now += HUNG_S + 1
    here.hears("a")
    assert here.table.lost("tls://a", "a") == ""
    assert here.table.lost("tls://b", "b").startswith("worker b hangs")
    assert {here.table.choose(label("fra"), f"fra#{at}") for at in range(30)} == {("tls://a", "a")}
    here.hears("b")
    assert here.table.lost("tls://b", "b") == ""


def test_a_leader_that_was_busy_takes_no_worker_for_hung() -> None:
    """It unpacked answers for longer than workers may be silent, and could not look meanwhile."""
    here = Scheduler()
    here.hears("a")
    here.now += HUNG_S + 1
    assert here.table.lost("tls://a", "a") == ""
    assert here.table.choose(label("fra"), "fra#0") == ("tls://a", "a")
    here.now += 1
    here.hears("a")
    assert here.table.lost("tls://a", "a") == ""


def test_nothing_is_given_to_a_worker_whose_certificate_has_expired() -> None:
    """Nobody can connect to it any more; before that, it is told of."""
    here = Scheduler()
    here.hears("a", "b", "c")
    ends = {"a": timedelta(days=3), "b": timedelta(days=90), "c": -timedelta(seconds=5)}
    here.table = WorkerTable()
    for name, left in ends.items():
        here.workers[f"tls://{name}"][CERTIFICATE] = (wall_clock() + left).timestamp()
    here.table.update({"workers": here.workers}, here.now)
    chosen = {here.table.choose(label("fra"), f"fra#{at}") for at in range(30)}
    assert chosen == {("tls://a", "a"), ("tls://b", "b")}
    assert here.table.lost("tls://c", "c").startswith("the certificate of the engine of worker c expired on 2")
    assert [("worker a expires in" in one, "worker c expired" in one) for one in here.table.expiring()] == [
        (True, False), (False, True)
    ]  # fmt: skip


def test_a_new_leader_sees_by_the_others_who_hangs() -> None:
    here = Scheduler()
    here.hears("b")
    here.now += HUNG_S + 1
    here.workers["tls://a"] = {"name": "a", "last_seen": here.now, "resources": {label("fra"): 8}}
    here.table = WorkerTable()
    here.table.update({"workers": here.workers}, here.now)
    assert here.table.lost("tls://b", "b").startswith("worker b hangs")


def test_another_worker_at_the_address_of_one_that_died_is_not_that_one() -> None:
    here = Scheduler()
    here.hears("a")
    here.workers["tls://a"]["name"] = "z"
    here.table.update({"workers": here.workers}, here.now)
    assert here.table.lost("tls://a", "a") == "worker a has died"
    assert here.table.lost("tls://a", "z") == ""


def test_a_silent_scheduler_is_why_nobody_waits() -> None:
    here = Scheduler()
    here.hears("a")
    here.table.trouble = "scheduler x does not answer"
    assert here.table.lost("tls://a", "a") == "scheduler x does not answer"
    assert here.table.choose(label("fra"), "fra#0") is None
    here.hears("a")
    assert here.table.lost("tls://a", "a") == ""
