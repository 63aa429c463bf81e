"""Invariant 23: every notice is told at least once, and no storm of them becomes a storm of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.model.limits import Hours
from reconciler.model.notices import Channel, Message, NoticeEvent, Severity
from reconciler.notify.decide import BACKLOG, BURST, LONGEST, PERIOD, Context, decide
from reconciler.notify.found import Found, Notice
from reconciler.notify.state import ChannelState, from_text, to_text

T0 = datetime(2026, 11, 2, 8, tzinfo=UTC)  # a Monday
TICK = timedelta(minutes=2)
NODES = [f"gpu-{number:03d}" for number in range(12)]
CONTEXT = Context("demo", "ledger-1", {name: (f"pool-{n % 2}", "training") for n, name in enumerate(NODES)})
NIGHT = Hours(tuple(range(7)), 22 * 60, 6 * 60, "UTC")
ONCALL = Channel("oncall", "pager")


def isolated(node: str, reason: str = "is out of service for health.gpu_missing") -> Notice:
    return Notice(f"node/{node}", NoticeEvent.ISOLATED, node, reason, "GPU 3 is gone", (node,), _pool(node))


def repair(node: str) -> Notice:
    return Notice(f"node/{node}", NoticeEvent.REPAIR, node, "needs a repair", "2 of 2 resets", (node,), _pool(node))


def incident(nodes: Sequence[str]) -> Notice:
    detail = "12 nodes showed it first within an hour of a change"
    return Notice(
        "incident/health.x/the fleet", NoticeEvent.INCIDENT, "the fleet", "shows health.x", detail, tuple(nodes)
    )


def halted() -> Notice:
    return Notice("brake", NoticeEvent.HALTED, "the fleet", "is held back by the storm brake", "7 nodes went bad")


def holding(*notices: Notice) -> Found:
    return Found({one.key: one for one in notices})


def _pool(node: str) -> str:
    return CONTEXT.nodes.get(node, ("pool-0", ""))[0]


@dataclass
class Told:
    """A channel over time. Its state goes through the ledger's text at each pass, as at a restart."""

    channel: Channel = ONCALL
    now: datetime = T0
    state: ChannelState = field(default_factory=ChannelState)
    messages: list[tuple[datetime, Message]] = field(default_factory=list)
    backlog: int = 0

    def see(self, found: Found, after: timedelta = TICK) -> list[Message]:
        self.now += after
        before = from_text(to_text(self.state))
        assert before == self.state
        self.state, made = decide(self.channel, before, found, self.now, CONTEXT, backlog=self.backlog)
        self.messages += [(self.now, one) for one in made]
        return list(made)

    def titles(self) -> list[str]:
        return [message.title for _, message in self.messages]

    def about(self) -> set[str]:
        return {key for _, message in self.messages for key in message.about}


# --- one notice ----------------------------------------------------------------------------------------------------


def test_one_node_is_told_once_then_that_it_needs_a_repair_then_that_it_is_over() -> None:
    told = Told()
    for _ in range(30):
        told.see(holding(isolated("gpu-001")))
    for _ in range(30):
        told.see(holding(repair("gpu-001")))
    for _ in range(30):
        told.see(holding())
    assert told.titles() == [
        "demo: gpu-001 is out of service for health.gpu_missing",
        "demo: gpu-001 needs a repair",
        "demo: ended: gpu-001 needs a repair",
    ]
    threads = {message.thread for _, message in told.messages}
    assert len(threads) == 1
    assert [message.severity for _, message in told.messages] == [Severity.WARNING, Severity.CRITICAL, Severity.INFO]
    assert [message.over for _, message in told.messages] == [False, False, True]
    assert told.messages[-1][1].body.endswith("This is message 3 about it")


def test_a_repair_that_did_not_help_is_told_again() -> None:
    told = Told()
    for notice in (repair, isolated, repair):
        for _ in range(10):
            told.see(holding(notice("gpu-001")))
    assert told.titles() == ["demo: gpu-001 needs a repair"] * 2


def test_what_can_not_be_read_has_not_ended() -> None:
    told = Told()
    told.see(holding(isolated("gpu-001"), incident(["gpu-002"])))
    for _ in range(10):
        told.see(Found({}, unclear=frozenset({"node/gpu-001"}), unread=frozenset({"gpu-002"})))
        told.see(Found({}, blind=True))
    assert len(told.messages) == 2
    for _ in range(10):
        told.see(holding())
    assert sum(message.over for _, message in told.messages) == 2


def test_what_began_and_ended_between_two_passes_is_told() -> None:
    told = Told()
    told.see(Found({}, ended={"node/gpu-001": isolated("gpu-001")}))
    assert told.titles() == ["demo: ended: gpu-001 is out of service for health.gpu_missing"]
    told.see(holding(), timedelta(days=1))
    assert len(told.messages) == 1


