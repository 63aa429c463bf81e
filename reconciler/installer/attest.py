"""Prove to the server which TPM this is and what the machine booted, before its host key is signed.

tpm2-tools talk to the TPM. The attestation key is made under the endorsement key for this attempt alone, and leaves no
trace in the TPM.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final

from reconciler.installer.client import Client
from reconciler.installer.documents import Challenge, Malformed, load
from reconciler.installer.machine import Failed, Machine

PCRS: Final = range(24)
EK_CERTIFICATE: Final = "0x01c00002"  # NV index of the RSA endorsement certificate (TCG EK Credential Profile 2.2.1.4)
_CREDENTIAL: Final = struct.pack(">II", 0xBADCC0DE, 1)  # how tpm2-tools mark a file with a credential and its secret
_VALUE = re.compile(r"^\s*(\d+)\s*:\s*0x([0-9A-Fa-f]{64})\s*$", re.MULTILINE)


def prove(machine: Machine, client: Client, host_key: str, seconds: float) -> None:
    """Attest this machine with its host key. Raise Failed when it has no TPM, or the server does not believe it."""
    tpm = _Tpm(machine)
    challenge = client.post("attest/begin", tpm.keys(), seconds)
    try:
        told = load(Challenge, challenge)
        nonce, credential = _decoded(told.nonce), _decoded(told.credential) + _decoded(told.secret)
    except ValueError as error:  # Malformed is one
        raise Failed(f"the server's challenge is not the contract's: {error}") from None
    secret = tpm.activate(credential)
    qualification = hashlib.sha256(nonce + host_key.encode()).digest()
    quote = tpm.quote(qualification)
    client.post("attest/finish", {"secret": _encoded(secret), "host_key": host_key, **quote}, seconds)


class _Tpm:
    """The machine's TPM, with one endorsement and one attestation key."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._at = machine, machine.work / "tpm"
        self._at.mkdir(parents=True, exist_ok=True)
        self._ek, self._ak = self._at / "ek.ctx", self._at / "ak.ctx"

    def keys(self) -> dict[str, str | None]:
        """Make both keys, and return AttestationBegin."""
        ek, ak = self._at / "ek.pub", self._at / "ak.pub"
        self._run("createek", "-c", self._ek, "-G", "rsa", "-u", ek)
        self._run(
            "createak", "-C", self._ek, "-c", self._ak, "-G", "rsa", "-g", "sha256", "-s", "rsassa",
            "-u", ak, "-n", self._at / "ak.name",
        )  # fmt: skip
        certificate = None
        with suppress(Failed):  # not every TPM has one; whether that will do is the server's to say
            certificate = _encoded(self._run("nvread", "-C", "o", EK_CERTIFICATE))
        return {"ek": _encoded(ek.read_bytes()), "ak": _encoded(ak.read_bytes()), "ek_cert": certificate}

    def activate(self, credential: bytes) -> bytes:
        """Open the secret of a challenge, which takes this endorsement key and this attestation key together."""
        session, sealed, opened = self._at / "session.ctx", self._at / "credential", self._at / "secret"
        sealed.write_bytes(_CREDENTIAL + credential)
        self._run("startauthsession", "--policy-session", "-S", session)
        try:
            self._run("policysecret", "-S", session, "-c", "e")
            self._run(
                "activatecredential",
                "-c",
                self._ak,
                "-C",
                self._ek,
                "-i",
                sealed,
                "-o",
                opened,
                "-P",
                f"session:{session}",
            )
        finally:
            self._run("flushcontext", session)
        return opened.read_bytes()

    def quote(self, qualification: bytes) -> dict[str, object]:
        """Return the quote, and what explains it, as AttestationFinish has it."""
        message, signature = self._at / "quote", self._at / "signature"
        bank = f"sha256:{','.join(map(str, PCRS))}"
        self._run(
            "quote",
            "-c",
            self._ak,
            "-l",
            bank,
            "-q",
            qualification.hex(),
            "-g",
            "sha256",
            "-m",
            message,
            "-s",
            signature,
        )
        values = _VALUE.findall(self._run("pcrread", bank).decode())
        log = self._machine.sys / "kernel/security/tpm0/binary_bios_measurements"
        try:
            events = log.read_bytes()
        except OSError as error:
            raise Failed(f"the firmware's event log ({log}) can't be read: {error.strerror}") from None
        return {
            "quote": _encoded(message.read_bytes()),
            "signature": _encoded(signature.read_bytes()),
            "pcrs": {number: value.lower() for number, value in values},
            "event_log": _encoded(events),
        }

    def _run(self, command: str, *words: str | Path) -> bytes:
        """Run a tool, and free the TPM's memory: it holds three keys, and not every TPM has a resource manager."""
        try:
            return self._machine.run("tpm2", command, *map(str, words))
        finally:
            with suppress(Failed):  # the failure that counts is the tool's
                self._machine.run("tpm2", "flushcontext", "--transient-object")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Malformed("not base64") from None
