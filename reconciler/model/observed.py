"""The facts that were read from a node. Each source answers for itself.

A source's answer is a `Reading`: `Answered` with a snapshot, or `Silent` with a reason. Inside a snapshot a field
that is None was not given; `unknown[field]` may say why. None is never "equal" and never "different": it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Generic, TypeVar

from reconciler.model.abilities import Abilities, BootOption
from reconciler.model.gpus import Gpu, SmiAnswer
from reconciler.model.host_image import ImageIdentity as ImageIdentity
from reconciler.model.host_image import Slot as Slot
from reconciler.model.host_services import AmdGpu as AmdGpu
from reconciler.model.host_services import ClockState as ClockState
from reconciler.model.host_services import Daemons as Daemons
from reconciler.model.host_services import DcgmIncident as DcgmIncident
from reconciler.model.installed import InstalledFacts
from reconciler.model.k3s import K3sFacts
from reconciler.model.kernel_log import KernelEvent as KernelEvent
from reconciler.model.kernel_log import Xid as Xid
from reconciler.model.maintenance import MaintenanceRequest as MaintenanceRequest
from reconciler.model.own_health import Counters as Counters
from reconciler.model.own_health import DimmErrors as DimmErrors
from reconciler.model.own_health import DimmRecord as DimmRecord
from reconciler.model.own_health import DiskHealth as DiskHealth
from reconciler.model.own_health import NvmeHealth as NvmeHealth
from reconciler.model.pods import Pod as Pod
from reconciler.model.pods import PodCheckpoint as PodCheckpoint
from reconciler.model.pods import Workload as Workload
from reconciler.model.privacy import FreeText, Identifier, NodeName, Privacy, PublicText, Unpublished
from reconciler.model.releases import ReleaseFacts
from reconciler.model.values import AttributeValue as AttributeValue
from reconciler.model.values import Taint as Taint
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason

T = TypeVar("T")

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"  # a person's word that the node is shut down
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"  # the taint that a controller adds to a cordoned node
BUSY_PERCENT: Final = 10  # utilisation from which on a GPU counts as loaded
HIDDEN: Final = "(not published)"  # a value, or words, that a published observation keeps back: not known, then


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    at: datetime
    value: T


@dataclass(frozen=True, slots=True)
class Silent:
    at: datetime
    reason: UnknownReason
    detail: FreeText = ""

    @property
    def why(self) -> str:
        """The reason, and the words of the source."""
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


# --- Redfish -----------------------------------------------------------------------------------------------------

HTTP: Final = "UefiHttp"  # the word of an override for a boot from HttpBootUri
PXE: Final = "Pxe"
DISCS: Final = ("UsbCd", "Cd")  # words of an override for virtual discs, which are USB drives


@dataclass(frozen=True, slots=True)
class BootOverride:
    enabled: PublicText  # "Disabled" | "Once" | "Continuous"
    target: PublicText  # "None" | "Cd" | "UsbCd" | "Hdd" | "Pxe" | ...
    allowable: tuple[PublicText, ...] = ()  # pitfall D5: choose from these, not from the vendor's name

    def boots(self, *targets: str) -> bool:
        return self.enabled in ("Once", "Continuous") and self.target in targets


@dataclass(frozen=True, slots=True)
class BmcTask:
    """A Redfish task. `state` is Redfish's word; `done` and `ok` are our reading of it (pitfall A6)."""

    uri: FreeText
    state: PublicText
    done: bool
    ok: bool | None
    percent: int | None = None
    messages: tuple[FreeText, ...] = ()


@dataclass(frozen=True, slots=True)
class RedfishHot:
    """The facts of a BMC that each pass reads, in at most six GETs."""

    manufacturer: PublicText | None
    model: PublicText | None
    serial: Identifier | None
    uuid: Identifier | None
    power: Power | None
    boot_phase: BootPhase | None
    boot_override: Unpublished[BootOverride | None]
    pending_bios: Annotated[Mapping[str, AttributeValue] | None, Privacy.BIOS]  # what differs; {} = nothing pending
    tasks: Unpublished[tuple[BmcTask, ...] | None]  # those not yet finished
    health: Health | None
    indicator: Unpublished[bool | None] = None  # whether its locator LED shows a person where it is
    etag: Unpublished[FreeText | None] = None  # of the system; a change makes the inventory due
    unknown: Mapping[PublicText, FreeText] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirmwareItem:
    version: PublicText
    updateable: Unpublished[bool | None] = None
    name: Unpublished[PublicText] = ""


