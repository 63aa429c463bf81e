"""Conditions of one node, each true, false or unknown: the planner reasons over nothing else.

An unknown is *explained* when its cause is known (powered off, in POST, in the installer). Planning then goes on, and
predicts the value. An unknown without such a cause never leads to a disruptive action (invariant 4).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from reconciler.gate.asked import asked_tests
from reconciler.gate.attestation.expected import reference_of
from reconciler.gate.certificate import TestDigests, tests_digest
from reconciler.health.peer_ports import PoolPorts
from reconciler.health.signals import Signal
from reconciler.model.desired import Profile, Settings
from reconciler.model.plan import Incident
from reconciler.model.records import Mark
from reconciler.model.repairs import RepairPhase
from reconciler.model.vocab import Concern
from reconciler.planner.node.signal_cache import SignalCache

if TYPE_CHECKING:
    from reconciler.planner.node.decommission import Leaving

IDENTITY = "identity_ok"
HOST_IDENTITY = "host_identity"  # its host is the machine that the spec names; of a node without a BMC
POWER_ON = "power_on"
HOST_UP = "host_up"
REGISTERED = "registered"  # the cluster has a node object
MEMBER = "member"  # the node object is Ready
MARKED = "marked"
QUIESCED = "quiesced"
IN_SERVICE = "in_service"
RESERVED = "reserved"  # our mark says that it is kept as a spare
BIOS = "bios_ok"
BIOS_STAGED = "bios_staged"
BOOT = "boot_ok"
BOOT_STAGED = "boot_staged"
IMAGE = "image_ok"
BACKED_UP = "backed_up"  # what the spec wants saved is in its repository, whole, since the node last served
RESTORED = "restored"  # nothing that was saved waits to be restored after its disk was written
SERVING_SYNCED = "serving_synced"  # the others of its serving group have what they need of its data
SERVING_DEGRADED = "serving_degraded"  # its serving group serves without it, or never served with it
SERVING_RESTORED = "serving_restored"  # nothing that its serving group was told has to be taken back
HELD = "held_for_reimage"  # a person may write its image: it is drained, and what it has to lose is saved
SIGNATURE = "signature_ok"  # the image that the spec pins is signed by a key we trust
HOST = "host_ok"
KUBELET = "kubelet_runs"  # used only where the kubelet is stopped and pods are bound to the node
GPU_PLAIN = "gpu_plain"  # MIG off, as diagnostics need it
GPU = "gpu_ok"
LABELS = "labels_ok"
K3S_RELEASE = "k3s_release"  # program and images of the wanted version are in place, and it runs
K3S = "k3s_ok"  # its files are as declared, it runs by them, and no certificate ends soon
OPERATORS = "operators_ready"  # they have validated it, and it offers the devices that are declared; where they are
TRUST = "trust_ok"
GATE = "gate_ok"
HOST_CERTIFICATE = "host_certificate"  # that of its SSH host key is good for a while
BMC_PASSWORD = "bmc_password"  # that of its BMC is not to be changed now
BMC_ANSWERS = "bmc_answers"  # or is not to be reset by its host
HARDWARE = "hardware_ok"
HEALTHY = "healthy"
TREATED = "treated"
# Of a node that leaves the fleet for good:
LEFT = "left_cluster"  # the cluster has no node object, and no kubelet makes one
REVOKED = "revoked"
TPM = "tpm_cleared"
OFF = "powered_off"
BURIED = "tombstone"
# Of a node of which a person exchanges parts:
INDICATED = "indicated"  # its locator LED is on, or it has none
NOT_INDICATED = "not_indicated"
PARTS_ACCEPTED = "parts_accepted"  # what a person put in was read, and is what a repair brings


def firmware_ok(component: str) -> str:
    return f"firmware_ok:{component}"


def erased(serial: str) -> str:
    return f"erased:{serial}"


def firmware_staged(component: str) -> str:
    return f"firmware_staged:{component}"


@dataclass(frozen=True, slots=True)
class ProfileConditions:
    """Values that nodes of one profile share. `compared`: conditions that drift decides; `trusted`: parts of TRUST."""

    tests: TestDigests
    asked: Mapping[str, str]  # text of each test, by its value path
    compared: frozenset[str]
    trusted: tuple[str, ...]
    reference: str  # digest of what a boot must prove; "" = nothing


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a node's conditions that are not its own.

    `signatures`: (image, version) -> whether its signature verifies; None if the key is not known. `endpoints`: digest
    of the file given with --endpoints, which overrides the addresses of nodes; "" if there is none. `signals`: those
    that were computed already. `of_domain`: node -> value path of a signal -> the failure domain that causes it.
    `spares`: nodes that are kept out of the work as spares.
    """

    settings: Settings
    ledger: str
    now: datetime
    signatures: Mapping[tuple[str, str], bool | None]
    neighbours_answer: frozenset[str] = frozenset()  # failure domains, as "label=value", in which another node answers
    endpoints: str = ""
    spares: frozenset[str] = frozenset()
    signals: SignalCache = field(default_factory=SignalCache, compare=False)
    incidents: tuple[Incident, ...] = ()  # of failure domains
    of_domain: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    bmc_to_reset: str = ""  # the node whose BMC may be reset now: planner/node/bmc_reset.py
    passwords_to_rotate: frozenset[str] = frozenset()  # of whose BMCs: planner/node/bmc_password.py
    pool_ports: Mapping[str, PoolPorts] = field(default_factory=dict)  # of all nodes that were read, by pool
    _profiles: dict[str, ProfileConditions] = field(default_factory=dict, compare=False)

    def of_profile(self, profile: Profile) -> ProfileConditions:
        if profile.digest not in self._profiles:
            firmware = [firmware_ok(row.component) for row in profile.firmware]
            self._profiles[profile.digest] = ProfileConditions(
                tests=TestDigests("", {}) if profile.acceptance is None else tests_digest(profile.acceptance),
                asked=asked_tests(profile.acceptance),
                compared=frozenset({*BY_CONCERN.values(), MEMBER, LABELS, K3S, K3S_RELEASE, *firmware}),
                trusted=(IMAGE, SIGNATURE, BOOT, *firmware),
                reference=reference_of(profile),
            )
        return self._profiles[profile.digest]


