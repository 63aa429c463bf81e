"""Host keys: one of an attempt is certified, by a CA that real OpenSSH trusts; a second one ends the attempt."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from reconciler.drivers.installer.signer import CertificateRequest, check_certificate, normal_key
from reconciler.drivers.ssh import SshHost
from reconciler.model.errors import DriverError
from reconciler.model.observed import Answered, Silent
from tests.drivers.installer.conftest import DOCUMENT, NODE, TOKEN, Site, ask, new_host_key, report, run, write_secret
from tests.drivers.ssh.conftest import Keys, await_banner, certify, closing, free_port, private
from tests.drivers.ssh.conftest import keys as keys

pytestmark = [pytest.mark.wire, pytest.mark.tool]


@pytest.fixture(autouse=True)
def _openssh() -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen (OpenSSH) is not installed")


def described(certificate: str, folder: Path) -> str:
    (folder / "shown-cert.pub").write_text(certificate + "\n")
    return subprocess.run(
        ["ssh-keygen", "-L", "-f", str(folder / "shown-cert.pub")], capture_output=True, text=True, check=True
    ).stdout


def test_the_key_of_a_written_machine_is_certified_once(site: Site) -> None:
    key = new_host_key(site.folder)
    found: list[str] = []

    async def play() -> None:
        async with site.serving(site.ledger()) as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            for phase in ("started", "writing", "written"):
                early = await ask("POST", f"{base}/hostkey", data=key)
                assert early.status == 409
                assert early.text == "a host key is certified once the image is written, and no sooner"
                await report(base, phase)
            several = await asyncio.gather(*(ask("POST", f"{base}/hostkey", data=key) for _ in range(5)))
            assert {one.status for one in several} == {200}
            found.extend(one.text for one in several)
            await report(base, "installed")
            found.append((await ask("POST", f"{base}/hostkey", data=key)).text)
            assert not (await installer.progress(TOKEN)).incident

    run(play())
    assert len(set(found)) == 1, "the same certificate for the same key"
    shown = described(found[0], site.folder)
    assert "host certificate" in shown
    assert f"Principals: \n                {NODE}\n                {NODE}.example.com\n" in shown
    assert f"Signing CA: ED25519 {site.authority.get_fingerprint()}" in shown
    assert f'Key ID: "{NODE} 0badc0de"' in shown


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "send one public key"),
        ("nonsense", "not an OpenSSH public key"),
        ("ssh-ed25519 AAAA\nssh-ed25519 BBBB\n", "send one public key"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(site: Site, body: str, reason: str) -> None:
    async def play() -> None:
        async with site.serving() as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            await report(base, "written")
            answer = await ask("POST", f"{base}/hostkey", data=body)
            assert answer.status == 400
            assert reason in answer.text

    run(play())


def test_weak_keys_and_certificates_are_no_host_keys(tmp_path: Path) -> None:
    weak = asyncssh.generate_private_key("ssh-rsa", key_size=2048).export_public_key().decode()
    strong = asyncssh.generate_private_key("ssh-rsa", key_size=3072).export_public_key().decode()
    with pytest.raises(ValueError, match="of type ssh-rsa is not certified"):
        normal_key(weak)
    assert normal_key(strong) == " ".join(strong.split()[:2])
    line = new_host_key(tmp_path)
    assert normal_key(line) == " ".join(line.split()[:2]), "the comment is the machine's word, and is dropped"


def test_a_second_key_ends_the_attempt_and_revokes_both(site: Site) -> None:
    first, second = new_host_key(site.folder, "one"), new_host_key(site.folder, "two")
    store = site.ledger()

    async def play() -> None:
        async with site.serving(store) as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            await report(base, "written")
            assert (await ask("POST", f"{base}/hostkey", data=first)).status == 200
            for key in (second, first, second):
                refused = await ask("POST", f"{base}/hostkey", data=key)
                assert refused.status == 403
                assert refused.text.startswith("this attempt was ended: a second, different SSH host key")
            assert (await report(base, "installed")).status == 403
            assert (await ask("GET", f"{base}/install.json")).status == 403
            found = await installer.progress(TOKEN)
            assert found.ended
            assert found.incident.startswith("a second, different SSH host key was presented")
            await installer.withdraw(TOKEN)

    run(play())
    assert sorted(site.ledger().revoked_host_keys()) == sorted(map(normal_key, (first, second)))
    told = [entry.detail for entry in store.history(NODE)]
    assert told[-1].startswith("incident: ")
    assert all(normal_key(key) in told[-1] for key in (first, second))


def test_names_and_validity_are_the_specs_and_never_the_machines(site: Site) -> None:
    site.policy = replace(site.policy, host_certificate_s=3600.0)
    document = DOCUMENT.model_copy(update={"hostname": "gpu-a002"})  # of another node
    key = new_host_key(site.folder, "ssh_host_ed25519_key", "-C", "gpu-a002,root")
    found: list[str] = []

    async def play() -> None:
        async with site.serving() as installer:
            base = (await installer.publish(TOKEN, document, None)).removesuffix("/boot.iso")
            await report(base, "written")
            answer = await ask("POST", f"{base}/hostkey?principals=gpu-a002", data=key, headers={"X-Node": "gpu-a002"})
            found.append(answer.text)

    run(play())
    shown = described(found[0], site.folder)
    assert f"Principals: \n                {NODE}\n        Critical" in shown
    certificate = asyncssh.import_certificate(found[0])
    assert isinstance(certificate, asyncssh.public_key.SSHOpenSSHCertificate)
    assert certificate._valid_before - certificate._valid_after == 3600 + 300


def test_a_ca_that_nobody_trusts_is_said_before_a_machine_is_touched(site: Site) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    write_secret(site.folder / "other-ca", other.export_private_key().decode())

    async def play() -> None:
        async with site.serving(host_ca="other-ca") as installer:
            with pytest.raises(DriverError, match=r"private half of no CA in ssh\.hostKeys\.authorities"):
                await installer.publish(TOKEN, DOCUMENT, None)
        async with site.serving(host_ca=None) as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            await report(base, "written")
            assert (await ask("POST", f"{base}/hostkey", data=new_host_key(site.folder))).status == 404

    run(play())


# --- a program that signs ----------------------------------------------------------------------------------------

SIGNER = """#!/bin/sh
# Signs with the real ssh-keygen, as a program that asks an HSM would.
set -e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/key.pub"
ssh-keygen -q -s ./host-ca -h -I "$RECONCILER_IDENTITY" -n "$RECONCILER_PRINCIPALS" \\
    -V "$RECONCILER_VALID_AFTER:$RECONCILER_VALID_BEFORE" "$work/key.pub"
