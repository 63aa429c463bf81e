"""Random schedules of signals on the loop, in virtual time: whatever telemetry does, five things hold.

No node is treated for its application's fault, none with evidence that stays is schedulable, no rung is climbed more
often than the policy says, each isolated node is told of, and no gate is repeated for nothing. A seed draws the
schedule.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from reconciler.health.ladder import REMEDIATION
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.desired import Reserve, Rung
from reconciler.model.limits import Brake
from reconciler.model.records import ISOLATED
from reconciler.model.status import NodeStatus
from reconciler.spec.signals import PREFIX
from tests.converge.test_isolation import POLICY, WATCHED, fall_ill
from tests.converge.test_loop import HOUR, MINUTE
from tests.notify.test_loop import Telling

NODES = 6
LONG_S = HOUR  # of a schedule; then it has as long to settle
BEFORE_S = 5 * MINUTE  # of the first signal: two passes
CALM_S = 6 * MINUTE  # of three passes that do nothing: what is not played whole is over then
OFTEN_S = MINUTE
MEMORY = Path("/dev/shm")
LADDER = (Rung("soft_restart", 1), Rung("power_cycle", 2))
TO_USE = ("admit", "reserve", "join", "set_labels")
ISOLATE_S = 15 * MINUTE  # by which evidence that stays has taken its node out, however the node is read meanwhile
FOR_ILLNESS = (ISOLATED, PREFIX)  # causes of a mark and of a drain; a node that its owner rebooted is only joined
APPLICATION = (13, 31, 43, 45)  # XIDs that say something of the work on a node (K1)


@dataclass(frozen=True)
class Sent:
    """What telemetry does to a node at a moment, in seconds after the beginning."""

    at: float
    kind: str
    node: str


@dataclass(frozen=True)
class Played:
    """What came of a schedule. `broken`: which rule was, in words."""

    broken: tuple[str, ...]
    isolated: int  # marks for evidence of illness
    rungs: int
    messages: int


class Signals(Telling):
    """Six nodes, one of them a spare, under a ladder of two rungs."""

    def __init__(self, where: Path, **differences: Any) -> None:
        profile = replace(WATCHED, digest="signals", remediation=replace(POLICY, ladder=LADDER))
        settings = {"reserves": (Reserve("training", "1"),), "brake": Brake("90%", "90%", 600.0)}
        super().__init__(
            where, nodes=NODES, racks=3, profile=profile, settings=settings, node={"persona": "training"}, **differences
        )

    def say(self, node: str, *lines: str) -> None:
        system = self.machine(node).state.os
        if system is not None:
            system.kernel_log.extend(lines)

    def done(self) -> object:
        """Return what passes change: what was done to each node, what each is called, and who is to be told."""
        assert self.status.fleet is not None
        attempts = [(one.action, one.outcome) for name in self.fleet.nodes for one in self.ledger.node(name).attempts]
        return attempts, [node.status for node in self.status.fleet.nodes.values()], self.ledger.unsent()

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing that time or a look at a node would change is under way."""
        assert self.status.fleet is not None
        statuses = {node.status for node in self.status.fleet.nodes.values()}
        return statuses <= {NodeStatus.CONVERGED, NodeStatus.BLOCKED} and not self.ledger.unsent()


def _xid(code: int, number: int = 0) -> str:
    return f"NVRM: Xid (PCI:0000:1b:00): {code}, pid={4000 + number}, name=python3, Ch 00000008"


def _flap(here: Signals, node: str) -> None:
    if here.machine(node).fault("node_condition") is None:
        fall_ill(here, node)
        return
    assert here.lab.cluster is not None
    here.machine(node).clear("node_condition")
    here.lab.cluster.sync(node)


def _clock_jumps(here: Signals, node: str) -> None:
    here.clock.stepped += timedelta(seconds=(-1) ** int(node[1:]) * 37 * MINUTE)


def _reboots(here: Signals, node: str) -> None:
    here.machine(node).catch_up()  # its system may have ended since it was looked at
    if here.machine(node).state.os is not None:
        here.machine(node).reboot()


def _falls_off(here: Signals, node: str, *, persistent: bool) -> None:
    if here.machine(node).state.os is not None:  # while it boots, nobody logs it
        here.machine(node).inject("xid_79", gpu=1, persistent=persistent)


def _again(here: Signals, node: str, order: int = 1) -> None:
    system = here.machine(node).state.os
    here.say(node, *(system.kernel_log[-3:][::order] if system is not None else ()))


def _comes_late(here: Signals, node: str) -> None:
    """Have the line of an application come to stand before lines that were read already."""
    system = here.machine(node).state.os
    if system is not None:
        system.kernel_log.insert(max(len(system.kernel_log) - 3, 0), _xid(APPLICATION[int(node[1:]) % 4]))


def _bmc_floods(here: Signals, node: str) -> None:
    for number in range(300):
        here.machine(node)._log(("OK", "Warning", "Critical")[number % 3], f"Chassis intrusion {number}")


