"""Build one machine exactly as its spec says. Whatever the spec leaves open is as on a common 8-GPU server."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import asdict

from reconciler.lab.hardware import bios
from reconciler.lab.hardware.host_side import mig_slices
from reconciler.lab.hardware.install_document import FRESH_SERVICES, installed_links
from reconciler.lab.hardware.lifecycle import KERNEL_DEFAULTS
from reconciler.lab.hardware.software import DRIVER, KERNEL, installed
from reconciler.lab.hardware.state import DiskImage, DriveState, FirmwareState, GpuState, MachineState, NicState
from reconciler.model.desired import Desired, DesiredInventory, Profile, RootDisk
from reconciler.model.install import install_network

_PCI = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")  # of an HGX baseboard
_VBIOS = {"H100": "96.00.74.00.01", "H200": "96.00.A5.00.01", "B200": "97.00.29.00.04", "A100": "92.00.45.00.03"}
_DATA_DRIVE = ("SAMSUNG MZQL23T8HCLS-00A07", 3_840_755_982_336)
_ROOT_DRIVE = ("SAMSUNG MZ1L2960HCJR-00A07", 960_197_124_096)


def build_state(desired: Desired) -> tuple[MachineState, DiskImage, str]:
    """Return the machine, its installed image, and the serial of the root disk. Identities depend only on the name."""
    rng = random.Random(f"identity of {desired.node}")  # noqa: S311  serial numbers of machines that don't exist
    profile, inventory = desired.profile, desired.profile.inventory
    state = MachineState(
        name=desired.node,
        serial=desired.serial or f"S{rng.randrange(10**9, 10**10)}",
        uuid=desired.uuid or str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        manufacturer=inventory.manufacturer or "Supermicro",
        model=inventory.model or "SYS-821GE-TNHR",
        labels=dict(desired.domains),
    )
    state.bios = {**bios.defaults(bios.learn(profile.bios)), **profile.bios}
    state.secure_boot = profile.secure_boot is not False
    state.boot_order = [
        *(profile.boot_order or ()),
        *(e for e in state.boot_order if e not in (profile.boot_order or ())),
    ]
    state.memory_bytes = _count(inventory.memory_bytes, 2 * 2**40)
    state.dimms = _count(inventory.dimms, 32)
    state.processors = _count(inventory.processors, 2)
    state.firmware = _firmware(profile)
    state.gpus = [_gpu(at, inventory, rng) for at in range(_count(inventory.gpus, 8))]
    if profile.gpu is not None and profile.gpu.mig is not None:
        for gpu in state.gpus:
            _divide(gpu, profile.gpu.mig, rng)
    state.nics = _nics(inventory, rng)
    _give_declared_macs(state.nics, desired)
    rule = desired.root_disk or (profile.image.root_disk if profile.image else None) or RootDisk()
    state.drives = _drives(rule, max(_count(inventory.drives, 5), 1), rng)
    return state, _disk(desired, state.drives[0].serial), state.drives[0].serial


def known_sysctls(profile: Profile) -> dict[str, str]:
    """Return the kernel's sysctls, with defaults that differ from the spec."""
    named = {name: "0" if value != "0" else "1" for name, value in profile.host.sysctls.items()}
    return {**named, **KERNEL_DEFAULTS}


def _count(given: int | None, usual: int) -> int:
    return usual if given is None else given


def _firmware(profile: Profile) -> dict[str, FirmwareState]:
    """Return the firmware by inventory id. The BMC and the BIOS are always present."""
    usual = {
        "BMC": FirmwareState("bmc", "BMC", "1.0.0", "bmc_reset"),
        "BIOS": FirmwareState("bios", "BIOS", "1.0", "reboot"),
    }
    components = {item.component for item in profile.firmware}
    return {id_: item for id_, item in usual.items() if item.component not in components} | {
        item.inventory_id: FirmwareState(
            item.component, item.inventory_id, item.version, item.activation.value, minutes=item.minutes
        )
        for item in profile.firmware
    }


