"""Judge certificates against a change of the spec that has not been carried out yet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.gate.certificate import binding_of, judge, judge_test, tests_digest
from reconciler.model.desired import Acceptance, Desired, GateTest
from reconciler.model.drift import ACTIONABLE
from reconciler.model.gate import Certificate, Verdict
from reconciler.model.observed import FirmwareItem, Observed, Silent
from reconciler.model.plan import NodePlan
from reconciler.planner.node.conditions import GATE


def certificate_flaws(
    desired: Desired, seen: Observed, plan: NodePlan, certificate: Certificate, now: datetime
) -> tuple[str, ...] | None:
    """Return why the certificate will be void once the plan is carried out; () if it stays valid.

    None: some value that the certificate would have to bind is not known.
    """
    acceptance = desired.profile.acceptance
    if acceptance is None:
        return ("no acceptance profile: nothing proves this node",)
    drifting = {item.path for item in plan.drift if item.kind in ACTIONABLE}
    binding = binding_of(desired, _converged(desired, seen, drifting), tests_digest(acceptance))
    if isinstance(binding, str):
        return None
    judgement = judge(certificate, acceptance, binding, now)
    if judgement.valid:
        tested = [action for action in plan.actions if GATE in action.achieves]
        return tuple(f"tested again: {', '.join(action.because)}" for action in tested)
    return judgement.reasons


def _converged(desired: Desired, seen: Observed, drifting: set[str]) -> Observed:
    """Return the node as it will be without its drift, in all that a certificate binds. Ignored drift remains."""
    profile, inventory, host = desired.profile, seen.inventory, seen.host
    if not isinstance(inventory, Silent):
        bios = {name: value for name, value in profile.bios.items() if f"bios.{name}" in drifting}
        flashed = {
            item.inventory_id: FirmwareItem(item.version)
            for item in profile.firmware
            if f"firmware.{item.component}" in drifting and item.url is not None
        }
        known = inventory.value  # what was not read stays unknown
        value = replace(
            known,
            bios=None if known.bios is None else {**known.bios, **bios},
            firmware=None if known.firmware is None else {**known.firmware, **flashed},
        )
        inventory = replace(inventory, value=value)
    wanted = profile.image if any(path.startswith("image.") for path in drifting) else None
    if wanted is not None and not isinstance(host, Silent) and host.value.image is not None:
        image = replace(host.value.image, sha256=wanted.sha256)
        host = replace(host, value=replace(host.value, image=image))
    return replace(seen, inventory=inventory, host=host)


@dataclass(frozen=True, slots=True)
class MovedThresholds:
    """Gate tests whose thresholds change between two revisions of the spec, as (test at base, test at head)."""

    tests: tuple[tuple[GateTest, GateTest], ...]

    @classmethod
    def between(cls, base: Acceptance | None, head: Acceptance | None) -> MovedThresholds:
        """Compare two acceptance profiles. A test of which more than thresholds changes is left out: it must be run."""
        if base is None or head is None:
            return cls(())
        old = {test.name: test for phase in base.phases for test in phase.tests}
        pairs = ((old[test.name], test) for phase in head.phases for test in phase.tests if test.name in old)
        return cls(tuple((was, now) for was, now in pairs if same_test(was, now) and was.thresholds != now.thresholds))

    def __bool__(self) -> bool:
        return bool(self.tests)

    def judge(self, certificate: Certificate | None) -> tuple[str, ...] | None:
        """Return why the certificate's metrics fail head's thresholds, though they pass base's.

        None: the certificate has no metrics of these tests.
        """
        if certificate is None or certificate.adopted:
            return None
        results = {result.test: result for result in certificate.results}
        if not any(now.name in results for _, now in self.tests):
            return None
        return self._newly_failing(certificate)

    def reasons(self, certificate: Certificate) -> tuple[str, ...]:
        return () if certificate.adopted else self._newly_failing(certificate)

    def _newly_failing(self, certificate: Certificate) -> tuple[str, ...]:
        results = {result.test: result for result in certificate.results}
        reasons: list[str] = []
        for was, now in self.tests:
            result = results.get(now.name)
            if judge_test(was, result)[0] is Verdict.PASS:
                reasons += judge_test(now, result)[1]
        return tuple(reasons)


def same_test(one: GateTest, other: GateTest) -> bool:
    """Return whether two tests differ in their bars at most, so that metrics of one count for the other."""
    return (one.tool, one.args, one.allow_skip) == (other.tool, other.args, other.allow_skip)
