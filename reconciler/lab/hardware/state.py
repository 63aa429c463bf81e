"""The mutable state of a machine, printed by `lab state` and changed only by Machine.

Times are seconds on the machine's monotonic clock. Servers read these fields through `Machine`, after it has caught
up with its clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from reconciler.lab.hardware.software import SOFTWARE

AttributeValue = str | int | bool
SPARE_THRESHOLD = 10  # percent, below which a drive warns


@dataclass(slots=True)
class GpuState:
    index: int
    pci: str  # "00000000:1B:00.0"
    uuid: str
    name: str
    serial: str
    vbios: str
    nvlinks: int = 18
    nvlinks_down: int = 0
    nvlinks_slow: int = 0  # up at half the rate
    ecc_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failed: bool = False  # only replacing the board helps
    mig_enabled: bool = False
    mig_pending: bool = False
    mig_instances: list[tuple[str, str]] = field(default_factory=list)  # (profile, uuid)
    mig_compute: bool = True  # the GPU instances have compute instances, which makes them usable
    lost: bool = False  # fallen off the bus
    cells: dict[str, str] = field(default_factory=dict)  # cell of nvidia-smi -q -x -> the text that a fault puts there
    ecc_deferred: int = 0  # of AMD's

    @property
    def amd(self) -> bool:
        """Tell whether it is AMD's, which amd-smi knows, and neither nvidia-smi nor NVRM."""
        return self.name.startswith("AMD ")


def of_nvidia(gpus: Iterable[GpuState]) -> list[GpuState]:
    return [gpu for gpu in gpus if not gpu.amd]


@dataclass(slots=True)
class DriveState:
    id: str
    serial: str
    wwn: str
    model: str
    capacity_bytes: int
    media_errors: int = 0
    percentage_used: int = 3
    available_spare: int = 100
    critical_warning: int = 0
    smart: bool = True  # its log can be read
    struck: bool = False  # by a fault
    sata: bool = False  # else an NVMe drive
    sanicap: int = 3  # crypto erase and block erase
    bmc_erases: bool = True  # the BMC offers Drive.SecureErase
    holds: bool = True  # data that somebody wrote; an erase that ends well leaves zeros
    sanitizes: int = 0  # that were begun
    sanitize_status: int = 0  # as in the log: 0 never, 1 completed, 2 in progress, 3 failed
    sanitize_began: float = 0.0
    sanitize_s: float = 0.0  # how long it takes, or still takes while the power is off
    password: str = ""  # of a SATA drive
    read_mbps: float = 6500.0
    read_iops: float = 1_000_000.0  # of 4 KiB, as Samsung says of the PM9A3
    write_mbps: float = 3800.0

    def kernel_name(self, at: int) -> str:
        """Return the name that the kernel gives the drive which it finds at place `at`."""
        return f"sd{chr(ord('a') + at)}" if self.sata else f"nvme{at}n1"


@dataclass(slots=True)
class NicState:
    name: str
    mac: str
    rdma: bool
    rate_gbps: float
    up: bool = True
    listed: bool = True  # by the BMC: many omit cards in a riser
    slow_gbps: float = 0.0  # trained at this rate; 0 = at its own
    struck: bool = False  # by a fault

    @property
    def trained_gbps(self) -> float:
        return self.slow_gbps or self.rate_gbps


@dataclass(slots=True)
class FirmwareState:
    """One component. `staged`: the version that becomes active on its activation."""

    component: str
    inventory_id: str
    version: str
    activation: str  # vocab.Activation value
    staged: str | None = None
    minutes: float = 10.0  # how long an update takes


@dataclass(slots=True)
class TaskState:
    id: str
    inventory_id: str
    target_version: str  # "" when the image is for no component of this machine
    started: float
    ends: float
    state: str = "Running"  # Running | Completed | Exception
    messages: list[str] = field(default_factory=list)
    drive: str = ""  # serial number of the drive that it erases
    component: str = ""  # Id of the component that it asks for measurements

    def percent(self, now: float) -> int:
        if self.state != "Running":
            return 100
        return min(99, round(100 * (now - self.started) / max(self.ends - self.started, 1.0)))


