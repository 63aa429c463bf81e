"""Judge the clock by what systemd-timesyncd tells of it, which is what its server last answered.

`timedatectl timesync-status` tells the answer, and not when it came: the server may have been silent for hours since,
until the kernel takes the clock for unsynchronised, after nine of them. `show-timesync` tells the time of the answer,
by this clock. So error_ms is the root distance of RFC 5905 at the time of the look: offset, half the delay to the
server, the distance that the server has itself, and what a clock may drift by since. An answer that is older than two
of the longest poll intervals is no proof of anything: its server answers no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from reconciler.gate.tools.common import ResultBuilder, count
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult

UNSYNCHRONISED: Final = 16  # a stratum
_KNOWN = tuple(map(str, range(241, 262)))  # timesync-status of 239 and 240 told no frequency
_VERSION = re.compile(  # since 257, it names no hierarchy of control groups any more
    r"systemd ([0-9]{3}) \([0-9][\w.~+-]{0,40}\)\n[+-][A-Z0-9_]+(?: [+-][A-Z0-9_]+)*(?: default-hierarchy=\w+)?\n"
)
_STATUS = (
    "Server", "Poll interval", "Leap", "Version", "Stratum", "Reference", "Precision", "Root distance", "Offset",
    "Delay", "Jitter", "Packet count", "Frequency",
)  # fmt: skip
_NO_SPIKE = "Frequency"  # which timedatectl leaves out while timesyncd ignores its latest answer as a spike
_FOLLOWS = ("normal", "last minute")  # the latter of a day with a leap second
_MESSAGE = re.compile(  # of timedatectl.c; systemd before 252 prints no comma after Ignored
    r"NTPMessage=\{ (?:[A-Za-z]+=[^,{}\n]{1,60}, ){1,16}DestinationTimestamp=[A-Z][a-z]{2} ([0-9-]{10} [0-9:]{8}) UTC, "
    r"Ignored=(?:yes|no),? PacketCount=([0-9]{1,19}), Jitter=[^{},\n]{1,40} \}\n"
)
_NOW = re.compile(r"([0-9]{10})\n")
_LONGEST = re.compile(r".{1,40} \(min: .{1,40}; max (.{1,40})\)")
_UNITS: Mapping[str, float] = {"us": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|μs|ms|s|min|h|d)")
_DRIFT: Final = 15e-6  # PHI of RFC 5905, the frequency tolerance of a clock that NTP sets
_WHOLE_S: Final = 1.0  # both times are told in whole seconds

_TIMEDATECTL: Final = ("env", "LC_ALL=C", "TZ=UTC", "timedatectl")
COMMANDS: Final = (
    (*_TIMEDATECTL, "--version"),
    (*_TIMEDATECTL, "timesync-status"),
    (*_TIMEDATECTL, "show", "--property=NTPSynchronized"),
    (*_TIMEDATECTL, "show-timesync", "--property=NTPMessage"),
    ("date", "+%s"),
)


def judge(builder: ResultBuilder, test: GateTest, outputs: Sequence[CommandResult]) -> None:
    said, status, shown, message, now = outputs
    version = _VERSION.fullmatch(said.stdout)
    builder.version = version[1] if version else ""
    builder.check_version(test, _KNOWN)
    silent = next((output for output in outputs if output.exit_status != 0), None)
    if silent is not None:
        builder.error(f"timedatectl does not tell what timesyncd follows: {silent.stderr[:80].strip()}")
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
        _judge_answer(builder, cells, _age(builder, cells, message.stdout, now.stdout))
        if _NO_SPIKE not in cells:
            builder.error("timesyncd ignores its latest answer as a spike, or the output breaks off: test again")


def measure(builder: ResultBuilder, offset: float, bound: float, stratum: int) -> None:
    """Keep the figures of a clock that follows a source. In seconds."""
    builder.metrics |= {"offset_ms": 1000 * offset, "error_ms": 1000 * (offset + bound), "stratum": float(stratum)}


def _age(builder: ResultBuilder, cells: Mapping[str, str], message: str, now: str) -> float | None:
    """Return how many seconds ago the answer came at most; None where that is not known, which is noted."""
    found, at = _MESSAGE.fullmatch(message), _NOW.fullmatch(now)
    came = _epoch(found[1]) if found else None
    longest = _LONGEST.fullmatch(cells["Poll interval"])
    limit = _seconds(longest[1]) if longest else None
    if found is None or at is None or came is None or not limit:
        builder.error("timedatectl does not tell when the server answered, or the longest poll interval")
        return None
    if found[2] != cells["Packet count"]:
        builder.error("the server answered while timedatectl was asked: test again")
        return None
    age = int(at[1]) - came + _WHOLE_S
    if age < 0:
        builder.error(f"the server's answer is of {-age:.0f} s from now: the clock was set back since, test again")
    elif age > 2 * limit:
        silent, asks = f"{age / 60:.0f} min", f"{limit / 60:.0f} min"
        builder.unjudged(f"the last answer is {silent} old: timesyncd asks at least each {asks}, and none comes")
    return age


def _epoch(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _judge_answer(builder: ResultBuilder, cells: Mapping[str, str], age: float | None) -> None:
    offset, delay, root = (_seconds(cells[name].partition(" (")[0]) for name in ("Offset", "Delay", "Root distance"))
    stratum, packets = count(cells["Stratum"]), count(cells["Packet count"])
    if offset is None or delay is None or root is None or delay < 0 or root < 0:
        builder.unjudged("the offset, the delay or the root distance is no time")
    elif not packets or not stratum or stratum >= UNSYNCHRONISED:
        builder.unjudged(f"stratum {cells['Stratum'][:10]}, {cells['Packet count'][:10]} packets")
    elif age is not None:
        measure(builder, abs(offset), delay / 2 + root + _DRIFT * max(age, 0.0), stratum)


def _seconds(text: str) -> float | None:
    """Return a span of systemd, like +4.077ms or 1min 4s."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    parts = [_SPAN.fullmatch(part) for part in rest.split(" ")]
    return sign * sum(float(part[1]) * _UNITS[part[2]] for part in parts if part) if all(parts) else None
