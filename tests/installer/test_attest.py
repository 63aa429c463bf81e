"""The attestation that the init sends, by a software TPM: the server's side checks it with tpm2-tools of its own."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reconciler.installer.attest import prove
from reconciler.installer.client import Client, Patience, opener
from reconciler.installer.machine import Failed, Machine
from reconciler.lab.pki import TlsAuthority
from reconciler.model.install import AttestationBegin, AttestationChallenge
from tests.installer.server import ContractServer

TOOLS = ("swtpm", "tpm2")
pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in TOOLS), reason="there is no swtpm with tpm2-tools"),
]
HOST_KEY = "ssh-ed25519 AAAA gpu-001"
SECRET, NONCE = b"thirty-two bytes of a secret ...", b"a nonce that counts once"
HASTY = Patience(call=10, rest=0.01)


class Tpm:
    """A TPM that can lose its power."""

    def __init__(self, folder: Path) -> None:
        self._state, self.socket = folder / "tpm-state", folder / "tpm"
        self._state.mkdir()
        self.power_on()

    def power_on(self) -> None:
        self._process = subprocess.Popen(
            ("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self._state}",
             "--server", f"type=unixio,path={self.socket}", "--ctrl", f"type=unixio,path={self.socket}.ctrl",
             "--flags", "not-need-init,startup-clear"),
        )  # fmt: skip
        while not self.socket.exists():
            time.sleep(0.05)

    def cut_power(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tpm]:
    """A TPM of its own, and tools that know it."""
    made = Tpm(tmp_path)
    try:
        monkeypatch.setenv("TPM2TOOLS_TCTI", f"swtpm:path={made.socket}")
        yield made
    finally:
        made.cut_power()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ContractServer]:
    authority = TlsAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    with ContractServer(tmp_path, authority) as made:
        made.challenge = lambda begin: challenge(tmp_path, begin)
        yield made


def tool(*words: str | Path) -> bytes:
    return subprocess.run(("tpm2", *map(str, words)), check=True, capture_output=True).stdout


def challenge(folder: Path, begin: AttestationBegin) -> AttestationChallenge:
    """Make a credential without the TPM, from the two public keys that were sent (TPM2_MakeCredential)."""
    ek, ak, secret, made = (folder / name for name in ("their-ek", "their-ak", "secret", "credential"))
    ek.write_bytes(base64.b64decode(begin.ek))
    ak.write_bytes(base64.b64decode(begin.ak))
    secret.write_bytes(SECRET)
    # A name is the hash of the key's public area, without its leading size (TPM 2.0 part 1, 16).
    name = b"\x00\x0b" + hashlib.sha256(ak.read_bytes()[2:]).digest()
    tool("makecredential", "-T", "none", "-u", ek, "-s", secret, "-n", name.hex(), "-o", made)
    blob = made.read_bytes()[8:]
    size = 2 + int.from_bytes(blob[:2])
    return AttestationChallenge(
        credential=base64.b64encode(blob[:size]).decode(),
        secret=base64.b64encode(blob[size:]).decode(),
        nonce=base64.b64encode(NONCE).decode(),
    )


def attest(machine: Machine, server: ContractServer) -> None:
    client = Client(server.url, opener(server.folder / "ca.pem", None, redirects=False), HASTY)
    prove(machine, client, HOST_KEY, 5)


@pytest.fixture
def measured(bare: Machine) -> Machine:
    log = bare.sys / "kernel/security/tpm0"
    log.mkdir(parents=True)
    (log / "binary_bios_measurements").write_bytes(b"events")
    return bare


def test_the_tpm_opens_the_challenge_and_quotes_nonce_and_host_key(
    tpm: Tpm, server: ContractServer, measured: Machine
) -> None:
    digest = hashlib.sha256(b"an event").hexdigest()
    tool("pcrextend", f"11:sha256={digest}")
    attest(measured, server)
    (sent,) = server.finishes
    assert base64.b64decode(sent.secret) == SECRET
    assert sent.host_key == HOST_KEY
    assert base64.b64decode(sent.event_log) == b"events"
    assert sorted(sent.pcrs) == list(range(24))
    assert sent.pcrs[11] == hashlib.sha256(bytes(32) + bytes.fromhex(digest)).hexdigest()
    folder = server.folder
    (folder / "quote").write_bytes(base64.b64decode(sent.quote))
    (folder / "signature").write_bytes(base64.b64decode(sent.signature))
    qualification = hashlib.sha256(NONCE + HOST_KEY.encode()).hexdigest()
    check = (
        "checkquote",
        "-g",
        "sha256",
        "-u",
        folder / "their-ak",
        "-m",
        folder / "quote",
        "-s",
        folder / "signature",
    )
    tool(*check, "-q", qualification)
    with pytest.raises(subprocess.CalledProcessError):
        tool(*check, "-q", "00" * 32)


def test_a_machine_that_lost_its_power_after_each_attempt_still_proves(
    tpm: Tpm, server: ContractServer, measured: Machine
) -> None:
    """TPMs lock their keys after three such losses, unless the keys are exempt from that."""
    for _ in range(5):
        attest(measured, server)
        assert base64.b64decode(server.finishes[-1].secret) == SECRET
        tpm.cut_power()
        tpm.power_on()


def test_a_challenge_for_another_tpm_is_not_opened(tpm: Tpm, server: ContractServer, measured: Machine) -> None:
    def damaged(begin: AttestationBegin) -> AttestationChallenge:
        made = challenge(server.folder, begin)
        blob = bytearray(base64.b64decode(made.secret))
        blob[-1] ^= 1
        return made.model_copy(update={"secret": base64.b64encode(bytes(blob)).decode()})

    server.challenge = damaged
    with pytest.raises(Failed, match="tpm2 failed"):
        attest(measured, server)
    assert server.finishes == []


def test_a_machine_without_an_event_log_says_so(tpm: Tpm, server: ContractServer, bare: Machine) -> None:
    with pytest.raises(Failed, match=r"the firmware's event log .* can't be read: No such file"):
        attest(bare, server)


def test_a_machine_without_a_tpm_says_so(
    server: ContractServer, measured: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPM2TOOLS_TCTI", "device:/dev/no-tpm")
    with pytest.raises(Failed, match="tpm2 failed"):
        attest(measured, server)
