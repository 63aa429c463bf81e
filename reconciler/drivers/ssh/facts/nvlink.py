"""Active NVLinks, by nvidia-smi nvlink -s: links with a speed above zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.own_health import Counters
from reconciler.model.vocab import UnknownReason

_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK = re.compile(r"\s+Link \d+: (.*)")
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) GB/s")
_INACTIVE = re.compile(r"<?inactive>?", re.IGNORECASE)
_ALIKE = 0.95  # of the fastest: drivers round (26.5 and 26.562 GB/s are the same rate)
_NONE = re.compile(r"links are inactive|does not have or support nvlink", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NvLinks:
    """Counts by GPU index: active links, and those of them that are slower than the node's fastest."""

    active: Mapping[int, int]
    slow: Mapping[int, int]


def parse_nvlink(answer: CommandResult) -> Parsed[NvLinks]:
    """Count links. They can't be read in MIG mode, or from a cell that is no speed: then they are unknown, not zero.

    GPUs without NVLink give empty output and exit status 0: no GPU has a link.
    """
    speeds: dict[int, list[float]] = {}
    silent: dict[int, str] = {}  # GPU -> the line in place of links
    gpu: int | None = None
    for line in answer.stdout.splitlines():
        if header := _GPU.match(line):
            gpu = int(header[1])
            silent.setdefault(gpu, "no link is listed")
        elif gpu is None or not line.strip():
            continue
        elif link := _LINK.match(line):
            cell = link[1].strip()
            speed = _SPEED.fullmatch(cell)
            if speed or _INACTIVE.fullmatch(cell):
                speeds.setdefault(gpu, []).append(float(speed[1]) if speed else 0.0)
            else:
                silent[gpu] = f"{excerpt(line, 80)}: no speed"
        elif _NONE.search(line):
            speeds.setdefault(gpu, [])
        else:
            silent[gpu] = excerpt(line)
    unread = {index: text for index, text in silent.items() if index not in speeds or text != "no link is listed"}
    read = {index: found for index, found in speeds.items() if index not in unread}
    if not read and answer.stdout.strip():
        raise Unreadable(next(iter(unread.values()), excerpt(answer.stdout)), UnknownReason.UNSUPPORTED)
    fastest = max((speed for found in read.values() for speed in found), default=0.0)
    return Parsed(
        NvLinks(
            {index: sum(speed > 0 for speed in found) for index, found in read.items()},
            {index: slow for index, found in read.items() if (slow := sum(0 < s < _ALIKE * fastest for s in found))},
        ),
        {f"nvlinks_active.{index}": f"unsupported: {text}" for index, text in unread.items()},
    )


_ERRORS = re.compile(r"\s+Link (\d{1,3}): (Replay|Recovery|CRC) Errors: (\d{1,20})")
_NO_LINKS = re.compile(
    r"links are inactive|does not have or support nvlink|not supported for devices in mig", re.IGNORECASE
)


def parse_nvlink_errors(answer: CommandResult) -> Parsed[Counters]:
    """Return the errors that are not zero, by link. A GPU without links, or in MIG mode, has none.

    A line that can't be read makes all unknown: it may be about one of them.
    """
    found: dict[str, dict[str, int]] = {}
    gpu = ""
    for line in answer.stdout.splitlines():
        if header := _GPU.match(line):
            gpu = header[1]
        elif (cell := _ERRORS.fullmatch(line)) and gpu:
            if int(cell[3]):
                found.setdefault(f"gpu{gpu}/link{cell[1]}", {})[cell[2].lower()] = int(cell[3])
        elif line.strip() and not _NO_LINKS.search(line):
            raise Unreadable(f"{excerpt(line, 80)!r} is no line about errors of NVLinks", UnknownReason.UNSUPPORTED)
    return Parsed(found)


NVLINK_ERRORS = Fact("nvlink_errors", "nvidia-smi nvlink -e", parse_nvlink_errors, ("nvlink_counters",), timeout_s=15)
NVLINK = Fact("nvlink", "nvidia-smi nvlink -s", parse_nvlink, ("nvlinks_active", "nvlinks_slow"), timeout_s=15)
