"""A real sshd whose host certificate has expired is reached for its renewal alone, over the recorded key alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
import pytest

from reconciler.drivers.installer.signer import normal_key
from reconciler.drivers.ssh import SshHost
from reconciler.model.errors import DriverError
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.vocab import UnknownReason
from tests.drivers.installer.conftest import new_host_key
from tests.drivers.installer.test_host_keys import real_sshd
from tests.drivers.ssh.conftest import NODE, HostFactory, Keys, certify, closing

pytestmark = [pytest.mark.wire, pytest.mark.tool]
EXPIRED = {"valid_after": "20240101", "valid_before": "20240401"}


def signed(keys: Keys, key: str, *principals: str, **options: str) -> str:
    found = certify(keys.authority, asyncssh.import_public_key(key), *(principals or (NODE,)), **options)
    return str(found.export_certificate("openssh").decode().strip())


def reached(host: SshHost, renewal_of: str = "") -> str:
    """Return "" where a command runs on the host, else why it does not."""

    async def once() -> str:
        async with closing(host.anew(renewal_of=renewal_of)) as own:
            try:
                return "" if (await own.run(["true"], timeout=5)).exit_status == 0 else "the command failed"
            except DriverError as error:
                return error.detail

    return asyncio.run(once())


def test_an_expired_certificate_serves_for_its_renewal_alone(
    tmp_path: Path, keys: Keys, make_host: HostFactory
) -> None:
    key = new_host_key(tmp_path)
    with real_sshd(tmp_path, signed(keys, key, **EXPIRED), keys.login) as port:
        host = make_host(port)

        async def facts() -> Answered[HostFacts] | Silent:
            async with closing(host):
                return await host.facts([], [])

        seen = asyncio.run(facts())
        assert isinstance(seen, Silent)
        assert seen.reason is UnknownReason.EXPIRED
        for told in (seen.detail, reached(host)):
            assert "certificate of its host key has expired" in told
            assert "all that is done there is the renewal" in told
        assert reached(host, normal_key(key)) == ""
        (tmp_path / "ssh_host_ed25519_key-cert.pub").write_text(signed(keys, key) + "\n")
        assert reached(host) == "", "by the new certificate, as anybody"


@pytest.mark.parametrize("why", ["another key", "revoked", "another CA"])
def test_an_expired_certificate_that_is_refused_for_its_renewal_too(
    tmp_path: Path, keys: Keys, make_host: HostFactory, why: str
) -> None:
    key = new_host_key(tmp_path)
    recorded = new_host_key(tmp_path, "recorded") if why == "another key" else key
    revoked = [normal_key(key)] if why == "revoked" else []
    authorities = [new_host_key(tmp_path, "ca")] if why == "another CA" else [keys.trust]
    with real_sshd(tmp_path, signed(keys, key, **EXPIRED), keys.login) as port:
        host = make_host(port, authorities=authorities, revoked=lambda: revoked)
        assert reached(host, normal_key(recorded))


@pytest.mark.parametrize("principal", ["gpu-a002", ""])
def test_only_a_certificate_that_has_expired_is_passed_over(
    tmp_path: Path, keys: Keys, make_host: HostFactory, principal: str
) -> None:
    """A certificate for another node, or one that is not valid yet, is an incident, whatever key it is over."""
    key = new_host_key(tmp_path)
    line = signed(keys, key, principal) if principal else signed(keys, key, valid_after="20990101")
    with real_sshd(tmp_path, line, keys.login) as port:
        assert "treat this as an incident" in reached(make_host(port), normal_key(key))
