"""Wire what tells people and keeps tickets, for a process that has a workspace."""

from __future__ import annotations

from reconciler.app.cluster_access import cluster_access
from reconciler.app.extensions import loaded
from reconciler.app.workspace import Workspace
from reconciler.drivers.delivery import Delivery
from reconciler.drivers.extensions.notifiers import Chats
from reconciler.drivers.kube.node_events import NodeEvents
from reconciler.drivers.kube.process import Kubectl
from reconciler.drivers.tickets.trackers import TrackerMessenger, client_of
from reconciler.model.errors import UsageError
from reconciler.model.tickets import TicketStore


def delivery(workspace: Workspace, store: TicketStore) -> Delivery:
    tickets = TrackerMessenger(
        lambda tracker: client_of(tracker, workspace.secrets, workspace.clock), store, workspace.clock
    )
    return Delivery(chats(workspace), tickets, node_events(workspace))


def chats(workspace: Workspace) -> Chats:
    return Chats(lambda: workspace.secrets, lambda: loaded(workspace.fleet.settings))


def node_events(workspace: Workspace) -> NodeEvents:
    """Return what writes Events in the cluster of the spec as the process first read it."""

    def connect() -> Kubectl:
        settings = workspace.fleet.settings
        if settings.cluster is None or not settings.cluster.kubernetes:
            raise UsageError("the Fleet names no cluster to write Events in")
        kubeconfig, context = cluster_access(settings.cluster, workspace.overlay, workspace.secrets)
        return Kubectl("kubectl", kubeconfig, context, settings.kubernetes_deadline_s)

    return NodeEvents(connect, workspace.clock.now)