@dataclass(frozen=True, slots=True)
class Drive:
    id: Annotated[str, Privacy.ORDINAL]
    serial: Unpublished[Identifier | None] = None
    wwn: Unpublished[Identifier | None] = None
    model: Unpublished[PublicText | None] = None
    capacity_bytes: Unpublished[int | None] = None
    health: Health | None = None
    failing: bool | None = None  # it predicts its own failure
    erasable: Unpublished[bool | None] = None  # the BMC offers to erase it (Drive.SecureErase)


@dataclass(frozen=True, slots=True)
class Nic:
    id: Annotated[str, Privacy.ORDINAL]
    mac: Unpublished[Identifier | None] = None
    link_up: Unpublished[bool | None] = None
    speed_mbps: Unpublished[int | None] = None


@dataclass(frozen=True, slots=True)
class Sensor:
    """A sensor. `name` is unique in its chassis."""

    name: PublicText
    kind: PublicText  # temperature | fan | power | voltage, Redfish's ReadingType in lower case, unknown
    reading: float | None
    unit: PublicText = ""
    health: Health | None = None
    chassis: PublicText = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is present and that the BMC judges. `id` is unique among its kind: "Chassis_0/PSU1"."""

    kind: PublicText  # system | chassis | power_supply | fan | leak_detector | dimm | memory | processor | switch
    id: Annotated[str, Privacy.ORDINAL]
    health: Health | None
    serial: Unpublished[Identifier | None] = None  # of a DIMM, a power supply or a fan


@dataclass(frozen=True, slots=True)
class BmcEvent:
    id: Annotated[str, Privacy.ORDINAL]
    at: Unpublished[PublicText]  # the BMC's own clock and format: evidence, not an instant (pitfall B6)
    severity: Health | None
    message: Unpublished[FreeText]
    kind: PublicText = ""  # memory_ue: an uncorrectable error of a memory module; xid_62: an Xid of a GPU
    age_s: float | None = None  # when it was read, by the BMC's own clock; None: that clock can't tell
    settled: bool = False  # taken back, or marked as repaired


@dataclass(frozen=True, slots=True)
class ComponentIntegrity:
    """A component that proves its integrity through the BMC. `measures`: it can be asked for signed measurements."""

    id: PublicText
    kind: PublicText | None = None  # SPDM | TPM | TCM | ...
    version: PublicText | None = None  # of that protocol; DGX says "unknown"
    enabled: bool | None = None
    target: PublicText | None = None  # URI of the component
    protects: tuple[PublicText, ...] = ()  # URIs of what it vouches for
    measures: bool = False


@dataclass(frozen=True, slots=True)
class Manager:
    model: PublicText | None = None
    firmware: PublicText | None = None
    clock: datetime | None = None


@dataclass(frozen=True, slots=True)
class RedfishInventory:
    """The facts of a BMC that are read at first, after a write, on a changed ETag, when old, and before their use."""

    bios: Annotated[Mapping[str, AttributeValue] | None, Privacy.BIOS]
    secure_boot: bool | None
    boot_order: tuple[PublicText, ...] | None  # in words, as diff/boot_order.py has them
    firmware: Mapping[PublicText, FirmwareItem] | None  # by FirmwareInventory Id
    memory_bytes: int | None
    dimms: int | None
    processors: int | None
    nics: tuple[Nic, ...] | None
    drives: tuple[Drive, ...] | None
    sensors: Unpublished[tuple[Sensor, ...] | None]
    events: tuple[BmcEvent, ...] | None  # newest last; unknown["events"]: some may have gone unread
    manager: Unpublished[Manager | None]
    # Of all systems and chassis. unknown["parts.KIND"]: of that kind, some could not be read.
    parts: tuple[Part, ...] | None = None
    unknown: Mapping[PublicText, FreeText] = field(default_factory=dict)
    boot_options: tuple[BootOption, ...] | None = None  # in the present order
    staged_boot_order: tuple[Identifier, ...] = ()  # references, where another order waits for the next boot
    abilities: Abilities | None = None
    integrity: Unpublished[tuple[ComponentIntegrity, ...] | None] = None  # (): the BMC has no ComponentIntegrity


# --- SSH ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """A network or RDMA port, from /sys (pitfall: ibdev2netdev lies about IB)."""

    name: Unpublished[PublicText]
    up: bool | None
    rate_gbps: float | None = None
    kind: PublicText = "ethernet"  # ethernet | infiniband


@dataclass(frozen=True, slots=True)
class Service:
    active: bool | None
    enabled: bool | None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of a host. None: that fact gave no answer; `unknown` says why."""

    hostname: Identifier | None
    kernel: PublicText | None
    boot_id: Unpublished[FreeText | None]
    uptime_s: Unpublished[float | None]
    serial: Identifier | None  # DMI system serial
    uuid: Identifier | None  # DMI system UUID
    image: ImageIdentity | None
    secure_boot: bool | None  # what the host says; Redfish is the other witness
    driver: PublicText | None
    gpus: tuple[Gpu, ...] | None
    nvlinks_active: Mapping[int, int] | None  # GPU index -> active links
    xids: tuple[Xid, ...] | None
    links: tuple[Link, ...] | None
    nvme: tuple[NvmeHealth, ...] | None
    services: Mapping[PublicText, Service] | None
    sysctls: Mapping[PublicText, PublicText] | None
    unknown: Mapping[PublicText, FreeText] = field(default_factory=dict)
    smi: SmiAnswer | None = None
    nvlinks_slow: Mapping[int, int] | None = None  # GPU index -> active links slower than the node's fastest
    kernel_events: tuple[KernelEvent, ...] | None = None  # bursts folded, at most 200
    cuda: PublicText | None = None  # of the toolkit: 12.8.1, or 12.8 where the update is not told
    nccl: PublicText | None = None
    container_runtime: PublicText | None = None  # with its name: containerd 1.7.24
    kubelet: PublicText | None = None
    installed: Unpublished[InstalledFacts | None] = None
    disks: tuple[DiskHealth, ...] | None = None  # drives that are no NVMe drives
    dimm_errors: tuple[DimmErrors, ...] | None = None  # of modules that have had errors since the boot
    dimm_records: tuple[DimmRecord, ...] | None = None  # of rasdaemon, of a week
    counters: Unpublished[Counters | None] = None  # of the kernel, of ports and PCI devices
    module_alarms: Unpublished[Mapping[PublicText, tuple[PublicText, ...]] | None] = None  # by interface with troubles
    gpu_counters: Unpublished[Counters | None] = None  # of the driver: seconds of slowed clocks, by PCI address
    nvlink_counters: Unpublished[Counters | None] = None  # of the driver: errors of NVLinks, as gpu2/link3
    daemons: Daemons | None = None
    daemon_counters: Unpublished[Counters | None] = None  # of systemd: restarts of units
    clock: ClockState | None = None
    dcgm: tuple[DcgmIncident, ...] | None = None  # (): its watches find nothing
    dcgm_counters: Unpublished[Counters | None] = None  # of DCGM: fields by id, as gpu2: {dcgm_310: 7}
    amd_gpus: tuple[AmdGpu, ...] | None = None
    k3s: K3sFacts | None = None
    extensions: Unpublished[Mapping[PublicText, FreeText]] = field(default_factory=dict)  # facts of extensions, by name
    raised: Unpublished[Mapping[PublicText, tuple[FreeText, ...]]] = field(
        default_factory=dict
    )  # of extensions, and of the fleet's own lines of the kernel log: evidence by signal


