"""NVLink: nvidia-smi nvlink -s. What is counted are links that give a speed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult
from reconciler.model.vocab import UnknownReason

_GPU = re.compile(r"GPU (\d{1,4}): ")
_LINK = re.compile(r"\s+Link \d+: (.*)")
_ACTIVE = re.compile(r"\d+(\.\d+)? GB/s")
_NONE = re.compile(r"links are inactive|does not have or support nvlink", re.IGNORECASE)


def parse_nvlink(answer: CommandResult) -> Parsed[Mapping[int, int]]:
    """Active links by GPU index. Of a GPU in MIG mode they can't be read, which is not "no links".

    Empty output with exit status 0 is what GPUs without NVLink give: no GPU has a link, and that is known.
    """
    active: dict[int, int] = {}
    silent: dict[int, str] = {}  # GPU -> what it said in place of links
    gpu: int | None = None
    for line in answer.stdout.splitlines():
        if header := _GPU.match(line):
            gpu = int(header[1])
            silent.setdefault(gpu, "no link is listed")
        elif gpu is None or not line.strip():
            continue
        elif link := _LINK.match(line):
            active[gpu] = active.get(gpu, 0) + bool(_ACTIVE.fullmatch(link[1].strip()))
        elif _NONE.search(line):
            active.setdefault(gpu, 0)
        else:
            silent[gpu] = excerpt(line)
    unread = {index: said for index, said in silent.items() if index not in active}
    if not active and answer.stdout.strip():
        raise Unreadable(next(iter(unread.values()), excerpt(answer.stdout)), UnknownReason.UNSUPPORTED)
    return Parsed(active, {f"nvlinks_active.{index}": f"unsupported: {said}" for index, said in unread.items()})


NVLINK = Fact("nvlink", "nvidia-smi nvlink -s", parse_nvlink, ("nvlinks_active",), timeout_s=15)
