"""`fio --output-format=json+`: one job over raw drives or a directory of the root disk.

Like the real one, it creates a missing /dev file as root and then measures memory (unless `--allow_file_create=0`
forbids it), and it overwrites any device or file that it is given.
"""

from __future__ import annotations

import json
from typing import Any

from reconciler.lab.hardware.state import DriveState
from reconciler.lab.hardware.tools.call import EPOCH, Call, Ran, failed
from reconciler.model.gate import CommandResult

VERSION = "fio-3.33"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PERCENTILES = {
    "1.000000": 0.6,
    "50.000000": 0.95,
    "90.000000": 1.3,
    "99.000000": 1.8,
    "99.900000": 2.6,
    "99.990000": 4.1,
}
_MEMORY_MBPS = 14000.0


def fio(call: Call) -> Ran:
    options: dict[str, str] = {}
    for word in call.args:
        if not word.startswith("--"):
            return failed(1, f"fio: unable to open '{word}' job file\n")
        name, _, value = word[2:].partition("=")
        options[name.replace("-", "_")] = value
    if "version" in options:
        return Ran(CommandResult(0, f"{VERSION}\n"))
    if not options.get("output_format", "").startswith("json") or "name" not in options:
        return failed(1, "No job(s) defined\n")
    paths = [path for path in options.get("filename", "").split(":") if path]
    drives = [drive for path in paths if (drive := _drive(call, path)) is not None]
    if not paths:
        drives = [drive for drive in call.machine.state.drives if drive.serial == call.machine.state.booted_disk]
    runtime = float(options.get("runtime", "10").rstrip("s"))
    if len(drives) < len(paths) and options.get("allow_file_create") == "0":
        document = _document(call, options, drives=[], read=0.0, write=0.0, runtime=0.0)
        return failed(1, "fio: file creation disallowed by allow_file_create=0\n", stdout=document)
    writes = options.get("rw", "read") not in ("read", "randread")
    if writes and paths:
        call.machine.state.counters.overwritten_drives += len(drives)
    block = _size(options.get("bs", "4k")) if options.get("rw", "").startswith("rand") else None
    read, write = _speed(call, drives, block, missing=len(paths) - len(drives) if paths else 0)
    document = _document(
        call, options, drives=drives, read=0.0 if writes else read, write=write if writes else 0.0, runtime=runtime
    )
    return Ran(CommandResult(0, document), runtime + 1)


def _drive(call: Call, path: str) -> DriveState | None:
    for at, drive in enumerate(call.machine.state.drives):
        by_id = f"/dev/disk/by-id/nvme-{drive.model.replace(' ', '_')}_{drive.serial}"
        if path in (f"/dev/nvme{at}n1", by_id, f"/dev/disk/by-id/nvme-{drive.wwn}"):
            return drive
    return None


def _speed(call: Call, drives: list[DriveState], random: int | None, missing: int) -> tuple[float, float]:
    """Return (read, write) in MB/s, summed over the drives. `random`: the size of blocks that are read at random."""
    slow = call.machine.fault("slow_storage")
    factor = float(slow["factor"]) if slow else 1.0
    noise = [call.jitter(f"fio {drive.serial}", 0.02) for drive in drives]
    return (
        sum(_read_mbps(drive, random) * factor * share for drive, share in zip(drives, noise, strict=True))
        + missing * _MEMORY_MBPS,
        sum(drive.write_mbps * factor * share for drive, share in zip(drives, noise, strict=True))
        + missing * _MEMORY_MBPS,
    )


def _read_mbps(drive: DriveState, random: int | None) -> float:
    return drive.read_mbps if random is None else min(drive.read_mbps, drive.read_iops * random / 1e6)


def _size(text: str) -> int:
    digits = text.rstrip("kKmMgGtTiBb")
    return int(digits) * _UNITS[text[len(digits) :].lower().rstrip("ib")[:1]]


def _document(
    call: Call, options: dict[str, str], *, drives: list[DriveState], read: float, write: float, runtime: float
) -> str:
    block = _size(options.get("bs", "4k"))
    names = {drive.serial: f"nvme{at}n1" for at, drive in enumerate(call.machine.state.drives)}
    job = {
        "jobname": options["name"],
        "groupid": 0,
        "error": 0,
        "eta": 0,
        "elapsed": int(runtime) + 1,
        "job options": {key: value for key, value in options.items() if key != "output_format"},
        "read": _direction(read, block, runtime),
        "write": _direction(write, block, runtime),
        "trim": _direction(0.0, block, 0.0),
        "job_runtime": int(runtime * 1000),
        "usr_cpu": 6.194104,
        "sys_cpu": 21.818483,
    }
    stamp = int(EPOCH + call.machine.now)
    document = {
        "fio version": VERSION,
        "timestamp": stamp,
        "timestamp_ms": stamp * 1000,
        "time": "Sun Jun 15 15:06:40 2025",
        "jobs": [job],
        "disk_util": [
            {
                "name": names[drive.serial],
                "read_ios": int(read * 1e6 / block * runtime / len(drives)),
                "write_ios": int(write * 1e6 / block * runtime / len(drives)),
                "in_queue": 1200,
                "util": 97.81,
            }
            for drive in drives
        ],
    }
    return json.dumps(document, indent=2, separators=(",", " : ")) + "\n"


def _direction(mbps: float, block: int, runtime: float) -> dict[str, Any]:
    rate = int(mbps * 1e6)
    ios = int(rate / block * runtime)
    mean = block / rate * 1e9 if rate else 0.0
    latency: dict[str, Any] = {
        "min": int(mean * 0.4),
        "max": int(mean * 9),
        "mean": mean,
        "stddev": mean * 0.2,
        "N": ios,
    }
    if ios:
        latency["percentile"] = {key: int(mean * factor) for key, factor in _PERCENTILES.items()}
    return {
        "io_bytes": ios * block,
        "io_kbytes": ios * block // 1024,
        "bw_bytes": rate,
        "bw": rate // 1024,
        "iops": rate / block,
        "runtime": int(runtime * 1000) if rate else 0,
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "clat_ns": latency,
        "bw_min": int(rate / 1024 * 0.93),
        "bw_max": int(rate / 1024 * 1.04),
        "bw_mean": rate / 1024,
    }
