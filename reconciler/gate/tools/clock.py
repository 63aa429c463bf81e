"""Judge the clock: it follows a source, and how far it may be from true time at most.

`chronyc -c tracking` tells, or with args.source `timedatectl timesync-status` of systemd-timesyncd. Metrics in
milliseconds: offset_ms, how far the daemon itself puts the clock from its source's; error_ms, that and half the root
delay and the root dispersion, which is the bound of NTP; and stratum. What timesyncd tells is in timesyncd.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools import timesyncd
from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed, number
from reconciler.gate.tools.timesyncd import UNSYNCHRONISED, measure
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("4",)
_VERSION = re.compile(r"chronyc \(chrony\) version (\S{1,20}) \(.*\)\n")
# Reference ID, its name, stratum, reference time, system time, last and RMS offset, frequency, residual frequency,
# skew, root delay, root dispersion, update interval, leap status
_FIELDS = 14


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    if _by_systemd(test):
        return timesyncd.COMMANDS
    return (("env", "LC_ALL=C", "chronyc", "--version"), ("env", "LC_ALL=C", "chronyc", "-n", "-c", "tracking"))


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    if any(note_if_killed(builder, output) for output in outputs):
        return builder.result(test, outputs)
    if _by_systemd(test):
        timesyncd.judge(builder, test, outputs)
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
    elif leap not in ("Normal", "Insert second", "Delete second") or stratum is None or stratum >= UNSYNCHRONISED:
        builder.unjudged(f"leap status {leap[:40]}, stratum {cells[2][:10]}")
    elif system is None or delay is None or dispersion is None or delay < 0 or dispersion < 0:
        builder.unjudged("the offset, the root delay or the root dispersion is no number")
    else:
        measure(builder, abs(system), delay / 2 + dispersion, stratum)
    if not builder.reasons and said.exit_status != 0:
        builder.error(f"chronyc --version ends with {said.exit_status}")


TOOL = Tool(_commands, _judge)
