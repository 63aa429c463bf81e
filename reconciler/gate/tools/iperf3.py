"""Judge `iperf3 -J` (acceptance 4.5): what the receiver got, over the time and streams that were asked for.

iperf3 exits with 0 when it could not connect; its document then has an `error`. Without args.server it measures the
loopback of the node, which proves the CPU and the kernel alone. With args.partners the server runs on another node, and
both ways are measured at the same time: gbps.there, gbps.back, and gbps of the slower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import ResultBuilder, Tool, count, find_document, note_if_killed, number, rows, shown
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import PARTNERS, SERVER
from reconciler.model.observed import Observed

KNOWN = ("3",)
PORT = 5201
_HERE = (
    'iperf3 -s --forceflush -B 127.0.0.1 -p "$1" >server.txt 2>&1 & p=$!; for i in 1 2 3 4 5 6 7 8 9 10; do '
    'grep -q listening server.txt && break; sleep 0.2; done; iperf3 -c 127.0.0.1 -p "$@"'
)
# A server that was started on another node just now may not listen yet, or still end its last test.
_THERE = (
    'n=0; while :; do iperf3 -c "$@" >out.txt; r=$?; n=$((n+1)); [ $n -lt 20 ] && '
    "grep -Eq 'Connection refused|busy running a test' out.txt || break; sleep 0.5; done; cat out.txt; exit $r"
)


def _asked(test: GateTest) -> tuple[int, int, bool]:
    return int(test.args.get("seconds", 10)), int(test.args.get("streams", 1)), bool(test.args.get("reverse", False))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    seconds, streams, reverse = _asked(test)
    options = ("-t", str(seconds), "-P", str(streams), "-J", *(("-R",) if reverse else ()))
    port = str(test.args.get("port", PORT))
    if server := test.args.get(SERVER):
        if PARTNERS in test.args:
            return (in_scratch(_THERE, str(server), "-p", port, *options, "--bidir"),)
        return (("env", "LC_ALL=C", "iperf3", "-c", str(server), "-p", port, *options),)
    return (in_scratch(_HERE, port, *options),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    document = find_document(output.stdout)
    if document is None:
        builder.error(f"no iperf3 document in the output (exit status {output.exit_status})")
        return builder.result(test, outputs)
    start, end = _part(document, "start"), _part(document, "end")
    version = start.get("version")
    builder.version = version.removeprefix("iperf ") if isinstance(version, str) else ""
    builder.check_version(test, KNOWN)
    if "error" in document or output.exit_status != 0:
        builder.error(f"iperf3 reports {shown(document.get('error'))}, exit status {output.exit_status}")
        return builder.result(test, outputs)
    _judge_transfer(builder, test, _part(start, "test_start"), end)
    return builder.result(test, outputs)


def _serve(test: GateTest) -> tuple[str, ...]:
    """Return the command that answers clients on the partner until it is ended."""
    return ("env", "LC_ALL=C", "iperf3", "-s", "-p", str(test.args.get("port", PORT)))


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    return part if isinstance(part, Mapping) else {}


def _judge_transfer(
    builder: ResultBuilder, test: GateTest, settings: Mapping[str, Any], end: Mapping[str, Any]
) -> None:
    seconds, streams, reverse = _asked(test)
    said = (settings.get("protocol"), count(settings.get("num_streams")), count(settings.get("duration")))
    if said != ("TCP", streams, seconds) or count(settings.get("reverse")) != int(reverse):
        builder.unjudged(f"it ran other settings than were requested: {shown(said[0])}, {said[1]} streams, {said[2]} s")
    both = PARTNERS in test.args
    if len(rows(end.get("streams"))) != streams * (1 + both):
        builder.unjudged(f"{len(rows(end.get('streams')))} of {streams * (1 + both)} streams are in the document")
        return
    ways = {"there": "", "back": "_bidir_reverse"} if both else {"": ""}
    found = {way: _one_way(builder, seconds, end, of_way) for way, of_way in ways.items()}
    measured = {way: one for way, one in found.items() if one is not None}
    if len(measured) < len(ways):
        return
    if both:
        builder.metrics |= {f"gbps.{way}": speed for way, (speed, _) in measured.items()}
    builder.metrics["gbps"] = min(speed for speed, _ in measured.values())
    builder.metrics["retransmits"] = sum(again for _, again in measured.values())


def _one_way(builder: ResultBuilder, seconds: int, end: Mapping[str, Any], way: str) -> tuple[float, float] | None:
    """Return what arrived in Gb/s, and how often the sender sent again; None, with a note, without evidence of both."""
    received, sent = _part(end, f"sum_received{way}"), _part(end, f"sum_sent{way}")
    ran, moved, speed = (number(received.get(key)) for key in ("seconds", "bytes", "bits_per_second"))
    again = count(sent.get("retransmits"))
    if ran is None or moved is None or speed is None or moved <= 0 or speed <= 0:
        builder.unjudged("nothing was received")
    elif ran < 0.9 * seconds:
        builder.unjudged(f"ran {ran:g} s, {seconds} s were requested")
    elif abs(8 * moved - speed * ran) > 0.01 * 8 * moved:
        builder.unjudged(f"{moved:g} bytes in {ran:g} s are not {speed:g} bits a second")
    elif again is None:
        builder.unjudged("the sender counts no retransmits")
    else:
        return speed / 1e9, float(again)
    return None


TOOL = Tool(_commands, _judge, _serve)
