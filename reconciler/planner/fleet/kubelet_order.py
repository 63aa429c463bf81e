"""The order of an upgrade of Kubernetes whose kubelets come with the image, in a cluster that others install.

The control plane goes first, by whoever runs it, and kubelets follow wave by wave with their image. A kubelet may be up
to three minors older than each API server, and never newer (kubernetes.io, "Version Skew Policy"): one that is newer
may not register, and its node would be out until a person has found out why.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field

from reconciler.model.kubelets import OLDER, kubelet_minor
from reconciler.model.plan import BlockCode, Blocked, NodePlan, PlannedAction
from reconciler.planner.node.actions import spec_of


@dataclass(frozen=True, slots=True)
class KubeletOrder:
    """`wanted`: nodes -> the kubelet of their image. `server`: version of the API server that answered; "" = unknown.

    `control_plane`: active nodes of the fleet in the control plane -> the kubelet that they run. `registered`: nodes of
    the cluster -> the kubelet that they are registered with.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)
    server: str = ""
    control_plane: Mapping[str, str] = field(default_factory=dict)
    registered: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, plan: NodePlan, actions: Collection[PlannedAction]) -> Blocked | None:
        """Return why an image may not be installed yet; None = it may, or none of the actions installs one."""
        why = self.why(plan.node) if _installs(actions) else ""
        return Blocked(BlockCode.BUDGET, why) if why else None

    def kind(self, node: str, actions: Collection[PlannedAction]) -> Hashable:
        """Return a key of these actions on a node: nodes with equal keys get equal answers."""
        if not _installs(actions):
            return None
        image = self.wanted.get(node, "")
        return node if node in self.control_plane else (image, self._upgrades(node, kubelet_minor(image)))

    def why(self, node: str) -> str:
        """Return why a node may not have the kubelet of its image now, in words; "" = it may."""
        image = self.wanted.get(node, "")
        wanted, server = kubelet_minor(image), kubelet_minor(self.server)
        if wanted is None or server is None:
            return ""
        behind, has = server[1] - wanted[1], f"its image has kubelet {image}"
        if wanted > server:
            return f"{has}, and the API server runs {self.server}: upgrade the control plane first"
        if wanted[0] != server[0] or behind > OLDER:
            return f"{has}, more than {OLDER} minors behind the API server, which runs {self.server}"
        if node in self.control_plane:
            return self._step(node, wanted, has)
        older = sorted(name for name, runs in self.control_plane.items() if (kubelet_minor(runs) or wanted) < wanted)
        if not older or not self._upgrades(node, wanted):
            return ""
        return (
            f"{has}: the control plane goes first, and {older[0]} runs {self.control_plane[older[0]]}: upgrade that, "
            f"or set the state of {older[0]} to quarantined if it is not to come back soon"
        )

    def _upgrades(self, node: str, wanted: tuple[int, int] | None) -> bool:
        """Return whether a minor is newer than the one that a node is registered with, or that is not known."""
        runs = kubelet_minor(self.registered.get(node, ""))
        return wanted is None or runs is None or runs < wanted

    def _step(self, node: str, wanted: tuple[int, int], has: str) -> str:
        runs = kubelet_minor(self.control_plane[node])
        step = 0 if runs is None else wanted[1] - runs[1]
        if step in (0, 1):
            return ""
        now = f"{has}, and it is in the control plane and runs {self.control_plane[node]}"
        if step < 0:
            return f"{now}: Kubernetes does not go back to an older minor; install the newer one, or restore a snapshot"
        return f"{now}: the control plane goes up one minor at a time"


def _installs(actions: Collection[PlannedAction]) -> bool:
    return any(spec_of(action.name).installs for action in actions)
