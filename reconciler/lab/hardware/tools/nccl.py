"""nccl-tests and rccl-tests (`all_reduce_perf` and the others): what one process prints that drives all GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from reconciler.lab.hardware.kernel_log import short_pci
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, cuda_error, parse_options
from reconciler.model.gate import CommandResult

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_BUSBW = {
    "MI300X": 315.0,
    "H100": 481.0,
    "H200": 482.0,
    "B200": 691.0,
    "A100": 235.0,
}  # large all_reduce in one NVLink domain, GB/s
_OPTIONS = {
    "-b": "min", "--minbytes": "min", "-e": "max", "--maxbytes": "max", "-f": "factor", "--stepfactor": "factor",
    "-g": "gpus", "--ngpus": "gpus", "-n": "iters", "--iters": "iters", "-w": "warmup", "--warmup_iters": "warmup",
    "-c": "check", "--check": "check", "-t": "threads", "-d": "type", "-o": "op", "-G": "graph", "-J": "json",
}  # fmt: skip
_HALF_ALGBW = ("all_gather", "reduce_scatter", "alltoall")  # busbw = algbw * (n-1)/n; all_reduce moves twice as much
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
_ROOTED = ("broadcast", "reduce")
_RCCL = (
    "RCCL version : 2.22.3-HEAD:7d8d67c",
    "HIP version  : 6.4.43484-123eb5128",
    "ROCm version : 6.4.2.0-120-e7d83f5",
)  # the same programs for AMD's GPUs say which library they use
_NOT_IN_PLACE = ("alltoall", "sendrecv")  # their in-place columns are timed and never checked


def _bytes(text: str) -> int:
    digits = text.rstrip("KMGkmgBb")
    return int(digits) * _SIZES[text[len(digits) :].upper().removesuffix("B")]


@dataclass(frozen=True, slots=True)
class Over:
    """The nodes that take part: their host names, ranks of each, and what the network between them reaches in GB/s."""

    nodes: tuple[str, ...] = ()
    ranks: int = 0
    reach: float = inf


_ALONE = Over()


def perf(collective: str, call: Call, over: Over = _ALONE) -> Ran:
    options, _ = parse_options(call.args, _OPTIONS)
    low, high = _bytes(options.get("min", "32M")), _bytes(options.get("max", "32M"))
    factor, wanted = int(options.get("factor", "1")), over.ranks or int(options.get("gpus", "1"))
    check = options.get("check", "1") != "0"
    gpus, processes = call.visible_gpus, options.get("gpus", "1")
    head = [
        "# nccl-tests version 2.17.6 nccl-headers=22602 nccl-library=22602",
        f"# Collective test starting: {collective}_perf",
        (
            f"# nThread 1 nGpus {processes} minBytes {low} maxBytes {high} step: {max(factor, 1)}(factor) "
            f"warmup iters: {options.get('warmup', '1')} iters: {options.get('iters', '20')} agg iters: 1 "
            f"validation: {int(check)} graph: 0 unalign: 0"
        ),
        "#",
    ]
    host = call.machine.system().hostname
    error = cuda_error(call.machine)
    if error is not None or wanted > len(gpus):
        why = f"Test CUDA failure common.cu:1234 '{error or 'invalid device ordinal'}'"
        return Ran(CommandResult(2, "\n".join(head) + f"\n{host}: {why}\n .. {host} pid 27306: Test failure\n"), 4.0)
    head.append("# Using devices")
    head += [
        f"#  Rank {at * wanted + gpu.index:2d} Group  0 Pid  27306 on {name} device {gpu.index:2d} "
        f"[{short_pci(gpu.pci)}] {gpu.name}"
        for at, name in enumerate(over.nodes or (host,))
        for gpu in gpus[:wanted]
    ]
    if amd := "AMD" in gpus[0].name:
        head = [*head[2:4], "rccl-tests: Version develop:448c4c7", *head[4:], *_RCCL]
    elif call.environment.get("NCCL_DEBUG") in ("VERSION", "WARN", "INFO"):
        head.append("NCCL version 2.26.2+cuda12.8")
    rows, widths = [], []
    size = low
    while size <= high:
        row, busbw = _row(call, collective, size, over if over.nodes else Over((host,), wanted), check=check)
        rows.append(row)
        widths += busbw
        if factor < 2:
            break
        size *= factor
    tail = [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {sum(widths) / len(widths):.3f} ",
        "#",
        *(() if amd else (f"# Collective test concluded: {collective}_perf",)),
        "",
    ]
    return Ran(CommandResult(0, "\n".join([*head, *_COLUMNS, *rows, *tail])), 8.0 + 6.0 * len(rows))


_SIDE = "     time   algbw   busbw  #wrong"
_UNITS = "     (us)  (GB/s)  (GB/s)        "
_COLUMNS = (
    "#",
    f"#{' ' * 62}out-of-place{' ' * 23}in-place          ",
    f"#       size         count      type   redop    root{_SIDE}{_SIDE} ",
    f"#        (B)    (elements)                          {_UNITS}{_UNITS} ",
)


def _row(call: Call, collective: str, size: int, over: Over, *, check: bool) -> tuple[str, list[float]]:
    ranks = over.ranks * len(over.nodes)
    peak = next((value for name, value in _BUSBW.items() if name in call.machine.state.gpus[0].name), 100.0)
    worst = max(gpu.nvlinks_down / max(gpu.nvlinks, 1) for gpu in call.machine.state.gpus)
    limit = call.machine.fault("low_nccl")
    reach = min(peak * (1 - worst), float(limit["busbw"]) if limit else peak, over.reach)
    share = (ranks - 1) / ranks * (1 if collective in _HALF_ALGBW else 2) if ranks > 1 else 0.0
    redop = "sum" if collective in _REDUCTIONS else "none"
    root = 0 if collective in _ROOTED else -1
    text, widths = f"{size:12d}  {size // 4:12d}  {'float':>8}  {redop:>6}  {root:6d}", []
    for place in ("out", "in"):
        busbw = reach * size / (size + 2**25) * call.jitter(f"{collective} {size} {place}", 0.002) if share else 0.0
        algbw = busbw / share if share else 900.0
        wrong = "0" if check and not (place == "in" and collective in _NOT_IN_PLACE) else "N/A"
        text += f"  {size / algbw / 1e3:7.1f}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>6}"
        widths.append(busbw)
    return text, widths


def _tool(collective: str) -> Tool:
    return lambda call: perf(collective, call)


TOOLS: dict[str, Tool] = {
    f"{collective}_perf": _tool(collective)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
}
