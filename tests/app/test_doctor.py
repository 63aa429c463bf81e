"""What doctor counts as an answer."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.doctor import _factory_logins, _reachability, _secrets
from reconciler.app.doctor_programs import helm
from reconciler.drivers.secrets import SecretStore
from reconciler.model.access import EventListenerPolicy
from reconciler.model.desired import Endpoints
from reconciler.model.observed import Observation
from reconciler.model.vocab import Power
from tests import builders as b


def test_a_machine_that_is_off_does_not_answer_over_ssh_and_is_no_problem() -> None:
    """It was counted among those that answer, and so were sources that nobody had asked."""
    off = b.observed("n2", hot=b.hot("n2", power=Power.OFF), host=b.silent("explained", "powered off"))
    nodes = {"n1": b.observed("n1"), "n2": off}
    nodes = {name: replace(node, member=b.silent("not_asked")) for name, node in nodes.items()}
    workspace: Any = SimpleNamespace(selection=(tuple(nodes), ()))
    found = list(_reachability(workspace, Observation("1.0", "test", "", b.NOW, b.NOW, nodes)))
    assert [(one.check, one.ok, one.detail) for one in found] == [
        ("reach redfish", True, "2 of 2 nodes answer"),
        ("reach ssh", True, "1 of 2 nodes answer; n2 (1): powered off"),
    ]


def logins(
    tmp_path: Path,
    username: str,
    password: str,
    allow: str = "10.0.0.0/8",
    pdus: tuple[str, ...] = (),
    bmcs: str = "bmc",
) -> list[tuple[str, bool, str]]:
    """What doctor says of a fleet of one node, and of PDUs, whose secret this is."""
    (tmp_path / "bmc.json").write_text(json.dumps({"username": username, "password": password}))
    (tmp_path / "bmc.json").chmod(0o600)
    (tmp_path / "secrets.yaml").write_text(f"secrets: {{bmc: {{file: bmc.json, allow: ['{allow}']}}}}\n")
    outlets = tuple(SimpleNamespace(pdu=pdu) for pdu in pdus)
    node = SimpleNamespace(endpoints=SimpleNamespace(bmc="https://10.0.0.1"), outlets=outlets)
    settings = SimpleNamespace(bmc_credentials=bmcs, pdu_credentials="bmc")  # as a spec without pduCredentials has it
    workspace: Any = SimpleNamespace(
        fleet=SimpleNamespace(settings=settings, nodes={"n1": node}),
        selection=(("n1",), ()), secrets=SecretStore.load(tmp_path / "secrets.yaml"), overlay=None,
    )  # fmt: skip
    return [(one.check, one.ok, one.detail) for one in _factory_logins(workspace)]


@pytest.mark.parametrize(
    ("username", "password"), [("root", "calvin"), ("ADMIN", "ADMIN"), ("root", "0penBmc"), ("admin", "password")]
)
def test_a_login_that_machines_are_shipped_with_is_told_without_showing_it(
    tmp_path: Path, username: str, password: str
) -> None:
    [(check, ok, told)] = logins(tmp_path, username, password)
    assert (check, ok) == ("password bmc", False)
    assert "comes with: whoever reaches the BMCs owns the machines" in told
    assert f"{username}/" not in told
    assert password not in told


def test_the_login_of_a_pdu_is_told_as_one_of_a_pdu(tmp_path: Path) -> None:
    [(_, ok, told)] = logins(tmp_path, "apc", "apc", pdus=("https://10.0.0.9",), bmcs="own")
    assert (ok, told) == (
        False,
        "the login that APC's rack PDU comes with: whoever reaches the PDUs can turn the machines off",
    )


def test_logins_of_ones_own_and_secrets_that_fail_are_no_such_finding(tmp_path: Path) -> None:
    assert logins(tmp_path, "root", "Calvin") == []
    assert logins(tmp_path, "admin", "calvin") == []
    assert logins(tmp_path, "root", "calvin", allow="192.0.2.0/24") == [], "the check of the secret says why"
    assert len(logins(tmp_path, "root", "calvin", pdus=("https://10.0.0.9",))) == 1, "one secret is told once"


def test_passwords_that_are_to_be_changed_and_can_not_be_are_told(tmp_path: Path) -> None:
    (tmp_path / "bmc.json").write_text('{"username": "root", "password": "x"}')
    (tmp_path / "bmc.json").chmod(0o600)

    def told(source: str, after_s: float | None) -> list[str]:
        (tmp_path / "secrets.yaml").write_text(f"secrets: {{bmc: {source}}}\n")
        settings = replace(b.SETTINGS, rotate_after_s=after_s, ssh_credentials=None, cluster=None, installer=None)
        node = b.node(endpoints=Endpoints("https://10.0.0.1", None))
        workspace: Any = SimpleNamespace(
            fleet=SimpleNamespace(settings=settings, nodes={node.node: node}), overlay=None, signatures={},
            selection=((node.node,), ()), secrets=SecretStore.load(tmp_path / "secrets.yaml"),
        )  # fmt: skip
        return [one.check for one in _secrets(workspace) if not one.ok]

    file = "{file: bmc.json, allow: ['10.0.0.0/8']}"
    program = "{exec: [cat, bmc.json], write: [tee, bmc.json], allow: ['10.0.0.0/8']}"
    assert "password bmc" in told(file, 1e6)
    assert "password bmc" not in told(file, None)
    assert told(program, 1e6) == [one for one in told(file, None) if one != "secret bmc"]


def test_a_certificate_for_events_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    """Nobody followed BMCs without a stream, and nothing said why."""
    (tmp_path / "secrets.yaml").write_text("secrets: {tls: {file: gone.pem}, key: {file: key.pem}}\n")
    (tmp_path / "key.pem").write_text("key")
    (tmp_path / "key.pem").chmod(0o600)
    events = EventListenerPolicy("0.0.0.0:8443", certificate="tls", key="key")
    bare = replace(b.SETTINGS, bmc_events=events, bmc_credentials=None, ssh_credentials=None, cluster=None)
    node = b.node()
    workspace: Any = SimpleNamespace(
        fleet=SimpleNamespace(settings=replace(bare, installer=None), nodes={node.node: node}), overlay=None,
        signatures={}, selection=((node.node,), ()), secrets=SecretStore.load(tmp_path / "secrets.yaml"),
    )  # fmt: skip
    found = {one.check: one for one in _secrets(workspace) if one.check.startswith("secret ")}
    assert {check: one.ok for check, one in found.items()} == {"secret tls": False, "secret key": True}
    assert "gone.pem: No such file" in found["secret tls"].detail
    assert found["secret key"].detail == "for redfish.events' TLS key"


@pytest.mark.parametrize(
    ("prints", "ok", "said"),
    [
        ("echo v3.16.2+g13654a5", True, "v3.16.2+g13654a5"),
        ("echo v4.0.0+g99cd196", True, "v4.0.0+g99cd196"),
        ("echo v3.12.3+g3a31588", False, "v3.12.3+g3a31588"),
        ("echo 'Client: v2.17.0'", False, "unreadable version: 'Client: v2.17.0'"),
        ("exit 1", False, "not on the PATH"),
    ],
)
def test_helm_has_to_be_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, ok: bool, said: str
) -> None:
    program = tmp_path / "helm"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'version --short' ] || exit 2\n{prints}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = helm()
    assert (found.check, found.ok, found.detail) == ("helm", ok, said)
    assert bool(found.remedy) is not ok
