"""A difference between desired and observed, classified three ways against what was applied (DESIGN section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from reconciler.model.privacy import FreeText, FreeValue, NodeName, SpecValue, ValuePath
from reconciler.model.vocab import Concern, Source


class DriftClass(StrEnum):
    DRIFTED = "drifted"  # the node moved away from what was applied (or was never as desired)
    PENDING = "pending"  # the spec moved, the node did not
    CONFLICT = "conflict"  # both moved
    RENEWAL = "renewal"  # a certificate is missing, expired or newly failing
    UNMANAGED = "unmanaged"
    UNKNOWN = "unknown"  # could not be read: not drift, not clean
    IGNORED = "ignored"
    REPORTED = "reported"  # a sign of trouble that nothing is done about: a person reads it
    IN_PROGRESS = "in_progress"  # staged, waiting for its activation; or a task runs
    CONVERGED = "converged"


ACTIONABLE = frozenset(
    {DriftClass.DRIFTED, DriftClass.PENDING, DriftClass.CONFLICT, DriftClass.RENEWAL, DriftClass.IN_PROGRESS}
)


DEPRECATED = "cluster.deprecated."  # begins the path of a deprecated API that is in use; its name follows
TOLD = ACTIONABLE | {DriftClass.REPORTED}  # what makes a drift report say that there is something


@dataclass(frozen=True, slots=True)
class DriftItem:
    """The difference at one path of one node. Values are JSON values; `applied` None = we never applied one."""

    node: NodeName
    concern: Concern
    path: ValuePath  # "bios.SriovGlobalEnable", "firmware.bmc", "image.version", "cluster.labels.tier"
    kind: DriftClass
    desired: SpecValue
    observed: FreeValue
    applied: SpecValue = None
    source: Source | None = None
    detail: FreeText = ""  # why it is unknown or ignored; which parts of a list or mapping differ
    first_seen: datetime | None = None
    last_seen: datetime | None = None
