"""People are told what the loop finds, over hours of virtual time, restarts and channels that are down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.converge.leader_term import LoopDeps
from reconciler.converge.loop import Loop
from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.hardware.parts import dimm_serial
from reconciler.model.crash import Crash, told_to
from reconciler.model.desired import BudgetLimit, Hours, Reserve, Rung, Window
from reconciler.model.limits import Brake
from reconciler.model.notices import Channel, ChannelStatus, Message, NotDelivered, Recipient
from reconciler.model.ports import Clock
from reconciler.model.records import STORM
from reconciler.model.repairs import PlacedPart, Repair, RepairPhase
from reconciler.model.tickets import Tracker, TrackerKind
from reconciler.model.vocab import DriftMode, WindowKind
from reconciler.notify.decide import BURST
from tests.converge.test_isolation import WATCHED, fall_ill
from tests.converge.test_loop import HOUR, MINUTE, Looped, Seen, disable
from tests.converge.test_repair import return_
from tests.converge.world import PROFILE

ONCALL, CHAT = Channel("oncall", "pager"), Channel("chat", "chat")
NEVER = Window(WindowKind.DENY, Hours(tuple(range(7)), 0, 24 * 60, "UTC"))


@dataclass
class Receiver:
    """notices.Messenger that keeps what it is sent. `down`: channels that refuse; `hangs`: those that never answer."""

    clock: Clock
    down: set[str] = field(default_factory=set)
    hangs: set[str] = field(default_factory=set)
    crash: bool = False
    taken: list[tuple[datetime, Message]] = field(default_factory=list)
    tries: int = 0

    async def send(self, recipient: Recipient, message: Message) -> None:
        channel = recipient
        self.tries += 1
        if self.crash:
            raise ZeroDivisionError
        if channel.name in self.hangs:
            await self.clock.sleep(10 * HOUR)
        await self.clock.sleep(1)
        if channel.name in self.down:
            raise NotDelivered("the server is away")
        self.taken.append((self.clock.now(), message))

    def titles(self, channel: str = "oncall") -> list[str]:
        return [message.title for _, message in self.taken if message.channel == channel]


class Channels(Seen):
    def __init__(self) -> None:
        super().__init__()
        self.told: Mapping[str, ChannelStatus] = {}

    def channels(self, channels: Mapping[str, ChannelStatus]) -> None:
        self.told = channels


class Telling(Looped):
    def __post_init__(self) -> None:
        self.settings = {"notifications": (ONCALL,), **self.settings}
        super().__post_init__()
        self.receiver, self.status = Receiver(self.clock), Channels()
        self.clock.elapsed += 2 * HOUR

    def loop(self, holder: str = "a", ledger: SqlLedger | None = None, seen: Seen | None = None) -> Loop:
        deps = LoopDeps(
            begin=lambda _: holder, ledger=ledger or self.ledger, clock=self.clock, gate=self.gate,
            metrics=seen or self.status, progress=self.events.append, signatures=lambda _: self.signatures,
            interval_s=2 * MINUTE, messenger=self.receiver,
        )  # fmt: skip
        return Loop(deps, self.feed, lambda _: self.fabric, holder=holder, pull_s=30.0)

    def at(self, seconds: float, *steps: Callable[[], Any], then: float = HOUR) -> None:
        """Let the loop run, with a step after every so many seconds, and then for a while."""

        async def work() -> None:
            for step in steps:
                await self.clock.sleep(seconds)
                step()

        self.go(seconds * len(steps) + then, work)


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[Callable[..., Telling]]:
    built: list[Telling] = []

    def build(**differences: Any) -> Telling:
        built.append(Telling(tmp_path, **differences))
        return built[-1]

    yield build
    for one in built:
        one.ledger.close()


def test_a_node_that_falls_ill_and_heals_is_two_messages(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=4)
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("host_hung"), then=2 * HOUR)
    assert here.serves("n2")
    began, ended = here.receiver.titles()
    assert began == "test: n2 is out of service for treatment"
    assert ended == began.replace("test: ", "test: ended: ")
    assert here.ledger.unsent() == []
    assert here.status.told["oncall"] == ChannelStatus(sent=2)
    (message,) = {message.thread for _, message in here.receiver.taken}
    assert message


def test_a_node_that_nothing_heals_needs_a_repair(telling: Callable[..., Telling]) -> None:
    assert PROFILE.remediation is not None
    few = replace(PROFILE, digest="few", remediation=replace(PROFILE.remediation, ladder=(Rung("power_cycle", 1),)))
    here = telling(nodes=4, profile=few)
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("xid_79", gpu=1, persistent=True), then=4 * HOUR)
    titles = here.receiver.titles()
    assert "test: n2 needs a repair" in titles
    assert len(titles) <= 3
    (repair,) = (message for _, message in here.receiver.taken if message.title == "test: n2 needs a repair")
    assert "XID 79" in repair.body


def test_a_message_outlives_the_leader_that_decided_it(telling: Callable[..., Telling], tmp_path: Path) -> None:
    here = telling(nodes=4)
    here.receiver.down.add("oncall")
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("host_hung"), then=2 * HOUR)
    assert here.receiver.taken == []
    assert here.status.told["oncall"].error == "the server is away"
    assert here.status.told["oncall"].unsent == 2
    assert 4 <= here.receiver.tries <= 12, "the pauses grow"
    here.receiver.down.clear()
    other = SqlLedger(here.where / "ledger.sqlite")
    here.go(2 * HOUR, holder="b", ledger=other)
    other.close()
    began, ended = here.receiver.titles()
    assert ended == began.replace("test: ", "test: ended: ")
    assert len({message.key for _, message in here.receiver.taken}) == 2


def test_what_happened_while_nobody_led_is_told(telling: Callable[..., Telling]) -> None:
    """The journal knows of it: another run isolated the node, and brought it back."""
    here = telling(nodes=4, profile=WATCHED)
    here.go(10 * MINUTE)
    fall_ill(here, "n1")
    here.apply()
    assert here.serves("n1")
    here.go(10 * MINUTE, holder="b")
    (title,) = here.receiver.titles()
    assert title == "test: ended: n1 is out of service for health.condition_GpuUnhealthy"
    assert here.receiver.taken[0][1].body.startswith("Treated by power_cycle\nSince ")


def test_a_node_that_becomes_a_spare_after_its_outage_is_told_of_too(telling: Callable[..., Telling]) -> None:
    """It is not in service again, and its outage is over all the same."""
    reserves = {"reserves": (Reserve("training", "1"),)}
    here = telling(nodes=4, profile=WATCHED, node={"persona": "training"}, settings=reserves)
    here.go(10 * MINUTE)
    fall_ill(here, "n1")
    here.apply()
    assert not here.serves("n1")
    assert here.ledger.node("n1").attempts[-1].action == "reserve"
    here.go(10 * MINUTE, holder="b")
    (title,) = here.receiver.titles()
    assert title == "test: ended: n1 is out of service for health.condition_GpuUnhealthy"


def test_a_channel_that_hangs_delays_neither_passes_nor_others(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=4, settings={"notifications": (ONCALL, CHAT)})
    here.receiver.hangs.add("oncall")
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("host_hung"), then=2 * HOUR)
    assert len(here.receiver.titles("chat")) == 2
    assert here.receiver.titles("oncall") == []
    assert here.status.passes >= 55
    assert here.serves("n2")


def test_a_storm_is_a_few_messages(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=24, profile=WATCHED, settings={"brake": Brake("20%", "99%"), "notifications": (ONCALL,)})
    names = list(here.fleet.nodes)
    here.at(10 * MINUTE, lambda: fall_ill(here, *names), then=HOUR)
    assert 1 <= len(here.receiver.taken) <= BURST, "however the passes fall between what the cluster reports"
    bodies = "\n".join(message.body for _, message in here.receiver.taken)
    for name in names[:3]:
        assert name.removeprefix("n") in bodies


def test_the_storm_brake_and_its_end_are_told(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=2)
    here.at(
        10 * MINUTE,
        lambda: here.ledger.hold(STORM, "7 nodes went bad", "storm brake", None, here.clock.now()),
        lambda: here.ledger.release(STORM, "ops", here.clock.now()),
    )
    began, ended = here.receiver.titles()
    assert began == "test: the fleet is held back by the storm brake"
    assert ended == "test: ended: the fleet is held back by the storm brake"


def test_a_window_is_told_before_it_begins(telling: Callable[..., Telling]) -> None:
    from datetime import timedelta

    here = telling(nodes=2)
    begins = (here.clock.now() + timedelta(hours=4)).replace(minute=0, second=0, microsecond=0)
    night = Window(WindowKind.ALLOW, Hours(tuple(range(7)), begins.hour * 60, (begins.hour + 2) % 24 * 60, "UTC"))
    settings = replace(here.fleet.settings, windows=(night,))
    here.put(replace(here.fleet, settings=settings))
    here.at(MINUTE, lambda: disable(here.machine("n0")), then=5 * HOUR)
    at, message = here.receiver.taken[0]
    assert message.title == f"test: pool train has a window from {begins:%Y-%m-%d %H:%M} UTC"
    assert timedelta(minutes=50) < begins - at <= timedelta(hours=1)
    assert "set_bios" in message.body
    assert len(here.receiver.taken) == 1


def test_a_reconciler_that_reaches_nobody_says_so_and_that_no_node_healed(telling: Callable[..., Telling]) -> None:
    """The node's mark stands in the cluster, but nobody sees whether it is still ill."""
    none_out = {"budgets": (BudgetLimit("fleet", "0"),), "notifications": (ONCALL,)}
    here = telling(nodes=5, profile=WATCHED, settings=none_out)
    fall_ill(here, "n1")

    def blind() -> None:
        for machine in here.lab.machines.values():
            machine.inject("bmc_unreachable")
            machine.inject("ssh_refused")
        here.lab.cluster.down = True  # type: ignore[union-attr]

    def see() -> None:
        for machine in here.lab.machines.values():
            machine.clear("bmc_unreachable")
            machine.clear("ssh_refused")
        here.lab.cluster.down = False  # type: ignore[union-attr]

    here.at(30 * MINUTE, blind, see, then=HOUR)
    about = [title for title in here.receiver.titles() if "reaches no node" in title]
    assert about == ["test: the reconciler reaches no node", "test: ended: the reconciler reaches no node"]
    assert not any("ended: n1" in title for title in here.receiver.titles())


