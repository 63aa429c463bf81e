"""Turn the Fleet's tickets into trackers."""

from __future__ import annotations

from reconciler.model.tickets import Tracker, TrackerKind
from reconciler.spec.kinds.tickets import Tickets
from reconciler.spec.parse import Declarations


def trackers(declared: Declarations) -> tuple[Tracker, ...]:
    return tuple(_tracker(one, declared) for one in declared.fleets[0].spec.tickets)


def _tracker(spec: Tickets, declared: Declarations) -> Tracker:
    owned = (name for name, pool in sorted(declared.pools.items()) if pool.spec.owner in spec.owners)
    pools = spec.pools or tuple(owned)
    if spec.github is not None:
        one = spec.github
        return Tracker(
            spec.name, TrackerKind.GITHUB, one.token, one.url or "", one.repository, spec.labels,
            pools=pools, personas=spec.personas,
        )  # fmt: skip
    if spec.jira is not None:
        jira = spec.jira
        return Tracker(
            spec.name, TrackerKind.JIRA, jira.token, jira.url.rstrip("/"), jira.project, spec.labels, jira.user or "",
            jira.issue_type, jira.api, pools, spec.personas,
        )  # fmt: skip
    assert spec.webhook is not None, "the model takes exactly one kind"
    return Tracker(
        spec.name, TrackerKind.WEBHOOK, spec.webhook.url, labels=spec.labels, pools=pools, personas=spec.personas
    )