@dataclass(slots=True)
class ServingState:
    """How the machine was told to serve: the exit status of each command by its name, and those that ran.

    `fails`: exit status of the next ones. `answers`: whether what it serves does.
    """

    told: dict[str, int] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    fails: int = 0
    answers: bool = True


PARTITIONS = {"state": ("/state/", "/var/"), "data": ("/data/",)}  # an initrd keeps /var on `state`


@dataclass(slots=True)
class DiskImage:
    """The image that an installer wrote on a drive, as /etc/reconciler/image.json records it."""

    image: str
    version: str
    sha256: str
    root_disk: str
    nonce: str | None
    kernel: str
    driver: str
    hostname: str
    sysctls: dict[str, str] = field(default_factory=dict)  # persisted: applied at boot
    services: dict[str, bool] = field(default_factory=dict)  # name -> enabled; enabled ones start at boot
    files: dict[str, str] = field(default_factory=dict)  # path below /etc -> content
    container_images: dict[str, str] = field(default_factory=dict)  # name -> digest
    ssh_ca: bool = True
    software: dict[str, str] = field(default_factory=lambda: dict(SOFTWARE))
    links: list[str] = field(default_factory=list)  # JSON of install.Link; none: the ports as they come
    user_ca: list[str] = field(default_factory=list)  # public keys that sshd trusts to certify users
    kernel_arguments: list[str] = field(default_factory=list)
    slot: str = ""  # a or b, of a disk with a layout
    layout: dict[str, int] = field(default_factory=dict)  # sizes of its partitions; {} = it has none beside its root
    lacks: list[str] = field(default_factory=list)  # programs by which a system writes its other slot
    # What its rasdaemon has recorded: time, slot, place, kind, count.
    memory_errors: list[tuple[float, str, str, str, int]] = field(default_factory=list)
    newest: bool = True  # of the two slots of a disk, the one that was installed last

    def on_partitions(self, names: Iterable[str] = PARTITIONS) -> dict[str, str]:
        """Return the files on these partitions beside its slots, path -> content; {} where it has no layout."""
        folders = tuple(folder for name in names for folder in PARTITIONS[name])
        return {path: text for path, text in self.files.items() if self.layout and path.startswith(folders)}


@dataclass(slots=True)
class OsState:
    """The running system. Every boot makes a new one."""

    boot_id: str
    booted_at: float
    hostname: str
    sysctls: dict[str, str] = field(default_factory=dict)
    services_active: dict[str, bool] = field(default_factory=dict)
    kernel_log: list[str] = field(default_factory=list)  # lines without time stamps
    service_since: dict[str, float] = field(default_factory=dict)  # when the active ones started
    k3s_version: str = ""  # of the K3s that was started since the boot
    hung: bool = False
    stopping: bool = False  # shutting down: nothing answers any more


@dataclass(frozen=True, slots=True)
class InstallerCall:
    """A call of an installer to its server. `body`: what it posts; None: it gets."""

    url: str
    body: str | None = None


@dataclass(slots=True)
class InstallerRun:
    """An installer that booted from the medium. `wants`: the call that it waits for; see Machine.answer."""

    medium: str
    wants: InstallerCall | None = None
    asked: int = 0
    error: str = ""  # why it gave up
    silent: bool = False  # its reports get lost
    log: list[str] = field(default_factory=list)


@dataclass(slots=True)
class InPlaceRun:
    """The program that writes the other slot from the running system. `status`: the text of its last report."""

    nonce: str
    status: str = ""
    active: bool = True


@dataclass(slots=True)
class Counters:
    """Counts of hardware operations, so that tests can prove that none happens more often than needed."""

    power_cycles: int = 0
    boots: int = 0  # POSTs begun, into an installer or a system
    writes: int = 0  # installers that began to write a disk
    installs: int = 0
    flashes: int = 0
    bios_writes: int = 0
    overwritten_drives: int = 0  # raw drives that a benchmark wrote to
    tpm_clears: int = 0
    gpu_resets: int = 0
    cuts: int = 0  # from mains
    killed_work: int = 0  # times that a running system went down while it had pods that were not evicted