@dataclass(frozen=True, slots=True)
class Unread:
    """A disk whose system does not answer. `cause`: why it may be written unread; "" if it may not. `remedy`: what a
    person has to write down before it may."""

    cause: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one node. One that is neither in `true` nor in `unknown` nor in `explained` is false.

    `because`: condition -> value paths of the drift, or sentences of evidence, that make it false.
    """

    true: frozenset[str]
    unknown: Mapping[str, str]
    explained: Mapping[str, str]
    because: Mapping[str, tuple[str, ...]]
    signals: tuple[Signal, ...]
    reported: tuple[Signal, ...]  # shown and not acted upon, by the table of signals or because a person retracted them
    ignored: tuple[Signal, ...]  # shown and not acted upon, by an ignore rule of the spec
    withheld: tuple[tuple[Signal, str], ...]  # signals that do not count yet, each with why
    mark: Mark | None  # of this ledger
    foreign_mark: Mark | None
    foreign_cordon: bool
    foreign_hold: str  # who else maintains the node at present; "" = nobody
    tampered: str  # evidence that the running image is not the one it claims to be; "" if there is none
    waiting: str  # why to look again later: a boot, an installation or a detector is under way; "" if nothing is
    waits_until: datetime | None  # the end of the wait, if known
    watched_until: datetime | None  # before it is admitted: until when its counters of errors are watched
    unread_log: str  # before it is admitted: why entries of its BMC's logs may have gone unread; "" if none has
    gate_failed: str  # why the gate failed on this machine, which has not been repaired since; "" if it did not
    impossible: Mapping[str, str] = field(default_factory=dict)  # actions that its BMC can't do, each with the reason
    entry_awaits_image: bool = False  # the boot order names an entry that only an installed system brings
    unread: Unread = Unread()  # whether the disk of a silent machine may be written
    leaving: Leaving | None = None  # of a node that is to be decommissioned
    repair: RepairPhase | None = None  # of a person's repair that is under way
    needs_installer: str | None = None  # why; "": it writes an image itself, None: there is no other way
    fell_back: str = ""  # from the wanted image, which was proved before: it is not written again by itself
    spare: bool = False  # it is to be kept as one
    asked_tests: frozenset[str] = frozenset()  # that a gate would run now; () = none, or it isn't known which
    of_domain: Mapping[str, str] = field(default_factory=dict)  # signals of an incident of a failure domain -> which

    @property
    def own_signals(self) -> tuple[Signal, ...]:
        """The signals that no incident of a failure domain explains."""
        return tuple(one for one in self.signals if one.path not in self.of_domain) if self.of_domain else self.signals

    @property
    def key(self) -> Hashable:
        """Equal for nodes of a profile that need the same actions for the same reasons."""
        reasons = (self.unknown, self.explained, self.because)
        return (
            self.true, *[tuple(words.items()) for words in reasons], self.signals, self.reported, self.ignored,
            self.withheld, self.foreign_cordon, self.foreign_hold, self.tampered, self.waiting, self.waits_until,
            self.watched_until, self.unread_log, self.gate_failed, tuple(self.impossible.items()),
            self.entry_awaits_image, self.unread,
            None if self.leaving is None else self.leaving.key(), self.needs_installer, self.fell_back,
            self.asked_tests, tuple(self.of_domain.items()), self.repair, self.spare,
        )  # fmt: skip


@dataclass(slots=True)
class ConditionBuilder:
    """Collects conditions while a node is assessed."""

    explained_by: str  # the known cause of unknowns; "" if there is none
    true: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    because: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set(self, name: str, value: bool | None, *why: str) -> None:
        """Set a condition: True, False, or None if it is not known. `why` is kept unless it is true."""
        if value:
            self.true.add(name)
        elif value is None and self.explained_by:
            self.explained[name] = self.explained_by
        elif value is None:
            self.unknown[name] = "; ".join(why) or "not known"
        if value is not True and why:
            self.because[name] = why

    def copy(self) -> ConditionBuilder:
        return ConditionBuilder(
            self.explained_by, set(self.true), dict(self.unknown), dict(self.explained), dict(self.because)
        )


BY_CONCERN: Mapping[Concern, str] = {
    Concern.BIOS: BIOS,
    Concern.BOOT: BOOT,
    Concern.IMAGE: IMAGE,
    Concern.HOST: HOST,
    Concern.GPU: GPU,
    Concern.HARDWARE: HARDWARE,
}
