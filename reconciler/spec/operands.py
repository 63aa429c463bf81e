"""Tell what the GPU Operator of a spec is to offer on a node before it is admitted.

Values and defaults are those of NVIDIA/gpu-operator deployments/gpu-operator/values.yaml (a22dbf67); names of resources
are those of NVIDIA/k8s-device-plugin ("MIG Support in Kubernetes").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.model.operands import GPU_RESOURCE
from reconciler.model.releases import DesiredRelease, OperatorKind

_AMD: Final = "amd"  # begins the names of GPUs that NVIDIA's operator leaves alone
_SINGLE, _MIXED = "single", "mixed"


def is_networked(releases: Sequence[DesiredRelease]) -> bool:
    """Return whether NVIDIA's Network Operator brings a node's network drivers, which its node waits for."""
    return any(one.kind is OperatorKind.NETWORK for one in releases)


def is_validated(releases: Sequence[DesiredRelease], gpus: int | None, model: str | None) -> bool:
    """Return whether a GPU Operator of the spec validates such a node."""
    return bool(gpus) and not _is_amd(model) and _gpu_operator(releases) is not None


def offered_gpus(
    releases: Sequence[DesiredRelease], gpus: int | None, model: str | None, mig: Mapping[str, int] | None
) -> dict[str, int]:
    """Return the resources that its device plugin offers for these GPUs, in this MIG layout; {} where that is open.

    It is open where the plugin is off, as with DRA, or has a configuration of its own, which may share GPUs.
    """
    operator = _gpu_operator(releases)
    if operator is None or not gpus or _is_amd(model):
        return {}
    values = json.loads(operator.values)
    if not _at(values, "devicePlugin", "enabled", default=True) or _at(values, "devicePlugin", "config", "name"):
        return {}
    if _at(values, "sandboxWorkloads", "enabled"):
        return {}
    strategy = _at(values, "mig", "strategy", default=_SINGLE)
    if mig and strategy == _MIXED:
        return {f"nvidia.com/mig-{profile.replace('+', '.')}": count * gpus for profile, count in mig.items()}
    if mig and strategy == _SINGLE:
        return {GPU_RESOURCE: gpus * sum(mig.values())} if len(mig) == 1 else {}
    return {GPU_RESOURCE: gpus}


def _gpu_operator(releases: Sequence[DesiredRelease]) -> DesiredRelease | None:
    return next((one for one in releases if one.kind is OperatorKind.GPU), None)


def _is_amd(model: str | None) -> bool:
    return (model or "").lower().startswith(_AMD)


def _at(values: Any, *path: str, default: Any = None) -> Any:
    for step in path:
        if not isinstance(values, dict) or step not in values:
            return default
        values = values[step]
    return values
