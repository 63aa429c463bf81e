"""The spec of the twelve nodes: three servers of K3s and nine agents, each with eight GPUs that operators offer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reconciler.lab.generate import Addresses, generate_spec
from reconciler.lab.pki import ImageKey

OLD, NEW = "v1.31.5+k3s1", "v1.32.1+k3s1"
GPUS = 8


def names(servers: int, agents: int) -> tuple[list[str], list[str]]:
    return [f"s{at + 1}" for at in range(servers)], [f"a{at + 1}" for at in range(agents)]


@dataclass(frozen=True)
class Files:
    """What hosts download: URL of a release -> its file, whose digest the spec has."""

    base: str
    contents: Mapping[str, bytes]

    def download(self, version: str, name: str) -> dict[str, str]:
        path = f"{version}/{name}"
        return {"url": f"{self.base}/{path}", "sha256": hashlib.sha256(self.contents[path]).hexdigest()}

    def release(self, version: str) -> dict[str, Any]:
        return {"version": version, "binary": self.download(version, "k3s"),
                "images": self.download(version, "images.tar.zst")}  # fmt: skip


class Spec:
    """The documents of a spec, which stages change. `hosts`: address of each node by its name."""

    def __init__(self, directory: Path, servers: list[str], agents: list[str], hosts: dict[str, str]) -> None:
        self.directory = directory
        self._servers, self._agents, self.hosts = servers, agents, hosts
        self._bmcs: dict[str, int] = {}
        self._cluster: dict[str, Any] = {}
        self._yaml = YAML(typ="rt", pure=True)
        self._yaml.width = 120

    def write(
        self, addresses: Addresses, files: Files, endpoint: str, *, tls_ca: str, ssh_ca: str, key: ImageKey
    ) -> None:
        generate_spec(self.directory, addresses, tls_ca=tls_ca, ssh_ca=ssh_ca, image_key=key)
        everybody = [*self._servers, *self._agents]
        self._bmcs = {name: bmc for name, (bmc, _) in zip(everybody, addresses.nodes, strict=True)}
        self._cluster = {
            "servers": "servers",
            "endpoint": endpoint,
            "release": files.release(OLD),
            "disable": ["traefik"],
            "registries": {"docker.io": ["https://mirror.example"]},
            "bootstrap": True,
        }
        for path in (self.directory / "pools").iterdir():
            path.unlink()
        self._pool("servers", self._servers)
        self._pool("agents", self._agents)
        fleet, _ = self._read("fleet.yaml")
        fleet["spec"]["budgets"] = [{"scope": "fleet", "nodes": "34%"}]
        self._put("fleet.yaml", fleet, self._document())
        training, *_ = self._read("personas.yaml")
        training["spec"] |= {"allocatable": {"nvidia.com/gpu": GPUS}}
        del training["spec"]["host"]["services"]["kubelet"]
        self._put("personas.yaml", training)
        acceptance, remediation = self._read("policies.yaml")
        acceptance["spec"]["phases"] = acceptance["spec"]["phases"][:1]
        self._put("policies.yaml", acceptance, remediation)

    def change(self, **values: Any) -> None:
        """Change the cluster; None takes a value away."""
        self._cluster = {name: one for name, one in (self._cluster | values).items() if one is not None}
        fleet, _ = self._read("fleet.yaml")
        self._put("fleet.yaml", fleet, self._document())

    def _document(self) -> dict[str, Any]:
        return _resource("Cluster", "main", {"type": "k3s", "k3s": dict(self._cluster)})

    def _pool(self, name: str, members: list[str]) -> None:
        nodes = [
            {
                "name": one,
                "bmc": f"https://127.0.0.1:{self._bmcs[one]}",
                "host": self.hosts[one],
                "serial": f"SN-{one}",
                "domains": {"rack": f"r{at % 3}"},
            }
            for at, one in enumerate(members)
        ]
        image = {"name": "ubuntu-gpu", "version": "2026.11.1"}
        spec = {"image": image, "hardware": "hgx-h100", "persona": "training", "nodes": nodes,
                "rollout": {"waves": ["34%", "100%"], "bake": "0s"}}  # fmt: skip
        self._put(f"pools/{name}.yaml", _resource("NodePool", name, spec))

    def _read(self, path: str) -> list[Any]:
        return list(self._yaml.load_all(self.directory / path))

    def _put(self, path: str, *documents: Any) -> None:
        with (self.directory / path).open("w", encoding="utf-8") as out:
            self._yaml.dump_all(documents, out)


def _resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "reconciler.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
