"""Roots of trust of a machine's components, which sign what they measured: the making side of gate/attestation/spdm.py.

A machine has the components that its spec declares, with the measurements of the reference for the firmware that it
has. Transcripts are of SPDM 1.1, as GPUs of NVIDIA sign them; keys are of ECC P-384, derived from the machine's serial
number and the component, below the one CA of all labs (`AUTHORITY`), whose key is no secret.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from reconciler.lab.hardware.lifecycle import HardwareRejected, Lifecycle, Rejection
from reconciler.lab.hardware.state import TaskState
from reconciler.model.measurements import ComponentMeasurements, SignedMeasurements

LIES: Final = ("truncated", "replayed", "altered", "other_chain", "own_authority", "other_firmware", "one_for_all")
AUTHORITY: Final = (Path(__file__).parent / "spdm-authority.pem").read_text(encoding="ascii")
SIGNING_S: Final = 3.0
_AUTHORITY_SEED: Final = "the CA of components in labs"
_ORDER: Final = int(  # of P-384
    "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16
)
_SINCE, _UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
_V11, _GET, _MEASUREMENTS = 0x11, 0xE0, 0x60


class SpdmSide(Lifecycle):
    """`components`: as the spec declares them; none of which there are: the BMC has no ComponentIntegrity."""

    components: Sequence[ComponentMeasurements] = ()
    answers: Mapping[str, SignedMeasurements] = {}  # the last answer of each component, while the BMC keeps it

    @property
    def component_ids(self) -> list[str]:
        return [one for group in self.components for one in group.ids]

    def certificates(self, component: str) -> str:
        """Return the certificate chain of a component, the leaf first."""
        lie = self._lies()
        if lie == "one_for_all":
            component = self.component_ids[0]
        return _chain(f"{self.state.serial} {component}{' of another' if lie == 'other_chain' else ''}", lie)

    def sign_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        """Return what a component signs under a nonce. ABSENT: there is none of this name; BUSY: it has no power."""
        self.catch_up()
        group = next((found for found in self.components if component in found.ids), None)
        if group is None:
            raise HardwareRejected(Rejection.ABSENT, f"the BMC lists no {component} in ComponentIntegrity")
        if self.state.power == "off":
            raise HardwareRejected(Rejection.BUSY, f"{component} does not answer: the machine is off")
        lie = self._lies()
        signer = self.component_ids[0] if lie == "one_for_all" else component
        signed = transcript(self._values(group, lie), bytes(32) if lie == "replayed" else nonce)
        signed += _signature(_derived(f"{self.state.serial} {signer}"), signed)
        if lie == "truncated":
            signed = signed[:-40]
        if lie == "altered":
            signed = signed[:60] + bytes([signed[60] ^ 1]) + signed[61:]
        return SignedMeasurements(base64.b64encode(signed).decode(), "TPM_ALG_SHA_384", self.certificates(component))

    def measure(self, component: str, nonce: bytes) -> str:
        """Begin to ask a component, and return the number of the BMC's task."""
        answer = self.sign_measurements(component, nonce)
        self.state.tasks_started += 1
        number = str(self.state.tasks_started)
        task = TaskState(number, "", "", self.now, self.now + SIGNING_S, component=component)
        self.state.tasks[number] = task
        self._timers.at(task.ends, f"task {number}", lambda: self._signed(task, answer))
        return number

    def _signed(self, task: TaskState, answer: SignedMeasurements) -> None:
        task.state = "Completed"
        self.answers = {**self.answers, task.component: answer}

    def _values(self, group: ComponentMeasurements, lie: str) -> Mapping[str, str]:
        """Return the measurements of the machine's firmware, made-up ones where no reference is for it."""
        versions = {item.component: item.version for item in self.state.firmware.values()}
        fitting = next((reference for reference in group.references if reference.fits(versions)), None)
        made_up = {"1": hashlib.sha384(repr(sorted(versions.items())).encode()).hexdigest()}
        values = made_up if fitting is None else dict(fitting.values)
        if lie == "other_firmware":
            values = {index: hashlib.sha384(bytes.fromhex(value)).hexdigest() for index, value in values.items()}
        return values

    def _lies(self) -> str:
        fault = self.fault("spdm")
        return "" if fault is None else str(fault["lie"])


def transcript(values: Mapping[str, str], nonce: bytes) -> bytes:
    """Return a request for all measurements and its response, up to the signature."""
    request = bytes((_V11, _GET, 0x01, 0xFF)) + nonce + b"\0"
    record = b"".join(_block(int(index), bytes.fromhex(value)) for index, value in values.items())
    head = bytes((_V11, _MEASUREMENTS, 0, 0, len(values))) + len(record).to_bytes(3, "little")
    return request + head + record + hashlib.sha256(nonce).digest() + struct.pack("<H", 0)


def _block(index: int, value: bytes) -> bytes:
    """Return a measurement block of a digest (DSP0274, 1.1, tables 43 and 44); type 1: mutable firmware."""
    return struct.pack("<BBHBH", index, 0x01, len(value) + 3, 0x01, len(value)) + value


def _signature(key: ec.EllipticCurvePrivateKey, signed: bytes) -> bytes:
    parts = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA384())))
    return b"".join(part.to_bytes(48, "big") for part in parts)


@lru_cache(maxsize=512)
def _chain(device: str, lie: str) -> str:
    """Return leaf, CA of the device, and the lab's CA, in PEM."""
    authority = _derived("another CA" if lie == "own_authority" else _AUTHORITY_SEED)
    own = _derived(f"{device} identity")
    leaf = _certificate(device, _derived(device), f"{device} identity", own, ca=False)
    middle = _certificate(f"{device} identity", own, "Lab Device Identity CA", authority, ca=True)
    root = _certificate("Lab Device Identity CA", authority, "Lab Device Identity CA", authority, ca=True)
    return leaf + middle + (root if lie == "own_authority" else AUTHORITY)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, ca: bool
) -> str:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(by, hashes.SHA384())
    )
    return certificate.public_bytes(Encoding.PEM).decode()


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[-64:])])


def _derived(seed: str) -> ec.EllipticCurvePrivateKey:
    number = int.from_bytes(hashlib.shake_256(seed.encode()).digest(56), "big") % (_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP384R1())