def test_what_the_journal_tells_twice_is_told_once() -> None:
    """After a crash, the journal is read from an earlier time than what was told."""
    told = Told()
    past = replace(isolated("gpu-001"), begun=T0)
    for _ in range(9):
        told.see(Found({}, ended={past.key: past}))
    assert len(told.messages) == 1
    assert "Since 2026-11-02 08:00 UTC" in told.messages[0][1].body
    told.see(holding(isolated("gpu-002")))
    told.see(Found({}, ended={"node/gpu-002": replace(isolated("gpu-002"), begun=T0)}), timedelta(minutes=10))
    assert [message.over for _, message in told.messages] == [True, False, True]


def test_a_flapping_node_is_told_ever_more_rarely() -> None:
    told = Told()
    for at in range(720):  # a day
        told.see(holding(isolated("gpu-001")) if at % 2 else holding())
    assert 6 <= len(told.messages) <= 14
    gaps = [(b - a).total_seconds() for (a, _), (b, _) in zip(told.messages, told.messages[1:], strict=False)]
    assert gaps == sorted(gaps)


def test_a_window_is_told_before_it_begins_and_never_that_it_ended() -> None:
    begins = T0 + timedelta(hours=5)
    window = Notice("window/a/x", NoticeEvent.WINDOW, "pool a", "has a window", "", ("gpu-001",), "a", begins)
    told = Told(replace(ONCALL, ahead_s=3600.0))
    while told.now < begins:
        told.see(holding(window))
    for _ in range(60):
        told.see(holding())
    ((at, message),) = told.messages
    assert begins - timedelta(hours=1) <= at <= begins - timedelta(hours=1) + TICK
    assert message.severity is Severity.INFO


# --- many ----------------------------------------------------------------------------------------------------------


def test_ten_thousand_notices_at_once_are_one_message() -> None:
    told = Told()
    storm = holding(*(isolated(f"gpu-{number:05d}") for number in range(10_000)))
    (message,) = told.see(storm)
    assert len(message.about) == 10_000
    assert message.title == "demo: 10,000 isolated nodes"
    assert "gpu-[00000-09999] (10000) is out of service for health.gpu_missing" in message.body
    assert len(message.body) < 2_000
    for _ in range(4):
        told.see(storm, PERIOD)
    assert len(told.messages) == 1


def test_thousands_that_come_over_an_hour_are_a_few_messages_of_one_thread() -> None:
    told, ill = Told(), []
    for at in range(20):
        ill += [isolated(f"gpu-{number:05d}") for number in range(at * 100, (at + 1) * 100)]
        told.see(holding(*ill), timedelta(minutes=3))
    for _ in range(9):
        told.see(holding(*ill), PERIOD)
    assert told.about() == {one.key for one in ill}
    assert len(told.messages) <= 5
    assert len({message.thread for _, message in told.messages}) == 1


def test_what_machines_say_does_not_break_a_message() -> None:
    told = Told()
    (message,) = told.see(holding(replace(isolated("gpu-001"), detail="\x1b[31m<!channel>\n::error::" + "x" * 10_000)))
    assert "\x1b" not in message.body
    assert "\n::error" not in message.body
    assert len(message.body) < 1_000


# --- who is told, and when -----------------------------------------------------------------------------------------


def test_a_channel_is_told_of_its_pools_personas_events_and_severity() -> None:
    found = holding(isolated("gpu-000"), repair("gpu-001"), incident(["gpu-002", "gpu-003"]), halted())
    everything = {"node/gpu-000", "node/gpu-001", "incident/health.x/the fleet", "brake"}
    for channel, keys in (
        (ONCALL, everything),
        (replace(ONCALL, pools=("pool-0",)), everything - {"node/gpu-001"}),
        (replace(ONCALL, personas=("inference",)), {"brake"}),
        (replace(ONCALL, severity=Severity.CRITICAL), everything - {"node/gpu-000"}),
        (replace(ONCALL, events=(NoticeEvent.REPAIR,)), {"node/gpu-001"}),
    ):
        told = Told(channel)
        told.see(found)
        for _ in range(30):
            told.see(holding())
        assert told.about() == keys
        ends = NoticeEvent.DONE in channel.events
        assert any(message.over for _, message in told.messages) == ends
    part = Told(replace(ONCALL, pools=("pool-0",), events=(NoticeEvent.INCIDENT,)))
    (message,) = part.see(found)
    assert "Nodes: gpu-002\n" in message.body


