"""Judge the clock: it follows a source, and how far it may be from true time at most.

`chronyc -c tracking` tells, or with args.source `timedatectl timesync-status` of systemd-timesyncd. Metrics in
milliseconds: offset_ms, how far the daemon itself puts the clock from its source's; error_ms, that and half the root
delay and the root dispersion, which is the bound of NTP; and stratum. The root distance of timesyncd is that of its
server, so half the delay to the server is added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed, number
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("4",)
_VERSION = re.compile(r"chronyc \(chrony\) version (\S{1,20}) \(.*\)\n")
# Reference ID, its name, stratum, reference time, system time, last and RMS offset, frequency, residual frequency,
# skew, root delay, root dispersion, update interval, leap status
_FIELDS = 14
_UNSYNCHRONISED = 16
KNOWN_SYSTEMD = tuple(map(str, range(241, 262)))  # timesync-status of 239 and 240 told no frequency
_SYSTEMD = re.compile(  # since 257, it names no hierarchy of control groups any more
    r"systemd ([0-9]{3}) \([0-9][\w.~+-]{0,40}\)\n[+-][A-Z0-9_]+(?: [+-][A-Z0-9_]+)*(?: default-hierarchy=\w+)?\n"
)
_SHOW = ("show", "--property=NTPSynchronized")
_STATUS = (
    "Server", "Poll interval", "Leap", "Version", "Stratum", "Reference", "Precision", "Root distance", "Offset",
    "Delay", "Jitter", "Packet count", "Frequency",
)  # fmt: skip
_NO_SPIKE = "Frequency"  # which timedatectl leaves out while timesyncd ignores its latest answer as a spike
_FOLLOWS = ("normal", "last minute")  # the latter of a day with a leap second
_UNITS: Mapping[str, float] = {"us": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|μs|ms|s|min)")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    if _by_systemd(test):
        timedatectl = ("env", "LC_ALL=C", "timedatectl")
        return (*timedatectl, "--version"), (*timedatectl, "timesync-status"), (*timedatectl, *_SHOW)
    return (("env", "LC_ALL=C", "chronyc", "--version"), ("env", "LC_ALL=C", "chronyc", "-n", "-c", "tracking"))


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    if any(note_if_killed(builder, output) for output in outputs):
        return builder.result(test, outputs)
    if _by_systemd(test):
        _judge_timesyncd(builder, test, *outputs)
    else:
        _judge_chrony(builder, test, *outputs)
    return builder.result(test, outputs)


def _by_systemd(test: GateTest) -> bool:
    return test.args.get("source") == "timesyncd"


def _judge_chrony(builder: ResultBuilder, test: GateTest, said: CommandResult, tracking: CommandResult) -> None:
    version = _VERSION.fullmatch(said.stdout)
    builder.version = version[1] if version else ""
    builder.check_version(test, KNOWN)
    cells = tracking.stdout.rstrip("\n").split(",")
    if tracking.exit_status != 0 or len(cells) != _FIELDS or tracking.stdout.count("\n") != 1:
        builder.error(f"chronyc does not tell what it tracks: {(tracking.stdout or tracking.stderr)[:80].strip()}")
        return
    stratum, leap = count(cells[2]), cells[13]
    system, delay, dispersion = (number(cells[at]) for at in (4, 10, 11))
    if leap == "Not synchronised" or stratum == 0:
        builder.fail("the clock follows no source")
    elif leap not in ("Normal", "Insert second", "Delete second") or stratum is None or stratum >= _UNSYNCHRONISED:
        builder.unjudged(f"leap status {leap[:40]}, stratum {cells[2][:10]}")
    elif system is None or delay is None or dispersion is None or delay < 0 or dispersion < 0:
        builder.unjudged("the offset, the root delay or the root dispersion is no number")
    else:
        _measure(builder, abs(system), delay / 2 + dispersion, stratum)
    if not builder.reasons and said.exit_status != 0:
        builder.error(f"chronyc --version ends with {said.exit_status}")


def _measure(builder: ResultBuilder, offset: float, bound: float, stratum: int) -> None:
    """Keep the figures of a clock that follows a source. In seconds."""
    builder.metrics |= {"offset_ms": 1000 * offset, "error_ms": 1000 * (offset + bound), "stratum": float(stratum)}


def _judge_timesyncd(
    builder: ResultBuilder, test: GateTest, said: CommandResult, status: CommandResult, shown: CommandResult
) -> None:
    version = _SYSTEMD.fullmatch(said.stdout)
    builder.version = version[1] if version else ""
    builder.check_version(test, KNOWN_SYSTEMD)
    if any(output.exit_status != 0 for output in (said, status, shown)):
        why = (status.stderr or shown.stderr or said.stderr)[:80].strip()
        builder.error(f"timedatectl does not tell what timesyncd follows: {why}")
        return
    if shown.stdout == "NTPSynchronized=no\n":
        builder.fail("the clock follows no source")
        return
    lines = [line.partition(": ") for line in status.stdout.splitlines()]
    cells = {name.strip(): cell for name, _, cell in lines}
    whole = "ppm\n" if _NO_SPIKE in cells else "\n"
    names = [name.strip() for name, _, _ in lines]
    if names != [name for name in _STATUS if name in cells or name != _NO_SPIKE] or not status.stdout.endswith(whole):
        builder.error("the output breaks off, or timesyncd has no answer of its server yet")
    elif shown.stdout != "NTPSynchronized=yes\n" or not cells["Leap"].startswith(_FOLLOWS):
        builder.unjudged(f"leap {cells['Leap'][:40]}, {shown.stdout[:40].strip()}")
    else:
        _judge_status(builder, cells)
        if _NO_SPIKE not in cells:
            builder.error("timesyncd ignores its latest answer as a spike, or the output breaks off: test again")


def _judge_status(builder: ResultBuilder, cells: Mapping[str, str]) -> None:
    offset, delay, root = (_seconds(cells[name].partition(" (")[0]) for name in ("Offset", "Delay", "Root distance"))
    stratum, packets = count(cells["Stratum"]), count(cells["Packet count"])
    if offset is None or delay is None or root is None or delay < 0 or root < 0:
        builder.unjudged("the offset, the delay or the root distance is no time")
    elif not packets or not stratum or stratum >= _UNSYNCHRONISED:
        builder.unjudged(f"stratum {cells['Stratum'][:10]}, {cells['Packet count'][:10]} packets")
    else:
        _measure(builder, abs(offset), delay / 2 + root, stratum)


def _seconds(text: str) -> float | None:
    """Return a span of systemd, like +4.077ms or 1min 4s."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    parts = [_SPAN.fullmatch(part) for part in rest.split(" ")]
    return sign * sum(float(part[1]) * _UNITS[part[2]] for part in parts if part) if all(parts) else None


TOOL = Tool(_commands, _judge)
