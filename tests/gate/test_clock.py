"""The clock, as timesyncd tells of it. What chrony tells is in the recordings that test_recordings spoils."""

from __future__ import annotations

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, gate_test, wanted
from tests.gate.mutations import FOLDER
from tests.gate.test_judges_never_raise import check

VERSION = (FOLDER / "timedatectl-version.txt").read_text()
STATUS = (FOLDER / "timesync-status.txt").read_text()
YES, NO = "NTPSynchronized=yes\n", "NTPSynchronized=no\n"


def judge(status: str = STATUS, shown: str = YES, version: str = VERSION, end: int = 0) -> TestResult:
    outputs = [CommandResult(0, version), CommandResult(end, status), CommandResult(0, shown)]
    return check(TOOLS["clock"].judge(gate_test("clock", source="timesyncd"), wanted(), SEEN, outputs))


def test_the_bound_is_the_offset_and_half_the_delay_and_the_distance_of_the_server() -> None:
    result = judge()
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    assert result.metrics == pytest.approx({"offset_ms": 4.077, "error_ms": 4.077 + 24.042 / 2 + 8.322, "stratum": 2})
    behind = judge(STATUS.replace("+4.077ms", "-1min 2.5s"))
    assert behind.metrics["offset_ms"] == 62500
    assert judge(STATUS.replace("+4.077ms", "0")).metrics["offset_ms"] == 0


@pytest.mark.parametrize(
    ("version", "ends"),
    [
        ("257 (257.9-1~deb13u1)", "+UTMP -SYSVINIT +LIBARCHIVE\n"),
        ("258 (258.2-1)", "+BTF +XKBCOMMON +UTMP +LIBARCHIVE\n"),
    ],
)
def test_versions_that_name_no_hierarchy_are_known(version: str, ends: str) -> None:
    said = VERSION.replace("252 (252.39-1~deb12u2)", version).replace(
        "+UTMP +SYSVINIT default-hierarchy=unified\n", ends
    )
    result = judge(version=said)
    assert (result.verdict, result.reasons, result.tool_version) == (Verdict.PASS, (), version[:3])
    assert judge(version=said.rstrip("\n")).verdict is Verdict.UNJUDGED, "cut"


def test_after_a_spike_there_is_no_frequency_which_is_no_pass() -> None:
    """Output that breaks off before its last line looks the same."""
    spiked = STATUS.replace("    Frequency: +20.986ppm\n", "").replace("+4.077ms", "+1.2s")
    result = judge(spiked)
    assert (result.verdict, result.metrics["offset_ms"]) == (Verdict.ERROR, 1200)
    assert result.reasons == ("timesyncd ignores its latest answer as a spike, or the output breaks off: test again",)
    assert judge(spiked.rstrip("\n")).verdict is Verdict.ERROR, "cut"


@pytest.mark.parametrize(
    ("result", "verdict", "reason"),
    [
        (judge(shown=NO), Verdict.FAIL, "the clock follows no source"),
        # After a start, before the first answer: as systemd prints it then.
        (judge("       Server: n/a (ntp.example)\nPoll interval: 0 (min: 32s; max 34min 8s)\n Packet count: 0\n"),
         Verdict.ERROR, "no answer of its server yet"),
        (judge("", end=1), Verdict.ERROR, "does not tell what timesyncd follows"),
        (judge(STATUS.replace("Leap: normal", "Leap: not synchronized")), Verdict.UNJUDGED, "leap not synchronized"),
        (judge(STATUS.replace("4.077ms", "4.077 parsecs")), Verdict.UNJUDGED, "is no time"),
        (judge(STATUS.replace("Packet count: 1", "Packet count: 0")), Verdict.UNJUDGED, "0 packets"),
        (judge(STATUS.replace("Stratum: 2", "Stratum: 16")), Verdict.UNJUDGED, "stratum 16"),
        (judge(version=VERSION.replace("systemd 252", "systemd 219")), Verdict.UNJUDGED, "version 219"),
    ],
)  # fmt: skip
def test_a_clock_of_which_that_is_not_known_is_no_pass(result: TestResult, verdict: Verdict, reason: str) -> None:
    assert result.verdict is verdict, result.reasons
    assert reason in "; ".join(result.reasons)
