"""Judge memtester: each pattern was read back from locked memory of the size that was asked for, in each loop."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, note_if_killed
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("4",)
PATTERNS = (
    "Stuck Address", "Random Value", "Compare XOR", "Compare SUB", "Compare MUL", "Compare DIV", "Compare OR",
    "Compare AND", "Sequential Increment", "Solid Bits", "Block Sequential", "Checkerboard", "Bit Spread", "Bit Flip",
    "Walking Ones", "Walking Zeroes", "8-bit Writes", "16-bit Writes",
)  # fmt: skip
_VERSION = re.compile(r"^memtester version (\S{1,20}) ", re.MULTILINE)
_GOT = re.compile(r"^got  ([0-9]{1,9})MB \([0-9]+ bytes\), trying mlock \.\.\.locked\.$", re.MULTILINE)
_LOOP = re.compile(r"^Loop ([0-9]{1,6})/([0-9]{1,6}):$", re.MULTILINE)
_LINE = re.compile(r"^  ([A-Z0-9][A-Za-z0-9 -]{0,30}?) *: (.*)$", re.MULTILINE)


def _asked(test: GateTest) -> tuple[int, int]:
    return int(test.args.get("mebibytes", 1024)), int(test.args.get("loops", 1))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    size, loops = _asked(test)
    return (("env", "LC_ALL=C", "memtester", f"{size}M", str(loops)),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    size, loops = _asked(test)
    text = output.stdout
    versions = _VERSION.findall(text)
    builder.version = versions[0] if len(versions) == 1 else ""
    builder.check_version(test, KNOWN)
    if "FAILURE" in text + output.stderr:
        builder.fail("memory holds other values than were written")
    if output.exit_status != 0:
        builder.error(f"exit status {output.exit_status}")
        return builder.result(test, outputs)
    if _GOT.findall(text) != [str(size)]:
        builder.unjudged(f"{size} MiB of memory were not locked, so other memory was tested, or none")
    parts = _LOOP.split(text)
    if parts[1::3] != [str(at + 1) for at in range(loops)] or set(parts[2::3]) != {str(loops)}:
        builder.error(f"{len(parts) // 3} of {loops} loops are in the output")
    for at, body in zip(parts[1::3], parts[3::3], strict=True):
        _judge_loop(builder, at, body)
    if not text.endswith("\nDone.\n"):
        builder.error("the output breaks off: it does not end with Done.")
    builder.metrics["loops"] = float(len(parts) // 3)
    return builder.result(test, outputs)


def _judge_loop(builder: ResultBuilder, at: str, body: str) -> None:
    """Each pattern is there once, and ends with ok behind the backspaces of its progress."""
    found = [(name, said.rpartition("\b")[2].strip()) for name, said in _LINE.findall(body)]
    if sorted(name for name, _ in found) != sorted(PATTERNS):
        builder.unjudged(f"loop {at}: not each of the {len(PATTERNS)} patterns is there once")
    for name, said in found:
        if said != "ok":
            builder.unjudged(f"loop {at}: {name} does not say ok")


TOOL = Tool(_commands, _judge)
