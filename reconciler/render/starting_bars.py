"""Starting bars as YAML to paste into an AcceptanceProfile, with what is no bar as comments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.gate.starting_bars import OF_THE_TOOL, Figure, packaged

FIGURES_HEAD: Final = ("model", "tool", "metric", "figure", "scope", "size", "bar", "source")


def published(name: str) -> tuple[str, tuple[Figure, ...]]:
    """Return the model of this name with its figures; all figures for "". Raise UsageError for an unknown model."""
    bars = packaged()
    model = bars.model_named(name) if name else ""
    return model, bars.of(model) if model else bars.figures


def figure_cells(figure: Figure) -> tuple[str, ...]:
    bar = "yes" if figure.args is not None else f"no: {figure.because}"
    value = f"{figure.value:.15g} {figure.unit}"
    return figure.model, figure.tool, figure.metric, value, figure.scope, figure.size, bar, figure.source


def as_phases(model: str, figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the lines of a phase for each scope of a model's bars."""
    bars = [one for one in figures if one.args is not None]
    yield f"# {model}: published figures, to begin with until your fleet has references of its own."
    if not bars:
        yield "# None is of what a test here measures, so there is no bar."
    else:
        yield "# Each bar is of the scope and size that it names. For `phases:` of an AcceptanceProfile:"
    for scope in dict.fromkeys(one.scope for one in bars):
        yield f"- name: starting-bars # {scope}"
        yield "  tests:"
        alike: dict[tuple[str, str], list[Figure]] = {}
        for one in bars:
            if one.scope == scope:
                alike.setdefault((one.tool, one.size), []).append(one)
        for some in alike.values():
            yield from _test(some)
    for one in figures:
        if one.args is None:
            yield f"# No bar: {one.tool} {one.metric} {one.value:.15g} {one.unit}, {one.scope}, size: {one.size}."
            yield f"#   {one.because}; {one.source}"


def _test(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the test of figures of one tool, scope and size, which runs the test cases of all of them."""
    args = {name: dict[str, None]() for one in figures for name in one.args or {}}
    for one in figures:
        for name, value in (one.args or {}).items():
            args[name][value] = None
    first = figures[0]
    size = "" if first.size == OF_THE_TOOL else f"-{first.size.lower()}"
    yield f"    - name: starting-{first.tool}{size}"
    yield f"      tool: {first.tool}"
    yield "      args: {" + ", ".join(f"{name}: {_quoted(','.join(values))}" for name, values in args.items()) + "}"
    yield "      thresholds:"
    for one in figures:
        yield f"        - {{metric: {one.metric}, min: {one.value:.15g}}} # {one.unit}; {one.source}"
    yield "      timeout: 10m"


def _quoted(value: str) -> str:
    return json.dumps(value) if "," in value else value
