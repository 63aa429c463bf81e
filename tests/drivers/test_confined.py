"""What holds a secret or a session stays in its process."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.drivers.forge.http import Rest
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.redfish import RedfishBmc, RedfishPdu
from reconciler.drivers.remote_git import Remote
from reconciler.drivers.secrets import Credentials, Secret, SecretStore
from reconciler.drivers.ssh import SshHost
from reconciler.model.confined import Confined
from tests.builders import node
from tests.converge.world import fleet_of

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


def host() -> SshHost:
    return SshHost("n1", "127.0.0.1", user="root", private_key=KEY, now=lambda: datetime(2026, 11, 27, tzinfo=UTC))


def refuses(value: object) -> None:
    for leak in (pickle.dumps, copy.deepcopy, lambda one: pickle.dumps({"inside": [one]})):
        with pytest.raises(TypeError, match="holds a secret or a session, and is not serialised"):
            leak(value)


def test_a_host_keeps_its_private_key_to_itself() -> None:
    refuses(host())
    refuses(host()._target)


def test_another_connection_to_a_host_has_a_session_of_its_own() -> None:
    first = host()
    other = first.anew(renewal_of="ssh-ed25519 AAAA")
    assert (other._target.private_key, other._target.renewal_of, first._target.renewal_of) == (
        KEY,
        "ssh-ed25519 AAAA",
        "",
    )
    assert other._connecting is not first._connecting
    assert other._client is not first._client


def test_ports_stores_and_ledgers_are_not_serialised(tmp_path: Path) -> None:
    login = tmp_path / "bmc.json"
    login.write_text(json.dumps({"username": "admin", "password": "hunter2"}))
    login.chmod(0o600)
    (tmp_path / "secrets.yaml").write_text('secrets: {bmc: {file: bmc.json, allow: ["127.0.0.1"]}}\n')
    store = SecretStore.load(tmp_path / "secrets.yaml")
    fabric = WireFabric(fleet_of([node()]), RealClock(), store, None)
    ledger = SqlLedger(tmp_path / "ledger.sqlite", fleet="f", clock=RealClock())
    credentials = Credentials("admin", Secret("hunter2"))
    try:
        for one in (store, fabric, ledger, credentials, Secret("hunter2"), Remote("https://x", credentials)):
            refuses(one)
    finally:
        ledger.close()
        asyncio.run(fabric.close())
    for kind in (RedfishBmc, RedfishPdu, Rest):
        assert issubclass(kind, Confined)
