"""The in-process ports: reads give the machine's state, writes change it, and faults look as on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from reconciler.drivers.ssh.facts import host_facts as driver_host_facts
from reconciler.drivers.ssh.facts import requests
from reconciler.lab.fleet import Lab, build_lab
from reconciler.lab.hardware.gpu_cells import CELLS
from reconciler.lab.hardware.kernel_log import EVENTS
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.inprocess.facts import host_facts
from reconciler.lab.inprocess.virtual_time import EPOCH
from reconciler.lab.scenario import load_scenario
from reconciler.lab.wire import facts as wire_facts
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install_progress import InstallProgress
from reconciler.model.observed import Answered, HostFacts, Member, RedfishHot, RedfishInventory, Silent, Taint
from reconciler.model.ports import FirmwareFile, PowerAction
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, Mark
from reconciler.model.vocab import BootPhase, Health, NewsSource, Power, UnknownReason
from tests.lab.machines import CONTENTS, IMAGE, document, example_fleet

T = TypeVar("T")

NODE = "gpu-a001"
SYSCTLS, SERVICES = ["vm.swappiness"], ["containerd", "kubelet", "not-there"]
MARK = Mark("ledger", "plan", "test", "2027-01-01T00:00:00Z", cordoned=True)


class World:
    """One lab, the ports of one node, and their clock."""

    def __init__(self, scenario: str = "clean") -> None:
        self.clock = VirtualClock()
        self.lab: Lab = build_lab(example_fleet(), load_scenario(scenario), self.clock.seconds, seed=1)
        self.fabric = LabFabric(self.lab, self.clock)
        self.machine = self.lab.machines[NODE]
        desired: Desired = self.lab.fleet.nodes[NODE]
        bmc, host, cluster = self.fabric.bmc(desired), self.fabric.host(desired), self.fabric.cluster()
        assert bmc is not None
        assert host is not None
        assert cluster is not None
        self.bmc, self.host, self.cluster = bmc, host, cluster

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return run_virtual(main, self.clock)

    async def hot(self) -> RedfishHot:
        reading = await self.bmc.hot()
        assert isinstance(reading, Answered)
        return reading.value

    async def inventory(self) -> RedfishInventory:
        reading = await self.bmc.inventory()
        assert isinstance(reading, Answered)
        return reading.value

    async def facts(self) -> HostFacts:
        reading = await self.host.facts(SYSCTLS, SERVICES)
        assert isinstance(reading, Answered)
        return reading.value

    async def member(self) -> Member:
        found = await self.cluster.member(NODE)
        assert found is not None
        return found

    async def refused(self, call: Awaitable[object]) -> DriverError:
        with pytest.raises(DriverError) as error:
            await call
        return error.value


@pytest.fixture
def world() -> World:
    return World()


# --- reads ---


def test_a_healthy_machine_is_read_as_it_is(world: World) -> None:
    async def main() -> None:
        hot, inventory, facts = await world.hot(), await world.inventory(), await world.facts()
        state = world.machine.state
        assert (hot.serial, hot.uuid, hot.power, hot.boot_phase) == (
            state.serial, state.uuid, Power.ON, BootPhase.OS_RUNNING,
        )  # fmt: skip
        assert (hot.pending_bios, hot.tasks, hot.health) == ({}, (), Health.OK)
        assert inventory.bios == state.bios
        assert inventory.firmware is not None
        assert inventory.firmware["NIC0"].version == "28.43.1014"
        assert (len(inventory.drives or ()), len(inventory.nics or ()), inventory.memory_bytes) == (5, 10, 2**41)
        assert (facts.serial, facts.hostname, facts.boot_id) == (state.serial, NODE, world.machine.system().boot_id)
        assert len([link for link in facts.links or () if link.kind == "infiniband" and link.up]) == 8

    world.run(main())


@pytest.mark.parametrize(
    ("node", "fault", "parameters"),
    [
        (NODE, None, {}),
        ("gpu-b001", None, {}),
        (NODE, "xid_79", {"gpu": 3}),
        (NODE, "ecc_errors", {"gpu": 1, "count": 3}),
        (NODE, "nvlink_down", {"gpu": 0, "links": 4}),
        ("gpu-b002", "xid_79", {"gpu": 0}),
        (NODE, "nvlink_slow", {"gpu": 1, "links": 2}),
        (NODE, "smi_doubt", {"status": 15}),
        (NODE, "smi_doubt", {"status": 0, "more": 1}),
        (NODE, "port", {"port": 1, "gbps": 100.0}),
        (NODE, "port", {"port": 2}),
        (NODE, "drive", {"percentage_used": 180, "spare": 1, "critical_warning": 4}),
        (NODE, "drive", {"readable": False}),
        *((NODE, "kernel_event", {"event": event}) for event in EVENTS),
        *((NODE, "gpu_cell", {"cell": cell, "text": list(texts)[-1]}) for cell, texts in CELLS.items()),
        *((NODE, "gpu_cell", {"cell": cell, "text": "ERR!"}) for cell in CELLS),
        *((NODE, "gpu_cell", {"cell": cell, "text": "N/A"}) for cell in CELLS),
        ("gpu-b001", "gpu_cell", {"gpu": 0, "cell": "remap_failed", "text": "ERR!"}),
    ],
)
def test_facts_are_what_the_driver_reads_from_the_same_machine(
    world: World, node: str, fault: str | None, parameters: dict[str, Any]
) -> None:
    """The wire's texts, parsed by the driver, give the same facts as the in-process port."""
    machine = world.lab.machines[node]
    if fault is not None:
        machine.inject(fault, **parameters)
    now = world.clock.seconds()
    answers = {
        asked.name: wire_facts.answer(
            asked.name, FactContext(machine.state, now, EPOCH + timedelta(seconds=now), asked.command)
        )
        for asked in requests(SYSCTLS, SERVICES)
    }
    on_the_wire = driver_host_facts(answers, SYSCTLS, SERVICES)
    in_process = host_facts(machine, SYSCTLS, SERVICES)
    assert replace(in_process, unknown={}) == replace(on_the_wire, unknown={})
    assert {key.split(".")[0] for key in in_process.unknown} == {key.split(".")[0] for key in on_the_wire.unknown}


