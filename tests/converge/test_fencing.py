"""A runner that lost its lease writes nothing more, and no two write to one BMC at once, as the hardware sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.lease import TTL_REAL_S
from reconciler.converge.run import Ended
from reconciler.drivers.ledger import SqlLedger
from reconciler.model.desired import Desired
from reconciler.model.errors import LeaseHeld, LedgerError
from reconciler.model.outcome import Done, Transient
from tests.converge.world import World

Worlds = Callable[..., World]
Write = tuple[str, str]  # node or "cluster", verb

_READS = frozenset({
    "hot", "inventory", "media", "task", "tasks", "close", "facts", "state", "member", "scaled_by", "read",
})  # fmt: skip
ALL = {"n0": ["old_image", "bios_off", {"old_firmware": {"component": "nic0"}}, "missing_label"]}


class Scribe:
    """The fabric of a world: every write is written down as it begins. `after`: called when the nth is over."""

    def __init__(self, here: World, after: Callable[[int], None] = lambda _: None) -> None:
        self.writes: list[Write] = []
        self.under_way: list[Write] = []
        self.together: list[tuple[Write, Write]] = []  # at one BMC
        self._after = after
        self._fabric = here.fabric
        here.fabric = self  # type: ignore[assignment]  # a Fabric by structure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def bmc(self, desired: Desired) -> Any:
        return _Port(self._fabric.bmc(desired), self, str(desired.endpoints.bmc))

    def host(self, desired: Desired) -> Any:
        return _Port(self._fabric.host(desired), self, str(desired.endpoints.host))

    def cluster(self) -> Any:
        return _Port(self._fabric.cluster(), self, "cluster")

    @contextmanager
    def writing(self, where: str, verb: str) -> Iterator[None]:
        write = (where, verb)
        self.together += [(write, other) for other in self.under_way if other[0] == where]
        self.writes.append(write)
        self.under_way.append(write)
        number = len(self.writes)
        try:
            yield
        finally:
            self.under_way.remove(write)
        self._after(number)


class _Port:
    def __init__(self, port: Any, scribe: Scribe, where: str) -> None:
        self._port = port
        self._scribe = scribe
        self._where = where

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._port, name)
        if name in _READS:
            return call
        if name == "adjustments":  # a port of the port
            return lambda: _Port(call(), self._scribe, self._where)

        async def write(*args: Any, **options: Any) -> Any:
            with self._scribe.writing(self._where, name):
                return await call(*args, **options)

        return write


def robbed(here: World) -> None:
    """An operator takes the lease away, over a connection of his own."""
    book = SqlLedger(here.where / "ledger.sqlite")
    (fleet,) = [lease for lease in book.leases() if not lease.scope.startswith("bmc/")]
    book.take_away(fleet.token, "ops", here.clock.now())
    book.close()


def asleep(here: World) -> None:
    """The process is stopped for longer than its lease."""
    here.clock.elapsed += TTL_REAL_S + 1


@pytest.fixture
def whole(world: Worlds) -> tuple[int, Any]:
    """Count the writes of an undisturbed run, and what they do to the hardware."""
    here = world(nodes=1, drift=ALL)
    scribe = Scribe(here)
    assert here.apply().results["n0"].state is Ended.DONE
    here.ledger.close()
    for file in here.where.glob("ledger.sqlite*"):
        file.unlink()
    return len(scribe.writes), lasting(here)


def lasting(here: World) -> list[tuple[int, int, int]]:
    """Count what must not be done twice. Reading a node that was left powered off takes one more boot."""
    counted = [here.machine(name).state.counters for name in here.fleet.nodes]
    return [(one.installs, one.flashes, one.killed_work) for one in counted]


@pytest.mark.parametrize("loss", [robbed, asleep])
def test_after_the_loss_of_the_lease_nothing_is_written_and_the_next_run_goes_on(
    world: Worlds, whole: tuple[int, Any], loss: Callable[[World], None]
) -> None:
    """After each third of the writes that an apply makes, from marking to admission."""
    for last in range(1, whole[0], 3):
        here = world(nodes=1, drift=ALL)
        scribe = Scribe(here, lambda number, last=last, here=here: loss(here) if number == last else None)  # type: ignore[misc]  # defaults bind
        with pytest.raises(LeaseHeld, match="the lease on "):
            here.apply()
        assert len(scribe.writes) == last, scribe.writes[last - 1 :]
        assert here.ledger.leases() == []
        done = here.apply()
        assert done.results["n0"].state in (Ended.DONE, Ended.CONVERGED), (last, done.results)
        assert here.serves("n0")
        assert lasting(here) == whole[1], f"after write {last}, {scribe.writes[last - 1]}"
        here.ledger.close()
        for file in here.where.glob("ledger.sqlite*"):
            file.unlink()


def test_two_fleets_that_name_the_same_bmcs_never_write_to_one_at_once(world: Worlds) -> None:
    """Both have one ledger. Whoever finds a BMC in use leaves it, and comes back for what is to be done then."""
    here = world(nodes=3, drift={"n*": ["bios_off", {"old_firmware": {"component": "nic0"}}]})
    here.adopt()
    scribe = Scribe(here)
    ledger = here.ledger
    west = replace(here.fleet, settings=replace(here.fleet.settings, fleet="west"))

    async def both() -> None:
        first = asyncio.create_task(here.applying(wait_s=20_000.0))
        await here.clock.sleep(5)
        here.ledger = SqlLedger(here.where / "ledger.sqlite")  # as another process has one of its own
        await here.applying(wait_s=20_000.0, fleet=west)
        await first
        here.ledger.close()

    here.run(both())
    here.ledger = ledger
    assert [pair for pair in scribe.together if pair[0][0].startswith("https://bmc-")] == []
    assert lasting(here) == [(0, 1, 0)] * 3
    assert ledger.leases() == []
    here.apply()
    assert all(here.serves(name) for name in here.fleet.nodes)
    story = [entry.detail for name in here.fleet.nodes for entry in ledger.history(name)]
    assert any("is being written by runner-" in detail for detail in story), "it never came to it"


def test_an_action_that_finds_its_bmc_in_use_is_transient_and_names_who_uses_it(world: Worlds) -> None:
    here = world(nodes=1, drift=ALL)
    scribe = Scribe(here)
    here.ledger.acquire("bmc/bmc-0", "somebody, run-7", 300.0, here.clock.now())
    outcome = here.act("power_cycle")
    assert isinstance(outcome, Transient)
    assert outcome.detail.startswith("bmc/bmc-0 is being written by somebody, run-7, until ")
    assert outcome.retry_after_s
    assert [write for write in scribe.writes if write[0] != "cluster"] == []
    here.clock.elapsed += 301
    assert isinstance(here.act("power_cycle"), Done), "it was never given back, and has run out"


def test_a_bmc_is_kept_for_as_long_as_an_action_takes_and_free_after_it(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": [{"old_firmware": {"component": "nic0"}}]})
    here.adopt()

    async def watched() -> None:
        working = asyncio.create_task(here.applying())
        await here.started("update_firmware")
        began, free = here.clock.now(), timedelta()
        while not any(entry.action == "update_firmware:nic0" for entry in outcomes(here)):
            if here.ledger.holder("bmc/bmc-0", here.clock.now()) is None:
                free = here.clock.now() - began
            await here.clock.sleep(5)
        assert here.clock.now() - began > timedelta(seconds=3 * TTL_REAL_S)
        assert free < timedelta(seconds=30), "until its first write alone"
        await working

    here.run(watched())
    assert here.ledger.leases() == []


def outcomes(here: World) -> list[Any]:
    return [entry for entry in here.ledger.history("n0") if entry.event == "outcome"]


def test_a_ledger_that_fails_in_the_middle_parks_all_and_the_next_run_goes_on(world: Worlds, whole: Any) -> None:
    """The outcome of an action can't be written: it stays open, and is found out by looking."""
    del whole
    here = world(nodes=3, drift={"n*": ["bios_off"]})
    here.adopt()
    truth = here.ledger

    class Full(SqlLedger):
        """Out of space when the first restart is over."""

        def finish(self, attempt: int, outcome: str, detail: str, now: Any) -> None:
            if any(event.action.name == "soft_restart" for event in here.events if hasattr(event, "action")
                   and not isinstance(event.action, str)):  # fmt: skip
                raise LedgerError("the ledger can't be written, the disk is full")
            super().finish(attempt, outcome, detail, now)

    here.ledger = Full(here.where / "ledger.sqlite")
    with pytest.raises(LedgerError, match="disk is full"):
        here.apply()
    here.ledger.close()
    here.ledger = truth
    left = {(node, action) for _, node, action, _, _ in truth.unfinished()}
    assert {node for node, _ in left} == set(here.fleet.nodes), "what the others had in hand is open too"
    assert truth.leases() == []
    done = here.apply()
    assert {result.state for result in done.results.values()} <= {Ended.DONE, Ended.CONVERGED}
    assert {here.machine(name).state.counters.boots for name in here.fleet.nodes} == {1}, "no restart was repeated"
    assert truth.unfinished() == []