def _wrongly_dated(here: Signals, node: str) -> None:
    """Have a BMC whose clock is wrong (B6) log what is only reported, as of later or of two days ago."""
    machine = here.machine(node)
    machine._log("Critical", "Chassis intrusion")
    machine.state.events[-1]["at"] += HOUR if int(node[1:]) % 2 else -48 * HOUR


def _entries_again(here: Signals, node: str) -> None:
    """Have a BMC write its last entries once more, the newest first, under other numbers and with their old dates."""
    events = here.machine(node).state.events
    events.extend([{**one, "id": str(len(events) + at)} for at, one in enumerate(reversed(events[-3:]), 1)])


KINDS: Mapping[str, Callable[[Signals, str], None]] = {
    "an application's XID": lambda here, node: here.say(node, _xid(APPLICATION[int(node[1:]) % 4])),
    "a flood of them": lambda here, node: here.say(node, *(_xid(45, n) for n in range(300))),
    "a GPU falls off": lambda here, node: _falls_off(here, node, persistent=False),
    "a GPU is gone for good": lambda here, node: _falls_off(here, node, persistent=True),
    "a DIMM fails for good": lambda here, node: here.machine(node).inject("failed_part", part="dimm", how="logged"),
    "a condition flaps": _flap,
    "its last lines come again": _again,
    "they come in another order": lambda here, node: _again(here, node, -1),
    "an application's XID comes late": _comes_late,
    "the clock jumps": _clock_jumps,
    "its own clock jumps": lambda here, node: here.machine(node).inject("clock", seconds=37 * MINUTE),
    "it reboots": _reboots,
    "its host refuses": lambda here, node: here.machine(node).inject("ssh_refused"),
    "its host answers again": lambda here, node: here.machine(node).clear("ssh_refused"),
    "its BMC is busy": lambda here, node: here.machine(node).inject("bmc_503", times=20),
    "its BMC talks nonsense": lambda here, node: here.machine(node).inject("bmc_garbage", times=6),
    "its BMC floods": _bmc_floods,
    "its BMC dates wrongly": _wrongly_dated,
    "its BMC's entries come again": _entries_again,
}
ILL = ("a GPU falls off", "a GPU is gone for good", "a DIMM fails for good", "a condition flaps")
LASTS = {"a GPU is gone for good": "xid_79", "a DIMM fails for good": "failed_part"}  # the faults, until a person comes
BY_BMC = "failed_part"  # which only a BMC's log tells, so that nobody can know of it while the BMC has one of these
UNREAD = ("bmc_503", "bmc_garbage")
NOISE = (
    "an application's XID", "a flood of them", "an application's XID comes late", "the clock jumps",
    "its own clock jumps", "it reboots", "its host refuses", "its BMC is busy", "its BMC talks nonsense",
    "its BMC floods", "its BMC dates wrongly",
)  # fmt: skip
ABOUT_ILL = ("its last lines come again", "they come in another order", "its BMC's entries come again", *NOISE)
AGAIN = "its host answers again"  # follows each refusal


def draw(seed: int) -> tuple[Sent, ...]:
    """Return a schedule: two nodes at most are ill, so that no cap is reached; the others are only loud."""
    chance = random.Random(seed)  # a schedule must be drawn again by its seed
    names = [f"n{at}" for at in range(NODES)]
    chance.shuffle(names)
    sent = []
    for node in names[: chance.randint(0, 2)]:
        kind = chance.choice(ILL)
        began = chance.uniform(5 * MINUTE, LONG_S / 2)
        times = chance.randint(2, 9) if kind == "a condition flaps" else 1
        sent += [Sent(began + chance.uniform(0, 20 * MINUTE), kind, node) for _ in range(times)]
        sent += [
            Sent(began + chance.uniform(0, LONG_S / 2), chance.choice(ABOUT_ILL), node)
            for _ in range(chance.randint(0, 6))
        ]
    for node in names[2:]:
        sent += [Sent(chance.uniform(0, LONG_S), chance.choice(NOISE), node) for _ in range(chance.randint(0, 4))]
    refusals = [one for one in sent if one.kind == "its host refuses"]
    sent += [Sent(one.at + chance.uniform(MINUTE, 8 * MINUTE), AGAIN, one.node) for one in refusals]
    return tuple(sorted(sent, key=lambda one: one.at))


def kept() -> Mapping[int, tuple[Sent, ...]]:
    """Return schedules that once broke a rule, by the seed that drew them then."""
    found = json.loads(Path(__file__).with_name("kept_schedules.json").read_text())
    return {int(seed): tuple([Sent(*one) for one in sent]) for seed, sent in found.items()}