def test_a_machine_that_is_off_explains_itself(world: World) -> None:
    async def main() -> None:
        await world.bmc.power(PowerAction.FORCE_OFF)
        await asyncio.sleep(10)
        hot, inventory = await world.hot(), await world.inventory()
        assert (hot.power, hot.boot_phase) == (Power.OFF, BootPhase.OFF)
        assert inventory.firmware is not None
        assert set(inventory.firmware) == {"BMC", "BIOS"}  # A10: the NIC's firmware can't be read
        assert "firmware.NIC0" in inventory.unknown
        silent = await world.host.facts([], [])
        assert isinstance(silent, Silent)
        assert silent.reason is UnknownReason.UNREACHABLE
        assert (await world.member()).ready is False
        await world.bmc.power(PowerAction.FORCE_OFF)  # already in the target state: success (A7)

    world.run(main())


@pytest.mark.parametrize(
    ("fault", "reason", "kind"),
    [
        ("bmc_unreachable", UnknownReason.UNREACHABLE, Failure.UNREACHABLE),
        ("bmc_wrong_password", UnknownReason.AUTH, Failure.AUTH),
        ("bmc_garbage", UnknownReason.MALFORMED, Failure.MALFORMED),
    ],
)
def test_transport_faults_of_the_bmc(world: World, fault: str, reason: UnknownReason, kind: Failure) -> None:
    async def main() -> None:
        world.machine.inject(fault)
        for read in (world.bmc.hot, world.bmc.inventory):
            reading = await read()
            assert isinstance(reading, Silent)
            assert reading.reason is reason
        assert (await world.refused(world.bmc.power(PowerAction.ON))).kind is kind
        assert (await world.refused(world.bmc.media())).kind is kind

    world.run(main())


def test_a_burst_of_503_is_outlived_and_a_long_one_is_busy(world: World) -> None:
    async def main() -> None:
        world.machine.inject("bmc_503", times=3)
        assert (await world.hot()).power is Power.ON
        world.machine.inject("bmc_503", times=9)
        assert (await world.refused(world.bmc.clear_bios())).kind is Failure.BUSY

    world.run(main())


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("ssh_refused", UnknownReason.UNREACHABLE),
        ("ssh_hang", UnknownReason.TIMEOUT),
        ("host_hung", UnknownReason.TIMEOUT),
    ],
)
def test_faults_of_ssh(world: World, fault: str, reason: UnknownReason) -> None:
    async def main() -> None:
        world.machine.inject(fault)
        reading = await world.host.facts([], [])
        assert isinstance(reading, Silent)
        assert reading.reason is reason
        error = await world.refused(world.host.run(["true"], timeout=5))
        assert error.kind.value == reason.value

    world.run(main())


def test_another_machine_behind_the_bmc(world: World) -> None:
    world.machine.inject("wrong_machine", serial="S-OTHER")
    assert world.run(world.hot()).serial == "S-OTHER"


# --- writes through Redfish ---


def test_settings_wait_for_a_boot(world: World) -> None:
    async def main() -> None:
        await world.bmc.stage_bios({"SriovGlobalEnable": "Disabled"})
        await world.bmc.set_boot_order(["Pxe"])
        assert (await world.hot()).pending_bios == {"SriovGlobalEnable": "Disabled"}
        assert (await world.inventory()).boot_order == ("Pxe", "Hdd")
        world.machine.power("graceful_restart")
        await asyncio.sleep(600)
        inventory = await world.inventory()
        assert inventory.bios is not None
        assert inventory.bios["SriovGlobalEnable"] == "Disabled"
        assert (await world.hot()).pending_bios == {}

    world.run(main())


