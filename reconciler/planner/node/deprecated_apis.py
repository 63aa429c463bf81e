"""Tell which deprecated APIs the API server of a K3s server is asked for, before an upgrade waits for them."""

from __future__ import annotations

from reconciler.model.desired import Desired
from reconciler.model.drift import DEPRECATED, DriftClass, DriftItem
from reconciler.model.observed import Answered, Observed
from reconciler.model.vocab import Concern, Source


def deprecated_items(desired: Desired, observed: Observed) -> list[DriftItem]:
    """Return the deprecated APIs in use that a later release has no more, unless the spec allows them."""
    wanted = desired.profile.k3s
    found = observed.host.value.k3s if isinstance(observed.host, Answered) else None
    if wanted is None or found is None:
        return []
    ended = sorted((api for api in found.deprecated or () if api.removed), key=lambda api: api.name)
    return [
        DriftItem(
            desired.node, Concern.CLUSTER, f"{DEPRECATED}{api.name}", DriftClass.REPORTED, "not in use", "in use",
            source=Source.SSH, detail=f"Kubernetes {api.removed} has it no more: no server goes up to it meanwhile",
        )
        for api in ended
        if api.name not in wanted.allow_deprecated
    ]  # fmt: skip
