"""Closed vocabularies. Their values are what YAML, JSON and reports show."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


class Concern(StrEnum):
    """An aspect of a node. Declaration order is the order in every report."""

    IDENTITY = "identity"
    HARDWARE = "hardware"
    FIRMWARE = "firmware"
    BIOS = "bios"
    BOOT = "boot"
    IMAGE = "image"
    HOST = "host"
    INSTALLED = "installed"  # what an installer decided, and only another install changes
    GPU = "gpu"
    CLUSTER = "cluster"
    TRUST = "trust"
    GATE = "gate"
    HEALTH = "health"


class Disruption(IntEnum):
    """The effect of an action on the work on a node, mildest first. Serialised by `label`."""

    NONE = 0
    SERVICE_RESTART = 1  # of the host, or the BMC's own: the host does not reboot
    DRAIN = 2
    REBOOT = 3
    POWER_CYCLE = 4
    AC_CYCLE = 5
    FIRMWARE = 6
    REIMAGE = 7

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def labelled(cls, label: str) -> Disruption:
        """Return the disruption with this label, also one of documents of earlier versions."""
        return cls.SERVICE_RESTART if label == "restart" else cls[label.upper()]

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Serialise by label: documents and specs must not depend on the order, which may gain a member in between."""
        from pydantic_core import core_schema  # 13 ms, and --help needs this module

        labels = core_schema.literal_schema([member.label for member in cls])
        known = core_schema.literal_schema([*(member.label for member in cls), "restart"])
        write = core_schema.plain_serializer_function_ser_schema(lambda member: member.label, return_schema=labels)
        return core_schema.no_info_after_validator_function(cls.labelled, known, serialization=write)


class Activation(StrEnum):
    """The event at which a staged setting or firmware image takes effect."""

    IMMEDIATE = "immediate"
    BMC_RESET = "bmc_reset"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    AC_CYCLE = "ac_cycle"


class VerifiedBy(StrEnum):
    """The party that verifies the file that firmware is flashed from, before it is flashed."""

    RECONCILER = "reconciler"
    BMC = "bmc"


class Source(StrEnum):
    REDFISH = "redfish"
    SSH = "ssh"
    KUBERNETES = "kubernetes"
    LEDGER = "ledger"


class KernelEventKind(StrEnum):
    """The kind of hardware error in a kernel line that is no Xid."""

    GPU_INIT_FAILED = "gpu_init_failed"
    PCIE_FATAL = "pcie_fatal"
    MEMORY_UE = "memory_ue"
    MACHINE_CHECK = "machine_check"
    NIC_FAILED = "nic_failed"
    NIC_MODULE = "nic_module"  # a module or cable
    AMD_UNCORRECTABLE = "amd_uncorrectable"
    AMD_RESET_FAILED = "amd_reset_failed"
    AMD_BAD_PAGES = "amd_bad_pages"
    AMD_RING_TIMEOUT = "amd_ring_timeout"
    TASK_HUNG = "task_hung"  # a process of the GPU's driver
    FS_READ_ONLY = "fs_read_only"  # a file system that its errors have ended
    NVME_TIMEOUT = "nvme_timeout"
    MD_DEGRADED = "md_degraded"


class UnknownReason(StrEnum):
    """Why a source, or one fact of it, gave no answer."""

    UNREACHABLE = "unreachable"
    AUTH = "auth"
    EXPIRED = "expired"  # the host's certificate: it answers, and nothing but its renewal is done there
    BUSY = "busy"  # it answers that it can't now, such as a BMC whose sessions are all taken
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    NOT_ASKED = "not_asked"  # the spec configures no such source, or it was not due
    NOT_READ = "not_read"  # nobody asked it: the worker of an engine that was to do it did not
    EXPLAINED = "explained"  # a known cause: powered off, in POST, in the installer
    CRASHED = "crashed"  # a bug of ours: it answered, for all we know, and its answer was not understood


class NodeState(StrEnum):
    """The state that the spec gives a node: whether it may be acted upon at all."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    RETIRED = "retired"
    DECOMMISSIONED = "decommissioned"  # taken out of the fleet for good, and the declared drives erased


class BootWay(StrEnum):
    """The ways for an installer to get into a machine."""

    VIRTUAL_MEDIA = "virtual_media"  # a disc that the BMC fetches
    HTTP = "http"  # the firmware fetches it, from a URI that is given to it
    PXE = "pxe"  # the firmware asks DHCP, which points it to our server


class Provision(StrEnum):
    """The consent of the spec for a machine of which nothing is known."""

    BLANK = "blank"  # nothing on its disk is wanted


class ReimagedBy(StrEnum):
    """The one who writes the image of a node."""

    RECONCILER = "reconciler"
    PERSON = "person"


class Power(StrEnum):
    ON = "on"
    OFF = "off"
    POWERING_ON = "powering_on"
    POWERING_OFF = "powering_off"


class BootPhase(StrEnum):
    """Redfish BootProgress, reduced to what decisions need. No BMC tells an installer from another system."""

    OFF = "off"
    POST = "post"
    OS_BOOTING = "os_booting"
    OS_RUNNING = "os_running"


class Health(StrEnum):
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


class Certainty(StrEnum):
    EXACT = "exact"
    PREDICTED = "predicted"


class DrainProvider(StrEnum):
    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    COMMAND = "command"
    NONE = "none"

    @property
    def asks_cluster(self) -> bool:
        """Return whether the cluster of the fleet tells what runs on a node, and is asked to end it."""
        return self in (DrainProvider.KUBERNETES, DrainProvider.SLURM)


class CheckpointWay(StrEnum):
    """The ways to ask work to save its state before it is evicted."""

    ANNOTATION = "annotation"  # on its pods, which answer by another one
    COMMAND = "command"  # on the host
    HTTP = "http"  # a POST to its pods, through the API server
    SIGNAL = "signal"  # to the processes of its jobs, through Slurm


class StopPolicy(StrEnum):
    """How a ClusterQueue of Kueue is stopped (kueue.x-k8s.io, ClusterQueueSpec.stopPolicy)."""

    HOLD = "Hold"  # what was admitted runs to its end
    HOLD_AND_DRAIN = "HoldAndDrain"  # what was admitted is evicted


class SignalTo(StrEnum):
    """The processes of a Slurm job that a signal is sent to."""

    BATCH = "batch"  # its batch script
    STEPS = "steps"  # what srun started
    ALL = "all"


# Conditions of a node object that its kubelet sets. Any other is a detector's.
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
OF_KUBELET = frozenset({"Ready", *PRESSURES})


class Reason(StrEnum):
    """Why a node is taken out of service, most urgent first. Budgets may hold for some reasons only."""

    REMEDIATION = "remediation"  # it is ill
    DRIFT = "drift"  # it moved away from what was applied
    CHANGE = "change"  # the spec moved
    RENEWAL = "renewal"  # nothing but its certificate


class WindowKind(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class DriftMode(StrEnum):
    OBSERVE = "observe"
    PROPOSE = "propose"
    CORRECT = "correct"


class NewsSource(StrEnum):
    """A source of news between passes, which says which node to look at."""

    CLUSTER = "watch"
    KERNEL_LOGS = "logs"
    BMC_EVENTS = "events"


class ImageFormat(StrEnum):
    """The forms of the file at an image's URL: a whole disk with a GPT, compressed by zstd or not."""

    RAW = "raw"
    RAW_ZSTD = "raw+zstd"


class LinkKind(StrEnum):
    """The kinds of a network interface of an installed system."""

    ETHERNET = "ethernet"
    BOND = "bond"
    VLAN = "vlan"
