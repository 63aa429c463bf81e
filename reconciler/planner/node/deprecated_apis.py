"""Tell which deprecated APIs the API server of a K3s server is asked for, before an upgrade waits for them."""

from __future__ import annotations

from reconciler.diff.ignore import IgnoreRules
from reconciler.model.desired import Desired
from reconciler.model.drift import DEPRECATED, DriftClass, DriftItem
from reconciler.model.observed import Answered, Observed
from reconciler.model.vocab import Concern, Source


def deprecated_items(desired: Desired, observed: Observed, rules: IgnoreRules) -> list[DriftItem]:
    """Return the deprecated APIs in use that a later release has no more, unless the spec allows them.

    One that a rule ignores still keeps servers from that release: what a rule hides is not what it consents to.
    """
    wanted = desired.profile.k3s
    found = observed.host.value.k3s if isinstance(observed.host, Answered) else None
    if wanted is None or found is None:
        return []
    ended = sorted((api for api in found.deprecated or () if api.removed), key=lambda api: api.name)
    items = []
    for api in ended:
        if api.name in wanted.allow_deprecated:
            continue
        path, kind = f"{DEPRECATED}{api.name}", DriftClass.REPORTED
        detail = f"Kubernetes {api.removed} has it no more: no server goes up to it meanwhile"
        if (rule := rules.match(desired, path)) is not None:
            kind, detail = DriftClass.IGNORED, rule.reason
        items.append(
            DriftItem(
                desired.node, Concern.CLUSTER, path, kind, "not in use", "in use", source=Source.SSH, detail=detail
            )
        )
    return items
