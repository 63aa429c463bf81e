"""Refuse images whose kubelets no API server supports together, in a cluster that others install."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.model.errors import Diagnostic
from reconciler.model.kubelets import OLDER, kubelet_minor
from reconciler.spec.kinds.cluster import ClusterType
from reconciler.spec.kinds.golden_image import GoldenImageSpec
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.resolve import choices, find_version
from reconciler.strict_yaml.parse import Steps


def check_kubelets(declared: Declarations, nodes: Sequence[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problem of images too far apart: a kubelet is as new as its API server, or up to three minors older."""
    cluster = declared.clusters.get(declared.fleets[0].spec.cluster or "") if declared.fleets else None
    if cluster is None or cluster.spec.type is not ClusterType.KUBERNETES:
        return
    found: dict[tuple[int, int], tuple[DeclaredResource[GoldenImageSpec], Steps, str]] = {}
    for pool, entry in sorted({(node.pool, node.entry) for node in nodes}, key=str):
        chosen = choices(declared, pool, entry)
        image = declared.images.get(chosen["image.name"].value) if "image.name" in chosen else None
        version = find_version(image, chosen["image.version"].value) if image and "image.version" in chosen else None
        kubelet = version[1].contents.get("kubelet", "") if version is not None else ""
        minor = kubelet_minor(kubelet)
        if image is None or version is None or minor is None:
            continue
        place: Steps = ("versions", version[0], "contents", "kubelet")
        found.setdefault(minor, (image, place, f"{kubelet} of image {image.name} {version[1].version}"))
    if not found:
        return
    oldest, newest = min(found), max(found)
    if newest[0] != oldest[0] or newest[1] - oldest[1] > OLDER:
        image, place, new = found[newest]
        problem = f"kubelet {new} and {found[oldest][2]} are more than {OLDER} minors apart: no API server takes both"
        yield image.problem(place, problem, "move the pools with the older one first")
