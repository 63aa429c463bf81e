"""Floors for `wire_passes`: the same bytes over the wire by the bare libraries, without parsing."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import asyncssh
import requests

from reconciler.drivers.endpoints import Overlay
from reconciler.drivers.redfish.session import Resource, Session
from reconciler.drivers.ssh.facts import requests as fact_requests
from reconciler.model.desired import Desired, Fleet
from reconciler.model.fact_framing import build_program

_SESSIONS = "/redfish/v1/SessionService/Sessions"
_NONCE = "0" * 32


@contextmanager
def recorded_gets() -> Iterator[list[str]]:
    """Record the URIs that are requested from BMCs during the block."""
    found: list[str] = []
    original = Session.get

    def get(self: Session, where: str) -> Resource:
        found.append(where)
        return original(self, where)

    Session.get = get  # type: ignore[method-assign]  # only during the block
    try:
        yield found
    finally:
        Session.get = original  # type: ignore[method-assign]


class RedfishFloor:
    """One requests.Session per BMC, with persistent connections and logins."""

    def __init__(self, fleet: Fleet, overlay: Overlay, ca: Path) -> None:
        secret = fleet.settings.bmc_credentials
        assert secret is not None
        self._fleet, self._overlay, self._secret, self._ca = fleet, overlay, secret, ca
        self._sessions: dict[str, requests.Session] = {}

    def get_all(self, uris: Sequence[str], threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda node: self._get(node, uris), self._fleet.nodes.values()))

    def _get(self, node: Desired, uris: Sequence[str]) -> None:
        assert node.endpoints.bmc is not None
        url = self._overlay.bmc(node.endpoints.bmc).url
        session = self._sessions.get(node.node) or self._login(node.node, url)
        for uri in uris:
            session.get(url + uri, timeout=60).raise_for_status()

    def _login(self, name: str, url: str) -> requests.Session:
        session = self._sessions[name] = requests.Session()
        session.trust_env, session.verify = False, str(self._ca)
        credentials = self._overlay.secrets.credentials(self._secret, url)
        data = {"UserName": credentials.username, "Password": credentials.password.reveal()}
        answer = session.post(url + _SESSIONS, json=data, timeout=60)
        answer.raise_for_status()
        session.headers["X-Auth-Token"] = answer.headers["X-Auth-Token"]
        return session

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


class SshFloor:
    """One persistent asyncssh connection per host."""

    def __init__(self, fleet: Fleet, overlay: Overlay) -> None:
        self._fleet, self._overlay = fleet, overlay
        self._connections: dict[str, asyncssh.SSHClientConnection] = {}

    async def ask_all(self, at_once: int) -> None:
        limit = asyncio.Semaphore(at_once)

        async def ask(node: Desired) -> None:
            async with limit:
                await self._ask(node)

        await asyncio.gather(*map(ask, self._fleet.nodes.values()))

    async def _ask(self, node: Desired) -> None:
        wanted = node.profile.host
        program = build_program(fact_requests(tuple(wanted.sysctls), tuple(wanted.services)), _NONCE)
        if node.node not in self._connections:
            self._connections[node.node] = await self._connect(node)
        answer = await self._connections[node.node].run("sh -s", input=program.encode(), encoding=None)
        assert isinstance(answer.stdout, bytes)
        assert answer.stdout.endswith(f"END {_NONCE}\n".encode()), answer.stdout[-200:]

    async def _connect(self, node: Desired) -> asyncssh.SSHClientConnection:
        assert node.endpoints.host is not None
        target = self._overlay.ssh(node.endpoints.host)
        secret = self._fleet.settings.ssh_credentials
        assert secret is not None
        if not hasattr(self, "_key"):
            text = self._overlay.secrets.resolve(secret, f"{target.host}:{target.port}").reveal()
            self._key = asyncssh.import_private_key(text)
            self._authorities = [asyncssh.import_public_key(line) for line in target.authorities]
        return await asyncssh.connect(
            target.host, target.port, username="root", client_keys=[self._key], known_hosts=([], self._authorities, []),
            host_key_alias=node.node, agent_path=None, config=None,
        )  # fmt: skip

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def kubectl_floor(kubeconfig: Path) -> int:
    """Read version, nodes and pods with three kubectl processes, and parse them."""
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "get", "--raw"]
    size = 0
    for path in ("/version", "/api/v1/nodes?limit=1000", "/api/v1/pods?limit=1000"):
        text = subprocess.run([*command, path], stdout=subprocess.PIPE, check=True).stdout
        size += len(text) + len(json.loads(text))
    return size