def _gpu(at: int, inventory: DesiredInventory, rng: random.Random) -> GpuState:
    name = inventory.gpu_model or "NVIDIA H100 80GB HBM3"
    bus = _PCI[at] if at < len(_PCI) else f"{0xE0 + at:02X}"
    return GpuState(
        index=at,
        pci=f"00000000:{bus}:00.0",
        uuid=f"GPU-{uuid.UUID(int=rng.getrandbits(128), version=4)}",
        name=name,
        serial=str(rng.randrange(1_650_000_000_000, 1_660_000_000_000)),
        vbios=next((version for word, version in _VBIOS.items() if word in name), "96.00.74.00.01"),
        nvlinks=_count(inventory.nvlinks_per_gpu, 12 if "A100" in name else 18),
    )


def _divide(gpu: GpuState, layout: Mapping[str, int], rng: random.Random) -> None:
    """Return the MIG instances of a layout, profile -> count. Raise KeyError for a profile that this GPU lacks."""
    gpu.mig_enabled = gpu.mig_pending = True
    for profile, count in layout.items():
        mig_slices(gpu, profile)
        for _ in range(count):
            gpu.mig_instances.append((profile, f"MIG-{uuid.UUID(int=rng.getrandbits(128), version=4)}"))


def _nics(inventory: DesiredInventory, rng: random.Random) -> list[NicState]:
    rdma = _count(inventory.rdma_ports, 8)
    others = max(_count(inventory.nics, rdma + 2) - rdma, 0)
    rate = float(inventory.rdma_rate_gbps or (200 if "A100" in (inventory.gpu_model or "") else 400))

    def mac() -> str:
        return ":".join(f"{octet:02X}" for octet in (0xA0, 0x88, 0xC2, *rng.randbytes(3)))

    return [
        *(NicState(f"mlx5_{at}", mac(), rdma=True, rate_gbps=rate) for at in range(rdma)),
        *(NicState(f"eno{at + 1}np0", mac(), rdma=False, rate_gbps=100.0) for at in range(others)),
    ]


def _give_declared_macs(nics: list[NicState], desired: Desired) -> None:
    """Give the ports the MAC addresses that the spec knows: first to the ones without RDMA."""
    links = desired.network.links if desired.network is not None else ()
    macs = [link.mac for link in links if link.mac is not None]
    for nic, mac in zip(sorted(nics, key=lambda nic: nic.rdma), macs, strict=False):
        nic.mac = mac


def _drives(rule: RootDisk, count: int, rng: random.Random) -> list[DriveState]:
    """Return the drives. Only the first one fits the root disk rule."""
    model, capacity = _ROOT_DRIVE
    low, high = rule.min_bytes or 0, rule.max_bytes or 2 * max(capacity, rule.min_bytes or 0)
    root = DriveState(
        id="0",
        serial=rule.serial or f"S6CK{rng.randrange(10**9, 10**10)}",
        wwn=rule.wwn or f"eui.{rng.getrandbits(64):016x}",
        model=rule.model or model,
        capacity_bytes=capacity if low <= capacity <= high else (low + high) // 2,
    )
    data_model, size = _DATA_DRIVE
    if rule.min_bytes is not None and rule.max_bytes is None and (rule.model or rule.serial or rule.wwn) is None:
        size = rule.min_bytes // 2  # the rule identifies the root disk only by its size
    others = [
        DriveState(str(at), f"S6GN{rng.randrange(10**9, 10**10)}", f"eui.{rng.getrandbits(64):016x}", data_model, size)
        for at in range(1, count)
    ]
    return [root, *others]


def _disk(desired: Desired, serial: str) -> DiskImage:
    """Return the installed image. Without a managed image it is a system that the reconciler did not install."""
    image, host = desired.profile.image, desired.profile.host
    layout = image.layout if image else None
    driver = "" if (desired.profile.inventory.gpu_model or "").startswith("AMD ") else DRIVER
    return DiskImage(
        image=image.name if image else "",
        version=image.version if image else "",
        sha256=image.sha256 if image else "",
        root_disk=serial,
        nonce=None,
        kernel=image.contents.get("kernel", KERNEL) if image else KERNEL,
        driver=image.contents.get("driver", driver) if image else driver,
        hostname=desired.hostname or desired.node,
        sysctls=dict(host.sysctls),
        services=FRESH_SERVICES
        | {"kubelet": True}
        | {name: state == "running" for name, state in host.services.items()},
        software=installed(image.contents if image else {}),
        links=installed_links(install_network(desired.network)),
        user_ca=list(host.user_ca),
        kernel_arguments=list(image.kernel_arguments) if image else [],
        slot="a" if layout else "",
        layout=asdict(layout) if layout else {},
    )
