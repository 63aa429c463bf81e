"""Judge `lspci -vvv`: each GPU's PCIe link has the width that it can have, under load its speed too, and ACS is off.

An idle GPU slows its link down, so speed is judged only where args.load names a program that runs meanwhile. Bridges
with ACS on send copies between GPUs through the root complex. Metrics: width, speed_gts (worst, by GPU, spread), and
acs_on, the number of functions that redirect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, expected_gpus, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("3",)
_RUN = (
    'if [ -n "$1" ]; then sh -c "$1" >load.txt 2>&1 & p=$!; sleep 5; fi; lspci -vvv -D; r=$?; '
    'if [ -n "$p" ] && ! kill -0 "$p" 2>/dev/null; then echo "the load ended early" >&2; exit 70; fi; exit $r'
)
_BLOCK = re.compile(r"^((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*)$", re.MULTILINE)
_GPU = re.compile(r"^(?:3D controller|VGA compatible controller|Processing accelerators|Display controller)"
                  r"(?: \[\w+\])?: (?:NVIDIA|Advanced Micro Devices)")  # fmt: skip
_CAP = re.compile(r"^\t\tLnkCap:.*\bSpeed ([0-9.]+)GT/s, Width x([0-9]+)\b", re.MULTILINE)
_STA = re.compile(r"^\t\tLnkSta:.*\bSpeed ([0-9.]+)GT/s(?: \(\w+\))?, Width x([0-9]+)\b", re.MULTILINE)
_ACS = re.compile(r"^\t\tACSCtl:.*\bReqRedir\+", re.MULTILINE)
_LOAD_ENDED = 70


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (("env", "LC_ALL=C", "lspci", "--version"), in_scratch(_RUN, str(test.args.get("load", ""))))


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    said, output = outputs
    if note_if_killed(builder, said) or note_if_killed(builder, output):
        return builder.result(test, outputs)
    version = re.fullmatch(r"lspci version (\S{1,20})\n", said.stdout)
    builder.version = version[1] if version else ""
    builder.check_version(test, KNOWN)
    if output.exit_status != 0 or said.exit_status != 0:
        why = "args.load ended before the links were read" if output.exit_status == _LOAD_ENDED else ""
        builder.error(f"exit status {said.exit_status} and {output.exit_status} {why}".strip())
        return builder.result(test, outputs)
    parts = _BLOCK.split(output.stdout)
    gpus = expected_gpus(builder, desired)
    found = {at: body for at, what, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True) if _GPU.match(what)}
    if gpus is not None and len(found) != gpus:
        builder.fail(f"{len(found)} GPUs are on the PCIe bus, {gpus} are declared")
    if not output.stdout.endswith("\n\n") or len(set(parts[1::3])) != len(parts[1::3]):
        builder.error("the output breaks off, or holds more than one run")
    if "<access denied>" in output.stdout:
        builder.error("lspci may not read the capabilities: it needs the rights of root")
    elif found:
        _judge_links(builder, test, found)
    builder.metrics["acs_on"] = float(len(_ACS.findall(output.stdout)))
    return builder.result(test, outputs)


def _judge_links(builder: ResultBuilder, test: GateTest, found: Mapping[str, str]) -> None:
    widths, speeds = dict[str, float](), dict[str, float]()
    for at, body in found.items():
        able, runs = _CAP.findall(body), _STA.findall(body)
        cells = [number(cell) for cell in (*able[0], *runs[0])] if len(able) == len(runs) == 1 else []
        if len(cells) != 4 or None in cells:
            builder.unjudged(f"{at}: no capability and state of one link")
            continue
        able_speed, able_width, speed, width = (cell or 0.0 for cell in cells)
        widths[at.replace(":", "-")], speeds[at.replace(":", "-")] = width, speed
        if width < able_width:
            builder.fail(f"{at}: width x{width:g} of x{able_width:g}")
        if speed < able_speed and test.args.get("load"):
            builder.fail(f"{at}: {speed:g} GT/s under load, of {able_speed:g}")
    if len(widths) == len(found):
        builder.parts("width", widths)
        builder.parts("speed_gts", speeds)


TOOL = Tool(_commands, _judge)
