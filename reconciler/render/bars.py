"""Moved bars in words, and histograms as text that a terminal and a code block of a comment show alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from reconciler.model.bars import BarSpread, Histogram, Limits, Measured, MovedBar, NewTest
from reconciler.model.units import format_duration
from reconciler.render.text import NodeNames, count, plain

WORST: Final = 5  # nodes that are named with their values
_WIDTH: Final = 32  # characters of the longest bar
_NAMED: Final = 60  # characters of a metric or a version


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin in words: `label` says which values it has. `low` and `high`: None where it has no end."""

    label: str
    number: int
    low: float | None
    high: float | None


def bins(found: Histogram) -> list[Bin]:
    """Return the bins in ascending order; without those at the ends that have no limit, unless values are in them."""
    if not found.edges:
        return []
    first, last = found.edges[0], found.edges[-1]
    within = [
        Bin(f"{low:.12g} to {high:.12g}", number, low, high)
        for (low, high), number in zip(pairwise(found.edges), found.counts[1:-1], strict=True)
    ]
    below = [Bin(f"below {first:.12g}", found.counts[0], None, first)] if found.counts[0] else []
    above = [Bin(f"from {last:.12g}", found.counts[-1], last, None)] if found.counts[-1] else []
    return [*below, *within, *above]


def limit_words(limits: Limits) -> list[tuple[float, str]]:
    """Return each limit with the words for it, like `>= 440`."""
    found = [(limits.least, ">="), (limits.most, "<=")]
    return [(at, f"{sign} {at:.12g}") for at, sign in found if at is not None]


def figure(bar: MovedBar, spread: BarSpread) -> list[str]:
    """Return a histogram with base's and head's bars marked where they are."""
    rows = bins(spread.histogram)
    marks = _marks(spread)
    largest = max([row.number for row in rows], default=0)
    each = max(1, -(-largest // _WIDTH))
    wide = max([len(row.label) for row in rows], default=0)
    unit = bar.unit or "no unit"
    version = f", measured with {plain(spread.tool_version, _NAMED)}" if spread.tool_version else ""
    total = count(sum(spread.histogram.counts), "node")
    lines = [f"{plain(bar.metric, _NAMED)} ({unit}), stored values of {total}{version}; # is {_up_to(each)}"]
    low, high = (rows[0].low, rows[-1].high) if rows else (None, None)
    lines += [f"{'':{wide}} | {text}, off this axis" for at, text in marks if low is not None and at < low]
    for row in rows:
        here = [text for at, text in marks if _in(row, at)]
        drawn = f"{row.label:>{wide}} |{'#' * -(-row.number // each):{_WIDTH}} {row.number:>6,}"
        lines.append(f"{drawn}  <- {', '.join(here)}" if here else drawn)
    lines += [f"{'':{wide}} | {text}, off this axis" for at, text in marks if high is not None and at >= high]
    return lines


def _marks(spread: BarSpread) -> list[tuple[float, str]]:
    before, after = limit_words(spread.before), limit_words(spread.after)
    if before == after:
        return [(at, f"bar {text}") for at, text in after]
    old = [(at, f"{'bar' if (at, text) in after else 'old bar'} {text}") for at, text in before]
    return sorted([*old, *((at, f"new bar {text}") for at, text in after if (at, text) not in before)])


def _in(row: Bin, at: float) -> bool:
    return (row.low is None or row.low <= at) and (row.high is None or at < row.high)


def _up_to(each: int) -> str:
    return "1 node" if each == 1 else f"up to {each:,} nodes"


# --- in words -------------------------------------------------------------------------------------------------------


def title(bar: MovedBar) -> str:
    unit = f" in {bar.unit}" if bar.unit else ""
    before, after = (", ".join(found) or "no bar" for found in (bar.before, bar.after))
    return f"{bar.test}: {bar.metric}{unit}: {before} becomes {after}"


HEAD: Final = ("by stored metrics", "nodes", "which")


def rows(bar: MovedBar) -> Iterator[tuple[str | NodeNames, ...]]:
    """Yield the cells under HEAD."""
    yield "falls below", f"{len(bar.below):,}", named(bar.below, bar.unit)
    if bar.admitted:
        yield "was refused, passes now", f"{len(bar.admitted):,}", named(bar.admitted, bar.unit)
    yield "judged as before", f"{bar.kept:,}", ""
    if bar.unmeasured:
        yield "unjudged: a run must tell", f"{len(bar.unmeasured):,}", NodeNames(bar.unmeasured).within(_NAMED)


def named(found: Sequence[Measured], unit: str) -> str:
    """Name the first few with their values, and how far from the limit they are; count the others."""
    said = [
        f"{one.node} {one.value:.6g}{f' {unit}' if unit else ''} ({one.share:.1%} {_side(one)} {one.limit:.6g})"
        for one in found[:WORST]
    ]
    more = f" and {len(found) - WORST:,} more" if len(found) > WORST else ""
    return "; ".join(said) + more


def _side(one: Measured) -> str:
    return "below" if one.value < one.limit else "above"


def cost(bar: MovedBar) -> str:
    """Say what the nodes below cost, by which formula, and where its figures come from."""
    if not bar.below:
        return ""
    gpus, nodes = count(bar.gpus, "GPU"), count(len(bar.below), "node")
    return (
        f"GPU-hours: {nodes} with {gpus} x the plan's estimated hours of drain, tests and the rest = {bar.gpu_hours:g} "
        f"beyond base (medians of the ledger's runs, or the catalogue's where it has none); and {gpus} x 24 h = "
        f"{bar.gpus * 24:,} for each day until nodes that fail again are repaired, which nobody can foretell."
    )


TESTS_HEAD: Final = ("test", "tool", "nodes", "GPUs", "one run, at most", "GPU-hours, at most", "set by")


def test_rows(tests: Sequence[NewTest]) -> list[tuple[str | NodeNames, ...]]:
    return [
        (
            test.test,
            test.tool,
            NodeNames(test.nodes),
            f"{test.gpus:,}",
            format_duration(test.timeout_s),
            f"{test.gpu_hours:,.1f}",
            test.place,
        )
        for test in tests
    ]


TESTS_NOTE: Final = (
    "Unjudged: no stored metrics are of these tests, and each node needs a run. GPU-hours = GPUs of these nodes x the "
    "test's timeout in the spec, the most that it takes; drain and admission are in the change's own GPU-hours."
)
