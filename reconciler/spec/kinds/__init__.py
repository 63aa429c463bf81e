"""The kinds of resources that a spec is made of, one module each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconciler.spec.kinds.acceptance_profile import AcceptanceProfile
from reconciler.spec.kinds.base import API_VERSION, Resource
from reconciler.spec.kinds.cluster import Cluster
from reconciler.spec.kinds.fleet import Fleet
from reconciler.spec.kinds.golden_image import GoldenImage
from reconciler.spec.kinds.hardware_profile import HardwareProfile
from reconciler.spec.kinds.node_pool import NodePool
from reconciler.spec.kinds.persona import Persona
from reconciler.spec.kinds.remediation_policy import RemediationPolicy
from reconciler.strict_yaml.models import Model

KINDS: Final[Mapping[str, type[Resource]]] = {
    kind.__name__: kind
    for kind in (
        Fleet,
        GoldenImage,
        HardwareProfile,
        Persona,
        AcceptanceProfile,
        RemediationPolicy,
        Cluster,
        NodePool,
    )
}

__all__ = [
    "API_VERSION",
    "KINDS",
    "AcceptanceProfile",
    "Cluster",
    "Fleet",
    "GoldenImage",
    "HardwareProfile",
    "Model",
    "NodePool",
    "Persona",
    "RemediationPolicy",
    "Resource",
]
