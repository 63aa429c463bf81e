"""Tell whether a node is healthy: by what it shows, and not while that which speaks for it was not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from reconciler.diff.ignore import IgnoreRules
from reconciler.health.signals import Signal
from reconciler.model.bmc_log import unread_part
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered, HostFacts, Observed
from reconciler.model.records import NodeRecord
from reconciler.planner.node.conditions import HEALTHY, HOST_UP, POWER_ON, ConditionBuilder
from reconciler.planner.node.unhealed import unread_causes
from reconciler.planner.node.withheld import Withheld

_TOLD: Final = "health.facts_silent"  # tells of a log that is not read, and may be ignored


def not_read(
    desired: Desired,
    observed: Observed,
    record: NodeRecord,
    rules: IgnoreRules | None,
    retracted: Collection[str],
) -> tuple[str, ...]:
    """Say what was not read of that for which a node is out of service, and is neither ignored nor retracted."""
    return tuple(
        [
            f"{why}, and the node is out of service for {path}"
            for path, why in unread_causes(desired, observed, record)
            if path not in retracted and (rules is None or rules.match(desired, path) is None)
        ]
    )


def assess_health(
    builder: ConditionBuilder,
    observed: Observed,
    found: Sequence[Signal],
    withheld: Withheld,
    unread: Sequence[str],
) -> None:
    """Set HEALTHY. `unread`: as `not_read` says it."""
    if found:
        builder.because[HEALTHY] = tuple(signal.path for signal in found)
    elif withheld.signals:
        builder.unknown[HEALTHY] = withheld.sentence
    elif isinstance(observed.host, Answered):
        why = (*_blind(observed.host.value), *unread)
        builder.set(HEALTHY, None if why else True, *why)
    elif HOST_UP not in builder.true and HOST_UP not in builder.unknown and POWER_ON in builder.true:
        absent = isinstance(observed.member, Answered) and observed.member.value is None
        if absent or HOST_UP in builder.explained:
            builder.set(HEALTHY, None)  # nothing is installed, or not to its end, so health has no meaning
        else:
            builder.because[HEALTHY] = ("health.host_down",)
    else:
        builder.set(HEALTHY, None, builder.unknown.get(HOST_UP) or "the host does not answer")


def _blind(facts: HostFacts) -> Iterator[str]:
    """Yield what was not read of a host that answers, without which nobody is healthy."""
    for name, value in (("GPUs", facts.gpus), ("kernel log", facts.xids)):
        if value is None:
            yield f"{name} could not be read"


def unread_log(desired: Desired, observed: Observed, rules: IgnoreRules | None) -> str:
    """Return why entries of the logs of a node's BMC may have gone unread; "" where none have, or that is ignored.

    Nobody is admitted meanwhile, and all else goes on: new firmware may be what makes the log readable.
    """
    why = unread_part(observed.inventory)
    return "" if not why or (rules is not None and rules.match(desired, _TOLD) is not None) else why
