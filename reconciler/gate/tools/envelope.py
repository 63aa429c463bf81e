"""Heat, power and clocks of NVIDIA GPUs while a load runs, as nvidia-smi samples them beside it.

Metrics, by GPU, the worst of them and its spread: temperature_c and power_w (the highest), clock_mhz (the lowest of the
second half of the samples with the GPU at work, in which the clock is that of the load).

A load is not all of its run: gpu_burn on an H100 filled the memory for 7 s, computed for 20 s and took 18 s to go, at
the 345 MHz of an idle GPU (driver 580.159). A GPU whose clock falls under load is at work all the same.
"""

from __future__ import annotations

import re

from reconciler.gate.tools.common import ResultBuilder, count, number

# Before and after the load, in a script of shell.in_scratch. What the load printed comes first.
BEGIN = (
    "nvidia-smi --query-gpu=index,temperature.gpu,power.draw,clocks.sm,utilization.gpu "
    "--format=csv,noheader,nounits -l 2 "
    '>"$d/samples" 2>&1 & p=$!; '
)
STOP = "kill $p; p=; "
END = 'echo "--- samples"; cat "$d/samples"; echo "--- end of $(grep -c "" "$d/samples") samples"'
SETTLED = 0.5  # the share of the load, its end, in which clocks and speed are those of the load
_LEAST = 0.4  # samples a second: it makes one in two seconds
_AT_WORK = 90.0  # percent of the time in which a kernel ran
_SAMPLES = "--- samples\n"
_END = re.compile(r"--- end of ([0-9]{1,9}) samples\n")


def split(text: str) -> tuple[str, str | None] | None:
    """Return what the load printed, and the samples; None for samples that break off, and where none are begun."""
    printed, marker, rest = text.partition(_SAMPLES)
    if not marker:
        return None
    *samples, end = rest.splitlines(keepends=True) or [""]
    counted = _END.fullmatch(end)
    return printed, "".join(samples) if counted and len(samples) == int(counted[1]) else None


def judge_samples(builder: ResultBuilder, samples: str | None, gpus: int, seconds: int = 0) -> None:
    """Keep what each GPU's samples say. A cell that is no number is a GPU that was lost meanwhile, or can't tell.

    `seconds`: how long the load ran, for which there must be samples.
    """
    if samples is None:
        builder.error("the samples of nvidia-smi are not all there, or something follows them")
        return
    rows = [[cell.strip() for cell in line.split(",")] for line in samples.splitlines()]
    each: dict[int, list[tuple[float, ...]]] = {}
    for row in rows:
        index, cells = count(row[0]), [number(cell) for cell in row[1:]]
        if index is None or len(cells) != 4 or None in cells:
            builder.unjudged(f"a sample of nvidia-smi can't be read: {', '.join(row)}")
            return
        each.setdefault(index, []).append(tuple(cell or 0.0 for cell in cells))
    if set(each) != set(range(gpus)):
        builder.unjudged(f"nvidia-smi sampled {len(each)} GPUs, {gpus} are declared")
        return
    if len(each[0]) < _LEAST * seconds:
        builder.unjudged(f"nvidia-smi made {len(each[0])} samples of each GPU in {seconds} s")
        return
    if len({len(found) for found in each.values()}) != 1:
        builder.unjudged("nvidia-smi did not sample each GPU equally often: its last round is cut off")
        return
    builder.parts("temperature_c", {str(at): max(row[0] for row in found) for at, found in each.items()}, worst=max)
    builder.parts("power_w", {str(at): max(row[1] for row in found) for at, found in each.items()}, worst=max)
    at_work = {at: [clock for *_, clock, work in found if work >= _AT_WORK] for at, found in each.items()}
    if idle := [at for at, clocks in at_work.items() if not clocks]:
        builder.unjudged(f"nvidia-smi sampled no load on GPU {idle[0]}")
        return
    builder.parts("clock_mhz", {str(at): min(clocks[int(len(clocks) * SETTLED) :]) for at, clocks in at_work.items()})
