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
MESSAGE = (FOLDER / "timesync-message.txt").read_text()
ANSWERED = 1795795101  # of the message
YES, NO = "NTPSynchronized=yes\n", "NTPSynchronized=no\n"


def judge(
    status: str = STATUS, shown: str = YES, version: str = VERSION, end: int = 0, message: str = MESSAGE,
    now: str = f"{ANSWERED + 8}\n",
) -> TestResult:  # fmt: skip
    outputs = [
        CommandResult(0, version),
        CommandResult(end, status),
        *(CommandResult(0, one) for one in (shown, message, now)),
    ]
    return check(TOOLS["clock"].judge(gate_test("clock", source="timesyncd"), wanted(), SEEN, outputs))


def test_the_bound_is_the_offset_and_half_the_delay_and_the_distance_of_the_server() -> None:
    result = judge()
    assert (result.verdict, result.reasons) == (Verdict.PASS, ())
    error = 4.077 + 24.042 / 2 + 8.322 + 9 * 0.015
    assert result.metrics == pytest.approx({"offset_ms": 4.077, "error_ms": error, "stratum": 2})
    behind = judge(STATUS.replace("+4.077ms", "-1min 2.5s"))
    assert behind.metrics["offset_ms"] == 62500
    assert judge(STATUS.replace("+4.077ms", "0")).metrics["offset_ms"] == 0


def test_the_bound_grows_with_the_age_of_the_answer() -> None:
    """By the frequency tolerance of RFC 5905, 15 ppm: 61 ms in 68 minutes, two of the longest poll intervals."""
    young, old = judge(), judge(now=f"{ANSWERED + 4095}\n")
    assert old.verdict is Verdict.PASS
    assert old.metrics["error_ms"] - young.metrics["error_ms"] == pytest.approx((4096 - 9) * 0.015)
    hourly = judge(STATUS.replace("max 34min 8s", "max 1h 30min"), now=f"{ANSWERED + 10000}\n")
    assert hourly.verdict is Verdict.PASS


def test_a_server_that_answers_no_more_is_no_pass() -> None:
    silent = judge(now=f"{ANSWERED + 4096}\n")
    assert silent.verdict is Verdict.UNJUDGED
    assert "the last answer is 68 min old" in silent.reasons[0]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"message": ""}, "when the server answered"),  # as before the first answer
        ({"message": MESSAGE.replace("15:58:21 UTC, Ig", "15:58:21 CET, Ig")}, "when the server answered"),
        ({"message": MESSAGE.replace("2026-11-27", "2026-13-27")}, "when the server answered"),
        ({"message": MESSAGE.replace("PacketCount=1,", "PacketCount=2,")}, "answered while"),
        ({"status": STATUS.replace("; max 34min 8s", "")}, "longest poll interval"),
        ({"status": STATUS.replace("max 34min 8s", "max 0")}, "longest poll interval"),
        ({"now": ""}, "when the server answered"),
        ({"now": f"{ANSWERED - 5}\n"}, "was set back"),
    ],
)
def test_an_answer_whose_age_is_not_known_is_no_pass(changed: dict[str, str], reason: str) -> None:
    result = judge(**changed)  # type: ignore[arg-type]
    assert result.verdict is Verdict.ERROR
    assert reason in result.reasons[0]


def test_systemd_before_252_tells_of_the_answer_without_a_comma() -> None:
    assert judge(message=MESSAGE.replace("Ignored=no,", "Ignored=no")).verdict is Verdict.PASS


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
        (judge(STATUS.replace("Packet count: 1", "Packet count: 0"), message=MESSAGE.replace("Count=1", "Count=0")),
         Verdict.UNJUDGED, "0 packets"),
        (judge(STATUS.replace("Stratum: 2", "Stratum: 16")), Verdict.UNJUDGED, "stratum 16"),
        (judge(version=VERSION.replace("systemd 252", "systemd 219")), Verdict.UNJUDGED, "version 219"),
    ],
)  # fmt: skip
def test_a_clock_of_which_that_is_not_known_is_no_pass(result: TestResult, verdict: Verdict, reason: str) -> None:
    assert result.verdict is verdict, result.reasons
    assert reason in "; ".join(result.reasons)
