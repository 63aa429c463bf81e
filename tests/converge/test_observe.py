"""A pass has a result for every node, whatever happens to its sources, and reads no more than it has to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reconciler.converge.events import Event, NodeObserved, PassEnded
from reconciler.converge.node_readings import SLOW_DOUBT_S
from reconciler.converge.observe import IN_DOUBT_S, OFF_GRACE_S, observe, observe_node
from reconciler.model.desired import Desired, Endpoints
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.vocab import Health, UnknownReason
from tests.converge.world import World, desired_node, fleet_of

Worlds = Callable[..., World]


def test_a_healthy_fleet_answers_from_every_source(world: Worlds) -> None:
    seen = world(nodes=3).observe()
    assert list(seen.nodes) == ["n0", "n1", "n2"]
    for node in seen.nodes.values():
        for reading in (node.hot, node.inventory, node.host, node.member):
            assert isinstance(reading, Answered)
    assert seen.cluster_version
    assert seen.kubectl_version
    assert seen.spec_commit == "c0ffee"


@pytest.mark.parametrize(
    ("fault", "source", "reason"),
    [
        ("bmc_unreachable", "hot", UnknownReason.UNREACHABLE),
        ("bmc_wrong_password", "hot", UnknownReason.AUTH),
        ("bmc_garbage", "hot", UnknownReason.MALFORMED),
        ("ssh_refused", "host", UnknownReason.UNREACHABLE),
        ("ssh_hang", "host", UnknownReason.TIMEOUT),
    ],
)
def test_a_fault_costs_its_own_source_of_its_own_node(
    world: Worlds, fault: str, source: str, reason: UnknownReason
) -> None:
    seen = world(nodes=3, faults={"n1": {fault: {}}}).observe()
    silent = getattr(seen.nodes["n1"], source)
    assert isinstance(silent, Silent)
    assert silent.reason is reason
    assert isinstance(getattr(seen.nodes["n1"], "host" if source == "hot" else "hot"), Answered)
    for other in ("n0", "n2"):
        assert isinstance(getattr(seen.nodes[other], source), Answered)


def test_a_bmc_that_does_not_answer_is_not_asked_for_its_inventory(world: Worlds) -> None:
    seen = world(nodes=1, faults={"n0": {"bmc_unreachable": {}}}).observe()
    assert seen.nodes["n0"].inventory == seen.nodes["n0"].hot


class Hangs:
    """A fabric whose hosts never answer, and whose first BMC is cut off in the middle."""

    def __init__(self, world: World) -> None:
        self._fabric = world.fabric

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fabric, name)

    def host(self, *_: object) -> Any:
        return self

    async def facts(self, *_: object) -> Any:
        await asyncio.Event().wait()

    def bmc(self, desired: Desired) -> Any:
        return self if desired.node == "n0" else self._fabric.bmc(desired)

    async def hot(self) -> Any:
        raise asyncio.CancelledError


def test_a_source_that_hangs_ends_at_its_deadline_and_one_cut_off_is_silent(world: Worlds) -> None:
    here = world(nodes=2)
    here.run(asyncio.sleep(1))
    before = here.clock.elapsed
    seen = here.run(observe(here.fleet, ["n0", "n1"], Hangs(here), here.clock))
    assert here.clock.elapsed - before == pytest.approx(30, abs=1)
    for node in seen.nodes.values():
        assert isinstance(node.host, Silent)
        assert node.host.reason is UnknownReason.TIMEOUT
    cut = seen.nodes["n0"].hot
    assert isinstance(cut, Silent)
    assert "cut off" in cut.detail
    assert isinstance(seen.nodes["n1"].hot, Answered)


def test_cancelling_the_pass_cancels_it(world: Worlds) -> None:
    here = world(nodes=1)

    async def cancelled() -> bool:
        task = asyncio.create_task(observe(here.fleet, ["n0"], Hangs(here), here.clock))
        await asyncio.sleep(5)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    assert here.run(cancelled())


def test_a_defect_of_ours_is_not_taken_for_an_answer(world: Worlds) -> None:
    here = world(nodes=1)

    class Broken(Hangs):
        async def hot(self) -> Any:
            raise KeyError("ours")

    hot = here.run(observe(here.fleet, ["n0"], Broken(here), here.clock)).nodes["n0"].hot
    assert isinstance(hot, Silent)
    assert hot.reason is UnknownReason.CRASHED
    assert "KeyError: 'ours'" in hot.detail


# --- silence with a known cause --------------------------------------------------------------------------------------


def test_a_machine_that_is_off_explains_its_silence(world: Worlds) -> None:
    host = world(nodes=1, drift={"n0": ["powered_off"]}).observe().nodes["n0"].host
    assert isinstance(host, Silent)
    assert (host.reason, host.detail) == (UnknownReason.EXPLAINED, "powered off")


def test_a_machine_that_is_off_is_not_waited_for(world: Worlds) -> None:
    here = world(nodes=1, drift={"n0": ["powered_off"]})
    here.run(asyncio.sleep(1))
    before = here.clock.elapsed
    assert isinstance(here.observe().nodes["n0"].hot, Answered)
    assert here.clock.elapsed - before < OFF_GRACE_S + 1  # SSH gives an address without a machine ten seconds


class Hears:
    """A host of whose machine the BMC says that it is off: it takes a while to accept, and longer to answer."""

    def __init__(self, facts: Any, accepts_s: float) -> None:
        self._facts, self._accepts_s, self.reached = facts, accepts_s, False

    async def facts(self, *_: object) -> Any:
        await asyncio.sleep(self._accepts_s)
        self.reached = True
        await asyncio.sleep(15)
        return self._facts


@pytest.mark.parametrize(("accepts_s", "answers"), [(0.6 * OFF_GRACE_S, True), (5 * OFF_GRACE_S, False)])
def test_a_host_that_its_bmc_calls_off_wins_if_it_accepts_connections(
    world: Worlds, accepts_s: float, answers: bool
) -> None:
    up = world(nodes=1).observe().nodes["n0"].host
    here = world(nodes=1, drift={"n0": ["powered_off"]})

    class Lies(Hangs):
        def host(self, *_: object) -> Any:
            return Hears(up, accepts_s)

        def bmc(self, desired: Desired) -> Any:
            return self._fabric.bmc(desired)

    host = here.run(observe(here.fleet, ["n0"], Lies(here), here.clock)).nodes["n0"].host
    assert isinstance(host, Answered) is answers
    if isinstance(host, Silent):
        assert (host.reason, host.detail) == (UnknownReason.EXPLAINED, "powered off")


def test_a_machine_in_post_explains_its_silence(world: Worlds) -> None:
    here = world(nodes=1)
    here.machine("n0").power("force_restart")
    host = here.observe().nodes["n0"].host
    assert isinstance(host, Silent)
    assert (host.reason, host.detail) == (UnknownReason.EXPLAINED, "in post")


def test_what_the_spec_does_not_name_is_not_asked(world: Worlds) -> None:
    here = world(nodes=0, cluster=False)
    fleet = fleet_of([desired_node("n0", 0, endpoints=Endpoints(None, None))], cluster=False)
    node = here.run(observe(fleet, ["n0"], here.fabric, here.clock)).nodes["n0"]
    for reading in (node.hot, node.inventory, node.host, node.member):
        assert isinstance(reading, Silent)
        assert reading.reason is UnknownReason.NOT_ASKED


# --- the cluster -----------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_down_is_silence_for_every_node(world: Worlds) -> None:
    here = world(nodes=2)
    assert here.lab.cluster is not None
    here.lab.cluster.down = True
    seen = here.observe()
    assert all(isinstance(node.member, Silent) for node in seen.nodes.values())
    assert all(isinstance(node.host, Answered) for node in seen.nodes.values())
    node = here.run(observe_node(here.fleet.nodes["n0"], here.fabric, here.clock, here.fleet.settings))
    assert isinstance(node.member, Silent)


def test_a_node_that_is_no_member_is_known_to_be_none(world: Worlds) -> None:
    member = world(nodes=1, drift={"n0": ["not_a_member"]}).observe().nodes["n0"].member
    assert isinstance(member, Answered)
    assert member.value is None


def test_of_nodes_that_are_not_selected_only_the_membership_is_read(world: Worlds) -> None:
    here = world(nodes=3)
    seen = here.run(observe(here.fleet, ["n1"], here.fabric, here.clock))
    assert set(seen.nodes) == {"n0", "n1", "n2"}
    assert isinstance(seen.nodes["n1"].host, Answered)
    assert isinstance(seen.nodes["n0"].host, Silent)
    assert isinstance(seen.nodes["n0"].member, Answered)


# --- inventory, only when due ----------------------------------------------------------------------------------------


def test_the_inventory_is_kept_while_nothing_says_that_it_changed(world: Worlds) -> None:
    here = world(nodes=1)
    first = here.observe()
    here.clock.elapsed += 600
    again = here.observe(previous=first).nodes["n0"]
    assert again.inventory is first.nodes["n0"].inventory
    assert again.hot != first.nodes["n0"].hot


@pytest.mark.parametrize("why", ["etag", "age", "fresh", "first sight", "silent before"])
def test_the_inventory_is_read_when_it_is_due(world: Worlds, why: str) -> None:
    here = world(nodes=1)
    first = here.observe()
    if why == "etag":
        here.machine("n0").set_boot_order(["Pxe", "Hdd"])
    if why == "silent before":
        silent = Silent(here.clock.now(), UnknownReason.TIMEOUT)
        first = replace(first, nodes={"n0": replace(first.nodes["n0"], hot=silent)})
    here.clock.elapsed += 2 * 86400 if why == "age" else 600
    seen = here.observe(previous=None if why == "first sight" else first, fresh_inventory=why == "fresh")
    inventory = seen.nodes["n0"].inventory
    assert isinstance(inventory, Answered)
    assert inventory.at > first.finished_at


@pytest.mark.parametrize(("hangs", "other"), [("bmc", "host"), ("host", "bmc")])
def test_a_bmc_and_a_host_do_not_wait_for_each_other(world: Worlds, hangs: str, other: str) -> None:
    """Pitfall I7: neither a hung host nor a hung BMC delays what the other says, in any node."""
    here = world(nodes=3)
    began = here.clock.now()
    answered: list[float] = []

    class OneHangs(Hangs):
        def cluster(self) -> None:
            return None

        def host(self, *_: object) -> Any:
            return self._port("host")

        def bmc(self, *_: object) -> Any:
            return self._port("bmc")

        def _port(self, kind: str) -> Any:
            return self if kind == hangs else Answers()

        async def facts(self, *_: object) -> Any:
            await asyncio.sleep(3600)

        hot = inventory = facts

    class Answers:
        async def facts(self, *_: object) -> Any:
            answered.append((here.clock.now() - began).total_seconds())
            return Silent(here.clock.now(), UnknownReason.AUTH)

        hot = facts

    here.run(observe(here.fleet, list(here.fleet.nodes), OneHangs(here), here.clock))
    assert answered == pytest.approx([0.0] * 3, abs=1.0), other


def test_the_boot_order_is_read_again_after_every_boot(world: Worlds) -> None:
    """Pitfall D7: firmware and systems change it in a boot, and not every BMC shows that in its ETag."""
    here = world(nodes=1)
    first = here.observe()
    state, before = here.machine("n0").state, here.machine("n0").state.etag
    here.machine("n0").power("force_restart")
    here.clock.elapsed += 3600
    here.machine("n0").catch_up()
    state.boot_order.reverse()
    state.etag = before
    inventory = here.observe(previous=first).nodes["n0"].inventory
    assert isinstance(inventory, Answered)
    assert inventory.value.boot_order == ("Pxe", "Hdd")


@pytest.mark.parametrize("turned", ["ill", "well again"])
def test_a_changed_roll_up_makes_the_inventory_due(world: Worlds, turned: str) -> None:
    """Its details are told now, and not a day later, whatever the ETag says."""
    here = world(nodes=1)
    if turned == "well again":
        here.machine("n0").inject("failed_part", part="dimm", index=3)
    first = here.observe()
    before = here.machine("n0").state.etag
    if turned == "ill":
        here.machine("n0").inject("failed_part", part="dimm", index=3)
    else:
        here.machine("n0").clear("failed_part")
    here.machine("n0").state.etag = before
    here.clock.elapsed += 60
    inventory = here.observe(previous=first).nodes["n0"].inventory
    assert isinstance(inventory, Answered)
    assert inventory.at > first.finished_at
    critical = {(part.kind, part.id) for part in inventory.value.parts or () if part.health is Health.CRITICAL}
    assert critical == ({("dimm", "4"), ("chassis", "1")} if turned == "ill" else set())


@pytest.mark.parametrize(
    "fault",
    [{"part": "psu"}, {"part": "drive", "index": 1, "how": "missing"}, {"part": "dimm", "how": "logged"}],
    ids=str,
)
def test_an_inventory_that_says_that_something_is_wrong_is_read_again_soon(
    world: Worlds, fault: dict[str, Any]
) -> None:
    """Isolating takes two reads, and a repair must be noticed; but a BMC is not asked in each pass (A12)."""
    here = world(nodes=1)
    here.machine("n0").inject("failed_part", **fault)
    first = here.observe()
    here.clock.elapsed += 60
    soon = here.observe(previous=first)
    assert soon.nodes["n0"].inventory is first.nodes["n0"].inventory
    here.clock.elapsed += IN_DOUBT_S
    later = here.observe(previous=soon).nodes["n0"].inventory
    assert isinstance(later, Answered)
    assert later.at > first.finished_at


def test_a_bmc_that_only_warns_has_its_inventory_read_each_hour(world: Worlds) -> None:
    """Its roll-up may stay at a warning for months, and what changes it has the inventory read at once (A12)."""
    here = world(nodes=1)
    here.machine("n0").state.drives[0].media_errors = 3
    first = here.observe()
    hot = first.nodes["n0"].hot
    assert isinstance(hot, Answered)
    assert hot.value.health is Health.WARNING
    here.clock.elapsed += IN_DOUBT_S + 60
    assert here.observe(previous=first).nodes["n0"].inventory is first.nodes["n0"].inventory
    here.clock.elapsed += SLOW_DOUBT_S
    assert here.observe(previous=first).nodes["n0"].inventory is not first.nodes["n0"].inventory


def test_concurrency_is_bounded(world: Worlds) -> None:
    here = world(nodes=12, settings={"concurrency": 3})
    at_once, most = 0, 0

    class Counting(Hangs):
        def host(self, *_: object) -> Any:
            return self

        def bmc(self, *_: object) -> None:
            return None

        async def facts(self, *_: object) -> Any:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(1)
            at_once -= 1
            return Silent(here.clock.now(), UnknownReason.UNREACHABLE)

    here.run(observe(here.fleet, list(here.fleet.nodes), Counting(here), here.clock))
    assert most == 3


def test_progress_counts_up_to_all(world: Worlds) -> None:
    events: list[Event] = []
    world(nodes=3).observe(progress=events.append)
    assert [event.done for event in events if isinstance(event, NodeObserved)] == [1, 2, 3]


def test_the_end_of_a_pass_says_who_did_not_answer_and_why(world: Worlds) -> None:
    """One that is off explains its silence, and is no trouble."""
    here = world(nodes=4, drift={"n3": ["powered_off"]})
    for name in ("n0", "n1"):
        here.machine(name).inject("bmc_unreachable")
    here.machine("n0").inject("ssh_refused")
    events: list[Event] = []
    here.observe(progress=events.append)
    [end] = [event for event in events if isinstance(event, PassEnded)]
    assert events[-1] is end
    found = {(one.source, one.reason): one for one in end.silent}
    assert {key: one.nodes for key, one in found.items()} == {
        ("redfish", UnknownReason.UNREACHABLE): ("n0", "n1"), ("ssh", UnknownReason.UNREACHABLE): ("n0",),
    }  # fmt: skip
    assert all(one.detail in one.explained() and one.detail for one in end.silent)


def test_a_member_read_that_fails_is_silence_with_its_reason(world: Worlds) -> None:
    here = world(nodes=1)

    class Forbidden(Hangs):
        def cluster(self) -> Any:
            return self

        async def member(self, *_: object) -> Any:
            raise DriverError(Failure.AUTH, "nodes is forbidden")

        def host(self, *_: object) -> None:
            return None

        def bmc(self, *_: object) -> None:
            return None

    node = here.run(observe_node(here.fleet.nodes["n0"], Forbidden(here), here.clock, here.fleet.settings))
    assert isinstance(node.member, Silent)
    assert (node.member.reason, node.member.detail) == (UnknownReason.AUTH, "nodes is forbidden")