def test_a_bug_in_a_messenger_stops_nothing(telling: Callable[..., Telling]) -> None:
    here, crashes = telling(nodes=4), list[Crash]()
    here.receiver.crash = True
    with told_to(crashes.append):
        here.at(10 * MINUTE, lambda: here.machine("n2").inject("host_hung"), then=2 * HOUR)
    assert here.serves("n2")
    assert crashes[0].kind == "ZeroDivisionError"
    assert here.status.told["oncall"].unsent == 2


def test_a_damaged_state_is_said_and_costs_no_message(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=4, profile=WATCHED, settings={"drift_mode": DriftMode.OBSERVE, "notifications": (ONCALL,)})
    fall_ill(here, "n1")
    here.ledger.save_notices("oncall", "{", [], here.clock.now())
    here.go(10 * MINUTE)
    assert any("damaged" in text for text in here.said("notice"))


def test_a_channel_that_leaves_the_spec_is_told_no_more(telling: Callable[..., Telling]) -> None:
    here = telling(nodes=4)
    here.receiver.down.add("oncall")
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("host_hung"), then=10 * MINUTE)
    assert here.ledger.unsent()
    here.receiver.down.clear()
    here.put(replace(here.fleet, settings=replace(here.fleet.settings, notifications=(CHAT,))))
    here.go(20 * MINUTE)
    assert here.receiver.titles() == []
    assert {one.message.channel for one in here.ledger.unsent()} <= {"chat"}


