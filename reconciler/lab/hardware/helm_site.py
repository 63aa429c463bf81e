"""The Helm releases that a lab's cluster keeps, in Helm's own states."""

from __future__ import annotations

from collections.abc import Callable
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
    """`failing`: releases whose objects never become ready. `log`: what helm was asked to do, in order.

    `gpu_operator`: NVIDIA's runs here already, whoever installed it.
    """

    releases: dict[str, LabRelease] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    log: list[tuple[str, str]] = field(default_factory=list)
    gpu_operator: bool = False
    changed: Callable[[], object] = lambda: None  # told of each change

    @property
    def runs_gpu_operator(self) -> bool:
        """Tell whether NVIDIA's GPU Operator was ever deployed, and is there."""
        deployed = (one.chart for one in self.releases.values() if one.good)
        return self.gpu_operator or any(chart.startswith("gpu-operator-") for chart in deployed)

    def put(self, name: str, release: LabRelease | None) -> None:
        """Keep a release; None: it is gone."""
        if release is None:
            self.releases.pop(name, None)
        else:
            self.releases[name] = release
        self.changed()
