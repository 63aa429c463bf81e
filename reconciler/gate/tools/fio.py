"""Judge fio (acceptance 4.4): each drive alone, read-only, with proof that the drive itself was measured.

As root, fio creates a regular file for a device that does not exist, and then measures memory. So creating files is
forbidden, the path must be a block device that the host lists, and fio's own disk statistics must name it. Metrics:
read_mbps of the slowest drive, in 10^6 bytes a second; read_mbps.<device> of each drive, never by serial number, as
metrics are published; spread, the slowest over the fastest. With args.random, read_iops of 4 KiB in place of read_mbps:
four jobs of 64 each, as one process does not fill a fast drive. Blocks that were never written, or were discarded, are
answered without the flash: of an empty drive either metric is the controller's. fio-verify reads what it wrote.
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
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import listed
from reconciler.model.observed import NvmeHealth, Observed, Silent

KNOWN = ("fio-3",)
DEFAULT_RUNTIME = 10
_COMPLAINT = re.compile(r"^fio: .*\berr=.*$", re.MULTILINE)
_AGREE = (
    0.5  # fio takes the speed over the time in which the job did I/O, which in old captures is 18 % less than it ran
)


_BLOCK = 4096
_RANDOM = ("--rw=randread", "--bs=4k", "--iodepth=64", "--numjobs=4", "--group_reporting=1")
_IN_ORDER = ("--rw=read", "--bs=1M", "--iodepth=32")
_ROUNDED = 0.01  # by which the reads and the bytes of a second may differ, each as fio counts it


def _drives(observed: Observed) -> tuple[NvmeHealth, ...] | None:
    return None if isinstance(observed.host, Silent) else observed.host.value.nvme


def _runtime(test: GateTest) -> int:
    runtime = test.args.get("runtime", DEFAULT_RUNTIME)
    return runtime if isinstance(runtime, int) and runtime > 0 else DEFAULT_RUNTIME


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    drives = _drives(observed)
    if not drives:
        return "the host lists no NVMe drive"
    wanted = desired.profile.inventory.drives
    if wanted is None:
        return "HardwareProfile.inventory.drives is not declared"
    if len(drives) != wanted:
        return f"the host lists {len(drives)} drives, {wanted} are declared"
    return tuple(
        (
            "fio", f"--name={drive.serial or drive.device}", f"--filename={_path(drive)}",
            *(_RANDOM if test.args.get("random") else _IN_ORDER),
            "--ioengine=libaio", "--direct=1", "--readonly", "--allow_file_create=0", "--time_based",
            f"--runtime={_runtime(test)}", "--output-format=json+",
        )
        for drive in drives
    )  # fmt: skip


def _path(drive: NvmeHealth) -> str:
    """Return the first namespace of a controller: nvme-cli names /dev/nvme0, the data is on /dev/nvme0n1."""
    name = drive.device.removeprefix("/dev/")
    return f"/dev/{name}n1" if re.fullmatch(r"nvme\d+", name) else f"/dev/{name}"


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    drives = _drives(observed) or ()
    if not outputs or len(outputs) != len(drives):
        builder.unjudged(f"{len(outputs)} of {len(drives)} drives were measured")
        return builder.result(test, outputs)
    metric, speeds = _metric(test), []
    for drive, output in zip(drives, outputs, strict=True):
        speed = _judge_drive(builder, test, drive, output)
        if speed is not None:
            speeds.append(speed)
            judge_floor(builder, test, drive, metric, speed)
            builder.metrics[f"{metric}.{drive.device.removeprefix('/dev/')}"] = speed
    if speeds and len(speeds) == len(drives):
        builder.metrics[metric] = min(speeds)
        builder.metrics["spread"] = min(speeds) / max(speeds)
    elif not builder.reasons:
        builder.unjudged("not every drive was measured")
    return builder.result(test, outputs)


def _metric(test: GateTest) -> str:
    return "read_iops" if test.args.get("random") else "read_mbps"


def judge_floor(builder: ResultBuilder, test: GateTest, drive: NvmeHealth, metric: str, value: float) -> None:
    """Compare with the floor of the drive's model, where the test has floors: then each model needs one."""
    floors = dict(pair.rsplit("=", 1) for pair in listed(test.args.get("floors", "")))
    name, floor = drive.serial or drive.device, number(floors.get(drive.model or ""))
    if floors and floor is None:
        builder.unjudged(f"{name}: args.floors has no floor for {drive.model or 'a model that it does not tell'}")
    elif floor is not None and value < floor:
        builder.fail(f"{name}: {metric} {value:g}, {floor:g} is the floor of {drive.model}")


