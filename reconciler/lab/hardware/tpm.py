"""A TPM of software, and what a lab machine measures into it: the making side of reconciler/gate/attestation.

The log is that of a real boot (OVMF with Secure Boot, systemd-boot and a UKI; tests/gate/attestation/record.sh), with
the EFI programs of what the machine boots in the place of the recorded ones. So a lab's spec declares the recorded
variables of Secure Boot and the recorded firmware, and any image. Keys are of ECC P-256, derived from the machine's
serial number: the same machine has the same TPM. Structures: TPM 2.0 part 2, sections 10 to 12; part 1, annex C.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from reconciler.gate.attestation.buffers import Malformed, Reader, sized
from reconciler.gate.attestation.event_log import EV_NO_ACTION, Event, parse_log, replay
from reconciler.gate.attestation.exchange import qualifying
from reconciler.lab.hardware.lifecycle import Lifecycle
from reconciler.model.install import AttestationBegin, AttestationChallenge, AttestationFinish
from reconciler.model.measurements import BootMeasurements

LIES: Final = ("altered_uki", "replayed_quote", "other_tpm", "software_key", "truncated_log")
RECORDED: Final = parse_log((Path(__file__).parent / "ovmf-secure-boot.bin").read_bytes())
QUOTED: Final = (*range(10), 11, 12, 14)
_EFI_APPLICATION: Final = 0x80000003  # EV_EFI_BOOT_SERVICES_APPLICATION
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
_EK, _AK = 0x000300B2, 0x00050072  # attributes: restricted, fixedTPM, ...; the EK decrypts, the AK signs
_SHA256, _NULL = 0x000B, 0x0010


class Tpm:
    """One TPM. `serial`: whose keys it has."""

    def __init__(self, serial: str) -> None:
        self._ek, self._ak = _derived(f"{serial} ek"), _derived(f"{serial} ak")
        self._ek_area = _public(_EK, struct.pack(">HHHH", 6, 128, 0x43, _NULL), self._ek)
        self._ak_area = _public(_AK, struct.pack(">HHH", _NULL, 0x18, _SHA256), self._ak)
        self._name = struct.pack(">H", _SHA256) + hashlib.sha256(self._ak_area).digest()

    def keys(self) -> AttestationBegin:
        return AttestationBegin(ek=_text(sized(self._ek_area)), ak=_text(sized(self._ak_area)))

    def open(self, challenge: AttestationChallenge) -> bytes:
        """Return the secret of a credential (TPM2_ActivateCredential). Raise Malformed for one of other keys."""
        outer = Reader(base64.b64decode(challenge.secret), "the encrypted secret")
        point = Reader(outer.sized(), "the point")
        x, y = (int.from_bytes(point.sized(), "big") for _ in "xy")
        theirs = ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1())
        shared = self._ek.exchange(ec.ECDH(), theirs.public_key())
        own = self._ek.public_key().public_numbers().x
        message = b"IDENTITY\0" + theirs.x.to_bytes(32, "big") + own.to_bytes(32, "big")
        seed = hashlib.sha256(struct.pack(">I", 1) + shared + message).digest()
        blob = Reader(Reader(base64.b64decode(challenge.credential), "the credential").sized(), "the credential")
        integrity, identity = blob.sized(), blob.take(blob.left)
        mac = hmac.digest(_kdfa(seed, "INTEGRITY", b"", 32), identity + self._name, "sha256")
        if not hmac.compare_digest(mac, integrity):
            raise Malformed("the credential is not for the keys of this TPM")
        return Reader(_decrypted(_kdfa(seed, "STORAGE", self._name, 16), identity), "the secret").sized()

    def quote(self, pcrs: Mapping[int, bytes], data: bytes, resets: int) -> tuple[bytes, bytes]:
        """Return TPMS_ATTEST and TPMT_SIGNATURE over these PCRs."""
        bits = sum(1 << index for index in pcrs).to_bytes(3, "little")
        told = hashlib.sha256(b"".join(pcrs[index] for index in sorted(pcrs))).digest()
        statement = (
            struct.pack(">IH", 0xFF544347, 0x8018) + sized(self._name) + sized(data)
            + struct.pack(">QIIBQ", resets * 1000, resets, 0, 1, 0x2019102300163636)
            + struct.pack(">IHB", 1, _SHA256, 3) + bits + sized(told)
        )  # fmt: skip
        parts = decode_dss_signature(self._ak.sign(statement, ec.ECDSA(hashes.SHA256())))
        signature = struct.pack(">HH", 0x18, _SHA256) + b"".join(sized(part.to_bytes(32, "big")) for part in parts)
        return statement, signature


class TpmSide(Lifecycle):
    """A machine's answers to the two steps of an exchange.

    `measured`: by name and version, what images measure; `installer_measured`: what our installer does.
    """

    measured: Mapping[tuple[str, str], BootMeasurements] = {}
    installer_measured: BootMeasurements | None = None
    _quoted: AttestationFinish | None = None

    def tpm_keys(self) -> AttestationBegin:
        found, other = self._tpm().keys(), Tpm("of software").keys()
        return found.model_copy(update={"ak": other.ak}) if self._lie() == "software_key" else found

    def tpm_answer(self, challenge: AttestationChallenge, host_key: str) -> AttestationFinish:
        """Answer a challenge. Raise Malformed where the TPM does not open it."""
        lie, tpm = self._lie(), self._tpm()
        if lie == "software_key":
            secret, tpm = b"\0" * 32, Tpm("of software")
        else:
            secret = tpm.open(challenge)
        events = boot_events(self._booted(), altered=lie == "altered_uki")
        pcrs = {index: value for index, value in replay(events).items() if index in QUOTED}
        pcrs[11] = self._pcr11(altered=lie == "altered_uki")
        data = qualifying(base64.b64decode(challenge.nonce), host_key)
        quote, signature = tpm.quote(pcrs, data, self.state.counters.boots)
        answer = AttestationFinish(
            secret=_text(secret), quote=_text(quote), signature=_text(signature), host_key=host_key,
            pcrs={index: value.hex() for index, value in pcrs.items()},
            event_log=_text(write_log(events[:-3] if lie == "truncated_log" else events)),
        )  # fmt: skip
        old, self._quoted = self._quoted, answer
        replayed = lie == "replayed_quote" and old is not None
        return old.model_copy(update={"secret": answer.secret}) if replayed and old is not None else answer

    def _lie(self) -> str:
        fault = self.fault("tpm")
        return "" if fault is None else str(fault["lie"])

    def _tpm(self) -> Tpm:
        return Tpm(f"{self.state.serial} of another" if self._lie() == "other_tpm" else self.state.serial)

    def _booted(self) -> BootMeasurements | None:
        if self.state.installer is not None:
            return self.installer_measured
        disk = self.state.disks.get(self.state.booted_disk or "")
        return None if disk is None else self.measured.get((disk.image, disk.version))

    def _pcr11(self, *, altered: bool) -> bytes:
        booted = self._booted()
        value = bytes.fromhex(list(booted.pcr11.values())[-1]) if booted is not None and booted.pcr11 else bytes(32)
        return hashlib.sha256(value).digest() if altered else value


def boot_events(booted: BootMeasurements | None, *, altered: bool = False) -> tuple[Event, ...]:
    """Return the recorded boot with these EFI programs; None: none. `altered`: the last one is not the declared one."""
    digests = [bytes.fromhex(digest) for digest in (booted.applications if booted is not None else ())]
    if altered and digests:
        digests[-1] = hashlib.sha256(digests[-1]).digest()
    return tuple(_with_programs(RECORDED, digests))


def _with_programs(events: Sequence[Event], digests: Sequence[bytes]) -> Iterator[Event]:
    programs = [event for event in events if event.pcr == 4 and event.type == _EFI_APPLICATION]
    for event in events:
        if event is programs[0]:
            yield from (replace(programs[0], digest=digest) for digest in digests)
        elif not any(event is program for program in programs):
            yield event


def write_log(events: Sequence[Event]) -> bytes:
    """Return a crypto-agile log with sha256 digests alone."""
    head = b"Spec ID Event03\0" + struct.pack("<IBBBBIHHB", 0, 0, 2, 0, 2, 1, _SHA256, 32, 0)
    log = struct.pack("<II20sI", 0, EV_NO_ACTION, bytes(20), len(head)) + head
    for event in events:
        log += struct.pack("<IIIH32sI", event.pcr, event.type, 1, _SHA256, event.digest, len(event.data)) + event.data
    return log


def _derived(seed: str) -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(hashlib.sha512(seed.encode()).digest(), "big") % (_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


def _public(attributes: int, parameters: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return TPMT_PUBLIC. `parameters`: the symmetric cipher and the scheme."""
    numbers = key.public_key().public_numbers()
    point = sized(numbers.x.to_bytes(32, "big")) + sized(numbers.y.to_bytes(32, "big"))
    head = struct.pack(">HHI", 0x0023, _SHA256, attributes) + sized(b"")
    return head + parameters + struct.pack(">HH", 0x0003, _NULL) + point


def _kdfa(key: bytes, label: str, context: bytes, size: int) -> bytes:
    message = struct.pack(">I", 1) + label.encode() + b"\0" + context + struct.pack(">I", size * 8)
    return hmac.digest(key, message, "sha256")[:size]


def _decrypted(key: bytes, text: bytes) -> bytes:
    """Decrypt AES in CFB mode with an IV of zeros, of single blocks."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    block, clear = bytes(16), b""
    for start in range(0, len(text), 16):
        part = text[start : start + 16]
        clear += bytes(one ^ other for one, other in zip(part, encryptor.update(block), strict=False))
        block = part
    return clear


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