# --- Kubernetes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """A node object of the cluster with its pods. `resource_version` guards every write."""

    name: Unpublished[FreeText]
    uid: Unpublished[FreeText]
    resource_version: Unpublished[FreeText]
    ready: bool | None
    conditions: Mapping[PublicText, PublicText]  # type -> status
    unschedulable: bool
    labels: Annotated[Mapping[str, str], Privacy.LABELS]
    annotations: Annotated[Mapping[str, str], Privacy.ANNOTATIONS]
    taints: Annotated[tuple[Taint, ...], Privacy.TAINTS]
    kubelet_version: PublicText
    pods: tuple[Pod, ...]
    control_plane: bool = False
    # Of conditions that no kubelet sets, and of those of kubelet that are bad: type -> in words.
    reasons: Unpublished[Mapping[PublicText, FreeText]] = field(default_factory=dict)
    system_uuid: Identifier = ""  # of the machine whose kubelet wrote the object, by its DMI; "" = it did not say
    requests: tuple[MaintenanceRequest, ...] = ()  # of operators that maintain the node, or wait to
    registered: bool = True  # False: of two schedulers, Kubernetes has no such node
    # Of resources that device plugins advertise, such as nvidia.com/gpu: how many the scheduler may give away.
    allocatable: Annotated[Mapping[str, int], Privacy.LABELS] = field(default_factory=dict)

    def is_dead(self, host: Answered[T] | Silent) -> bool:
        """Return whether host and kubelet are silent, or a person said so: no pod runs, and none can end by itself."""
        silent = isinstance(host, Silent) and not self.ready
        return silent or any(taint.key == OUT_OF_SERVICE for taint in self.taints)

    def work(self, host: Answered[T] | Silent, at: datetime) -> tuple[Pod, ...]:
        """Return the pods that have to leave before the node may be disrupted.

        On a dead node, a pod whose deletion is over is no work, even if a finalizer keeps its object: whoever set the
        finalizer may be waiting for this very node.
        """
        dead = self.is_dead(host)
        return tuple(pod for pod in self.pods if pod.evictable and not (dead and pod.kept_by_finalizer(at)))


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The result of one bulk read. A node that is not in `members` is known to be absent."""

    client_version: str
    server_version: str
    members: Mapping[str, Member]


@dataclass(frozen=True, slots=True)
class Observed:
    """The facts of one node in one pass. A `member` of Answered(None): known not to be in the cluster."""

    node: NodeName
    hot: Answered[RedfishHot] | Silent
    inventory: Answered[RedfishInventory] | Silent
    host: Answered[HostFacts] | Silent
    member: Answered[Member | None] | Silent


@dataclass(frozen=True, slots=True)
class Observation:
    """One pass over the selected nodes: a result for every node whatever happened. Written by `observe --out`."""

    format_version: PublicText  # "1.0": minor = additive, major = refused
    fleet: PublicText
    spec_commit: PublicText
    started_at: datetime
    finished_at: datetime
    nodes: Mapping[NodeName, Observed]
    cluster_version: PublicText = ""  # of the server; "" = no cluster, or unreadable
    kubectl_version: PublicText = ""
    insecure: tuple[PublicText, ...] = ()  # what the spec says not to verify; shown in every report
    time_scale: float = 1.0
    control_plane: Mapping[PublicText, bool] = field(default_factory=dict)  # each member, in the spec or not -> Ready
    # Of the cluster's Helm releases, those that the spec declares, by name.
    releases: Unpublished[Mapping[str, Answered[ReleaseFacts] | Silent]] = field(default_factory=dict)


def crash_in(seen: Observed) -> str:
    """Return the error of our own code that ended the reading of the node; "" as a rule."""
    readings = (seen.hot, seen.inventory, seen.host, seen.member)
    return next((r.detail for r in readings if isinstance(r, Silent) and r.reason is UnknownReason.CRASHED), "")


def is_unasked(seen: Observed) -> bool:
    """Return whether the pass was not to ask the node itself for anything: it is not selected, or at work."""
    return all(isinstance(one, Silent) and one.reason is UnknownReason.NOT_ASKED for one in (seen.hot, seen.host))


def is_unread(seen: Observed) -> bool:
    """Return whether the pass was to ask the node itself, and nobody did."""
    return any(isinstance(one, Silent) and one.reason is UnknownReason.NOT_READ for one in (seen.hot, seen.host))


def was_asked(seen: Observed) -> bool:
    """Return whether the pass asked the node itself for anything. Unselected nodes and those at work are not asked."""
    readings = (seen.hot, seen.host)
    unasked = (UnknownReason.NOT_ASKED, UnknownReason.NOT_READ)
    return any(isinstance(reading, Answered) or reading.reason not in unasked for reading in readings)
