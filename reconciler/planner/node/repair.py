"""Tell what is wanted of a node of which a person exchanges parts, phase by phase.

Such a node is the person's: no rung of the ladder and nothing that the spec asks for is done to it. What brings it back
is what brings back any node, once its parts are accepted: the gate by part, and admission.
"""

from __future__ import annotations

from reconciler.model.observed import Observed, Silent
from reconciler.model.plan import BlockCode, NodePlan
from reconciler.model.records import NodeRecord
from reconciler.model.repairs import Repair, RepairPhase
from reconciler.planner.node import conditions as c


def assess_repair(builder: c.ConditionBuilder, observed: Observed, record: NodeRecord) -> None:
    """Set the conditions of a node in repair. A machine without a locator LED has nothing to switch."""
    if record.repair is None:
        return
    if c.POWER_ON in builder.unknown:
        builder.unknown[c.OFF] = builder.unknown[c.POWER_ON]
    else:
        builder.set(c.OFF, c.POWER_ON not in builder.true, "it is on")
    builder.because[c.PARTS_ACCEPTED] = ("its parts were not read since they were exchanged",)
    if isinstance(observed.hot, Silent):
        for name in (c.INDICATED, c.NOT_INDICATED):
            builder.unknown[name] = f"BMC {observed.hot.why}"
        return
    lit = observed.hot.value.indicator
    builder.set(c.INDICATED, lit is not False, "its locator LED is off")
    builder.set(c.NOT_INDICATED, not lit, "its locator LED is on")


def repair_requires(repair: Repair) -> frozenset[str]:
    """Return the conditions that this phase of a repair brings about."""
    match repair.phase:
        case RepairPhase.OUT:
            return frozenset({c.QUIESCED, c.INDICATED, c.OFF})
        case RepairPhase.RETURNING:
            return frozenset({c.POWER_ON, c.NOT_INDICATED, c.PARTS_ACCEPTED})
        case _:
            return frozenset()


def repair_sentence(repair: Repair) -> str:
    """Return who repairs what since when, and what is to be done next."""
    begun = f"in repair since {repair.since:%Y-%m-%d %H:%M} UTC by {repair.who}: {repair.what}"
    match repair.phase:
        case RepairPhase.OUT:
            return f"{begun}; when the parts are exchanged: `reconciler repair done {repair.node}`"
        case RepairPhase.REFUSED:
            return (
                f"{begun}; what was put in is not accepted: {repair.told}; exchange it (`reconciler repair start "
                f"{repair.node}`), or accept it (`reconciler repair done {repair.node} --accept WHY`)"
            )
        case _:
            return f"{begun}; it comes back"


def waits_for_exchange(record: NodeRecord, plan: NodePlan) -> bool:
    """Return whether all that a person needs is done: the node is off, with its locator LED on."""
    rests = plan.blocked is not None and plan.blocked.code is BlockCode.HELD
    return rests and record.repair is not None and record.repair.phase is RepairPhase.OUT
