"""The acceptance tools: what each is for, which arguments it takes, and what it measures.

The spec's enumeration, its checks, what a pass must carry, and the table of docs/reference/gate-tools.md follow from
this table. How a tool is run and judged is in the module of reconciler/gate/tools that is named for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from reconciler.model.gate_arguments import (
    BETWEEN_NODES,
    RAIL_BY_RAIL,
    RAILS,
    SERVE,
    SERVER,
    STRESSORS,
    Argument,
    Arguments,
    ToolRow,
    collective_arguments,
    command_line,
    directory,
    flag,
    listed,
    one_of,
    text,
    whole,
)


def _of_collectives(args: Arguments) -> tuple[str, ...]:
    """Return the metrics that a pass of a collective must have."""
    return ("busbw_peak", *(f"busbw_peak.{rail}" for rail in listed(args.get(RAILS, "")) if args.get(RAIL_BY_RAIL)))


EXTENSION: Final = "extension"
_NAMES: Final = r"[A-Za-z_][\w.]*(\s*,\s*[A-Za-z_][\w.]*)*"  # of metrics


def _floors(metric: str) -> Argument:
    return text(
        r"[^,=]+=[0-9]+(\s*,\s*[^,=]+=[0-9]+)*",
        "a list like MODEL=6000,MODEL=3000",
        f"Smallest {metric} of each model of drive, as the drive names it.",
    )


_ROWS: Final = (
    ToolRow(
        "dcgmi-diag",
        "DCGM's diagnostics of levels 1 to 4, of DCGM 3.3 and 4: each GPU passes each test of the level.",
        "<test>.gpus",
        r"\w+\.gpus",
        {"level": whole(1, 4, "Level of the diagnostics; 2 unless said.")},
        counts="gpus",
        units={r"\w+\.gpus": "GPUs"},
    ),
    ToolRow(
        "nvbandwidth",
        "Copies between host and GPUs, and between GPUs, in GB/s.",
        "<testcase>.min, .max or .average",
        r"\w+\.(min|max|average)",
        {"testcases": text(r"\w+(\s*,\s*\w+)*", "a list of test cases like a,b", "Test cases to run.")},
        counts="gpus",
        units={r"\w+\.(min|max|average)": "GB/s"},
    ),
    ToolRow(
        "nccl-tests",
        "A collective over the GPUs of the node or of several: bus bandwidth of the largest message, all values right.",
        "busbw_peak; with `railByRail` also .<rail> or .spread",
        r"busbw_peak(\..+)?",
        collective_arguments(),
        _of_collectives,
        "gpus",
        units={"busbw_peak": "GB/s"},
    ),
    ToolRow(
        "fio",
        "Reads of each NVMe drive by itself, in 10^6 bytes a second, or random ones a second. Nothing is written.",
        "read_mbps or with `random` read_iops, either also .<device>, or spread",
        r"read_(mbps|iops)(\..+)?|spread",
        {
            "runtime": whole(1, 3600, "Seconds that each drive is read; 10 unless said."),
            "random": flag(
                "Read 4 KiB here and there, 256 at once, not all in order. An empty drive answers without its flash."
            ),
            "floors": _floors("read_mbps, or read_iops with `random`,"),
        },
        lambda args: ("read_iops" if args.get("random") else "read_mbps", "spread"),
        "drives",
        units={"read_mbps": "MB/s", "read_iops": "IOPS"},
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
    ToolRow(
        "fio-verify",
        "Writes a file of its own in a declared directory, and reads each block back. In 10^6 bytes a second.",
        "write_mbps or read_mbps",
        "(write|read)_mbps",
        {
            "directory": directory("Directory that gets the file, on the drive to be tested."),
            "mebibytes": whole(1, 10_000_000, "Size of the file in MiB; 1024 unless said."),
            "floors": _floors("write_mbps"),
        },
        ("write_mbps", "read_mbps"),
        units={"(write|read)_mbps": "MB/s"},
    ),
    ToolRow(
        "iperf3",
        "TCP to a declared server; without one, over the node's loopback, which proves the CPU and the kernel alone.",
        "gbps, gbps.there, gbps.back or retransmits",
        r"gbps(\.there|\.back)?|retransmits",
        {
            SERVER: text(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", "a host name or address", "Host that runs `iperf3 -s`."),
            **BETWEEN_NODES,
            "port": whole(1, 65535, "Port of the server; 5201 unless said."),
            "seconds": whole(1, 3600, "How long it sends; 10 unless said."),
            "streams": whole(1, 128, "Streams at the same time; 1 unless said."),
            "reverse": flag("Whether the server sends."),
        },
        ("gbps", "retransmits"),
        units={"gbps": "Gb/s"},
        seconds=10,
    ),
    ToolRow(
        "stress-ng",
        "Loads CPUs and memory, and verifies what they compute.",
        "<stressor>.bogo_ops_s",
        r"[a-z0-9-]+\.bogo_ops_s",
        {
            "stressors": text(
                r"[a-z0-9-]+(\s*,\s*[a-z0-9-]+)*", "a list like cpu,vm", "Stressors; `cpu,vm` unless said."
            ),
            "workers": whole(0, 4096, "Workers of each stressor; 0, which is one for each CPU, unless said."),
            "seconds": whole(1, 86_400, "How long it runs; 60 unless said."),
            "memory": text(r"[0-9]{1,6}[MG%]", "an amount like 80% or 16G", "Memory of `vm`; 80% unless said."),
        },
        lambda args: tuple(f"{name}.bogo_ops_s" for name in listed(args.get("stressors", STRESSORS))),
        units={r"[a-z0-9-]+\.bogo_ops_s": "1/s"},
        seconds=60,
    ),
    ToolRow(
        "memtester",
        "Writes patterns to locked main memory, and reads them back.",
        "loops",
        "loops",
        {
            "mebibytes": whole(1, 100_000_000, "Memory in MiB; 1024 unless said."),
            "loops": whole(1, 10_000, "How often each pattern is tried; once unless said."),
        },
        ("loops",),
    ),
    ToolRow(
        "hpcc",
        "HPL and STREAM of the HPC Challenge, with their checks: GFLOPS of the CPUs, GB/s of main memory.",
        "hpl_gflops, stream_triad_gbps or stream_single_triad_gbps",
        "hpl_gflops|stream_triad_gbps|stream_single_triad_gbps",
        {
            "order": whole(100, 10_000_000, "Order of HPL's matrix, of 8 bytes a cell; 20000 unless said."),
            "rows": whole(1, 1024, "Rows of the grid of processes; 1 unless said."),
            "columns": whole(1, 1024, "Columns of the grid of processes; 1 unless said."),
        },
        ("hpl_gflops", "stream_triad_gbps", "stream_single_triad_gbps"),
        units={"hpl_gflops": "GFLOPS", "stream_(single_)?triad_gbps": "GB/s"},
    ),
    ToolRow(
        "clock",
        "The node's clock follows a source, and how far it may be from true time, in milliseconds.",
        "offset_ms, error_ms or stratum",
        "offset_ms|error_ms|stratum",
        {"source": one_of(("chrony", "timesyncd"), "What sets the clock; `chrony` unless said.")},
        required=("offset_ms", "error_ms", "stratum"),
        units={"(offset|error)_ms": "ms"},
    ),
    ToolRow(
        "perftest",
        "RDMA writes or reads over each declared rail, in Gb/s: to partners, a server, or of an adapter to itself.",
        "gbps, gbps.<rail> or gbps.spread",
        r"gbps(\..+)?",
        {
            "rails": text(r"\w+(\s*,\s*\w+)*", "a list of devices like mlx5_0,mlx5_1", "RDMA devices.", needed=True),
            "way": one_of(("write", "read"), "Which of `ib_write_bw` and `ib_read_bw` runs; `write` unless said."),
            SERVER: text(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", "a host or address", "Host that runs the same tool."),
            **BETWEEN_NODES,
            "port": whole(1, 65535, "First port by which the two find each other; 18515 unless said."),
            "seconds": whole(1, 3600, "How long each rail runs; 10 unless said."),
            "bidirectional": flag("Whether both ends send."),
            "gpudirect": Argument(
                "Memory of the GPU with the rail's place in the list: `true` or `cuda` of NVIDIA's, `rocm` of AMD's.",
                lambda value: "" if value in (True, False, "cuda", "rocm") else "must be true, false, cuda or rocm",
            ),
        },
        lambda args: ("gbps", "gbps.spread", *(f"gbps.{rail}" for rail in listed(args.get("rails", "")))),
        units={"gbps": "Gb/s"},
        seconds=10,
    ),
    ToolRow(
        "pcie",
        "Width and speed of PCIe links, those of GPUs under load, and the functions with ACS on.",
        "width, speed_gts, either with nic_, drive_ or uplink_ before and .<address> or .spread behind, or acs_on",
        r"((nic|drive|uplink)_)?(width|speed_gts)(\..+)?|acs_on",
        {
            "load": Argument(
                "Command that loads the GPUs for half a minute at least; their speed is judged with it alone.",
                command_line,
            ),
            "parts": text(
                r"(nics|drives)(\s*,\s*(nics|drives))?",
                "a list of nics, drives",
                "Parts besides GPUs, which are judged with the uplinks of switches above all of them.",
            ),
        },
        lambda args: (
            *("width", "speed_gts", "acs_on"),
            *(
                f"{part.removesuffix('s')}_{what}"
                for part in listed(args.get("parts", ""))
                for what in ("width", "speed_gts")
            ),
        ),
        "gpus",
        units={"((nic|drive|uplink)_)?width": "lanes", "((nic|drive|uplink)_)?speed_gts": "GT/s"},
    ),
    ToolRow(
        "rccl-tests",
        "As nccl-tests, over AMD's GPUs.",
        "busbw_peak; with `railByRail` also .<rail> or .spread",
        r"busbw_peak(\..+)?",
        collective_arguments(),
        _of_collectives,
        "gpus",
        units={"busbw_peak": "GB/s"},
    ),
    ToolRow(
        "gpu-burn",
        "Each GPU computes the same at full load, with its heat, power and clock meanwhile.",
        "gflops, temperature_c, power_w or clock_mhz, each of them also .<GPU> or .spread",
        r"(gflops|temperature_c|power_w|clock_mhz)(\.(\d+|spread))?",
        {
            "directory": directory("Directory with `gpu_burn` and its `compare.fatbin` or `compare.ptx`."),
            "seconds": whole(
                1,
                86_400,
                "How long it computes; 600 unless said. It needs another minute to fill the memory, and to go.",
            ),
            "tensor": flag("Whether it uses tensor cores."),
        },
        ("gflops", "gflops.spread", "temperature_c", "power_w", "clock_mhz"),
        "gpus",
        units={"gflops": "GFLOPS", "temperature_c": "°C", "power_w": "W", "clock_mhz": "MHz"},
        seconds=600,
    ),
    ToolRow(
        "link-counters",
        "Errors that RDMA ports count over an interval, while args.load runs.",
        "ports, or symbol_error, link_downed and the other counters of /sys/class/infiniband",
        r"\w+",
        {
            "seconds": whole(1, 86_400, "The interval; 60 unless said."),
            "load": Argument("Command that sends over the ports meanwhile.", command_line),
        },
        ("ports", "symbol_error", "link_downed"),
        "rdma_ports",
        "no recording of two readings under load is public",
        seconds=60,
    ),
    ToolRow(
        "mlxlink",
        "Links of the declared rails: whether they are up, bit errors before and after correction, and the eye.",
        "raw_ber, effective_ber, effective_errors, minutes, link_downs or eye_grade, each also .<rail> or .spread",
        r"(raw_ber|effective_ber|effective_errors|minutes|link_downs|eye_grade)(\..+)?",
        {
            "rails": text(r"\w+(\s*,\s*\w+)*", "a list of devices like mlx5_0,mlx5_1", "RDMA devices.", needed=True),
            "eye": flag("Whether the eye is measured."),
            "seconds": whole(
                1, 86_400, "Clear the counters, and count for so long; unless said, since the link is up."
            ),
            "load": Argument("Command that sends over the rails meanwhile.", command_line, needs="seconds"),
        },
        lambda args: (
            *("raw_ber", "effective_ber", "effective_errors", "minutes"),
            *(("eye_grade",) if args.get("eye") else ()),
            *(f"effective_ber.{rail}" for rail in listed(args.get("rails", ""))),
        ),
        units={"minutes": "min", "(raw|effective)_ber": "errors/bit"},
    ),
    ToolRow(
        "dcgmproftester",
        "Each GPU multiplies matrices at full load, with its heat, power and clock meanwhile: DCGM's thermal load.",
        "gflops, temperature_c, power_w or clock_mhz, each of them also .<GPU> or .spread",
        r"(gflops|temperature_c|power_w|clock_mhz)(\.(\d+|spread))?",
        {
            "cuda": whole(10, 99, "Major version of CUDA that the program is for; 12 unless said."),
            "seconds": whole(1, 86_400, "How long it runs; 900 unless said."),
        },
        ("gflops", "gflops.spread", "temperature_c", "power_w", "clock_mhz"),
        "gpus",
        "the public recordings are of one GPU, or cut",
        units={"gflops": "GFLOPS", "temperature_c": "°C", "power_w": "W", "clock_mhz": "MHz"},
        seconds=900,
    ),
    ToolRow(
        "amd-smi",
        "AMD's GPUs answer, and count no uncorrectable error of memory; their heat, power and PCIe width.",
        "gpus, uncorrectable, temperature_c, power_w or pcie_width, the last three also .<GPU> or .spread",
        r"gpus|uncorrectable|(temperature_c|power_w|pcie_width)(\.(\d+|spread))?",
        required=("gpus", "uncorrectable", "temperature_c", "power_w", "pcie_width"),
        counts="gpus",
        experimental="no public recording is of the whole document of several GPUs",
        units={"gpus": "GPUs", "temperature_c": "°C", "power_w": "W", "pcie_width": "lanes"},
    ),
    ToolRow(
        "rvs",
        "AMD's validation suite: each GPU meets the target of each action of a stress test.",
        "gpus, actions or target_percent",
        "gpus|actions|target_percent",
        {
            "config": text(r"/[\w./-]+", "an absolute path", "Configuration, such as AMD's for the GPU.", needed=True),
        },
        ("gpus", "actions", "target_percent"),
        "gpus",
        "the public recordings are cut, of one action and GPU each",
        units={"gpus": "GPUs", "target_percent": "%"},
    ),
    ToolRow(
        "command",
        "Any program that prints metrics as a JSON object or as lines `name value unit`, such as a reference training.",
        "those that args.metrics names, and <metric>.spread over repeated runs",
        r"[A-Za-z_][\w.]*",
        {
            "run": Argument("Command line for the node's shell.", command_line, needed=True),
            **BETWEEN_NODES,
            SERVE: Argument("Command line for a partner's shell; `$PARTNER` is its address in both.", command_line),
            "metrics": text(_NAMES, "a list of names", "Metrics that it prints.", needed=True),
            "exit": whole(0, 125, "Exit status that is good; 0 unless said."),
            "repeat": whole(1, 10, "How often it runs; once unless said. The smallest value of a metric counts."),
            "same": text(r"[A-Za-z_][\w.]*", "a name", "Text, such as a hash, that each run must print alike."),
        },
        lambda args: listed(args.get("metrics", "")),
    ),
    ToolRow(
        EXTENSION,
        "A tool of an extension that the Fleet names: its package gives the command, and reads what it printed.",
        "those that args.metrics names",
        r"[A-Za-z_][\w.]*",
        {
            "use": text("[a-z][a-z0-9_]{0,62}", "a name", "Name under which its package offers it.", needed=True),
            "metrics": text(_NAMES, "a list of names", "Metrics that each run must have measured.", needed=True),
            "options": text(
                r"[\w.-]+=[^,=]+(\s*,\s*[\w.-]+=[^,=]+)*", "a list like a=1,b=x", "Options that the tool takes."
            ),
        },
        lambda args: listed(args.get("metrics", "")),
    ),
)
TOOLS: Final[Mapping[str, ToolRow]] = {row.name: row for row in _ROWS}

LINKED: Final[Mapping[str, str]] = {"nics": "rdma_ports", "drives": "drives"}  # args.parts of pcie -> of the inventory


def counted(tool: str, args: Arguments) -> tuple[str, ...]:
    """Return the fields of the inventory without which a test with these arguments can't pass."""
    row = TOOLS[tool]
    parts = listed(args.get("parts", "")) if "parts" in row.arguments else ()
    return (*((row.counts,) if row.counts else ()), *(LINKED[part] for part in parts if part in LINKED))


def measured(tool: str, name: str, names: Collection[str]) -> tuple[str, str, str]:
    """Return (metric, part, unit) of a metric that a tool measured together with `names`: `gbps.mlx5_0` is a part's.

    Tools that this version doesn't know have no units, and parts by the names alone.
    """
    units = TOOLS[tool].units if tool in TOOLS else {}

    def unit_of(metric: str) -> str | None:
        return next((unit for pattern, unit in units.items() if re.fullmatch(pattern, metric)), None)

    metric, _, part = name.partition(".")
    if (unit := unit_of(name)) is not None:
        return name, "", unit
    if part == "spread":
        return name, "", "%"
    if part and (metric in names or unit_of(metric) is not None):
        return metric, part, unit_of(metric) or ""
    return name, "", ""
