"""What a change of the spec would do: the part of a pull request's plan that compares two revisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftItem


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """An address, host key, CA or secret name that the change edits: reported, and nothing is contacted there."""

    subject: str  # node name, or "fleet"
    what: str  # "bmc", "host", "tls.ca", "hostKeys", "redfish.credentials", "ssh.credentials", "kubeconfig", ...
    before: str  # "" = none: the node is new
    after: str  # "" = none: the node leaves
    position: str = ""  # file:line:column at head


@dataclass(frozen=True, slots=True)
class VoidCertificate:
    """A certificate that is valid at base and not at head. `valid_until`: when it would have ended anyway."""

    node: str
    reasons: tuple[str, ...]
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class BarFailure:
    """Threshold what-if: a node whose stored metrics do not clear the bar of head, though they clear that of base."""

    node: str
    reasons: tuple[str, ...]  # "nccl: busbw_peak 441.2 < 460"
    measured_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """What head does that base does not. Blast radius: what the actions that only head needs do to whom."""

    base: SpecSource
    head: SpecSource
    caused: tuple[DriftItem, ...]  # drift at head that there is not at base
    before: tuple[DriftItem, ...]  # drift that had been there already
    removed: tuple[DriftItem, ...]  # drift at base that head accepts
    touched: Mapping[str, tuple[str, ...]]  # disruption label -> nodes that the change disrupts so, worst first
    gpu_hours_out: float  # that the change costs beyond what base would do
    joining: tuple[str, ...]  # nodes that head adds: not contacted
    forgotten: tuple[str, ...]  # nodes that head no longer names
    endpoints: tuple[EndpointChange, ...]
    void_certificates: tuple[VoidCertificate, ...]
    below_bar: tuple[BarFailure, ...]
