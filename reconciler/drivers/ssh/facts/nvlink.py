"""NVLink: nvidia-smi nvlink -s. What is counted are links that give a speed above zero."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.vocab import UnknownReason

_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK = re.compile(r"\s+Link \d+: (.*)")
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,6})?) GB/s")
_INACTIVE = re.compile(r"<?inactive>?", re.IGNORECASE)
_ALIKE = 0.95  # of the fastest: drivers round (26.5 and 26.562 GB/s are one rate)
_NONE = re.compile(r"links are inactive|does not have or support nvlink", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NvLinks:
    """By GPU index: links that are active, and of those the ones slower than the fastest of the node."""

    active: Mapping[int, int]
    slow: Mapping[int, int]


def parse_nvlink(answer: CommandResult) -> Parsed[NvLinks]:
    """Of a GPU in MIG mode links can't be read, which is not "no links"; nor is a link whose cell is no speed.

    Empty output with exit status 0 is what GPUs without NVLink give: no GPU has a link, and that is known.
    """
    speeds: dict[int, list[float]] = {}
    silent: dict[int, str] = {}  # GPU -> what it said in place of links
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
    unread = {index: said for index, said in silent.items() if index not in speeds or said != "no link is listed"}
    read = {index: found for index, found in speeds.items() if index not in unread}
    if not read and answer.stdout.strip():
        raise Unreadable(next(iter(unread.values()), excerpt(answer.stdout)), UnknownReason.UNSUPPORTED)
    fastest = max((speed for found in read.values() for speed in found), default=0.0)
    return Parsed(
        NvLinks(
            {index: sum(speed > 0 for speed in found) for index, found in read.items()},
            {index: slow for index, found in read.items() if (slow := sum(0 < s < _ALIKE * fastest for s in found))},
        ),
        {f"nvlinks_active.{index}": f"unsupported: {said}" for index, said in unread.items()},
    )


NVLINK = Fact("nvlink", "nvidia-smi nvlink -s", parse_nvlink, ("nvlinks_active", "nvlinks_slow"), timeout_s=15)
