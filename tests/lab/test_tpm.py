"""The lab's TPM makes what a real one makes: our judge and tpm2-tools accept it, and only where it is genuine."""

from __future__ import annotations

import base64
import secrets
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.event_log import parse_log, replay
from reconciler.gate.attestation.exchange import Expected, challenge, qualifying, verdict
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.tpm import Tpm, boot_events, write_log
from reconciler.lab.wire.ssh_tools import host_tools
from reconciler.model.install import AttestationFinish
from reconciler.model.measurements import BootMeasurements
from tests.gate.attestation import machine as m
from tests.lab.machines import Time, example_lab
from tests.lab.test_commands import run

NOW = datetime(2026, 11, 22, tzinfo=UTC)
IMAGE = BootMeasurements(("ab" * 32, "cd" * 32), {"start": "ef" * 32})


def a_machine() -> Machine:
    return next(iter(example_lab("clean", Time()).machines.values()))


def test_the_recorded_boot_is_measured_as_the_kernel_showed_it() -> None:
    again = parse_log(write_log(boot_events(m.BOOT)))
    assert {index: value.hex() for index, value in replay(again).items() if index < 8} == {
        index: m.PCRS[index] for index in range(8)
    }


def test_a_machine_proves_any_image_that_is_declared() -> None:
    lab = a_machine()
    lab.measured = {(disk.image, disk.version): IMAGE for disk in lab.state.disks.values()}
    sent, given = challenge(lab.tpm_keys(), m.PLATFORM, secrets.token_bytes, NOW)
    answer = lab.tpm_answer(sent, "ssh-ed25519 AAAA")
    assert verdict(given, answer, Expected(IMAGE, m.PLATFORM)).reasons == ()
    other = replace(IMAGE, applications=("00" * 32,))
    assert "is not declared" in verdict(given, answer, Expected(other, m.PLATFORM)).reasons[0]


def test_a_tpm_opens_no_credential_of_another() -> None:
    sent, _ = challenge(Tpm("one").keys(), m.PLATFORM, secrets.token_bytes, NOW)
    with pytest.raises(Malformed):
        Tpm("two").open(sent)
    mixed = Tpm("one").keys().model_copy(update={"ak": Tpm("two").keys().ak})
    sent, _ = challenge(mixed, m.PLATFORM, secrets.token_bytes, NOW)
    with pytest.raises(Malformed):
        Tpm("one").open(sent)


def test_the_keys_of_a_machine_outlive_its_boots() -> None:
    assert Tpm("one").keys() == Tpm("one").keys() != Tpm("two").keys()


@pytest.mark.tool
@pytest.mark.skipif(shutil.which("tpm2_checkquote") is None, reason="there is no tpm2_checkquote")
def test_tpm2_tools_verify_its_quotes(tmp_path: Path) -> None:
    lab = a_machine()
    sent, given = challenge(lab.tpm_keys(), m.PLATFORM, secrets.token_bytes, NOW)
    answer: AttestationFinish = lab.tpm_answer(sent, "ssh-ed25519 AAAA")
    parts = {"ak": lab.tpm_keys().ak, "quote": answer.quote, "signature": answer.signature}
    for name, text in parts.items():
        (tmp_path / name).write_bytes(base64.b64decode(text))
    nonce = qualifying(given.nonce, "ssh-ed25519 AAAA").hex()
    command = ("tpm2_checkquote", "-u", "ak", "-m", "quote", "-s", "signature", "-g", "sha256", "-q")
    good = subprocess.run((*command, nonce), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stderr
    assert subprocess.run((*command, "00" * 32), cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_a_host_answers_the_two_scripts_over_ssh() -> None:
    assert "sh" in host_tools(NOW)
    assert run(a_machine(), "sh -c 'id'").result.exit_status == 2  # the lab has no shell
