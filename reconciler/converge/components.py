"""Let the components of a node sign what they run, through its BMC. gate/attestation judges it, without any I/O."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from reconciler.gate.attestation.components import judge_component, one_answered_twice
from reconciler.gate.attestation.expected import versions_of
from reconciler.gate.attestation.spdm import NONCE
from reconciler.model.desired import Desired
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import ComponentsProof, GateJudgement, Verdict
from reconciler.model.observed import Observed
from reconciler.model.ports import Bmc, Clock

_REFUSED = (Failure.REJECTED, Failure.UNSUPPORTED)  # the BMC answered, and asking again changes nothing


async def measure_components(
    desired: Desired, bmc: Bmc, observed: Observed, clock: Clock, step: Callable[[str], None]
) -> ComponentsProof:
    """Ask each declared component, one after another and each under a nonce of its own: BMCs serve one at a time.

    What one did not prove costs the others nothing, so that one pass tells of all. `step` tells which is asked.
    """
    platform = desired.profile.measurements
    groups = platform.components if platform is not None else ()
    versions = versions_of(desired, observed) if any(group.references for group in groups) else {}
    if isinstance(versions, str):
        return ComponentsProof(GateJudgement(False, Verdict.UNJUDGED, (versions,)))
    failed: list[str] = []
    unread: list[tuple[Verdict, str]] = []
    keys: dict[str, str] = {}
    evidence: dict[str, Any] = {}
    for group in groups:
        for component in group.ids:
            step(f"asking {component} what it runs")
            nonce = secrets.token_bytes(NONCE)
            try:
                answer = await bmc.signed_measurements(component, nonce)
            except DriverError as error:
                asked = Verdict.UNJUDGED if error.kind in _REFUSED else Verdict.ERROR
                unread.append((asked, f"{component}: {error.detail}"))
                continue
            found = judge_component(answer, nonce, group, versions, clock.now())
            if found.key:
                keys[component] = found.key
                evidence[component] = {"values": dict(found.values), "key": found.key}
            if found.reason:
                failed.append(f"{component}: {found.reason}")
    if problem := one_answered_twice(keys):
        failed.append(problem)
    reasons = (*failed, *(why for _, why in unread))
    verdict = Verdict.FAIL if failed else next((asked for asked, _ in unread), Verdict.PASS)
    return ComponentsProof(GateJudgement(not reasons, verdict, reasons), evidence)
