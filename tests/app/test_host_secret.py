"""A secret that a host uses at a server: the secrets file must allow both, or a change of the spec redirects it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.app.clocks import RealClock
from reconciler.app.wire_fabric import WireFabric
from reconciler.drivers.secrets import SecretError, SecretStore
from reconciler.model.desired import Endpoints
from tests import builders as b
from tests.converge.world import fleet_of

NODE = b.node(endpoints=Endpoints("https://10.20.0.1", "10.20.1.1:22"))


def asked(folder: Path, allow: str, server: str | None) -> str:
    (folder / "password").write_text("hunter2-hunter2\n")
    (folder / "password").chmod(0o600)
    (folder / "secrets.yaml").write_text(f"secrets:\n  restic: {{file: password, allow: [{allow}]}}\n")
    (folder / "secrets.yaml").chmod(0o600)
    fabric = WireFabric(fleet_of([NODE]), RealClock(), SecretStore.load(folder / "secrets.yaml"), None)
    return fabric.host_secret("restic", NODE, server)


@pytest.mark.parametrize(
    ("allow", "server"),
    [
        ('"10.20.0.0/16", backup.example', "backup.example:8000"),
        ('"10.20.0.0/16"', None),
        ('"10.20.0.0/16"', "10.20.9.9"),
    ],
)
def test_both_are_allowed(tmp_path: Path, allow: str, server: str | None) -> None:
    assert asked(tmp_path, allow, server) == "hunter2-hunter2\n"


@pytest.mark.parametrize(
    ("allow", "refused"),
    [
        ("backup.example", "10.20.1.1:22"),
        ('"10.20.0.0/16"', "backup.example"),
        ('"10.20.0.0/16", other.example', "backup.example"),
    ],
)
def test_one_that_is_not_allowed_refuses_it(tmp_path: Path, allow: str, refused: str) -> None:
    with pytest.raises(SecretError, match=f"may not be sent to {refused}") as caught:
        asked(tmp_path, allow, "backup.example")
    assert "hunter2" not in str(caught.value)