cat "$work/key-cert.pub"
"""


def program(site: Site, text: str) -> None:
    (site.folder / "signer").write_text(text)
    (site.folder / "signer").chmod(0o700)


def certify_by_program(site: Site, key: str) -> tuple[int, str]:
    found: list[tuple[int, str]] = []

    async def play() -> None:
        async with site.serving(host_ca="program") as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            await report(base, "written")
            answer = await ask("POST", f"{base}/hostkey", data=key)
            found.append((answer.status, answer.text))

    run(play())
    return found[0]


def test_a_program_that_keeps_the_key_to_itself_signs(site: Site) -> None:
    program(site, SIGNER)
    key = new_host_key(site.folder)
    status, certificate = certify_by_program(site, key)
    assert status == 200
    shown = described(certificate, site.folder)
    assert f"Principals: \n                {NODE}\n                {NODE}.example.com\n" in shown


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (SIGNER.replace('-n "$RECONCILER_PRINCIPALS"', "-n gpu-a001,gpu-a002"), 503, "certified gpu-a001, gpu-a002"),
        (SIGNER.replace('-n "$RECONCILER_PRINCIPALS"', ""), 503, "certified "),
        (SIGNER.replace("-h ", ""), 503, "gave no host certificate"),
        ("#!/bin/sh\ncat\n", 503, "gave no host certificate"),
        ("#!/bin/sh\necho secret >&2\nexit 3\n", 503, "ended with status 3"),
    ],
    ids=["another name", "any name", "of a user", "no certificate", "fails"],
)
def test_what_a_program_signs_is_checked(site: Site, text: str, status: int, reason: str) -> None:
    program(site, text)
    answered, why = certify_by_program(site, new_host_key(site.folder))
    assert answered == status
    assert reason in why
    assert "secret" not in why


def test_a_certificate_of_another_key_or_ca_is_handed_to_nobody(keys: Keys) -> None:
    mine = normal_key(keys.login.export_public_key().decode())
    request = CertificateRequest(mine, "x", (NODE,), datetime.now(UTC), datetime.now(UTC))
    line = keys.certificate.export_certificate().decode()
    with pytest.raises(DriverError, match="another key than it was given"):
        check_certificate(line, request, ())
    right = certify(keys.authority, keys.login, NODE).export_certificate().decode()
    assert check_certificate(right, request, (keys.trust,)) == " ".join(right.split()[:2])
    with pytest.raises(DriverError, match="is no CA in"):
        check_certificate(right, request, (mine,))


# --- real OpenSSH ------------------------------------------------------------------------------------------------


@contextmanager
def real_sshd(folder: Path, certificate: str, login: asyncssh.SSHKey) -> Iterator[int]:
    """Run sshd with the host key of `folder` and this certificate."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("sshd (OpenSSH server) is not installed")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "ssh_host_ed25519_key-cert.pub").write_text(certificate + "\n")
    (folder / "authorized").write_bytes(login.export_public_key())
    port = free_port()
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/ssh_host_ed25519_key\n"
        f"HostCertificate {folder}/ssh_host_ed25519_key-cert.pub\nAuthorizedKeysFile {folder}/authorized\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n"
    )
    log = folder / "sshd.log"
    with log.open("wb") as sink:
        process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "config")], stderr=sink)
    try:
        await_banner(process, port, log)
        yield port
    finally:
        process.terminate()
        process.wait(5)


