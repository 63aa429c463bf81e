"""The effect of a change of the spec: the part of a pull request's plan that compares two revisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reconciler.model.bars import MovedBar, NewTest
from reconciler.model.desired import LineOrigin, SpecSource
from reconciler.model.drift import DriftItem
from reconciler.model.privacy import FreeText, NodeName, PublicText


@dataclass(frozen=True, slots=True)
class EndpointChange:
    """An address, host key, CA or secret name that the change edits: reported, and nothing is contacted there."""

    subject: PublicText  # node name, or "fleet"
    what: PublicText  # "bmc", "host", "redfish.tls", "ssh.hostKeys", "redfish.credentials", "cluster.kubeconfig" ...
    before: PublicText  # "" = none, as of a node that joins
    after: PublicText  # "" = none
    position: PublicText = ""  # file:line:column at head


@dataclass(frozen=True, slots=True)
class VoidCertificate:
    """A certificate that is valid at base and not at head. `valid_until`: when it would have ended anyway."""

    node: NodeName
    reasons: tuple[FreeText, ...]
    valid_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class BarFailure:
    """Threshold what-if: a node whose stored metrics do not clear the bar of head, though they clear that of base."""

    node: NodeName
    reasons: tuple[FreeText, ...]  # "nccl: busbw_peak 441.2 < 460"
    measured_at: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """The differences between what head and base do. Blast radius: actions that only head needs, and their nodes."""

    base: SpecSource
    head: SpecSource
    caused: tuple[DriftItem, ...]  # drift at head that there is not at base
    before: tuple[DriftItem, ...]  # drift that had been there already
    removed: tuple[DriftItem, ...]  # drift at base that head accepts
    touched: Mapping[
        PublicText, tuple[PublicText, ...]
    ]  # disruption label -> nodes that the change disrupts so, worst first
    gpu_hours_out: float  # that the change costs beyond what base would do
    joining: tuple[PublicText, ...]  # nodes that head adds: not contacted
    forgotten: tuple[PublicText, ...]  # nodes that head no longer names
    endpoints: tuple[EndpointChange, ...]
    void_certificates: tuple[VoidCertificate, ...]
    below_bar: tuple[BarFailure, ...]
    above_bar: tuple[PublicText, ...] = ()  # nodes whose stored metrics clear every bar that head moves
    unmeasured: tuple[PublicText, ...] = ()  # nodes with a bar that head moves, and no stored metrics to judge by it
    unseen: tuple[DriftItem, ...] = ()  # values that head manages, that base does not, and that nobody has read
    set_by: Mapping[PublicText, tuple[PublicText, ...]] = field(
        default_factory=dict
    )  # path that it causes drift at -> lines at head
    origins: Mapping[PublicText, LineOrigin] = field(
        default_factory=dict
    )  # such a line -> who set it, as far as git tells
    held_up: tuple[PublicText, ...] = ()  # nodes with drift that it causes, and nothing that may be done about it now
    states: Mapping[PublicText, tuple[PublicText, ...]] = field(
        default_factory=dict
    )  # "quarantined" -> nodes that it makes so
    settings: tuple[PublicText, ...] = ()  # what else of the Fleet it edits: "budgets", "guards" ...
    unknown: tuple[PublicText, ...] = ()  # nodes whose values it edits, and of which too little is known to say more
    nodes: int = 0  # how many of the nodes in scope are named at both revisions
    bars: tuple[MovedBar, ...] = ()  # of each metric whose bars it moves
    new_tests: tuple[NewTest, ...] = ()  # that it adds, or of which it changes more than bars

    @property
    def empty(self) -> bool:
        """Return whether the change alters no node and no way of reaching a node."""
        differences = (self.caused, self.removed, self.touched, self.joining, self.forgotten, self.endpoints)
        consequences = (self.void_certificates, self.below_bar, self.unmeasured, self.unseen, self.unknown)
        admitted = any(bar.admitted for bar in self.bars)
        return not any((*differences, *consequences, self.states, self.settings, self.new_tests, admitted))