def test_refusals_have_their_kinds(world: World) -> None:
    async def main() -> None:
        bmc = world.bmc
        assert (await world.refused(bmc.stage_bios({"SriovGlobalEnable": "maybe"}))).kind is Failure.REJECTED
        assert (await world.refused(bmc.update_firmware("CPLD", FirmwareFile("http://x")))).kind is Failure.REJECTED
        world.machine.power("graceful_restart")
        await asyncio.sleep(60)
        in_post = await world.refused(bmc.boot_once("cd"))
        assert (in_post.kind, in_post.retry_after) == (Failure.BUSY, 5.0)  # A8
        await bmc.insert_media("http://x/boot.iso")
        assert (await world.refused(bmc.insert_media("http://y/boot.iso"))).kind is Failure.BUSY
        assert await bmc.media() == "http://x/boot.iso"

    world.run(main())


def test_a_firmware_update_is_a_task(world: World) -> None:
    async def main() -> None:
        uri = await world.bmc.update_firmware("BIOS", FirmwareFile("https://firmware.example.com/bios-2.4.bin"))
        running = await world.bmc.task(uri)
        assert running is not None
        assert (running.done, running.ok) == (False, None)
        assert [task.uri for task in (await world.hot()).tasks or ()] == [uri]
        await asyncio.sleep(8 * 60)
        ended = await world.bmc.task(uri)
        assert ended is not None
        assert (ended.done, ended.ok, ended.percent) == (True, True, 100)
        assert (await world.hot()).tasks == ()
        assert await world.bmc.task(uri + "9") is None

    world.run(main())


def test_a_reset_bmc_is_away_for_a_while(world: World) -> None:
    async def main() -> None:
        await world.bmc.reset()
        assert isinstance(await world.bmc.hot(), Silent)
        await asyncio.sleep(120)
        await world.hot()

    world.run(main())


def test_a_reimage_end_to_end(world: World) -> None:
    async def main() -> None:
        installer = world.fabric.installer()
        assert installer is not None
        world.lab.images[IMAGE] = CONTENTS
        url = await installer.publish("token-1", document(world.machine), None)
        assert await installer.progress("token-1") == InstallProgress(EPOCH)
        await world.bmc.insert_media(url)
        await world.bmc.boot_once("cd")
        world.machine.power("graceful_restart")
        await asyncio.sleep(350)
        half = await installer.progress("token-1")
        assert (half.fetched, half.phase, half.percent, half.detail) == (True, "writing", 40, "33 MB/s")
        await asyncio.sleep(550)
        assert (await installer.progress("token-1")).ended
        await world.bmc.eject_media()
        await world.bmc.power(PowerAction.ON)
        await asyncio.sleep(300)
        facts = await world.facts()
        assert facts.image is not None
        assert (facts.image.version, facts.image.nonce, facts.kernel) == ("2027.01.0", "n-1", "6.11.0-1")
        assert facts.image.booted_disk == facts.image.root_disk
        await installer.withdraw("token-1")
        assert world.lab.installs.attempts == {}
        assert (await world.host.run(["systemctl", "enable", "--now", "kubelet"], timeout=30)).exit_status == 0
        await asyncio.sleep(60)
        assert (await world.member()).ready is True

    world.run(main())


# --- commands ---


def test_commands_take_their_time_and_are_killed_at_their_deadline(world: World) -> None:
    async def main() -> None:
        begun = world.clock.seconds()
        result = await world.host.run(["dcgmi", "diag", "-r", "2", "-j"], timeout=600)
        assert result.exit_status == 0
        assert world.clock.seconds() - begun > 100
        killed = await world.host.run(["sleep", "1000"], timeout=60)
        assert (killed.timed_out, killed.exit_status) == (True, -1)
        missing = await world.host.run(["nope"], timeout=60)
        assert missing.exit_status == 127

    world.run(main())


def test_a_command_whose_system_goes_down_is_ambiguous(world: World) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(world.refused(world.host.run(["sleep", "500"], timeout=900)))
            await asyncio.sleep(100)
            assert (await world.host.run(["systemctl", "reboot"], timeout=30)).exit_status == 0
        assert lost.result().kind is Failure.AMBIGUOUS

    world.run(main())


# --- the cluster ---


