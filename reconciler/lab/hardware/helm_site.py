"""The Helm releases that a lab's cluster keeps, in Helm's own states."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from reconciler.model.releases import ReleaseStatus


@dataclass(frozen=True, slots=True)
class LabRelease:
    """A release. `good`: the newest revision that was ever deployed; 0 = none. Other fields as in ReleaseFacts."""

    status: ReleaseStatus = ReleaseStatus.ABSENT
    revision: int = 0
    chart: str = ""
    inputs: str = ""
    since: datetime | None = None
    good: int = 0
    not_ready: tuple[str, ...] = ()


@dataclass(slots=True)
class HelmSite:
    """`failing`: releases whose objects never become ready. `log`: what helm was asked to do, in order."""

    releases: dict[str, LabRelease] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    log: list[tuple[str, str]] = field(default_factory=list)

    def put(self, name: str, release: LabRelease | None) -> None:
        """Keep a release; None: it is gone."""
        if release is None:
            self.releases.pop(name, None)
        else:
            self.releases[name] = release