@dataclass
class SoakUnit:
    """A soak on the machine's disk: what it was started with, and what its steps printed.

    `step`: the next one of the round. `lasted`: seconds, as soon as the time is over.
    """

    id: str
    boot_id: str
    began: float
    seconds: float
    steps: list[list[str]]
    lines: list[str] = field(default_factory=list)  # as in the file `runs`
    outputs: list[list[str]] = field(default_factory=list)  # [stdout, stderr]
    round: int = 1
    step: int = 0
    next_at: float = 0.0
    lasted: float | None = None
    judged: str = ""  # what the reconciler let it keep
    killed: bool = False  # its unit was, by somebody


@dataclass(slots=True)
class MachineState:
    name: str
    serial: str
    uuid: str
    manufacturer: str
    model: str
    labels: dict[str, str]  # failure domains
    power: str = "on"  # on | powering_off | off
    phase: str = "os_running"  # a value of vocab.BootPhase, or installer
    phase_since: float = 0.0
    bios: dict[str, AttributeValue] = field(default_factory=dict)
    pending_bios: dict[str, AttributeValue] = field(default_factory=dict)
    secure_boot: bool = True
    pending_secure_boot: bool | None = None
    boot_order: list[str] = field(default_factory=lambda: ["Hdd", "Pxe"])
    boot_override: str = "None"  # None | Cd | Hdd | Pxe | UefiHttp
    boot_override_enabled: str = "Disabled"  # Disabled | Once
    media: str | None = None  # URL of the inserted medium
    has_media: bool = True  # whether the BMC has virtual media
    http_boot: bool = False  # whether it can be given a URI to boot from
    http_boot_uri: str | None = None
    http_attribute: str = ""  # the BIOS attribute that holds the URI instead (Dell, HPE)
    pxe_url: str = ""  # the boot file that DHCP names, with {mac} in it; "" = nobody answers
    memory_bytes: int = 2 * 2**40
    dimms: int = 32
    swapped: dict[str, int] = field(default_factory=dict)  # part/index -> how often a technician swapped it
    processors: int = 2
    gpus: list[GpuState] = field(default_factory=list)
    drives: list[DriveState] = field(default_factory=list)
    nics: list[NicState] = field(default_factory=list)
    firmware: dict[str, FirmwareState] = field(default_factory=dict)  # by inventory id
    tasks: dict[str, TaskState] = field(default_factory=dict)
    tasks_started: int = 0  # task numbers are never reused
    disks: dict[str, DiskImage] = field(default_factory=dict)  # drive serial -> image
    idle_slots: dict[str, DiskImage] = field(default_factory=dict)  # drive serial -> image in the slot not in use
    next_slots: list[str] = field(default_factory=list)  # drives whose idle slot boots next
    in_place: InPlaceRun | None = None
    soak: SoakUnit | None = None
    repositories: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)  # name -> snapshot -> files
    repository_passwords: dict[str, str] = field(default_factory=dict)
    serving: ServingState = field(default_factory=ServingState)
    boot_disk: str | None = None  # drive of the boot entry; without one, the first drive with an image boots (L1)
    os: OsState | None = None
    booted_disk: str | None = None  # serial of the drive that the running system booted from
    installer: InstallerRun | None = None
    indicator: bool | None = False  # whether its locator LED is on; None: it has none
    bmc_password: int = 0  # which of our passwords its BMC takes, where none is sent: in process
    kept_passwords: tuple[int, ...] = (0,)  # that the secrets store has of it, the newest first: it outlives us too
    bmc_ready_at: float = 0.0  # the BMC answers from then on (it restarts on reset and on its own firmware)
    subscriptions: dict[str, dict[str, Any]] = field(default_factory=dict)  # to events: Id -> what was asked for
    bmc_boots: int = 0  # sessions of an earlier boot of the BMC are void
    powered_off_at: float = float("-inf")
    events: list[dict[str, Any]] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    faults: dict[str, dict[str, Any]] = field(default_factory=dict)  # kind -> parameters
    fault_since: dict[str, float] = field(default_factory=dict)  # kind -> when it was injected last
    ports_cleared: dict[str, float] = field(default_factory=dict)  # RDMA device -> when its counts were cleared last
    mains: bool = True  # an outlet gives power
    on_before_cut: bool = False
    mains_lost: bool = False  # since the last boot: the power was taken at the outlets
    etag: int = 1  # grows with every change that Redfish shows
