"""Helm releases of a cluster: what the spec declares of each, what is found of it, and what would be done.

Words and states are Helm's own (helm.sh/docs, "helm upgrade", "helm history"; pkg/release/status.go of helm/helm).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from reconciler.model.errors import Position
from reconciler.model.privacy import FreeText, PublicText, ValuePath

JOURNAL: Final = "operators/"  # before a cluster's name: what the journal calls the work on its releases
DESCRIPTION: Final = "reconciler.dev inputs "  # begins the description of a release of ours; its digest follows


class OperatorKind(StrEnum):
    """The charts of which more is known than Helm says."""

    CHART = "chart"
    GPU = "gpu-operator"
    NETWORK = "network-operator"


class CrdPolicy(StrEnum):
    """The ways to treat the folder `crds` of a chart, which Helm itself never upgrades."""

    CREATE = "create"  # those that are missing when the release is installed
    APPLY = "apply"  # all of them, before each install and upgrade
    SKIP = "skip"


class ReleaseStatus(StrEnum):
    """The states of a release's newest revision."""

    ABSENT = "absent"  # ours: there is no such release
    UNKNOWN = "unknown"
    DEPLOYED = "deployed"
    UNINSTALLED = "uninstalled"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    UNINSTALLING = "uninstalling"
    PENDING_INSTALL = "pending-install"
    PENDING_UPGRADE = "pending-upgrade"
    PENDING_ROLLBACK = "pending-rollback"

    @property
    def is_pending(self) -> bool:
        """Return whether a helm is at work on it, or was killed while it was."""
        return self.value.startswith("pending-") or self is ReleaseStatus.UNINSTALLING


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of one version. `source`: oci://… or the URL of a repository; a path below the spec with `archive`."""

    source: str
    name: str
    version: str
    sha256: str  # of the archive, a .tgz
    archive: str | None = field(default=None, repr=False)  # of the spec's own tree, in base64


class Review(StrEnum):
    """How far a release of a change that nobody has merged yet may be trusted (conventions S3)."""

    MERGED = "merged"
    CHANGED = "changed"  # rendered without a look into the cluster: a template may read any Secret there, and print it
    NEW_SOURCE = "new_source"  # from a place that nothing merged names: nobody fetches it


@dataclass(frozen=True, slots=True)
class DesiredRelease:
    """A release as the spec declares it. `values`: JSON, on top of the chart's own."""

    name: str
    namespace: str
    kind: OperatorKind
    chart: Chart
    values: str
    crds: CrdPolicy
    timeout_s: float
    position: Position
    review: Review = Review.MERGED
    out_of_service: bool = False  # its pods tolerate our mark, so they need no node in service

    @property
    def inputs(self) -> str:
        """The digest of all that decides what is installed; it is the description of each revision of ours."""
        text = json.dumps([self.name, self.namespace, self.chart.sha256, json.loads(self.values), self.crds.value])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A value of an object that differs. None: it is not there. Values of Secrets are never shown."""

    path: ValuePath
    before: FreeText | None
    after: FreeText | None


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object that an install or upgrade adds, changes or removes. `object`: kind, namespace and name."""

    object: FreeText
    change: PublicText  # added | changed | removed
    values: tuple[ValueChange, ...] = ()  # of one that is changed
    more: int = 0  # how many others differ, of which `values` shows the first


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """A release as it is found.

    `revision`: the newest; 0 = none. `inputs`: the digest in its description; "" = another's. `since`: when the newest
    revision was begun. `good`: the newest revision that was ever deployed; 0 = none. `changes`: what installing the
    declared chart and values would change of the manifest that is deployed; None: not computed, as it is not needed or
    Helm refuses it meanwhile. `not_ready`: what of it is not ready; None: that could not be read.
    """

    status: ReleaseStatus
    revision: int = 0
    chart: PublicText = ""  # as helm writes it: gpu-operator-v25.3.0
    inputs: PublicText = ""
    since: datetime | None = None
    good: int = 0
    changes: tuple[ObjectChange, ...] | None = None
    not_ready: tuple[FreeText, ...] | None = ()


class ReleaseAction(StrEnum):
    """The things that are done to a release."""

    NOTHING = "nothing"
    INSTALL = "install"
    UPGRADE = "upgrade"
    RECOVER = "recover"  # end what a killed helm left pending, then install or upgrade


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """A release in a plan. `waits`: why its action does not begin now; "" = it may. `fingerprint` binds an approval."""

    name: PublicText
    namespace: PublicText
    kind: OperatorKind
    chart: PublicText  # declared
    runs: PublicText  # the chart that is deployed; "" = none, or not known
    status: FreeText  # Helm's word, or why the release could not be read
    action: ReleaseAction
    why: FreeText
    waits: FreeText
    changes: tuple[ObjectChange, ...]
    not_ready: tuple[FreeText, ...]
    ready: bool | None
    fingerprint: PublicText
    where: PublicText  # file:line of the spec

    @property
    def changes_something(self) -> bool:
        return self.action is not ReleaseAction.NOTHING


Releases = Mapping[str, DesiredRelease]
