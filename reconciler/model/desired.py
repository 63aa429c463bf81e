"""The spec resolved for one node.

`Profile` holds the values that equal nodes share. The resolver interns it, so that ten thousand nodes hold one object,
compared once (DESIGN section 6). `Desired` holds what differs from node to node. None, or no key, means unmanaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase

from reconciler.model.acceptance import Acceptance as Acceptance
from reconciler.model.acceptance import AskedGate as AskedGate
from reconciler.model.acceptance import Cohort as Cohort
from reconciler.model.acceptance import GatePhase as GatePhase
from reconciler.model.acceptance import GateTest as GateTest
from reconciler.model.acceptance import Peers as Peers
from reconciler.model.acceptance import Revalidation as Revalidation
from reconciler.model.acceptance import Threshold as Threshold
from reconciler.model.access import (
    ClusterAccess,
    EventListenerPolicy,
    HostKeyPolicy,
    InstallerPolicy,
    PinnedExtension,
    TlsPolicy,
)
from reconciler.model.backup import DesiredBackup
from reconciler.model.drain import Checkpoint as Checkpoint
from reconciler.model.drain import DrainPolicy as DrainPolicy
from reconciler.model.errors import Position
from reconciler.model.forge import SpecForge
from reconciler.model.inventory import InventoryPolicy
from reconciler.model.k3s import DesiredK3s
from reconciler.model.limits import Brake, Guards
from reconciler.model.limits import BreakGlass as BreakGlass
from reconciler.model.limits import BudgetLimit as BudgetLimit
from reconciler.model.limits import Floor as Floor
from reconciler.model.limits import Hours as Hours
from reconciler.model.limits import Reserve as Reserve
from reconciler.model.limits import Window as Window
from reconciler.model.measurements import BootMeasurements, PlatformMeasurements
from reconciler.model.network import DesiredNetwork
from reconciler.model.notices import Channel
from reconciler.model.privacy import Address, AllPublic, Identifier, NodeName, PublicText
from reconciler.model.releases import DesiredRelease
from reconciler.model.serving import DesiredServing
from reconciler.model.signal_changes import SignalChange
from reconciler.model.tickets import Tracker
from reconciler.model.values import AttributeValue, Taint
from reconciler.model.vocab import (
    Activation,
    BootWay,
    DriftMode,
    ImageFormat,
    NodeState,
    Provision,
    VerifiedBy,
)


@dataclass(frozen=True, slots=True)
class RootDisk:
    """The drive that an image may be written to. All given fields must match exactly one drive (pitfalls L1, L4)."""

    serial: Identifier | None = None
    wwn: Identifier | None = None
    model: PublicText | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DiskLayout:
    """Sizes in bytes of the partitions of the root disk. `data`: whether a partition takes what is left."""

    esp: int
    root: int
    state: int
    data: bool = True


@dataclass(frozen=True, slots=True)
class DesiredImage:
    name: str
    version: str
    url: str
    sha256: str
    signature: str | None  # of minisign or cosign, over `name version sha256` (see gate/trust.py)
    key: str | None  # name of the public key, resolved outside the spec
    contents: Mapping[str, str]  # kernel, driver, cuda, nccl, ...; diff/facts.py says which are compared
    root_disk: RootDisk | None
    preserve: tuple[str, ...] = ()  # mount points: /state, /data
    format: ImageFormat = ImageFormat.RAW_ZSTD
    size: int | None = None  # bytes of the file at `url`
    layout: DiskLayout | None = None  # None: the image is written over the whole disk
    kernel_arguments: tuple[str, ...] = ()
    measurements: BootMeasurements | None = None  # None: what a node booted is not measured
    in_place: bool = True  # whether a node that is well may write the other slot itself


@dataclass(frozen=True, slots=True)
class DesiredFirmware:
    component: str
    inventory_id: str  # FirmwareInventory Id on the BMC
    version: str
    policy: str  # exact | min
    activation: Activation
    stage: int  # lower first
    settle_s: float
    url: str | None
    sha256: str | None
    minutes: float = 10.0  # how long an update takes, for the deadline and the estimate
    verified_by: VerifiedBy = VerifiedBy.RECONCILER


@dataclass(frozen=True, slots=True)
class DesiredInventory:
    """The parts that the hardware must have. The gate demands positive evidence for each."""

    manufacturer: str | None = None
    model: str | None = None
    gpus: int | None = None
    gpu_model: str | None = None
    nvlinks_per_gpu: int | None = None
    rdma_ports: int | None = None
    rdma_rate_gbps: int | None = None
    nics: int | None = None
    drives: int | None = None
    dimms: int | None = None
    memory_bytes: int | None = None
    processors: int | None = None


@dataclass(frozen=True, slots=True)
class DesiredHost:
    sysctls: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)  # name -> running | stopped
    user_ca: tuple[str, ...] = ()  # public keys that certify users; on hosts whose image we install


@dataclass(frozen=True, slots=True)
class DesiredGpu:
    """The GPU mode. `mig`: None = MIG off on every GPU; otherwise profile -> count, the same on every GPU."""

    mig: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class DesiredMembership:
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    join: tuple[str, ...] = ()  # argv run on the host when it is not a member; () = verify only
    allocatable: Mapping[str, int] = field(default_factory=dict)  # resources that it must offer before it is admitted
    validated: bool = False  # NVIDIA's GPU Operator has to have validated it before
    networked: bool = False  # NVIDIA's Network Operator has to be done with it before

    @property
    def waits_for_operators(self) -> bool:
        return self.validated or self.networked or bool(self.allocatable)


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the remediation ladder: an action, and how often it may be tried before the next rung."""

    action: str  # the name of the action
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition of the cluster's node object that speaks against the node while it has this status."""

    type: str
    status: str = "True"  # True | False