def test_marks_labels_and_conflicts(world: World) -> None:
    async def main() -> None:
        before = await world.member()
        await world.cluster.mark(before, MARK)
        marked = await world.member()
        assert marked.unschedulable
        assert Taint(MARK_TAINT, "", "NoSchedule") in marked.taints
        assert OWNER_ANNOTATION in marked.annotations
        assert (await world.refused(world.cluster.mark(before, MARK))).kind is Failure.CONFLICT
        await world.cluster.set_labels(marked, {"tier": "x"}, [Taint("nvidia.com/gpu", "other", "NoSchedule")])
        labelled = await world.member()
        assert labelled.labels.items() >= {"tier": "x", "workload": "training"}.items()
        assert [taint.value for taint in labelled.taints if taint.key == "nvidia.com/gpu"] == ["other"]
        await world.cluster.unmark(labelled, uncordon=True)
        after = await world.member()
        assert (after.unschedulable, after.annotations) == (False, {})
        assert not any(taint.key == MARK_TAINT for taint in after.taints)

    world.run(main())


def test_a_watch_reports_what_others_write(world: World) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async for name in world.fabric.watches()[NewsSource.CLUSTER].changes():
            heard.append(name)

    async def main() -> None:
        assert world.lab.cluster is not None
        listening = asyncio.create_task(listen())
        await asyncio.sleep(1)
        await world.cluster.mark(await world.member(), MARK)
        await asyncio.sleep(9)
        assert heard == [], "our own mark, and the taint that follows a cordon, are no news"
        world.lab.cluster.update_node(NODE, labels={})
        await asyncio.sleep(9)
        listening.cancel()
        assert heard == [NODE]

    world.run(main())


def test_a_foreign_cordon_survives_our_mark(world: World) -> None:
    async def main() -> None:
        assert world.lab.cluster is not None
        world.lab.cluster.update_node(NODE, unschedulable=True)
        await world.cluster.mark(await world.member(), replace(MARK, cordoned=False))
        await world.cluster.unmark(await world.member(), uncordon=False)
        assert (await world.member()).unschedulable

    world.run(main())


def test_eviction(world: World) -> None:
    async def main() -> None:
        member = await world.member()
        await world.cluster.mark(member, MARK)
        world.machine.inject("pdb_never_yields")
        [first, *_] = [pod for pod in member.pods if pod.evictable]
        busy = await world.refused(world.cluster.evict(first, grace_s=None))
        assert (busy.kind, "never-gpu-a001" in busy.detail) == (Failure.BUSY, True)
        world.machine.clear()
        for pod in member.pods:
            if pod.evictable:
                await world.cluster.evict(pod, grace_s=5)
        await asyncio.sleep(6)
        assert not any(pod.evictable for pod in (await world.member()).pods)
        await world.cluster.evict(first, grace_s=None)  # a missing pod is success (H7)
        await world.cluster.delete(first, grace_s=0)

    world.run(main())


def test_a_cluster_that_does_not_answer(world: World) -> None:
    async def main() -> None:
        assert world.lab.cluster is not None
        member = await world.member()
        world.lab.cluster.down = True
        state = await world.cluster.state()
        assert isinstance(state, Silent)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: world.cluster.member(NODE),
            lambda: world.cluster.mark(member, MARK),
            lambda: world.cluster.evict(member.pods[0], grace_s=None),
        ]
        for call in calls:
            assert (await world.refused(call())).kind is Failure.UNREACHABLE

    world.run(main())


def test_a_node_that_is_not_in_the_cluster_is_known_to_be_absent(world: World) -> None:
    async def main() -> None:
        assert await world.cluster.member("gpu-z999") is None
        state = await world.cluster.state()
        assert isinstance(state, Answered)
        assert set(state.value.members) == {*world.lab.machines, "control-1"}

    world.run(main())


# --- many ---


def test_a_thousand_nodes_are_read_in_virtual_time() -> None:
    clock = VirtualClock()
    fleet = example_fleet()
    one = fleet.nodes[NODE]
    nodes = {
        f"n{at:04}": replace(
            one, node=f"n{at:04}", endpoints=replace(one.endpoints, bmc=f"https://b{at}", host=f"h{at}:22")
        )
        for at in range(1000)
    }
    lab = build_lab(replace(fleet, nodes=nodes), load_scenario("drifted"), clock.seconds, seed=5)
    fabric = LabFabric(lab, clock)

    async def read(desired: Desired) -> bool:
        bmc, host = fabric.bmc(desired), fabric.host(desired)
        assert bmc is not None
        assert host is not None
        hot, inventory, _ = await asyncio.gather(bmc.hot(), bmc.inventory(), host.facts(SYSCTLS, SERVICES))
        return isinstance(hot, Answered) and isinstance(inventory, Answered)

    async def main() -> list[bool]:
        return await asyncio.gather(*(read(desired) for desired in nodes.values()))

    assert all(run_virtual(main(), clock))
    assert clock.seconds() < 30