def test_quiet_hours_hold_back_what_is_not_critical_and_lose_nothing() -> None:
    told = Told(replace(ONCALL, quiet=(NIGHT,)), now=T0.replace(hour=23))
    told.see(holding(isolated("gpu-001")))
    told.see(holding(isolated("gpu-002")))
    told.see(holding())
    assert told.messages == []
    told.see(holding(halted()))
    assert told.titles() == ["demo: the fleet is held back by the storm brake"]
    while told.now < T0.replace(hour=7) + timedelta(days=1):
        told.see(holding())
    (_, (at, morning)) = told.messages
    assert at.hour == 6
    assert morning.about == ("brake", "node/gpu-001", "node/gpu-002")


def test_a_digest_is_one_message_per_period() -> None:
    told = Told(replace(ONCALL, digest_s=86400.0))
    for at in range(3 * 720):
        told.see(holding(isolated(NODES[at // 200])))
    assert len(told.messages) == 2
    assert (told.messages[1][0] - told.messages[0][0]) >= timedelta(days=1)


def test_a_channel_that_is_down_gets_one_message_for_all_that_it_missed() -> None:
    told = Told(backlog=BACKLOG)
    for at in range(11):
        told.see(holding(isolated(NODES[at])), timedelta(hours=1))
    assert told.messages == []
    told.backlog = 0
    told.see(holding())
    ((_, message),) = told.messages
    assert len(message.about) == 11


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    told = Told(replace(ONCALL, digest_s=3600.0))
    told.see(holding(*map(isolated, NODES), halted()))
    told.now -= timedelta(days=30)
    told.see(holding(*map(repair, NODES), halted()))
    for _ in range(60):
        told.see(holding(*map(repair, NODES), halted()))
    assert sum("12 nodes to repair" in title for title in told.titles()) == 1
    began = len(told.messages)
    for _ in range(90):
        told.see(holding())
    assert len(told.messages) > began


def test_a_state_that_was_lost_makes_no_key_twice() -> None:
    told = Told()
    (first,) = told.see(holding(halted()))
    told.state = ChannelState()
    (second,) = told.see(holding(halted()))
    assert first.key != second.key
    assert first.thread == second.thread


# --- any history ---------------------------------------------------------------------------------------------------

NOTICES = [notice(node) for node in NODES for notice in (isolated, repair)] + [halted(), incident(NODES[:5])]
CHANNELS = [
    ONCALL,
    replace(ONCALL, severity=Severity.WARNING, events=(NoticeEvent.ISOLATED, NoticeEvent.REPAIR)),
    replace(ONCALL, quiet=(NIGHT,)),
    replace(ONCALL, digest_s=7200.0, pools=("pool-1",)),
]
PASSES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(range(len(NOTICES))), max_size=8),
        st.sets(st.sampled_from(NODES), max_size=3),  # ended between the passes
        st.sampled_from([0, 0, 0, 1, 2]),  # 1: blind, 2: the channel is down
        st.integers(1, 200),  # minutes since the last pass
    ),
    max_size=25,
)


@given(passes=PASSES, channel=st.sampled_from(CHANNELS), seed=st.integers(0, 99))
@settings(max_examples=300, deadline=None)
def test_incident_is_told(passes: list[tuple[set[int], set[str], int, int]], channel: Channel, seed: int) -> None:
    told, again, wanted = Told(channel), Told(channel), set[str]()
    for chosen, ended, trouble, minutes in passes:
        notices = [NOTICES[at] for at in sorted(chosen)]
        by_node = {one.key: one for one in notices}  # of a node, the worse one
        past = {one.key: one for one in map(isolated, sorted(ended)) if one.key not in by_node}
        found = Found(by_node, ended={} if trouble == 1 else past, blind=trouble == 1)
        mixed = list(by_node.items())
        Random(seed).shuffle(mixed)
        told.backlog = again.backlog = BACKLOG if trouble == 2 else 0
        made = told.see(found, timedelta(minutes=minutes))
        assert again.see(replace(found, holding=dict(mixed)), timedelta(minutes=minutes)) == made  # whatever the order
        wanted |= {one.key for one in (*by_node.values(), *found.ended.values()) if _takes(channel, one)}
    told.backlog = 0
    for _ in range(12):
        told.see(holding(), LONGEST)
    assert told.about() == wanted
    assert len({message.key for _, message in told.messages}) == len(told.messages)
    for at, _ in told.messages:
        assert sum(at <= other < at + PERIOD for other, _ in told.messages) <= BURST + 1
    assert told.see(holding(), LONGEST) == []
    assert told.state.known == {}


def _takes(channel: Channel, one: Notice) -> bool:
    ours = not one.nodes or not channel.pools or any(_pool(node) in channel.pools for node in one.nodes)
    return ours and one.event in channel.events and one.severity.rank >= channel.severity.rank


def test_what_was_damaged_is_said() -> None:
    with pytest.raises(ValueError, match="damaged"):
        from_text('{"seen_at": 7}')