@dataclass(frozen=True, slots=True)
class Remediation:
    name: str
    ladder: tuple[Rung, ...]
    window_s: float  # attempts older than this are forgotten
    ignore_xids: tuple[int, ...] = ()
    host_down_after_s: float = 300.0
    node_conditions: tuple[NodeCondition, ...] = ()
    most: int | None = None  # attempts of all rungs together within `most_within_s`; None = any number
    most_of_class: tuple[tuple[str, int], ...] = ()  # the same for signals of one class, by its name
    most_within_s: float = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Profile:
    """The values that equal nodes share. `digest` identifies them: equal digests mean equal values."""

    digest: str
    image: DesiredImage | None
    inventory: DesiredInventory
    firmware: tuple[DesiredFirmware, ...]
    bios: Mapping[str, AttributeValue]
    secure_boot: bool | None
    boot_order: tuple[str, ...] | None
    host: DesiredHost
    gpu: DesiredGpu | None
    membership: DesiredMembership | None
    drain: DrainPolicy
    acceptance: Acceptance | None
    remediation: Remediation | None
    provenance: Mapping[str, Position]  # value path ("bios.SriovGlobalEnable") -> where the spec set it
    measurements: PlatformMeasurements | None = None  # of the model of machine
    boot_ways: tuple[BootWay, ...] = (BootWay.VIRTUAL_MEDIA, BootWay.HTTP)  # of installers, the preferred one first
    health: tuple[SignalChange, ...] = ()  # of the table of signals; the fleet's, so the same in all profiles
    k3s: DesiredK3s | None = None  # None: the reconciler installs no cluster on it
    backup: DesiredBackup | None = None  # of data on its disks, before they are written


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a node. `bmc` is a URL, `host` is host[:port]; None = the node has no such source."""

    bmc: Address
    host: Address


@dataclass(frozen=True, slots=True)
class Outlet:
    """An outlet of a rack PDU that gives a node power. `pdu`: URL of its Redfish service.

    `name`: A1, or 2/A1 for the outlet of one of several PDUs behind the service. `shared_with`: other nodes of the spec
    that it gives power, which a cut would cut off too.
    """

    pdu: Address
    name: PublicText
    shared_with: tuple[NodeName, ...] = ()


@dataclass(frozen=True, slots=True)
class Desired:
    node: NodeName
    pool: PublicText
    state: NodeState
    endpoints: Endpoints
    domains: Mapping[PublicText, PublicText]  # failure-domain labels: rack, nvlink-domain, pdu, leaf ...
    hostname: Identifier | None
    serial: Identifier | None
    uuid: Identifier | None
    root_disk: RootDisk | None  # overrides the image's rule
    profile: AllPublic[Profile]
    provenance: AllPublic[Mapping[str, Position]]  # of the node's own values, and of "node" itself
    persona: PublicText = ""  # name; what it says is in the profile
    provision: Provision | None = None  # consent to wipe a machine that never answered
    network: DesiredNetwork | None = None
    erase: tuple[Identifier, ...] = ()  # serial numbers of the drives that a decommissioned node is to lose the data of
    outlets: tuple[Outlet, ...] = ()
    uncut: PublicText = ""  # why it is never cut off from mains with those that share its outlets; "" = it may be
    by_person: bool = False  # a person reimages it: it has no BMC
    serving: DesiredServing | None = None  # None: it serves in no group
    asked: AllPublic[AskedGate | None] = None  # of a run; the spec asks for none

    @property
    def cut_with(self) -> tuple[NodeName, ...]:
        """The other nodes that lose power when its outlets are switched off, in order of name."""
        return tuple(sorted({node for outlet in self.outlets for node in outlet.shared_with}))

    @property
    def other_tests(self) -> Acceptance | None:
        """The tests that are run by hand in place of the node's own; None = its own are."""
        return None if self.asked is None else self.asked.other

    @property
    def tests(self) -> Acceptance | None:
        """The tests that its gate runs."""
        return self.other_tests or self.profile.acceptance