def drive_named(observed: Observed, names: Sequence[object]) -> NvmeHealth | None:
    """Return the NVMe drive that fio's disk statistics name; None where they name another device, or several."""
    return next((drive for drive in _drives(observed) or () if names == [_path(drive).rpartition("/")[2]]), None)


def _judge_drive(builder: ResultBuilder, test: GateTest, drive: NvmeHealth, output: CommandResult) -> float | None:
    name = drive.serial or drive.device
    if note_if_killed(builder, output):
        return None
    printed = find_printed(output.stdout)
    jobs = rows(printed.document.get("jobs")) if printed else []
    if printed is None or len(jobs) != 1:
        builder.error(f"{name}: no fio document with one job (exit status {output.exit_status})")
        return None
    version = printed.document.get("fio version")
    builder.version = version if isinstance(version, str) else ""
    if not any(is_or_below(builder.version, known) for known in test.versions or KNOWN):
        builder.unjudged(f"{name}: fio version {shown(builder.version or 'not said')} is not known")
        return None
    if complaint := _COMPLAINT.search(printed.before + "\n" + output.stderr):  # continue_on_error leaves `error` at 0
        builder.error(f"{name}: fio reports: {complaint[0]}")
        return None
    if output.exit_status != 0 or count(jobs[0].get("error")) != 0:
        builder.error(f"{name}: fio error {shown(jobs[0].get('error'))}, exit status {output.exit_status}")
        return None
    if (errors := count(jobs[0].get("total_err", 0))) != 0:
        reason = f"{name}: {shown(jobs[0].get('total_err'))} I/O errors"
        (builder.unjudged if errors is None else builder.fail)(reason)
        return None
    return _speed(builder, test, drive, name, jobs[0], printed.document)


def _speed(
    builder: ResultBuilder,
    test: GateTest,
    drive: NvmeHealth,
    name: str,
    job: Mapping[str, Any],
    document: Mapping[str, Any],
) -> float | None:
    read = job.get("read")
    read = read if isinstance(read, Mapping) else {}
    moved, speed, ran = (number(read.get(key)) for key in ("io_bytes", "bw_bytes", "runtime"))
    device = _path(drive).rpartition("/")[2]
    reads = [count(disk.get("read_ios")) for disk in rows(document.get("disk_util")) if disk.get("name") == device]
    if moved is None or speed is None or moved <= 0 or speed <= 0:
        builder.unjudged(f"{name}: nothing was read")
    elif ran is None or ran < 0.9 * 1000 * _runtime(test):
        builder.unjudged(f"{name}: ran {(ran or 0) / 1000:g} s, {_runtime(test)} s were requested")
    elif len(reads) != 1:
        builder.unjudged(f"{name}: fio's disk statistics do not name {_path(drive)}; something else was measured")
    elif not reads[0]:
        builder.unjudged(f"{name}: fio's disk statistics count no read of {_path(drive)}; something else was measured")
    elif not _AGREE <= moved / (speed * ran / 1000) <= 1 / _AGREE:
        builder.unjudged(f"{name}: {moved:g} bytes in {ran / 1000:g} s are not {speed:g} bytes a second")
    elif not test.args.get("random"):
        return speed / 1e6
    elif (iops := number(read.get("iops"))) is not None and abs(iops * _BLOCK - speed) <= _ROUNDED * speed:
        return iops
    else:
        builder.unjudged(f"{name}: {shown(read.get('iops'))} reads of 4 KiB are not {speed:g} bytes a second")
    return None


TOOL = Tool(_commands, _judge)
