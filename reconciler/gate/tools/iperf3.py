"""Judge `iperf3 -J` (acceptance 4.5): what the receiver got, over the time and streams that were asked for.

iperf3 exits with 0 when it could not connect; its document then has an `error`. Without args.server it measures the
loopback of the node, which proves the CPU and the kernel alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import ResultBuilder, Tool, count, find_document, note_if_killed, number, rows, shown
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("3",)
PORT = 5201
_HERE = (
    'iperf3 -s --forceflush -B 127.0.0.1 -p "$1" >server.txt 2>&1 & p=$!; for i in 1 2 3 4 5 6 7 8 9 10; do '
    'grep -q listening server.txt && break; sleep 0.2; done; iperf3 -c 127.0.0.1 -p "$@"'
)


def _asked(test: GateTest) -> tuple[int, int, bool]:
    return int(test.args.get("seconds", 10)), int(test.args.get("streams", 1)), bool(test.args.get("reverse", False))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    seconds, streams, reverse = _asked(test)
    options = ("-t", str(seconds), "-P", str(streams), "-J", *(("-R",) if reverse else ()))
    port = str(test.args.get("port", PORT))
    if server := test.args.get("server"):
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
    received, sent = _part(end, "sum_received"), _part(end, "sum_sent")
    ran, moved, speed = (number(received.get(key)) for key in ("seconds", "bytes", "bits_per_second"))
    again = count(sent.get("retransmits"))
    if ran is None or moved is None or speed is None or moved <= 0 or speed <= 0:
        builder.unjudged("nothing was received")
    elif ran < 0.9 * seconds:
        builder.unjudged(f"ran {ran:g} s, {seconds} s were requested")
    elif abs(8 * moved - speed * ran) > 0.01 * 8 * moved:
        builder.unjudged(f"{moved:g} bytes in {ran:g} s are not {speed:g} bits a second")
    elif len(rows(end.get("streams"))) != streams:
        builder.unjudged(f"{len(rows(end.get('streams')))} of {streams} streams are in the document")
    elif again is None:
        builder.unjudged("the sender counts no retransmits")
    else:
        builder.metrics |= {"gbps": speed / 1e9, "retransmits": float(again)}


TOOL = Tool(_commands, _judge)