def test_a_part_has_one_ticket_from_the_first_sign_to_the_gate_of_the_new_one(telling: Callable[..., Telling]) -> None:
    """It is updated in place while a person exchanges the part, and closed when the new serial number has passed."""
    tracker = Tracker("ops", TrackerKind.GITHUB, "token")
    here = telling(nodes=3, settings={"tickets": (tracker,)})

    def failed() -> None:
        here.machine("n2").inject("failed_part", part="dimm", index=2)

    def start() -> None:
        part = PlacedPart("dimm", "3", dimm_serial(here.machine("n2").state, 3))
        begun = Repair(0, "n2", RepairPhase.OUT, "ann", here.clock.now(), (part,), (part,))
        here.ledger.save_repair(begun, "begun", here.clock.now())

    def done() -> None:
        here.machine("n2").exchange("dimm", 2)
        return_(here, "n2")

    here.at(40 * MINUTE, failed, start, done, then=2 * HOUR)
    assert here.serves("n2")
    told = [message for _, message in here.receiver.taken if message.channel == tracker.channel]
    assert len({message.thread for message in told}) == 1
    assert [message.over for message in told] == [False] * (len(told) - 1) + [True]
    first, last = told[0], told[-1]
    ((old, new),) = here.ledger.repairs()[-1].exchanged
    assert f"replace dimm:3 (serial {old.serial})" in first.title
    for wanted in (f"Serial:    {old.serial}", "Slot:      3", "For the vendor:", "repair start n2"):
        assert wanted in first.body
    assert any("In repair: by ann" in message.body for message in told)
    assert f"{old.serial} was exchanged for {new.serial}, which passed its gate" in last.body


def test_a_tracker_that_is_down_delays_nobody_and_loses_nothing(telling: Callable[..., Telling]) -> None:
    tracker = Tracker("ops", TrackerKind.JIRA, "token")
    here = telling(nodes=3, settings={"tickets": (tracker,)})
    here.receiver.hangs.add("ops")
    here.at(10 * MINUTE, lambda: here.machine("n2").inject("failed_part", part="dimm", index=2), then=HOUR)
    assert here.receiver.titles(), "the channel was told meanwhile"
    assert here.receiver.titles(tracker.channel) == []
    assert len(here.ledger.unsent()) == 1, "the next text follows when this one was taken"
    here.receiver.hangs.clear()
    other = SqlLedger(here.where / "ledger.sqlite")
    here.go(HOUR, holder="b", ledger=other)
    other.close()
    assert len(here.receiver.titles(tracker.channel)) == 1
    assert here.ledger.unsent() == []