def test_openssh_trusts_the_machine_by_its_certificate_until_the_key_is_revoked(site: Site, keys: Keys) -> None:
    key = new_host_key(site.folder)
    store, found = site.ledger(), list[str]()

    async def install() -> None:
        async with site.serving(store) as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            await report(base, "written")
            found.append((await ask("POST", f"{base}/hostkey", data=key)).text)

    async def attack() -> None:
        async with site.serving(store) as installer:
            base = (await installer.publish(TOKEN, DOCUMENT, None)).removesuffix("/boot.iso")
            answer = await ask("POST", f"{base}/hostkey", data=new_host_key(site.folder, "other"))
            assert answer.status == 403

    def ssh(name: str) -> subprocess.CompletedProcess[str]:
        (site.folder / "known_hosts").write_text(f"@cert-authority * {site.trust}\n")
        write_secret(site.folder / "login", private(keys.login))
        options = (
            f"UserKnownHostsFile={site.folder}/known_hosts", "GlobalKnownHostsFile=/dev/null", "BatchMode=yes",
            "StrictHostKeyChecking=yes", f"HostKeyAlias={name}", f"IdentityFile={site.folder}/login",
            "IdentitiesOnly=yes",
        )  # fmt: skip
        flags = [part for option in options for part in ("-o", option)]
        command = ["ssh", "-F", "none", *flags, "-p", str(port), f"{getpass.getuser()}@127.0.0.1", "true"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def facts() -> Answered[Any] | Silent:
        host = SshHost(
            NODE, "127.0.0.1", port=port, user=getpass.getuser(), private_key=private(keys.login),
            authorities=[site.trust], revoked=store.revoked_host_keys, now=site.time.now,
        )  # fmt: skip

        async def once() -> Answered[Any] | Silent:
            async with closing(host):
                return await host.facts([], [])

        return asyncio.run(once())

    run(install())
    with real_sshd(site.folder, found[0], keys.login) as port:
        assert ssh(NODE).returncode == 0
        assert ssh(f"{NODE}.example.com").returncode == 0
        assert "Host key verification failed" in ssh("gpu-a002").stderr
        assert isinstance(facts(), Answered)
        run(attack())
        answer = facts()
        assert isinstance(answer, Silent)
        assert "Host key is revoked" in answer.detail
