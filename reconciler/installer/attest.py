"""Prove to the server which TPM this is and what the machine booted, before its host key is signed.

tpm2-tools talk to the TPM. The attestation key is made under the endorsement key for this attempt alone, and leaves no
trace in the TPM.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from reconciler.installer.client import Client
from reconciler.installer.documents import Challenge, Malformed, load
from reconciler.installer.machine import Failed, Machine

PCRS: Final = range(24)
EK_CERTIFICATE: Final = "0x01c00002"  # NV index of the RSA endorsement certificate (TCG EK Credential Profile 2.2.1.4)
# "noda", which createak leaves out: a TPM takes each loss of power after the use of a key without it for a wrong
# password, and after three it refuses such keys for hours (TPM 2.0 Library part 1, 19.8).
_AK: Final = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|sign"
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
        private, key = self._at / "ak.private", ("-G", "rsa2048:rsassa-sha256:null", "-g", "sha256", "-a", _AK)
        self._run("createek", "-c", self._ek, "-G", "rsa", "-u", ek)
        with self._session() as session:
            self._run("create", "-C", self._ek, "-P", session, *key, "-u", ak, "-r", private)
        with self._session() as session:
            self._run("load", "-C", self._ek, "-P", session, "-u", ak, "-r", private, "-c", self._ak)
        certificate = None
        with suppress(Failed):  # not every TPM has one; whether that will do is the server's to say
            certificate = _encoded(self._run("nvread", "-C", "o", EK_CERTIFICATE))
        return {"ek": _encoded(ek.read_bytes()), "ak": _encoded(ak.read_bytes()), "ek_cert": certificate}

    def activate(self, credential: bytes) -> bytes:
        """Open the secret of a challenge, which takes this endorsement key and this attestation key together."""
        sealed, opened = self._at / "credential", self._at / "secret"
        sealed.write_bytes(_CREDENTIAL + credential)
        with self._session() as session:
            keys = ("-c", self._ak, "-C", self._ek)
            self._run("activatecredential", *keys, "-i", sealed, "-o", opened, "-P", session)
        return opened.read_bytes()

    @contextmanager
    def _session(self) -> Iterator[str]:
        """Yield what authorises one use of the endorsement key, for `-P`."""
        session = self._at / "session.ctx"
        self._run("startauthsession", "--policy-session", "-S", session)
        try:
            self._run("policysecret", "-S", session, "-c", "e")
            yield f"session:{session}"
        finally:
            self._run("flushcontext", session)

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
