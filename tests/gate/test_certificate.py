"""When a certificate is valid."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.gate.certificate import CLOCK_SKEW, ahead_of_clock, binding_of, judge
from reconciler.gate.certificate import tests_digest as digests_of
from reconciler.model.gate import Binding, Certificate
from reconciler.model.host_services import AmdGpu
from tests import builders as b

DAY = timedelta(days=1)


def bound() -> Binding:
    return b.certificate(b.node(), b.observed()).binding


def certificate(ahead: timedelta, *, adopted: bool = False) -> Certificate:
    return replace(b.certificate(b.node(), b.observed()), issued_at=b.NOW + ahead, adopted=adopted)


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("ahead", [CLOCK_SKEW + timedelta(seconds=1), timedelta(hours=1), 400 * DAY], ids=str)
@pytest.mark.parametrize("validity_s", [None, 90 * 86400.0])
def test_a_certificate_from_the_future_is_not_valid(adopted: bool, ahead: timedelta, validity_s: float | None) -> None:
    acceptance = replace(b.ACCEPTANCE, validity_s=validity_s)
    found = judge(certificate(ahead, adopted=adopted), acceptance, bound(), b.NOW)
    assert not found.valid
    (why,) = found.reasons
    assert why.startswith("issued for gpu-a001 ")
    assert "its runner's clock was ahead, or this one's is behind; set the clock, and the gate runs again" in why


@pytest.mark.parametrize("ahead", [timedelta(), CLOCK_SKEW, -DAY], ids=str)
def test_clocks_of_runners_may_differ_by_a_little(ahead: timedelta) -> None:
    assert judge(certificate(ahead), b.ACCEPTANCE, bound(), b.NOW).valid


def test_whose_certificate_is_ahead_for_no_other_reason_is_told_so() -> None:
    """The planner leaves such a node in service: tests/converge/test_wall_clock.py."""
    acceptance = replace(b.ACCEPTANCE, validity_s=90 * 86400.0)

    def ahead(by: timedelta, binding: Binding | None = None) -> str:
        return ahead_of_clock(certificate(by), acceptance, binding or bound(), b.NOW)

    assert "set the clock" in ahead(timedelta(hours=1))
    assert "set the clock" in ahead(89 * DAY)
    assert ahead(CLOCK_SKEW) == ""
    assert ahead(91 * DAY) == "", "it would be valid for longer than any"
    assert ahead(timedelta(hours=1), replace(bound(), serial="another")) == ""


@pytest.mark.parametrize("read", [(), (0,), (0, 1, 2)])
def test_a_serial_number_of_amds_that_was_not_read_is_no_other_gpu(read: tuple[int, ...]) -> None:
    """`amd-smi static` is a call of its own, with a timeout of its own."""
    gpus = tuple(AmdGpu(at, 0, 0, serial=f"A{at}") for at in range(4))
    whole = b.facts(gpus=(), amd_gpus=gpus)
    some = b.facts(gpus=(), amd_gpus=tuple(gpu if gpu.index in read else replace(gpu, serial=None) for gpu in gpus))
    tests = digests_of(b.ACCEPTANCE)
    known = binding_of(b.node(), b.observed(host=whole), tests)
    assert isinstance(known, Binding)
    assert known.gpu_serials == ("A0", "A1", "A2", "A3")
    said = binding_of(b.node(), b.observed(host=some), tests)
    assert isinstance(said, str), "nothing that a gate may bind"
    assert "serial numbers" in said
    record = b.record(b.node(), b.observed(host=whole))
    assert "run_gate" not in b.actions(b.planner().plan(b.node(), b.observed(host=some), record))
