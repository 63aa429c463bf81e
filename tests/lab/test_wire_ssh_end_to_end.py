"""The driver reads the state of a lab machine over SSH."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import asyncssh
import pytest

from reconciler.drivers.ssh import SshHost
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess.facts import host_facts
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult
from reconciler.model.gpus import Gpu, GpuCells, MigDevice, SmiAnswer
from reconciler.model.k3s import K3sFacts
from reconciler.model.observed import (
    Answered,
    ClockState,
    Daemons,
    HostFacts,
    ImageIdentity,
    Link,
    NvmeHealth,
    Service,
    Silent,
)
from reconciler.model.vocab import UnknownReason
from tests.lab.ssh_bench import NODE, Bench, play

pytestmark = pytest.mark.wire

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SYSCTLS = ("vm.swappiness", "kernel.numa_balancing")
SERVICES = ("containerd", "kubelet", "nvidia-fabricmanager")


def host_of(bench: Bench, *, connect_timeout: float = 5, private_key: str = "") -> SshHost:
    return SshHost(
        NODE,
        "127.0.0.1",
        port=bench.port,
        user="root",
        private_key=private_key or bench.client_key.export_private_key().decode(),
        authorities=(bench.authority.export_public_key().decode(),),
        connect_timeout=connect_timeout,
        now=lambda: NOW,
    )


def with_host(scenario: Callable[[Bench, SshHost], Awaitable[None]]) -> None:
    async def run(bench: Bench) -> None:
        host = host_of(bench)
        try:
            await scenario(bench, host)
        finally:
            await host.close()

    play(run)


async def read(host: SshHost) -> HostFacts:
    found = await host.facts(SYSCTLS, SERVICES)
    assert isinstance(found, Answered), found
    return found.value


WELL = GpuCells(
    recovery_action="None",
    sram_threshold_exceeded=False,
    fabric_state="Completed",
    fabric_status="Success",
    thermal_slowdown=False,
    over_limit=False,
    power_brake=False,
    pcie_width=16,
    pcie_width_max=16,
    pcie_gen=5,
    pcie_gen_max=5,
    persistence=True,
    loaded=False,
)


def truth(machine: Machine) -> HostFacts:
    """Return the facts of a machine without MIG mode. Xids are left out: they are events, not state."""
    state, system, disk = machine.state, machine.system(), machine.disk()
    return HostFacts(
        hostname=system.hostname,
        kernel=disk.kernel,
        boot_id=system.boot_id,
        uptime_s=round(machine.now - system.booted_at, 2),  # the kernel prints hundredths
        serial=state.serial,
        uuid=state.uuid.lower(),
        image=ImageIdentity(
            disk.image,
            disk.version,
            disk.sha256,
            disk.root_disk,
            disk.nonce,
            os_release_id=disk.image,
            os_release_version=disk.version,
            booted_disk=state.booted_disk,
        ),
        secure_boot=state.secure_boot,
        driver=disk.driver,
        gpus=tuple(
            Gpu(
                index=gpu.index,
                pci=gpu.pci,
                uuid=gpu.uuid,
                name=gpu.name,
                serial=gpu.serial,
                vbios=gpu.vbios,
                ecc_enabled=True,
                ecc_uncorrectable=None if gpu.lost else gpu.ecc_uncorrectable,
                remap_pending=None if gpu.lost else gpu.remap_pending,
                remap_failed=None if gpu.lost else False,
                mig_current=gpu.mig_enabled,
                mig_pending=gpu.mig_pending,
                lost=gpu.lost,
                cells=GpuCells() if gpu.lost else WELL,
                ecc_uncorrectable_ever=None if gpu.lost else gpu.ecc_uncorrectable,
                remapped_uncorrectable=None if gpu.lost else int(gpu.remap_pending),
                pcie_replays=0,
            )
            for gpu in state.gpus
        ),
        nvlinks_active={gpu.index: 0 if gpu.lost else gpu.nvlinks - gpu.nvlinks_down for gpu in state.gpus},
        xids=(),
        links=(
            *(Link(nic.name, nic.up) for nic in state.nics if not nic.rdma),
            *(
                Link(f"{nic.name}/1", nic.up, nic.rate_gbps if nic.up else 10.0, "infiniband")
                for nic in state.nics
                if nic.rdma
            ),
        ),
        nvme=tuple(
            NvmeHealth(
                f"/dev/nvme{at}n1", drive.serial, drive.model, 0, drive.media_errors, drive.percentage_used, 100, 10
            )
            for at, drive in enumerate(state.drives)
        ),
        services={name: Service(system.services_active[name], disk.services[name]) for name in SERVICES},
        sysctls={name: system.sysctls[name] for name in SYSCTLS},
        smi=SmiAnswer(0, len(state.gpus), len(state.gpus)),
        nvlinks_slow={},
        kernel_events=(),
        cuda=disk.software["cuda"],
        nccl=disk.software["nccl"],
        container_runtime=f"containerd {disk.software['containerRuntime']}",
        kubelet=disk.software["kubelet"],
        disks=(),
        dimm_errors=(),
        dimm_records=(),
        counters={},
        module_alarms={},
        gpu_counters={},
        nvlink_counters={},
        daemons=Daemons(4, fabric_manager=True),
        daemon_counters={},
        clock=ClockState(True, 0.000004127),
        dcgm=(),
        dcgm_counters={},
        unknown={f"dcgm_counters.gpu{gpu.index}": "unsupported: DCGM has no value" for gpu in state.gpus if gpu.lost},
        amd_gpus=(),
        k3s=K3sFacts("", {}, {}, (), datastore=False),
        installed=host_facts(machine, (), ()).installed,  # both fabrics of the lab tell the same
    )


def nothing(_: Machine) -> None:
    pass


def fell_off_the_bus(machine: Machine) -> None:
    machine.inject("xid_79", gpu=3)


def ecc(machine: Machine) -> None:
    machine.inject("ecc_errors", gpu=5, count=2)


def links_down(machine: Machine) -> None:
    machine.inject("nvlink_down", gpu=2, links=3)
    machine.state.nics[0].up = False
    machine.state.nics[9].up = False


def configured_otherwise(machine: Machine) -> None:
    machine.set_hostname("somebody-else")
    machine.sysctl_write("vm.swappiness", "60")
    machine.service_set("containerd", active=False)
    machine.service_set("kubelet", enabled=True)
    machine.state.secure_boot = False


def worn_drive(machine: Machine) -> None:
    machine.state.drives[4].media_errors = 12
    machine.state.drives[4].percentage_used = 97


def counts_errors(machine: Machine) -> None:
    machine.disk().driver = "595.58.03"
    machine.inject("flap", port=2, every_s=0.001)
    machine.inject("cable", port=3)
    machine.inject("error_counter", counter="aer_nonfatal", per_hour=3.6e9)
    machine.inject("throttle", by="power_brake")


def loses_data(machine: Machine) -> None:
    machine.inject("dimm_errors", dimm=5, corrected=3, uncorrectable=2)
    machine.disk().memory_errors.append((machine.now - 7000.0, "A1", "0:0:0:-1", "Uncorrected", 1))


def counted_by_dcgm(machine: Machine) -> None:
    machine.inject("xid_79", gpu=3)
    machine.inject("error_counter", counter="dcgm_310", device="gpu5", per_hour=3.6e9)


def programs(machine: Machine) -> None:
    machine.inject("service_dead")
    machine.inject("error_counter", counter="restarts", device="kubelet.service", per_hour=3.6e9)
    machine.inject("dcgm")
    machine.inject("clock", seconds=-2.5)


def other_identity(machine: Machine) -> None:
    disk = machine.disk()
    disk.version, disk.root_disk, disk.nonce = "2026.10.1", "S-OTHER", None


@pytest.mark.parametrize(
    "trouble", [nothing, fell_off_the_bus, ecc, links_down, configured_otherwise, worn_drive, other_identity]
)
def test_facts_are_what_the_machine_is(trouble: Callable[[Machine], None]) -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        bench.clock.seconds += 77.25
        trouble(bench.machine)
        facts = await read(host)
        expected = truth(bench.machine)
        for field in HostFacts.__dataclass_fields__.keys() - {"xids"}:
            assert getattr(facts, field) == getattr(expected, field), field

    with_host(scenario)


@pytest.mark.parametrize(
    ("trouble", "xids"),
    [
        (nothing, set()),
        (fell_off_the_bus, {(79, "00000000:4B:00.0")}),
        (ecc, {(48, "00000000:6B:00.0"), (63, "00000000:6B:00.0"), (94, "00000000:6B:00.0")}),
        (links_down, {(74, "00000000:3B:00.0")}),
    ],
)
def test_xids_are_those_of_the_kernel_log(trouble: Callable[[Machine], None], xids: set[tuple[int, str]]) -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        trouble(bench.machine)
        facts = await read(host)
        assert facts.xids is not None
        assert {(xid.code, xid.device) for xid in facts.xids} == xids
        assert all(xid.count == 1 for xid in facts.xids)

    with_host(scenario)


def test_mig_devices_have_their_names_and_links_are_unknown() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        machine = bench.machine
        assert (await host.run(["nvidia-smi", "-mig", "1"], timeout=5)).exit_status == 0
        created = await host.run(["nvidia-smi", "mig", "-cgi", "3g.40gb,2g.20gb,1g.10gb", "-C"], timeout=5)
        assert created.exit_status == 0
        machine.mig_mode(False, machine.state.gpus[7:])
        facts = await read(host)
        assert facts.gpus is not None
        assert [gpu.mig_current for gpu in facts.gpus] == [True] * 7 + [False]
        for gpu, state in zip(facts.gpus, machine.state.gpus, strict=True):
            assert {(device.profile, device.uuid) for device in gpu.mig_devices} == set(state.mig_instances)
            assert all(device.gpu == gpu.index for device in gpu.mig_devices)
        assert facts.gpus[0].mig_devices[0] == MigDevice(0, "3g.40gb", machine.state.gpus[0].mig_instances[0][1])
        assert facts.nvlinks_active == {7: 18}
        assert set(facts.unknown) == {f"nvlinks_active.{index}" for index in range(7)}

    with_host(scenario)


def test_a_system_that_we_did_not_install_is_known_to_be_none_of_ours() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        bench.machine.disk().image = ""
        facts = await read(host)
        assert facts.image == ImageIdentity(None, None, None, None, None, None, None, bench.machine.state.booted_disk)
        assert facts.unknown == {}

    with_host(scenario)


def test_the_disk_that_runs_is_told_from_the_disk_that_was_installed() -> None:
    """Pitfall L1."""

    async def scenario(bench: Bench, host: SshHost) -> None:
        state = bench.machine.state
        first = state.drives[0].serial
        state.disks[first] = state.disks[state.drives[1].serial]
        bench.machine.inject("wrong_boot_disk")
        bench.machine.reboot()
        await bench.pass_time(600)
        facts = await read(host)
        assert facts.image is not None
        assert (facts.image.booted_disk, facts.image.root_disk) == (first, state.drives[1].serial)

    with_host(scenario)


def test_unknown_units_and_keys() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        found = await host.facts(["vm.swappiness", "no.such.key"], ["kubelet", "nope"])
        assert isinstance(found, Answered)
        assert found.value.sysctls == {"vm.swappiness": "1"}
        assert found.value.services == {"kubelet": Service(False, False), "nope": Service(False, False)}
        assert set(found.value.unknown) == {"sysctls.no.such.key"}

    with_host(scenario)


# --- silence -----------------------------------------------------------------------------------------------------


async def silence(bench: Bench, *, connect_timeout: float = 1, private_key: str = "") -> UnknownReason:
    host = host_of(bench, connect_timeout=connect_timeout, private_key=private_key)
    try:
        found = await host.facts(SYSCTLS, SERVICES)
    finally:
        await host.close()
    assert isinstance(found, Silent), found
    return found.reason


def test_a_machine_that_is_off_is_unreachable() -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.power("force_off")
        await bench.pass_time(60)
        assert await silence(bench) is UnknownReason.UNREACHABLE

    play(scenario)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("ssh_refused", UnknownReason.UNREACHABLE),
        ("ssh_hang", UnknownReason.TIMEOUT),
        ("host_hung", UnknownReason.TIMEOUT),
    ],
)
def test_faults_of_sshd(fault: str, reason: UnknownReason) -> None:
    async def scenario(bench: Bench) -> None:
        bench.machine.inject(fault)
        await bench.pass_time(1)
        assert await silence(bench, connect_timeout=0.5) is reason

    play(scenario)


def test_a_host_key_that_our_ca_did_not_sign_and_a_client_key_that_the_host_does_not_know() -> None:
    async def scenario(bench: Bench) -> None:
        stranger = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        assert await silence(bench, private_key=stranger) is UnknownReason.AUTH
        bench.machine.disk().ssh_ca = False
        assert await silence(bench) is UnknownReason.AUTH

    play(scenario)


# --- commands ----------------------------------------------------------------------------------------------------


def test_commands() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        for _ in range(5):  # commands may end before the client has closed their stdin
            assert await host.run(["true"], timeout=5) == CommandResult(0, "")
        conf = "/etc/sysctl.d/90-reconciler.conf"
        written = await host.run(["tee", conf], timeout=5, stdin="vm.swappiness = 5\n")
        assert written == CommandResult(0, "vm.swappiness = 5\n")
        assert bench.machine.disk().files[conf] == "vm.swappiness = 5\n"
        assert await host.run(["cat", conf], timeout=5) == CommandResult(0, "vm.swappiness = 5\n")
        assert (await host.run(["systemctl", "start", "nope"], timeout=5)).exit_status == 5

    with_host(scenario)


def test_a_reboot_is_seen_as_another_boot() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        before = (await read(host)).boot_id
        assert (await host.run(["systemctl", "reboot"], timeout=5)).exit_status == 0
        await bench.pass_time(30)
        assert isinstance(await host.facts((), ()), Silent)
        await bench.pass_time(600)
        assert (await read(host)).boot_id not in (None, before)

    with_host(scenario)


def test_a_command_that_the_power_cuts_off_is_ambiguous() -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        await read(host)  # so that the connection is there
        bench.machine.inject("ssh_hang")
        running = asyncio.create_task(host.run(["true"], timeout=10))
        await asyncio.sleep(0.1)
        bench.machine.power("force_off")
        await bench.pass_time(60)
        with pytest.raises(DriverError) as lost:
            await running
        assert lost.value.kind is Failure.AMBIGUOUS

    with_host(scenario)


# --- the in-process port ---------------------------------------------------------------------------------------------


def mig(machine: Machine) -> None:
    gpus = machine.state.gpus[:3]
    machine.mig_mode(True, gpus)
    machine.mig_create(["3g.40gb", "1g.10gb"], gpus[:2])


def without_remaps_of_mig(facts: HostFacts) -> HostFacts:
    """Remove remapped rows in MIG mode, which nvidia-smi hides and the in-process port knows."""
    gpus = (replace(gpu, remap_pending=None, remap_failed=None) if gpu.mig_current else gpu for gpu in facts.gpus or ())
    return replace(facts, gpus=tuple(gpus))


def of_amd(machine: Machine) -> None:
    machine.disk().driver = ""
    for gpu in machine.state.gpus:
        gpu.name = "AMD Instinct MI300X OAM"
    machine.inject("ecc_errors", gpu=5, count=2, deferred=1)


def not_ours(machine: Machine) -> None:
    machine.disk().image = ""


@pytest.mark.parametrize(
    "trouble",
    [
        nothing,
        fell_off_the_bus,
        ecc,
        links_down,
        configured_otherwise,
        worn_drive,
        other_identity,
        mig,
        of_amd,
        not_ours,
        counts_errors,
        counted_by_dcgm,
        loses_data,
        programs,
    ],
)
def test_wire_and_in_process_facts_are_equal(trouble: Callable[[Machine], None]) -> None:
    async def scenario(bench: Bench, host: SshHost) -> None:
        trouble(bench.machine)
        asked = SYSCTLS, (*SERVICES, "nope")
        wire = await host.facts(*asked)
        assert isinstance(wire, Answered)
        in_process = without_remaps_of_mig(host_facts(bench.machine, *asked))
        for field in HostFacts.__dataclass_fields__.keys() - {"unknown", "uptime_s"}:
            assert getattr(wire.value, field) == getattr(in_process, field), field
        assert wire.value.unknown.keys() == in_process.unknown.keys()
        assert wire.value.uptime_s == pytest.approx(in_process.uptime_s, abs=0.01)

    with_host(scenario)
