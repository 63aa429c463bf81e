"""Pods that lose something for good when they are evicted. A drain policy allows that or not, as `kubectl drain` does.

DaemonSet and mirror pods are never evicted, so they lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.model.desired import DrainPolicy
from reconciler.model.observed import Pod

_MOST = 5


@dataclass(frozen=True, slots=True)
class Stakes:
    """The names of such pods. One that is terminating has lost already, and is left out."""

    unmanaged: tuple[str, ...] = ()  # nothing starts them again
    local: tuple[str, ...] = ()  # the data in their emptyDir volumes end with them

    def refusal(self, policy: DrainPolicy) -> str:
        """Return why the policy forbids the drain, beginning in the words of `kubectl drain`; "" = it does not."""
        found = []
        if self.unmanaged and not policy.evict_unmanaged:
            names = shown(self.unmanaged)
            found.append(f"cannot delete Pods that declare no controller (drain.evictUnmanaged allows it): {names}")
        if self.local and not policy.delete_empty_dir_data:
            names = shown(self.local)
            found.append(f"cannot delete Pods with local storage (drain.deleteEmptyDirData allows it): {names}")
        return "; ".join(found)


def stakes(pods: Iterable[Pod], policy: DrainPolicy) -> Stakes:
    """Return what a drain by this policy puts at stake. `pods`: those that it would evict."""
    if not policy.provider.asks_cluster:
        return Stakes()
    losing = [pod for pod in pods if (pod.local_storage or not pod.owner_kind) and pod.terminating_since is None]
    return Stakes(
        tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in losing if not pod.owner_kind)),
        tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in losing if pod.local_storage)),
    )


def shown(names: Iterable[str]) -> str:
    """Return the first names, and how many there are."""
    all_names = list(names)
    more = f" and {len(all_names) - _MOST} more" if len(all_names) > _MOST else ""
    return ", ".join(all_names[:_MOST]) + more
