"""Judge fio that writes a file and reads it back: every block is what was written, and how fast.

It writes one file of its own in the directory that the spec declares, never a device and never a file of somebody else,
and takes it away. Metrics: write_mbps and read_mbps, in 10^6 bytes a second. A floor of writes is that of the model of
the drive that fio's disk statistics name; over several drives, such as of a RAID, none is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import (
    ResultBuilder,
    Tool,
    count,
    find_printed,
    is_or_below,
    note_if_killed,
    number,
    rows,
    shown,
)
from reconciler.gate.tools.fio import drive_named, judge_floor
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("fio-3",)
FILE = "reconciler-gate.fio"
_CORRUPT, _FULL = 84, 28  # EILSEQ, by which fio says that a block is not what was written; ENOSPC
_COMPLAINT = re.compile(r"^(?:fio: .*\berr=.*|verify: bad .*)$", re.MULTILINE)
_RUN = (
    'f="$1/' + FILE + '"; [ -d "$1" ] || exit 66; [ ! -L "$f" ] || exit 73; rm -f "$f"; '
    'trap \'rm -rf "$d" "$f"\' EXIT; fio --name=verify --filename="$f" --size="$2m" --rw=write --bs=128k '
    "--ioengine=libaio --iodepth=32 --direct=1 --end_fsync=1 --verify=crc32c --do_verify=1 --verify_fatal=1 "
    "--output-format=json+"
)


def _size(test: GateTest) -> int:
    return int(test.args.get("mebibytes", 1024))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (in_scratch(_RUN, str(test.args.get("directory", "")), str(_size(test))),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    if output.exit_status == 66:
        builder.error(f"there is no directory {shown(test.args.get('directory'))}")
        return builder.result(test, outputs)
    printed = find_printed(output.stdout)
    jobs = rows(printed.document.get("jobs")) if printed else []
    complaint = _COMPLAINT.search((printed.before if printed else output.stdout) + "\n" + output.stderr)
    error = count(jobs[0].get("error")) if len(jobs) == 1 else None
    if error == _CORRUPT or (complaint and (f"err={_CORRUPT}" in complaint[0] or "verify" in complaint[0])):
        builder.fail(f"a block is not what was written: {complaint[0] if complaint else f'error {_CORRUPT}'}")
    elif error == _FULL or (complaint and f"err={_FULL}" in complaint[0]):
        builder.error("the file system is full")
    elif printed is None or len(jobs) != 1:
        builder.error(f"no fio document with one job (exit status {output.exit_status})")
    elif complaint or output.exit_status != 0 or error != 0 or count(jobs[0].get("total_err", 0)) != 0:
        builder.error(f"fio error {shown(jobs[0].get('error'))}, exit status {output.exit_status}")
    else:
        _judge_job(builder, test, printed.document, jobs[0])
        _judge_writes(builder, test, observed, printed.document)
    return builder.result(test, outputs)


def _judge_job(builder: ResultBuilder, test: GateTest, document: Mapping[str, Any], job: Mapping[str, Any]) -> None:
    version = document.get("fio version")
    builder.version = version if isinstance(version, str) else ""
    if not any(is_or_below(builder.version, known) for known in test.versions or KNOWN):
        builder.unjudged(f"fio version {shown(builder.version or 'not said')} is not known")
    options = job.get("job options")
    if not isinstance(options, Mapping) or (options.get("verify"), options.get("do_verify")) != ("crc32c", "1"):
        builder.unjudged("fio does not say that it verified what it wrote")
    for way in ("write", "read"):
        part = job.get(way)
        part = part if isinstance(part, Mapping) else {}
        moved, speed = count(part.get("io_bytes")), number(part.get("bw_bytes"))
        if moved != _size(test) * 2**20:
            builder.unjudged(f"{way}: {shown(part.get('io_bytes'))} bytes, {_size(test)} MiB were requested")
        elif speed is None or speed <= 0:
            builder.unjudged(f"{way}: no speed")
        else:
            builder.metrics[f"{way}_mbps"] = speed / 1e6


def _judge_writes(builder: ResultBuilder, test: GateTest, observed: Observed, document: Mapping[str, Any]) -> None:
    speed = builder.metrics.get("write_mbps")
    if "floors" not in test.args or speed is None:
        return
    names = [disk.get("name") for disk in rows(document.get("disk_util"))]
    if (drive := drive_named(observed, names)) is None:
        builder.unjudged(f"args.floors needs a directory on one NVMe drive by itself, not on {shown(names)}")
    else:
        judge_floor(builder, test, drive, "write_mbps", speed)


TOOL = Tool(_commands, _judge)
