"""The exchange with real TPMs: only the machine that was enrolled, in the boot that is declared, at this moment."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_public_key
from cryptography.x509.oid import NameOID

from reconciler.gate.attestation.exchange import Challenge, Expected, Untrusted, challenge, verdict
from reconciler.gate.attestation.keys import read_key
from reconciler.model.install import AttestationChallenge
from tests.gate.attestation import machine as m

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(bool(m.MISSING), reason=f"there is no {' and no '.join(m.MISSING)}"),
]

NOW = datetime(2026, 11, 22, tzinfo=UTC)
EXPECTED = Expected(m.BOOT, m.PLATFORM, m.VERSIONS)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[m.Machine]:
    with m.machine(tmp_path_factory.mktemp("tpm")) as found:
        found.boot()
        yield found


def asked(machine: m.Machine) -> tuple[AttestationChallenge, Challenge]:
    return challenge(machine.begin(), m.PLATFORM, os.urandom, NOW)


def test_a_machine_in_the_declared_boot_is_trusted(machine: m.Machine) -> None:
    sent, given = asked(machine)
    judged = verdict(given, machine.finish(sent), EXPECTED)
    assert judged.reasons == ()
    assert judged.phase == "start"


def test_a_quote_counts_once(machine: m.Machine) -> None:
    sent, given = asked(machine)
    answer = machine.finish(sent)
    assert verdict(given, answer, EXPECTED).reasons == ()
    _, later = asked(machine)
    assert "the secret is wrong" in verdict(later, answer, EXPECTED).reasons[0]
    same_keys = replace(later, secret=given.secret, ak=given.ak)  # as if the secret had leaked
    assert "it is an old one or another's" in verdict(same_keys, answer, EXPECTED).reasons[0]


def test_a_quote_is_for_one_host_key(machine: m.Machine) -> None:
    sent, given = asked(machine)
    answer = machine.finish(sent).model_copy(update={"host_key": m.HOST_KEY.replace("root", "eve")})
    assert "not for this nonce and this host key" in verdict(given, answer, EXPECTED).reasons[0]


@pytest.mark.parametrize("kind", ["rsa", "ecc"])
def test_a_tpm_that_lost_its_power_after_each_proof_still_proves(tmp_path: Path, kind: str) -> None:
    """Switched off by force four times: TPMs lock their keys after three, unless the keys are exempt from that."""
    with m.machine(tmp_path) as machine:
        if kind == "ecc":  # told by the certificate that it has
            machine.run("tpm2_nvdefine", "0x1c0000a", "-C", "o", "-s", "8", "-a", "ownerwrite|ownerread|authread|no_da")
            (machine.folder / "ek.crt").write_bytes(b"not read")
            machine.run("tpm2_nvwrite", "0x1c0000a", "-C", "o", "-i", "ek.crt")
        for _ in range(5):
            machine.boot()
            begin = machine.begin().model_copy(update={"ek_cert": None})
            sent, given = challenge(begin, m.PLATFORM, os.urandom, NOW)
            assert verdict(given, machine.finish(sent), EXPECTED).reasons == ()
            machine.cut_power()


def test_another_machine_s_tpm_can_t_answer(machine: m.Machine, tmp_path: Path) -> None:
    sent, given = asked(machine)
    with m.machine(tmp_path) as other:
        other.boot()
        own, _ = asked(other)
        answer = other.finish(own)
        other.begin()
        with pytest.raises(AssertionError, match="Unable to run tpm2_activatecredential"):
            other.finish(sent)
    assert "the secret is wrong" in verdict(given, answer, EXPECTED).reasons[0]


def test_a_key_of_software_beside_a_genuine_endorsement_key_is_no_key_of_the_tpm(machine: m.Machine) -> None:
    begin = machine.begin()
    genuine = base64.b64decode(begin.ak)
    modulus = rsa.generate_private_key(65537, 2048).public_key().public_numbers().n.to_bytes(256, "big")
    made_up = genuine.replace(read_key(genuine, "ak").area[-256:], modulus)  # all attributes are as they should be
    software = begin.model_copy(update={"ak": base64.b64encode(made_up).decode()})
    sent, _ = challenge(software, m.PLATFORM, os.urandom, NOW)
    with pytest.raises(AssertionError, match="integrity"):  # the TPM's own key has another name than the challenge
        machine.finish(sent)


def test_keys_that_prove_nothing_get_no_challenge(machine: m.Machine) -> None:
    begin = machine.begin()
    machine.run("tpm2_createprimary", "-c", "primary.ctx")
    machine.run("tpm2_create", "-C", "primary.ctx", "-G", "rsa2048:rsassa:null", "-u", "free.pub", "-r", "free.priv")
    free = base64.b64encode((machine.folder / "free.pub").read_bytes()).decode()
    machine.run("tpm2_flushcontext", "-t")
    for changed, why in (
        ({"ak": free}, "the attestation key is not restricted"),
        ({"ak": begin.ek}, "the attestation key is not sign"),
        ({"ek": begin.ak}, "the endorsement key is not decrypt"),
    ):
        with pytest.raises(Untrusted, match=why):
            challenge(begin.model_copy(update=changed), m.PLATFORM, os.urandom, NOW)


def test_a_log_that_does_not_explain_the_quote_proves_nothing(machine: m.Machine) -> None:
    sent, given = asked(machine)
    answer = machine.finish(sent)
    for log, why in (
        (m.LOG[:-1], "cut off"),
        (m.LOG[: m.LOG.rindex((5).to_bytes(4, "little") + b"\x07\x00\x00\x80")], "does not explain PCR 5"),
        (m.LOG.replace(bytes.fromhex(m.UKI), bytes(32)), "does not explain PCR 4"),
        (b"", "cut off"),
    ):
        changed = answer.model_copy(update={"event_log": base64.b64encode(log).decode()})
        assert any(why in reason for reason in verdict(given, changed, EXPECTED).reasons), why


def test_an_altered_uki_is_seen_in_a_genuine_quote(tmp_path: Path) -> None:
    with m.machine(tmp_path) as altered:
        altered.boot(m.LOG.replace(bytes.fromhex(m.UKI), b"\xaa" * 32))
        sent, given = asked(altered)
        judged = verdict(given, altered.finish(sent), EXPECTED)
    assert judged.reasons == (f"an EFI program was started that is not declared: {'aa' * 32}",)


def test_a_tpm_with_an_elliptic_key_is_enrolled_with_its_certificate(tmp_path: Path) -> None:
    ca, key = authority("maker")
    declared = replace(m.PLATFORM, endorsement_authorities=pem(ca))
    with m.machine(tmp_path) as machine:
        machine.boot()
        with pytest.raises(Untrusted, match="no endorsement certificate"):
            challenge(machine.begin(), declared, os.urandom, NOW)
        machine.run("tpm2_createek", "-G", "ecc", "-c", "ek.ctx", "-u", "ek.pem", "-f", "pem")
        machine.run("tpm2_flushcontext", "-t")
        own = issue(ca, key, load_pem_public_key((machine.folder / "ek.pem").read_bytes()))
        (machine.folder / "ek.crt").write_bytes(own.public_bytes(Encoding.DER) + bytes(100))  # as NVRAM is padded
        size = str((machine.folder / "ek.crt").stat().st_size)
        machine.run("tpm2_nvdefine", "0x1c0000a", "-C", "o", "-s", size, "-a", "ownerwrite|ownerread|authread")
        machine.run("tpm2_nvwrite", "0x1c0000a", "-C", "o", "-i", "ek.crt")
        begin = machine.begin()
        sent, given = challenge(begin, declared, os.urandom, NOW)
        assert verdict(given, machine.finish(sent), Expected(m.BOOT, declared, m.VERSIONS)).reasons == ()
    other, _ = authority("maker")  # of the same name
    with pytest.raises(Untrusted, match="no declared CA issued"):
        challenge(begin, replace(declared, endorsement_authorities=pem(other)), os.urandom, NOW)
    stranger = issue(ca, key, ec.generate_private_key(ec.SECP256R1()).public_key())
    foreign = begin.model_copy(update={"ek_cert": base64.b64encode(stranger.public_bytes(Encoding.DER)).decode()})
    with pytest.raises(Untrusted, match="of another key"):
        challenge(foreign, declared, os.urandom, NOW)


def authority(name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return _certificate(subject, subject, key.public_key(), key, ca=True), key


def issue(ca: x509.Certificate, key: ec.EllipticCurvePrivateKey, public: Any) -> x509.Certificate:
    return _certificate(x509.Name([]), ca.subject, public, key, ca=False)


def _certificate(
    subject: x509.Name, issuer: x509.Name, public: Any, key: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    builder = x509.CertificateBuilder(issuer, subject, public, 1, NOW, NOW.replace(year=2040))
    return builder.add_extension(x509.BasicConstraints(ca, None), critical=True).sign(key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
