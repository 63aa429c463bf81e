"""A lab machine behind its SSH server, with its own keys and a clock that only tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import asyncssh

from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import DiskImage, DriveState, GpuState, MachineState, NicState
from reconciler.lab.wire.facts.context import FactContext
from reconciler.lab.wire.ssh import SshServer

NODE = "gpu-a001"
EPOCH = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
POLL_S = 0.02


@dataclass(slots=True)
class Clock:
    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def make_machine(clock: Clock, gpu_name: str = "NVIDIA H100 80GB HBM3") -> Machine:
    drives = [
        DriveState(f"NVMe{n}", f"S6NANA0W{n:06d}", f"eui.36344630{n:08x}", "SAMSUNG MZQL2960HCJR-00A07", 960 * 10**9)
        for n in range(5)
    ]
    gpus = [
        GpuState(
            index=n,
            pci=f"00000000:{0x1B + 16 * n:02X}:00.0",
            uuid=f"GPU-9dad5bfd-a732-23fe-40ad-{n:012x}",
            name=gpu_name,
            serial=f"16529230030{n:02d}",
            vbios="96.00.89.00.01",
        )
        for n in range(8)
    ]
    nics = [NicState(f"mlx5_{n}", f"94:6D:AE:00:00:{n:02X}", rdma=True, rate_gbps=400) for n in range(8)]
    nics += [NicState(f"eth{n}", f"7C:C2:55:00:00:{n:02X}", rdma=False, rate_gbps=10) for n in range(2)]
    image = DiskImage(
        image="ubuntu-gpu",
        version="2026.11.1",
        sha256="ab" * 32,
        root_disk=drives[1].serial,
        nonce="n-1",
        kernel="6.8.0-48-generic",
        driver="570.124.06",
        hostname=NODE,
        sysctls={"vm.swappiness": "1"},
        services={"containerd": True, "kubelet": False, "nvidia-fabricmanager": True},
    )
    state = MachineState(
        NODE,
        "S889914X3710910",
        "00000000-0000-0000-0000-7CC25550A8FF",
        "Supermicro",
        "SYS-821GE-TNHR",
        {},
        gpus=gpus,
        drives=drives,
        nics=nics,
        disks={drives[1].serial: image},
    )
    machine = Machine(state, clock)
    machine.start("on")
    return machine


def ask(machine: Machine, command: str = "") -> FactContext:
    return FactContext(machine.state, machine.now, EPOCH, command)


@dataclass(slots=True)
class Bench:
    """`known_hosts`: trusts the CA that signed NODE's host key. `sleeps`: durations of commands."""

    machine: Machine
    clock: Clock
    server: SshServer
    client_key: asyncssh.SSHKey
    authority: asyncssh.SSHKey
    sleeps: list[float] = field(default_factory=list)
    port: int = 0

    @property
    def known_hosts(self) -> bytes:
        return b"@cert-authority * " + self.authority.export_public_key()

    async def connect(self, **options: object) -> asyncssh.SSHClientConnection:
        return await asyncssh.connect(
            "127.0.0.1",
            self.port,
            **{
                "username": "root",
                "client_keys": [self.client_key],
                "known_hosts": asyncssh.import_known_hosts(self.known_hosts.decode()),
                "host_key_alias": NODE,
                "config": None,
                "agent_path": None,
                **options,
            },
        )

    async def pass_time(self, seconds: float) -> None:
        """Advance the machine's clock, and wait until the effects show on the wire."""
        self.clock.seconds += seconds
        self.machine.catch_up()
        await asyncio.sleep(3 * POLL_S)


@asynccontextmanager
async def running(machine: Machine | None = None, clock: Clock | None = None) -> AsyncIterator[Bench]:
    clock = clock or Clock()
    machine = machine or make_machine(clock)
    host_key, authority, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    certificate = authority.generate_host_certificate(host_key, NODE, principals=[NODE])
    sleeps: list[float] = []

    async def sleep(seconds: float) -> None:
        sleeps.append(seconds)

    server = SshServer(
        machine,
        host_key=host_key.export_private_key().decode(),
        host_certificate=certificate.export_certificate().decode(),
        authorized_key=client_key.export_public_key().decode(),
        epoch=EPOCH,
        sleep=sleep,
        poll_s=POLL_S,
    )
    bench = Bench(machine, clock, server, client_key, authority, sleeps)
    bench.port = await server.start()
    try:
        yield bench
    finally:
        await server.stop()


def play(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(20), running() as bench:
            await scenario(bench)

    asyncio.run(within_time())


def write_client_files(bench: Bench, folder: Path) -> list[str]:
    """Return options for OpenSSH's client that keep it from the user's own files."""
    key, known_hosts = folder / "id", folder / "known_hosts"
    key.write_bytes(bench.client_key.export_private_key())
    key.chmod(0o600)
    known_hosts.write_bytes(bench.known_hosts)
    options = {
        "UserKnownHostsFile": known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "HostKeyAlias": NODE,
        "StrictHostKeyChecking": "yes",
        "IdentityFile": key,
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "LogLevel": "ERROR",
    }
    words = ["-F", "none", "-p", str(bench.port)]
    return [*words, *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
