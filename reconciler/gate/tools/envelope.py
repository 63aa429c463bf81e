"""Heat, power and clocks of NVIDIA GPUs while a load runs, as nvidia-smi samples them beside it.

Metrics, by GPU, the worst of them and its spread: temperature_c and power_w (the highest), clock_mhz (the lowest of the
second half, in which the clock is that of the load).
"""

from __future__ import annotations

from reconciler.gate.tools.common import ResultBuilder, count, number

# Before and after the load, in a script of shell.in_scratch. What the load printed comes first.
BEGIN = (
    "nvidia-smi --query-gpu=index,temperature.gpu,power.draw,clocks.sm --format=csv,noheader,nounits -l 2 "
    '>"$d/samples" 2>&1 & p=$!; '
)
STOP = "kill $p; p=; "
END = 'echo "--- samples"; cat "$d/samples"; echo "--- end"'
SETTLED = 0.5  # the share of the run, its end, in which clocks and speed are those of the load
_LEAST = 0.4  # samples a second: it makes one in two seconds
_SAMPLES, _END = "--- samples\n", "--- end\n"


def split(text: str) -> tuple[str, str | None] | None:
    """Return what the load printed, and the samples; None for samples that break off, and where none are begun."""
    printed, marker, rest = text.partition(_SAMPLES)
    if not marker:
        return None
    samples, end, after = rest.partition(_END)
    return printed, samples if end and not after and samples.endswith("\n") else None


def judge_samples(builder: ResultBuilder, samples: str | None, gpus: int, seconds: int = 0) -> None:
    """Keep what each GPU's samples say. A cell that is no number is a GPU that was lost meanwhile, or can't tell.

    `seconds`: how long the load ran, for which there must be samples.
    """
    if samples is None:
        builder.error("the output breaks off inside the samples, or something follows them")
        return
    rows = [[cell.strip() for cell in line.split(",")] for line in samples.splitlines()]
    each: dict[int, list[tuple[float, float, float]]] = {}
    for row in rows:
        index, cells = count(row[0]), [number(cell) for cell in row[1:]]
        if index is None or len(cells) != 3 or None in cells:
            builder.unjudged(f"a sample of nvidia-smi can't be read: {', '.join(row)}")
            return
        each.setdefault(index, []).append((cells[0] or 0.0, cells[1] or 0.0, cells[2] or 0.0))
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
    settled = {at: found[int(len(found) * SETTLED) :] for at, found in each.items()}
    builder.parts("clock_mhz", {str(at): min(row[2] for row in found) for at, found in settled.items()})
