"""What the planner reasons over: conditions of one node, each true, false or unknown.

An unknown is *explained* when its cause is known (powered off, in POST, in the installer): planning goes on and what
lies behind it is predicted. Any other unknown never leads to a disruptive action (invariant 4).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.gate.certificate import tests_digest
from reconciler.health.signals import Signal
from reconciler.model.desired import Profile, Settings
from reconciler.model.records import Mark
from reconciler.model.vocab import Concern

IDENTITY = "identity_ok"
POWER_ON = "power_on"
HOST_UP = "host_up"
REGISTERED = "registered"  # the cluster has a node object
MEMBER = "member"  # and it is Ready
MARKED = "marked"
QUIESCED = "quiesced"
IN_SERVICE = "in_service"
BIOS = "bios_ok"
BIOS_STAGED = "bios_staged"
BOOT = "boot_ok"
BOOT_STAGED = "boot_staged"
IMAGE = "image_ok"
SIGNATURE = "signature_ok"  # the image that the spec pins is signed by a key we trust
HOST = "host_ok"
KUBELET = "kubelet_runs"  # asked for only where it is stopped under pods
GPU_PLAIN = "gpu_plain"  # MIG off, as diagnostics need it
GPU = "gpu_ok"
LABELS = "labels_ok"
TRUST = "trust_ok"
GATE = "gate_ok"
HARDWARE = "hardware_ok"
HEALTHY = "healthy"
TREATED = "treated"


def firmware_ok(component: str) -> str:
    return f"firmware_ok:{component}"


def firmware_staged(component: str) -> str:
    return f"firmware_staged:{component}"


@dataclass(frozen=True, slots=True)
class OfProfile:
    """What nodes of one profile share. `compared`: conditions that drift speaks of; `trusted`: those behind TRUST."""

    tests_digest: str
    compared: frozenset[str]
    trusted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """What a node's conditions depend on besides the node.

    `signatures`: (image, version) -> whether its signature verifies; None where the key is not known. `endpoints`:
    digest of the file that says where else than at their addresses the nodes are reached; "" = there is none.
    """

    settings: Settings
    ledger: str
    now: datetime
    signatures: Mapping[tuple[str, str], bool | None]
    neighbours_answer: frozenset[str] = frozenset()  # "label=value" domains in which some other node answers over SSH
    endpoints: str = ""
    _of_profiles: dict[str, OfProfile] = field(default_factory=dict, compare=False)

    def of(self, profile: Profile) -> OfProfile:
        if profile.digest not in self._of_profiles:
            firmware = [firmware_ok(row.component) for row in profile.firmware]
            self._of_profiles[profile.digest] = OfProfile(
                tests_digest="" if profile.acceptance is None else tests_digest(profile.acceptance),
                compared=frozenset({*OF_CONCERN.values(), MEMBER, LABELS, *firmware}),
                trusted=(IMAGE, SIGNATURE, BOOT, *firmware),
            )
        return self._of_profiles[profile.digest]


@dataclass(frozen=True, slots=True)
class Conditions:
    """`false` is everything that is neither true nor unknown. `because`: condition -> the drift or evidence for it."""

    true: frozenset[str]
    unknown: Mapping[str, str]
    explained: Mapping[str, str]
    because: Mapping[str, tuple[str, ...]]
    signals: tuple[Signal, ...]
    reported: tuple[Signal, ...]  # told, and nothing else: by the table of signals, or because a person retracted them
    ignored: tuple[Signal, ...]  # by a rule of the spec: told, and nothing else
    doubted: tuple[Signal, ...]  # which may be of before a treatment
    mark: Mark | None  # ours
    foreign_mark: Mark | None
    foreign_cordon: bool
    tampered: str  # evidence that the running image is not what it claims to be
    waiting: str  # a boot or an installation is under way, or a detector is to speak: look again
    waits_until: datetime | None  # for how long, where that is known
    gate_failed: str  # what the gate found wrong with this very machine, to which nothing was done since

    @property
    def key(self) -> Hashable:
        """Equal for states in which the same is to be done for the same reasons."""
        told = (self.unknown, self.explained, self.because)
        return (
            self.true, *[tuple(words.items()) for words in told], self.signals, self.reported, self.ignored,
            self.doubted, self.foreign_cordon, self.tampered, self.waiting, self.waits_until, self.gate_failed,
        )  # fmt: skip


@dataclass(slots=True)
class ConditionBuilder:
    """Collects verdicts while a node is judged."""

    explained_by: str  # "" = unknowns of the host have no known cause
    true: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    because: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def set(self, name: str, value: bool | None, *why: str) -> None:
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


OF_CONCERN: Mapping[Concern, str] = {
    Concern.BIOS: BIOS,
    Concern.BOOT: BOOT,
    Concern.IMAGE: IMAGE,
    Concern.HOST: HOST,
    Concern.GPU: GPU,
    Concern.HARDWARE: HARDWARE,
}
