"""The overlay of a lab: loopback targets only, every address that is asked for, its own secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.endpoints import EndpointsError, InstallerTarget, load_endpoints
from reconciler.drivers.secrets import SecretError
from reconciler.model.errors import UsageError
from tests.spec.example import FILES
from tests.spec.test_secrets import KEY, private

KUBECONFIG = "apiVersion: v1\nkind: Config\nclusters:\n- name: lab\n  cluster: {server: 'https://127.0.0.1:6443'}\n"
DOCUMENT: dict[str, Any] = {
    "format_version": "1.0",
    "time_scale": 60.0,
    "bmc": {"https://10.20.0.11": {"target": "https://127.0.0.1:41001", "ca": "pki/bmc-ca.pem"}},
    "ssh": {"10.20.1.11:22": {"target": "127.0.0.1:42001", "authority": "pki/ssh-host-ca.pub"}},
    "clusters": {"main": {"kubeconfig": "kubeconfig"}},
    "secrets": {"bmc": "secrets/bmc.json", "ssh": "secrets/ssh_ed25519"},
    "keys": {"release": "secrets/release.pub"},
    "installer": {"listen": "127.0.0.1:0", "iso": "http://127.0.0.1:43001/installer.iso"},
}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name in ("pki", "secrets"):
        (tmp_path / name).mkdir()
    for name in ("pki/bmc-ca.pem", "pki/ssh-host-ca.pub"):
        (tmp_path / name).write_text(FILES[name])
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    private(tmp_path, "secrets/bmc.json", '{"username": "root", "password": "lab"}')
    private(tmp_path, "secrets/ssh_ed25519", "key")
    private(tmp_path, "secrets/release.pub", f"untrusted comment: x\n{KEY}\n", 0o644)
    return tmp_path


def write(lab: Path, **changes: Any) -> Path:
    path = lab / "endpoints.json"
    path.write_text(json.dumps(DOCUMENT | changes))
    return path


def test_targets_and_trust(lab: Path) -> None:
    overlay = load_endpoints(write(lab))
    assert overlay.time_scale == 60.0
    bmc = overlay.bmc("https://10.20.0.11")
    assert (bmc.url, bmc.ca) == ("https://127.0.0.1:41001", FILES["pki/bmc-ca.pem"])
    ssh = overlay.ssh("10.20.1.11:22")
    assert (ssh.host, ssh.port, ssh.authorities) == ("127.0.0.1", 42001, (FILES["pki/ssh-host-ca.pub"].strip(),))
    assert overlay.kubeconfig("main") == lab / "kubeconfig"
    assert overlay.installer == InstallerTarget("127.0.0.1:0", "http://127.0.0.1:43001/installer.iso")


def test_the_labs_secrets_stay_on_loopback(lab: Path) -> None:
    overlay = load_endpoints(write(lab))
    assert overlay.secrets.credentials("bmc", "https://127.0.0.1:41001").password.reveal() == "lab"
    assert overlay.secrets.resolve("ssh", "[::1]:42001").reveal() == "key"
    assert overlay.secrets.public_key("release") == KEY
    with pytest.raises(SecretError, match=r"may not be sent to https://10\.20\.0\.11"):
        overlay.secrets.credentials("bmc", "https://10.20.0.11")


@pytest.mark.parametrize(
    "changes",
    [
        {"bmc": {"https://10.20.0.11": {"target": "https://10.20.0.11", "ca": "pki/bmc-ca.pem"}}},
        {"bmc": {"https://10.20.0.11": {"target": "https://127.0.0.1.evil.org", "ca": "pki/bmc-ca.pem"}}},
        {"bmc": {"https://10.20.0.11": {"target": "https://127.0.0.1@evil.org", "ca": "pki/bmc-ca.pem"}}},
        {"ssh": {"10.20.1.11:22": {"target": "10.20.1.11:22", "authority": "pki/ssh-host-ca.pub"}}},
        {"installer": {"listen": "0.0.0.0:8089", "iso": "http://127.0.0.1:43001/installer.iso"}},
        {"installer": {"listen": "127.0.0.1:0", "iso": "http://images.example.com/installer.iso"}},
    ],
)
def test_a_target_off_loopback_is_refused(lab: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(EndpointsError, match=r"which is not on loopback|an address has no user or password"):
        load_endpoints(write(lab, **changes))


def test_a_kubeconfig_that_leads_elsewhere_is_refused(lab: Path) -> None:
    (lab / "kubeconfig").write_text(KUBECONFIG.replace("127.0.0.1", "10.0.0.1"))
    with pytest.raises(EndpointsError, match=r"clusters.main leads to 10.0.0.1:6443, which is not on loopback"):
        load_endpoints(write(lab))


def test_an_address_of_another_spec(lab: Path) -> None:
    overlay = load_endpoints(write(lab))
    for ask in (overlay.bmc, overlay.ssh, overlay.kubeconfig):
        with pytest.raises(EndpointsError, match="the lab was started for another spec"):
            ask("other")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"format_version": "2.0"}, "format_version 2.0; this version reads 1.x"),
        ({"time_scale": 0}, "time_scale: Input should be greater than 0"),
        ({"time_scale": "fast"}, "time_scale: Input should be a valid number"),
        (
            {"bmc": {"https://10.20.0.11": {"target": "https://127.0.0.1:1"}}},
            r"bmc.https://10.20.0.11.ca: Field required",
        ),
        ({"secrets": None}, "secrets: Input should be an object"),
    ],
)
def test_a_bad_file(lab: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(EndpointsError, match=problem) as caught:
        load_endpoints(write(lab, **changes))
    assert isinstance(caught.value, UsageError)
    assert str(lab / "endpoints.json") in str(caught.value)


def test_a_missing_or_unreadable_file(lab: Path) -> None:
    with pytest.raises(EndpointsError, match="No such file or directory"):
        load_endpoints(lab / "nothing.json")
    (lab / "endpoints.json").write_text("{")
    with pytest.raises(EndpointsError, match="not JSON"):
        load_endpoints(lab / "endpoints.json")
    (lab / "endpoints.json").write_bytes(b"\xff")
    with pytest.raises(EndpointsError, match="not UTF-8 text"):
        load_endpoints(lab / "endpoints.json")
