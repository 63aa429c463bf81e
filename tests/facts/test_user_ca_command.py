"""The command that asks sshd whom it trusts, with the real sshd and the real ssh-keygen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.diff.installed import fingerprint
from reconciler.drivers.ssh.facts.installed import USER_CA
from reconciler.model.gate import CommandResult

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh-keygen") is None, reason="needs OpenSSH's server")


def trusted(at: Path, config: str) -> tuple[str, ...] | None:
    """Run the fact's command where `sshd` is the real one with this configuration."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(at / "host")], check=True)
    (at / "config").write_text(f"HostKey {at}/host\n{config}")
    program = at / "sshd"
    program.write_text(f'#!/bin/sh\nexec {SSHD} "$@" -f {at}/config\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{at}:{os.environ['PATH']}"}
    run = subprocess.run(["sh", "-c", USER_CA.command], env=environment, capture_output=True, text=True, check=False)
    return USER_CA.read({"user_ca": CommandResult(run.returncode, run.stdout, run.stderr)}).value


def test_the_keys_of_the_file_are_told(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "ca")], check=True)
    key = (tmp_path / "ca.pub").read_text()
    assert trusted(tmp_path, f"TrustedUserCAKeys {tmp_path}/ca.pub\n") == (fingerprint(key),)


@pytest.mark.parametrize("config", ["", "TrustedUserCAKeys /nowhere/ca.pub\n", "TrustedUserCAKeys none\n"])
def test_nobody_is_trusted_without_a_file(tmp_path: Path, config: str) -> None:
    assert trusted(tmp_path, config) == ()