# --- fleet-wide --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RolloutPolicy:
    """The waves of a change in a pool: nodes that have it after each wave, as counts or shares rounded up.

    `bake_s`: how long a wave stays healthy before the next. `max_failures`: members that may fail before all stops.
    """

    waves: tuple[str, ...] = ("1", "10%", "50%", "100%")
    bake_s: float = 600.0
    max_failures: int = 0


@dataclass(frozen=True, slots=True)
class SpecHold:
    """A hold that the spec declares. Apply copies it to the ledger, where it outlives its line until it is released."""

    subject: str  # node name, or "pool/<name>"
    reason: str
    owner: str
    until: str | None  # ISO 8601 with an offset
    position: str  # file:line:column


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule to leave drift at `path` (a value path; a trailing `*` matches the rest) alone as ignored."""

    path: str
    reason: str
    pools: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    owner: str = ""
    expires: str = ""  # ISO date; an expired rule no longer ignores, and is reported

    def covers(self, path: str) -> bool:
        return path == self.path or path.startswith(self.path + ".") or fnmatchcase(path, self.path)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the reconciler itself in the Fleet. Durations are in seconds."""

    fleet: str
    bmc_credentials: str | None
    ssh_credentials: str | None
    ssh_user: str
    tls: TlsPolicy
    host_keys: HostKeyPolicy
    cluster: ClusterAccess | None
    installer: InstallerPolicy | None
    concurrency: int
    redfish_deadline_s: float
    ssh_deadline_s: float
    kubernetes_deadline_s: float
    inventory_max_age_s: float
    tolerate: str  # count or percent of nodes that may stay unobserved
    budgets: tuple[BudgetLimit, ...]
    drift_mode: DriftMode
    ignore: tuple[IgnoreRule, ...]
    insecure: tuple[str, ...]  # sentences for every report
    bmc_events: EventListenerPolicy | None = None  # None: BMCs without a stream of events are read in passes alone
    pdu_credentials: str | None = None  # name of the secret for rack PDUs
    rotate_after_s: float | None = None  # after which the password of a BMC is changed; None = it is not
    floors: tuple[Floor, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    windows: tuple[Window, ...] = ()
    break_glass: BreakGlass | None = None
    guards: Guards = field(default_factory=Guards)
    brake: Brake = field(default_factory=Brake)
    user_ca: tuple[str, ...] = ()  # public keys of the CAs that certify users; see DesiredHost
    health: tuple[SignalChange, ...] = ()  # of the table of signals; see Profile
    notifications: tuple[Channel, ...] = ()
    tickets: tuple[Tracker, ...] = ()
    extensions: tuple[PinnedExtension, ...] = ()
    drift_forge: SpecForge | None = None  # where drift is proposed
    inventory: InventoryPolicy | None = None  # None: the spec alone says which nodes there are
    releases: tuple[DesiredRelease, ...] = ()  # Helm releases of the cluster, in the order in which they are installed


@dataclass(frozen=True, slots=True)
class SpecSource:
    """The origin of a spec. `commit` is "" outside git; `dirty`: the tree differs from the commit."""

    directory: PublicText
    commit: PublicText = ""
    dirty: bool = False
    rev: PublicText = ""


@dataclass(frozen=True, slots=True)
class LineOrigin:
    """The commit that set a line of the spec; "" = the line is not committed.

    `or_earlier`: history is cut off there (a shallow clone), so that an older commit may have set it.
    """

    commit: PublicText
    author: PublicText = ""
    at: datetime | None = None
    summary: PublicText = ""
    or_earlier: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """The whole spec, resolved. `nodes` in order of pool, then name. `rollouts`: by pool, where they are declared.

    `objectives`: by persona, the share of node-hours in service that reports compare with.
    """

    settings: AllPublic[Settings]
    source: SpecSource
    nodes: Mapping[NodeName, Desired]
    digest: PublicText
    rollouts: AllPublic[Mapping[str, RolloutPolicy]] = field(default_factory=dict)
    holds: AllPublic[tuple[SpecHold, ...]] = ()
    places: AllPublic[Mapping[str, Position]] = field(default_factory=dict)  # "ssh.user" -> where it is said
    objectives: AllPublic[Mapping[str, float]] = field(default_factory=dict)
