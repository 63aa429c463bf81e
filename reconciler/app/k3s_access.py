"""Reach a K3s cluster for which the spec names no kubeconfig: by the one that each of its servers has.

K3s writes /etc/rancher/k3s/k3s.yaml for its administrator, with the address 127.0.0.1 (docs.k3s.io, "Cluster Access").
It is read over SSH, given the endpoint of the spec, and kept in a folder of its own for as long as the process lives,
the spec names that endpoint, and no new cluster is begun.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reconciler.converge.k3s_birth import K3sServer
from reconciler.model.errors import DriverError
from reconciler.model.k3s import KUBECONFIG

LOCAL: Final = "https://127.0.0.1:6443"
_READ_S: Final = 20.0


class ServerKubeconfig:
    """`path` exists as soon as `fetch` has found a server that has a kubeconfig."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="reconciler-k3s-")  # nobody else may enter it
        self._fetching = asyncio.Lock()
        self._endpoint = ""  # that is in the file
        self.path = Path(self._folder.name) / "kubeconfig"

    async def fetch(self, servers: Sequence[K3sServer], endpoint: str) -> None:
        """Read the kubeconfig, unless that was done. Without any server that has one, nothing happens."""
        async with self._fetching:
            if self.path.exists() and self._endpoint == endpoint:
                return
            for server in servers:
                text = await _read(server)
                if text.count(LOCAL) == 1:
                    self._keep(text.replace(LOCAL, endpoint), endpoint)
                    return

    def is_for(self, endpoint: str) -> bool:
        """Return whether the file reaches the cluster at this endpoint, or there is none yet."""
        return self._endpoint in ("", endpoint)

    def forget(self) -> None:
        """Read it anew when it is next asked for: another cluster has other keys."""
        self.path.unlink(missing_ok=True)
        self._endpoint = ""

    def _keep(self, text: str, endpoint: str) -> None:
        self.forget()
        self._endpoint = endpoint
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)

    def close(self) -> None:
        self._folder.cleanup()


async def _read(server: K3sServer) -> str:
    """Return what the file holds; "" where it can't be read."""
    if server.host is None:
        return ""
    try:
        result = await server.host.run(("cat", KUBECONFIG), timeout=_READ_S)
    except DriverError:
        return ""
    return result.stdout if result.exit_status == 0 else ""
