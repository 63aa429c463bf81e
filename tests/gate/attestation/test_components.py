"""Measurements that components sign by SPDM: evidence of real devices, and of a lab's components, told from lies."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.components import ComponentState, judge_component, one_answered_twice
from reconciler.gate.attestation.spdm import read_transcript
from reconciler.lab.hardware.spdm import AUTHORITY, LIES, transcript
from reconciler.model.measurements import ComponentMeasurements, ComponentReference, SignedMeasurements
from tests.lab.machines import Time, example_lab

NOW = datetime(2026, 11, 23, tzinfo=UTC)
NONCE = bytes(range(32))
VALUES = {"1": "ab" * 48, "2": "cd" * 48}
GPUS = ("HGX_IRoT_GPU_0", "HGX_IRoT_GPU_1")
DECLARED = ComponentMeasurements(GPUS, AUTHORITY, (ComponentReference({}, VALUES),))


def lab_machine() -> Any:
    machine = next(iter(example_lab("clean", Time()).machines.values()))
    machine.components = (DECLARED,)
    return machine


def judged(
    answer: SignedMeasurements,
    declared: ComponentMeasurements = DECLARED,
    versions: Mapping[str, str] | None = None,
    nonce: bytes = NONCE,
) -> ComponentState:
    return judge_component(answer, nonce, declared, versions or {}, NOW)


@pytest.fixture(params=["hopper_evidence_cert_hold", "multi_switch_ls10"])
def real(request: pytest.FixtureRequest, samples: Path) -> tuple[SignedMeasurements, bytes, str]:
    """Return what a device signed, under which nonce, and the root of its chain.

    NVIDIA/attestation-sdk, common-test-data/serialized_test_evidence: a Hopper GPU and an NVSwitch (LS10), by driver.
    The same bytes come from a BMC: those of a GB200 in NVIDIA's infra-controller begin like them.
    """
    found = json.loads((samples / "nvtrust" / f"attestation-sdk_{request.param}.json").read_text(encoding="utf-8"))[0]
    chain = base64.b64decode(found["certificate"]).decode()
    root = chain[chain.rindex("-----BEGIN") :]
    return SignedMeasurements(found["evidence"], "TPM_ALG_SHA_384", chain), bytes.fromhex(found["nonce"]), root


def test_real_devices_are_believed_under_their_makers_root_alone(real: tuple[SignedMeasurements, bytes, str]) -> None:
    answer, nonce, root = real
    found = judged(answer, ComponentMeasurements(GPUS, root), nonce=nonce)
    assert (found.reason, len(found.key)) == ("", 64)
    assert len(found.values) >= 25
    told_sha512 = replace(answer, hash="TPM_ALG_SHA_512")  # as a BlueField 3 and a GB200 tell it, and sign with SHA-384
    assert judged(told_sha512, ComponentMeasurements(GPUS, root), nonce=nonce).reason == ""
    assert "no declared CA is in its certificate chain" in judged(answer, DECLARED, nonce=nonce).reason
    assert "not for this nonce" in judged(answer, ComponentMeasurements(GPUS, root)).reason


def test_no_byte_of_a_real_transcript_can_be_changed(real: tuple[SignedMeasurements, bytes, str]) -> None:
    answer, nonce, root = real
    data = base64.b64decode(answer.signed)
    for at in (0, 1, 3, 20, 36, 38, 41, 42, 50, 90, len(data) // 2, len(data) - 97, len(data) - 96, len(data) - 1):
        other = base64.b64encode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]).decode()
        assert judged(replace(answer, signed=other), ComponentMeasurements(GPUS, root), nonce=nonce).reason, at
    for size in (0, 3, 37, 100, len(data) - 97, len(data) - 1):
        other = base64.b64encode(data[:size]).decode()
        assert judged(replace(answer, signed=other), ComponentMeasurements(GPUS, root), nonce=nonce).reason, size


def test_the_chain_of_a_real_dgx_is_read_from_root_to_leaf(samples: Path) -> None:
    file = samples / "redfish/nvidia-dgx-h100/Chassis__HGX_ERoT_GPU_SXM_1__Certificates__CertChain.json"
    chain = json.loads(file.read_text(encoding="utf-8"))["CertificateString"]
    signed = lab_machine().sign_measurements(GPUS[0], NONCE)
    found = judged(
        replace(signed, certificates=chain),
        ComponentMeasurements(GPUS, chain[: chain.index("END")] + "END CERTIFICATE-----\n"),
    )
    assert found.reason.startswith("its signature is not by the key of its certificate chain")


def test_a_component_proves_what_is_declared_and_nothing_else() -> None:
    answer = lab_machine().sign_measurements(GPUS[0], NONCE)
    assert judged(answer) == ComponentState("", VALUES, judged(answer).key)
    other = replace(DECLARED, references=(ComponentReference({}, {**VALUES, "2": "00" * 48, "9": "11"}),))
    assert judged(answer, other).reason == (
        f"it does not run the declared firmware: measurement 2 is {VALUES['2']}, 9 is missing"
    )
    by_version = replace(DECLARED, references=(ComponentReference({"gpu": "97.00"}, VALUES),))
    assert judged(answer, by_version, {"gpu": "97.00"}).reason == ""
    assert judged(answer, by_version, {"gpu": "96.00"}).reason == "no reference is declared for gpu 96.00"
    assert judged(answer, by_version).reason == "no reference is declared for gpu of an unknown version"
    assert judged(answer, replace(DECLARED, references=())).values == VALUES, "which is how a reference is learned"


WHY = {
    "truncated": "its signature has 56 bytes where 96 belong: it was cut off or altered",
    "replayed": "its measurements are not for this nonce: they are old ones, or another's",
    "altered": "its signature is not by the key of its certificate chain: it was altered, or the chain is another",
    "other_chain": "its signature is not by the key of its certificate chain: it was altered, or the chain is another",
    "own_authority": "no declared CA is in its certificate chain, which ends with CN=Lab Device Identity CA",
    "other_firmware": "it does not run the declared firmware: measurement 1 is ",
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_told_in_a_line_of_its_own(lie: str) -> None:
    machine = lab_machine()
    assert judged(machine.sign_measurements(GPUS[1], NONCE)).reason == ""
    machine.inject("spdm", lie=lie)
    found = {name: judged(machine.sign_measurements(name, NONCE)) for name in GPUS}
    if lie == "one_for_all":
        assert not any(state.reason for state in found.values()), "each answer is genuine"
        both = f"{' and '.join(GPUS)} signed with the same key: one of them answered for the others"
        assert one_answered_twice({name: state.key for name, state in found.items()}) == both
        return
    assert found[GPUS[1]].reason.startswith(WHY[lie])
    assert one_answered_twice({name: state.key for name, state in found.items()}) == ""


def test_what_is_no_transcript_is_said_to_be_none() -> None:
    good = transcript(VALUES, NONCE)
    for data, why in (
        (b"", "the transcript is cut off"),
        (b"\x12" + good[1:], "the transcript is of SPDM 1.2; 1.0 and 1.1 are read"),
        (good[37:], "another message where GET_MEASUREMENTS belongs"),
        (good[:37] * 2, "another message where MEASUREMENTS belongs"),
        (good[:37] + b"\x10" + good[38:], "messages of two versions"),
        (good.replace(b"\x02\x01\x33\x00", b"\x01\x01\x33\x00"), "measurement 1 has two values"),
        (good.replace(b"\x02\x01\x33\x00", b"\x02\x02\x33\x00"), "of the specification 0x02"),
        (good[:41] + b"\x01" + good[42:], "the measurement record has 55 bytes too many"),
        (bytes(1 << 19), "more than 262144 bytes"),
    ):
        with pytest.raises(Malformed, match=why):
            read_transcript(data)
    # HPE's iLO 6 hands on the digests alone (its Redfish reference, SPDM), which proves nothing.
    ilo = "bFAugwVpDsvI+nIzLR5UKhFVcvsdtoDJCUMqmFrcZ7ZXVH7mLutuddwTJjIobW1dbra/OePokl5gv+6GPL5xQEmtZbZdtiLj"
    assert (
        judged(SignedMeasurements(ilo, "SHA384", AUTHORITY)).reason
        == "the transcript is of SPDM 6.12; 1.0 and 1.1 are read"
    )
    assert judged(SignedMeasurements("%", "", AUTHORITY)).reason == "its signed measurements are not base64"


def test_measurements_may_be_asked_for_one_by_one() -> None:
    """A BMC that is asked for all may ask its component for each, and for the signature with the last of them."""
    first = transcript({"1": VALUES["1"]}, NONCE)
    unsigned = b"\x11\xe0\x00\x01" + first[37:]
    found = read_transcript(unsigned + transcript({"2": VALUES["2"]}, NONCE) + b"\x01" * 96)
    assert (found.values, found.nonce, found.signature) == (VALUES, NONCE, b"\x01" * 96)


def test_a_chain_through_no_ca_is_refused() -> None:
    machine = lab_machine()
    answer = machine.sign_measurements(GPUS[0], NONCE)
    leaf, middle, root = _certificates(answer.certificates)
    assert judged(replace(answer, certificates=root + middle + leaf)).reason == "", "in either order"
    assert judged(replace(answer, certificates=leaf + middle)).reason == "", "the root is the spec's"
    assert judged(replace(answer, certificates=leaf)).reason.startswith("no declared CA is in its certificate chain")
    assert judged(replace(answer, certificates=leaf + leaf)).reason.startswith("its certificate chain has 2 ends")
    assert judged(replace(answer, certificates="")).reason == "its certificate chain can't be read as PEM"
    assert judged(answer, replace(DECLARED, authorities=leaf)).reason == "", "a pinned certificate is trusted itself"
    before = judge_component(answer, NONCE, DECLARED, {}, datetime(2019, 1, 1, tzinfo=UTC))
    assert before.reason.endswith("in its chain is valid from 2020-01-01 only")


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_no_bytes_of_a_bmc_are_more_than_a_reason() -> None:
    """Whatever a BMC sends is refused in a line: an exception would stop the node's pass."""
    machine = lab_machine()
    answer = machine.sign_measurements(GPUS[0], NONCE)
    leaf, middle, _ = _certificates(answer.certificates)
    rng = random.Random(1)
    for _ in range(400):
        der = bytearray(base64.b64decode("".join(leaf.splitlines()[1:-1])))
        for _ in range(rng.randint(1, 3)):
            der[rng.randrange(len(der))] = rng.randrange(256)
        pem = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(der).decode()}\n-----END CERTIFICATE-----\n"
        changed = pem.split("\n")[1] != "".join(leaf.splitlines()[1:-1])
        assert bool(judged(replace(answer, certificates=pem + middle)).reason) is changed
    for text in ("\ud800", "\u00e9", "=", "A" * 5, ""):
        assert judged(replace(answer, signed=text)).reason
        assert judged(replace(answer, certificates=text)).reason
        assert judged(replace(answer, hash=text)).reason == "", "the curve's own hash will do"


def _certificates(chain: str) -> list[str]:
    end = "-----END CERTIFICATE-----\n"
    return [part + end for part in chain.split(end)[:-1]]
