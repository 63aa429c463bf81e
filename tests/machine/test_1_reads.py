"""What our commands say of a machine that was never installed, before anything is done to it."""

from __future__ import annotations

import pytest

from tests.machine.fleet import Fleet
from tests.machine.machine import NAME, Machine

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.machine]


def test_doctor_reaches_the_bmc(machine: Machine, fleet: Fleet) -> None:
    fleet.want("The machine")
    doctor = fleet.run("doctor", "--create-ledger")
    assert (doctor.code, "FAIL" in doctor.text) == (0, False), doctor.text
    assert "ok   reach redfish: 1 of 1 nodes answer" in doctor.text


def test_drift_compares_what_the_bmc_tells(machine: Machine, fleet: Fleet) -> None:
    told = fleet.run("explain", NAME).text
    for value in ("identity.uuid", "hardware.drives", "hardware.nics", "bios.ProcTurboMode"):
        assert value in told.partition("not known (")[0], told
    assert "powered off" in fleet.run("drift").text
    assert not machine.is_on()  # who reads switches nothing
