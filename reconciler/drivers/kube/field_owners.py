"""Tell from an object's managedFields who keeps a field as git has it."""

from __future__ import annotations

from typing import Any, Final

from reconciler.drivers.kube.objects import Json, maps_of

# Field managers of Argo CD (util/argo, ArgoCDSSAManager; before 2.5 its process), Flux, Rancher Fleet.
_FROM_GIT: Final = {
    "argocd-controller": "Argo CD", "argocd-application-controller": "Argo CD", "kustomize-controller": "Flux",
    "helm-controller": "Flux", "fleetagent": "Fleet",
}  # fmt: skip


def git_keeper(metadata: Json, path: tuple[str, ...]) -> str:
    """Return which of them has set the field at `path`, in words; "" for none."""
    for entry in maps_of(metadata, "managedFields"):
        who = _FROM_GIT.get(str(entry.get("manager", "")))
        if who and entry.get("subresource") in (None, "") and _has(entry.get("fieldsV1"), path):
            return f"{who} ({entry['manager']})"
    return ""


def _has(fields: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        fields = fields.get(f"f:{name}") if isinstance(fields, dict) else None
    return isinstance(fields, dict)
