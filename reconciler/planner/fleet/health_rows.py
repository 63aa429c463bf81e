"""Say in each plan which evidence that isolates a fleet has weakened: a node that serves should not be the first to."""

from __future__ import annotations

from collections.abc import Container, Iterator

from reconciler.health.table import health_table
from reconciler.health.xids import isolates
from reconciler.model.desired import Fleet, IgnoreRule
from reconciler.spec.signals import PREFIX, guarded_by


def weakened_rows(fleet: Fleet, expired: Container[IgnoreRule]) -> Iterator[str]:
    """Yield a sentence for each row of hard evidence that the spec weakens or ignores, with its reason and its line.

    `expired`: rules of the spec that ignore nothing any more.
    """
    settings = fleet.settings
    why = {change.name: change.because for change in settings.health}
    for name, lost in health_table(settings.health).weakened.items():
        place = fleet.places.get(PREFIX + name)
        at = f" ({place})" if place is not None else ""
        yield f"signal {name} isolates by the packaged table, and less here{at}: {lost}; because {why[name]}"
    for rule in settings.ignore:
        if rule not in expired and (names := guarded_by(rule)):
            shown = ", ".join(f"{name}*" if name.endswith("_") else name for name in names)
            yield f"nobody is isolated for {shown}, which {_whose(rule.pools, rule.nodes)}: {rule.reason}"
    profiles = {id(node.profile): node.profile for node in fleet.nodes.values()}  # equal nodes share theirs
    policies = [profile.remediation for profile in profiles.values() if profile.remediation is not None]
    for code in sorted({code for policy in policies for code in policy.ignore_xids}):
        if isolates(code):
            yield f"nobody is isolated for xid_{code}, which ignoreXids of a RemediationPolicy names"


def _whose(pools: tuple[str, ...], nodes: tuple[str, ...]) -> str:
    some = [*(f"pool {name}" for name in pools), *(f"node {name}" for name in nodes)]
    return f"the spec ignores on {', '.join(some)}" if some else "the spec ignores"