def play(schedule: tuple[Sent, ...], *, on_disk: bool = False, whole: bool = False) -> Played:
    """Play a schedule and return what came of it.

    `on_disk`: with a ledger of SQLite in place of one in memory, as it costs as much again. `whole`: with all of the
    hour before the first signal and of the hour after the last, in which mostly nothing happens.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as where, _drawn_from(schedule):
        here = Signals(Path(where), **({} if on_disk else {"store": lambda _where: MemoryLedger("memory")}))
        try:
            return _play(here, schedule, whole=whole)
        finally:
            here.ledger.close()


@contextmanager
def _drawn_from(schedule: tuple[Sent, ...]) -> Iterator[None]:
    """Have the loop draw its intervals from the schedule, which is played the same way each time then."""
    before = random.getstate()
    random.seed(repr(schedule))
    try:
        yield
    finally:
        random.setstate(before)


def _play(here: Signals, schedule: tuple[Sent, ...], *, whole: bool) -> Played:
    broken: set[str] = set()
    gone: dict[str, float] = {}

    async def work() -> None:
        began = here.clock.elapsed
        if schedule and not whole:
            began -= max(schedule[0].at - BEFORE_S, 0.0)
        for one in schedule:
            await here.clock.sleep(max(began + one.at - here.clock.elapsed, 0.0))
            KINDS[one.kind](here, one.node)
            if one.kind in LASTS and here.machine(one.node).fault(LASTS[one.kind]) is not None:
                gone.setdefault(one.node, here.clock.elapsed)
            broken.update(_schedulable(here, gone))
        calm = None if whole else max((here.clock.elapsed, *(at + ISOLATE_S for at in gone.values())))
        await _settle(here, began + LONG_S + HOUR, calm, lambda: broken.update(_schedulable(here, gone)))

    here.go(None, work)
    broken.update(_treated_in_vain(here, schedule), _climbed(here), _untold(here), _gated_in_vain(here, schedule))
    attempts = [one for name in here.fleet.nodes for one in here.ledger.node(name).attempts]
    isolated = sum(one.action == "mark" and one.cause.startswith(ISOLATED) for one in attempts)
    return Played(tuple(sorted(broken)), isolated, sum(map(_is_rung, attempts)), len(here.receiver.taken))


async def _settle(here: Signals, end: float, calm: float | None, look: Callable[[], None]) -> None:
    """Let time pass until the end, or until nothing has been done since `calm` for long enough."""
    done: object = None
    while here.clock.elapsed < end:
        await here.clock.sleep(OFTEN_S)
        look()
        if calm is None:
            continue
        if (now := here.done()) != done or not here.waits_for_people:
            done, calm = now, max(calm, here.clock.elapsed)
        elif here.clock.elapsed > calm + CALM_S:
            return


def _schedulable(here: Signals, gone: dict[str, float]) -> list[str]:
    """Name the nodes that serve with evidence that stays. What nobody could read begins to count when it can be."""
    for name in gone:
        machine = here.machine(name)
        by_bmc_alone = machine.fault(BY_BMC) is not None and machine.fault("xid_79") is None
        if by_bmc_alone and any(machine.fault(one) is not None for one in UNREAD):
            gone[name] = here.clock.elapsed
    late = [name for name, at in gone.items() if here.clock.elapsed > at + ISOLATE_S and here.serves(name)]
    return [f"{name} is schedulable, with evidence that stays" for name in late]


def _treated_in_vain(here: Signals, schedule: tuple[Sent, ...]) -> list[str]:
    ill = {one.node for one in schedule if one.kind not in (*NOISE, AGAIN)}
    found = []
    for name in sorted(here.fleet.nodes.keys() - ill):
        done = [a.action for a in here.ledger.node(name).attempts if a.cause.startswith(FOR_ILLNESS) or _is_rung(a)]
        found += [f"{name} is well, and was treated: {', '.join(done)}"] if done else []
    return found


def _is_rung(attempt: object) -> bool:
    return getattr(attempt, "cause", "") == REMEDIATION


def _climbed(here: Signals) -> list[str]:
    found = []
    for name in here.fleet.nodes:
        attempts = here.ledger.node(name).attempts
        for rung in LADDER:
            times = sum(one.action == rung.action and _is_rung(one) and one.outcome != "refused" for one in attempts)
            found += [f"{name}: {rung.action} {times} times, {rung.attempts} allowed"] if times > rung.attempts else []
    return found


def _gated_in_vain(here: Signals, schedule: tuple[Sent, ...]) -> list[str]:
    """A clock that is set back makes a certificate one of later: that costs a node that is out one gate."""
    allowed, found = sum(one.kind == "the clock jumps" for one in schedule), []
    for name in here.fleet.nodes:
        again, passed = 0, False  # and nothing was done since but to put it to use
        for one in here.ledger.node(name).attempts:
            if one.action == "run_gate" and one.outcome == "done":
                again, passed = again + passed, True
            elif one.action not in TO_USE:
                passed = False
        found += [f"{name} was tested {again} times for nothing"] if again > allowed else []
    return found


def _untold(here: Signals) -> list[str]:
    titles = " ".join(f"{message.title} {message.body}" for _, message in here.receiver.taken)
    isolated = [
        name
        for name in here.fleet.nodes
        if any(one.action == "mark" and one.cause.startswith(ISOLATED) for one in here.ledger.node(name).attempts)
    ]
    return [f"{name} was isolated, and nobody was told" for name in isolated if name not in titles]
