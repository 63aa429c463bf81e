"""ports.ReleaseStore on the lab's cluster: Helm's states, and none of its charts.

A revision is pending while helm works on it, and stays so when helm is killed; then Helm refuses to go on ("another
operation (install/upgrade/rollback) is in progress", helm/helm pkg/action/upgrade.go). A failed atomic install is taken
away, and a failed atomic upgrade rolled back, under a description of Helm's own. tests/drivers/helm runs the real helm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.lab.hardware.control_plane import ClusterTruth
from reconciler.lab.hardware.helm_site import LabRelease
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import Clock
from reconciler.model.releases import DesiredRelease, ObjectChange, ReleaseFacts, ReleaseStatus
from reconciler.model.vocab import UnknownReason

INSTALL_S: Final = 60.0
_UNREACHABLE: Final = "Kubernetes cluster unreachable"


class LabReleases:
    """The releases of a lab's cluster, which keeps them."""

    def __init__(self, truth: ClusterTruth, clock: Clock) -> None:
        self._truth = truth
        self._site = truth.helm
        self._clock = clock

    async def look(self, wanted: DesiredRelease) -> Answered[ReleaseFacts] | Silent:
        now = self._clock.now()
        if self._truth.down:
            return Silent(now, UnknownReason.UNREACHABLE, _UNREACHABLE)
        found = self._site.releases.get(wanted.name)
        what = ObjectChange(f"Deployment {wanted.place}", "added" if found is None else "changed")
        if found is None:
            return Answered(now, ReleaseFacts(ReleaseStatus.ABSENT, changes=(what,)))
        same = found.inputs == wanted.inputs
        return Answered(
            now,
            ReleaseFacts(
                found.status, found.revision, found.chart, found.inputs, found.since, found.good,
                None if found.status.is_pending else () if same else (what,),
                found.not_ready if found.status is ReleaseStatus.DEPLOYED else None,
            ),
        )  # fmt: skip

    async def install(self, wanted: DesiredRelease) -> None:
        found = self._reach(wanted.name)
        if found.status.is_pending:
            raise DriverError(Failure.BUSY, "another operation (install/upgrade/rollback) is in progress")
        self._site.log.append(("install", wanted.name))
        status = ReleaseStatus.PENDING_UPGRADE if found.good else ReleaseStatus.PENDING_INSTALL
        begun = replace(found, status=status, revision=found.revision + 1, since=self._clock.now(), inputs="")
        self._site.put(wanted.name, begun)
        await self._clock.sleep(INSTALL_S)
        if wanted.name in self._site.failing:
            back = replace(found, revision=begun.revision + 1, inputs="") if found.good else None
            self._site.put(wanted.name, back)
            raise DriverError(Failure.TIMEOUT, "timed out waiting for the condition")
        chart = f"{wanted.chart.name}-{wanted.chart.version}"
        done = replace(begun, status=ReleaseStatus.DEPLOYED, chart=chart, inputs=wanted.inputs, good=begun.revision)
        self._site.put(wanted.name, done)

    async def recover(self, wanted: DesiredRelease, found: ReleaseFacts) -> None:
        known = self._reach(wanted.name)
        self._site.log.append(("recover", wanted.name))
        revision = known.revision + 1
        back = replace(known, status=ReleaseStatus.DEPLOYED, revision=revision, good=revision) if found.good else None
        self._site.put(wanted.name, back)

    def _reach(self, name: str) -> LabRelease:
        if self._truth.down:
            raise DriverError(Failure.UNREACHABLE, _UNREACHABLE)
        return self._site.releases.get(name) or LabRelease()
