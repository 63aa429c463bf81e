"""The acceptance tools: what each is for, which arguments it takes, and what it measures.

The spec's enumeration, its checks, what a pass must carry, and the table of docs/reference/gate-tools.md follow from
this table. How a tool is run and judged is in the module of reconciler/gate/tools that is named for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

Value = str | int | bool
Arguments = Mapping[str, Value]
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
STRESSORS: Final = "cpu,vm"
RATE: Final = re.compile(r"[a-z][A-Za-z0-9]{0,62}")  # a rate that the HardwareProfile or the test's arguments declare


@dataclass(frozen=True, slots=True)
class Argument:
    """`check` returns what is wrong with a value, or ""."""

    about: str
    check: Callable[[Value], str]
    needed: bool = False


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool.

    `metrics`: what it measures, as the documentation names it, and `pattern` the same for a machine. `required`: the
    metrics that each pass carries, or a function of the test's arguments that returns them. `counts`: the field of the
    inventory without which it can't pass. `experimental`: why its parser was never tried on what a real one printed;
    such a tool reports, and its result is never a pass.
    """

    name: str
    about: str
    metrics: str
    pattern: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    required: tuple[str, ...] | Callable[[Arguments], tuple[str, ...]] = ()
    counts: str = ""
    experimental: str = ""

    def measures(self, metric: str) -> bool:
        return re.fullmatch(self.pattern, metric) is not None


def whole(low: int, high: int, about: str) -> Argument:
    def check(value: Value) -> str:
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return "" if fits else f"must be a whole number from {low} to {high}"

    return Argument(about, check)


def text(pattern: str, what: str, about: str, *, needed: bool = False) -> Argument:
    fits = re.compile(pattern)
    return Argument(
        about,
        lambda value: "" if isinstance(value, str) and fits.fullmatch(value) else f"{value!r} is not {what}",
        needed,
    )


def one_of(values: tuple[str, ...], about: str) -> Argument:
    return Argument(about, lambda value: "" if value in values else f"{value!r} is not one of {', '.join(values)}")


def flag(about: str) -> Argument:
    return Argument(about, lambda value: "" if isinstance(value, bool) else "must be true or false")


def listed(value: Value) -> tuple[str, ...]:
    """Return the names in a list like `a, b`."""
    return tuple(name.strip() for name in str(value).split(",") if name.strip())


def _collective_sizes() -> Mapping[str, Argument]:
    size = r"[0-9]{1,15}[KMG]?"
    return {
        "collective": one_of(COLLECTIVES, "Collective to run; `all_reduce` unless said."),
        "minBytes": text(size, "a message size like 8G", "Smallest message; `8G` unless said."),
        "maxBytes": text(size, "a message size like 8G", "Largest message; `16G` unless said."),
    }


_ROWS: Final = (
    ToolRow(
        "dcgmi-diag",
        "DCGM's diagnostics of levels 1 to 4, of DCGM 3.3 and 4: each GPU passes each test of the level.",
        "<test>.gpus",
        r"\w+\.gpus",
        {"level": whole(1, 4, "Level of the diagnostics; 2 unless said.")},
        counts="gpus",
    ),
    ToolRow(
        "nvbandwidth",
        "Copies between host and GPUs, and between GPUs, in GB/s.",
        "<testcase>.min, .max or .average",
        r"\w+\.(min|max|average)",
        {"testcases": text(r"\w+(\s*,\s*\w+)*", "a list of test cases like a,b", "Test cases to run.")},
        counts="gpus",
    ),
    ToolRow(
        "nccl-tests",
        "A collective over the GPUs of the node: bus bandwidth of the largest message in GB/s, all values being right.",
        "busbw_peak",
        "busbw_peak",
        _collective_sizes(),
        ("busbw_peak",),
        "gpus",
    ),
    ToolRow(
        "fio",
        "Reads of each NVMe drive by itself, in 10^6 bytes a second. Nothing is written.",
        "read_mbps, read_mbps.<device> or spread",
        r"read_mbps(\..+)?|spread",
        {"runtime": whole(1, 3600, "Seconds that each drive is read; 10 unless said.")},
        ("read_mbps", "spread"),
        "drives",
    ),
    ToolRow(
        "inventory",
        "The parts that the HardwareProfile declares, no fewer and no more, and the SMART logs of the drives.",
        "hardware.<field>",
        r"hardware\.\w+",
    ),
    ToolRow(
        "xid",
        "Passive health: no XID or SXid since boot, no health signal, each cell of each GPU read.",
        "xids",
        "xids",
        required=("xids",),
    ),
)
TOOLS: Final[Mapping[str, ToolRow]] = {row.name: row for row in _ROWS}
