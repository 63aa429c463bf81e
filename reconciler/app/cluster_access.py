"""The kubeconfig by which a cluster is reached."""

from __future__ import annotations

from pathlib import Path

from reconciler.drivers.endpoints import Overlay
from reconciler.drivers.secrets import SecretStore
from reconciler.model.access import ClusterAccess


def cluster_access(
    access: ClusterAccess, overlay: Overlay | None, secrets: SecretStore
) -> tuple[Path | None, str | None]:
    """Return the kubeconfig and the context in it."""
    if overlay is not None:
        return overlay.kubeconfig(access.name), None
    return secrets.file(access.kubeconfig) if access.kubeconfig is not None else None, access.context
