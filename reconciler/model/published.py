"""The published form of an observation and of the ledger: anybody may read it, and it is enough to plan by.

Whoever may propose a change may not always be trusted with the fleet: a fork's pull request is planned offline, from
this. Names of hardware and hosts are keyed digests: equal within one document, so that a certificate still matches its
machine, and telling nothing by themselves. Other words of machines and people are left out (render/publish.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from reconciler.model.observed import Observed
from reconciler.model.records import Hold, NodeRecord, Rollout

PUBLISHED_FORMAT: Final = "1.0"
OWN_NAMES: Final = ("identity.serial", "identity.uuid", "host.hostname")  # paths at which the spec may name a machine
NAMING_PATHS: Final = frozenset({*OWN_NAMES, "image.nonce", "image.root_disk"})  # paths that name a machine or a part


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """`wanted`: digests of what the spec said at these paths when this was published. Who has that spec has the words
    to them, and so reads what was found as specified; of all others, a digest is all that can be said.
    """

    observed: Observed
    record: NodeRecord
    wanted: Mapping[str, str]
    paths: tuple[str, ...] | None  # of the record, in order


@dataclass(frozen=True, slots=True)
class Published:
    format_version: str
    tool_version: str
    fleet: str
    spec_commit: str  # "" = it was not read from a commit as it stands: then no digest can be told by anybody
    started_at: datetime
    finished_at: datetime
    nodes: Mapping[str, PublishedNode]
    ledger: str  # digest of its id
    bios: tuple[str, ...]  # attributes that the spec mentions: values of others are not published
    labels: tuple[str, ...]  # the same of labels on cluster nodes
    taints: tuple[str, ...]  # and of keys of taints
    known: tuple[str, ...] = ()  # nodes that the ledger has applied values of
    holds: tuple[Hold, ...] = ()
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    durations: tuple[tuple[str, str, str, float], ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)  # public keys of images by name
    insecure: tuple[str, ...] = ()
    time_scale: float = 1.0
    epoch: datetime | None = None  # of a lab's clock
    control_plane: Mapping[str, bool] = field(default_factory=dict)
