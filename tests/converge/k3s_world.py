"""A world of nodes that a K3s cluster is declared for: n0, n1 and n2 are its servers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from reconciler.converge.k3s_birth import AwaitedCluster, Birth, K3sServer, is_awaited, servers_of
from reconciler.lab.hardware.k3s_site import K3sSite
from reconciler.lab.inprocess import LabFabric
from reconciler.model import desired as d
from reconciler.spec.k3s_files import k3s_of
from reconciler.spec.kinds.k3s import K3s
from tests.converge.world import PROFILE, World

SERVERS = ("n0", "n1", "n2")
OLD, NEW = "v1.31.5+k3s1", "v1.32.1+k3s1"
BASE = replace(
    PROFILE,
    membership=d.DesiredMembership({"workload": "training"}, ()),
    host=d.DesiredHost({"vm.swappiness": "1"}, {"containerd": "running"}),
)


def download(url: str) -> dict[str, str]:
    """A file of the lab, which holds its own URL."""
    return {"url": url, "sha256": hashlib.sha256(url.encode()).hexdigest()}


def release(version: str) -> dict[str, Any]:
    base = f"https://files.example/{version}"
    return {"version": version, "binary": download(f"{base}/k3s"), "images": download(f"{base}/images.tar.zst")}


def spec(version: str = OLD, **changes: Any) -> K3s:
    values = {"servers": "servers", "endpoint": "https://10.0.0.10:6443", "release": release(version), **changes}
    return K3s.model_validate_json(json.dumps(values))


def declared(k3s: K3s, servers: Collection[str] = SERVERS) -> Callable[[d.Desired], d.Desired]:
    def each(node: d.Desired) -> d.Desired:
        pool = "servers" if node.node in servers else "gpu"
        wanted = k3s_of(k3s, pool)
        digest = hashlib.sha256(f"{wanted} {node.profile.digest}".encode()).hexdigest()
        return replace(node, pool=pool, profile=replace(node.profile, k3s=wanted, digest=digest))

    return each


class K3sFabric(LabFabric):
    """The lab's fabric with the port through which a fleet waits for its cluster, as the real one has it."""

    fleet: d.Fleet
    birth: Birth

    def cluster(self) -> AwaitedCluster:
        inner = super().cluster()
        assert inner is not None
        return AwaitedCluster(inner, self.servers, self._clock, self.birth, awaited=lambda: is_awaited(self.fleet))

    def servers(self) -> list[K3sServer]:
        return servers_of(self.fleet, self.host)


def k3s_world(
    build: Callable[..., World],
    k3s: K3s,
    *,
    servers: Collection[str] = SERVERS,
    profile: d.Profile = BASE,
    **changes: Any,
) -> World:
    here = build(profile=profile, each=declared(k3s, servers), **changes)
    here.fabric = K3sFabric(here.lab, here.clock)
    here.fabric.fleet, here.fabric.birth = here.fleet, Birth(here.ledger)
    return here


def declare(here: World, k3s: K3s, servers: Collection[str] = SERVERS) -> None:
    """Change the spec of a world."""
    each = declared(k3s, servers)
    here.fleet = replace(here.fleet, nodes={name: each(node) for name, node in here.fleet.nodes.items()})
    here.fabric.fleet = here.fleet  # type: ignore[attr-defined]


def site(here: World) -> K3sSite:
    assert here.lab.cluster is not None
    assert here.lab.cluster.k3s is not None
    return here.lab.cluster.k3s
