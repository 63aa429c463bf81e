"""Judge `mlxlink -m -c`: each declared rail's link is up, what its receiver got wrong, and how open its eye is.

Errors count since they were cleared, which the firmware does when a link comes up. With args.seconds they are cleared
first, for every program that reads them, and count over that interval, while args.load runs. A receiver corrects most
of them (FEC): raw_ber is before that, effective_ber and effective_errors are what was left. A rate of 15E-255 is how
the firmware says none. Metrics, by rail and the worst of them: these, minutes since the counters were cleared,
link_downs where the firmware counts them, and eye_grade, which is asked for with args.eye.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import listed
from reconciler.model.observed import Observed

KNOWN = ("4",)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"^(\S[^\n]{0,60}?) *: (.*)$")
_LINK, _TROUBLE, _TOOL, _COUNTERS, _EYE = (
    "Operational Info", "Troubleshooting Info", "Tool Information", "Physical Counters and BER Info",
    "EYE Opening Info",
)  # fmt: skip
_FIGURES: Mapping[str, str] = {
    "raw_ber": "Raw Physical BER",
    "effective_ber": "Effective Physical BER",
    "effective_errors": "Effective Physical Errors",
    "minutes": "Time Since Last Clear [Min]",
}
_GRADES = ("Physical Grade", "Last FOM")  # of 16 nm adapters, and of those since ConnectX-7
_DOWNS = ("Link Down Counter", "Link Error Recovery Counter")
_Sections = Mapping[str, Mapping[str, str]]
_NOT_CLEARED, _LOAD_ENDED = 71, 70  # exit statuses of the script
_CLEAR = (
    'seconds=$1; load=$2; shift 2; for rail in "$@"; do '
    f'LC_ALL=C mlxlink -d "$rail" --pc >out.txt 2>&1 </dev/null || {{ cat out.txt >&2; exit {_NOT_CLEARED}; }}; done; '
    'if [ -n "$load" ]; then sh -c "$load" >load.txt 2>&1 & p=$!; fi; sleep "$seconds"; '
    f'if [ -n "$p" ] && ! kill -0 "$p" 2>/dev/null; then echo "the load ended early" >&2; exit {_LOAD_ENDED}; fi'
)
_SHORT, _LONG = 0.9, 3.0  # of the interval that the counters say; minutes that reading all rails may take


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    eye = ("-e",) if test.args.get("eye") else ()
    rails = listed(test.args.get("rails", ""))
    if not rails:
        return "args.rails names no device"
    reads = tuple(("env", "LC_ALL=C", "mlxlink", "-d", rail, "-m", "-c", *eye) for rail in rails)
    seconds = test.args.get("seconds")
    return (
        reads if seconds is None else (in_scratch(_CLEAR, str(seconds), str(test.args.get("load", "")), *rails), *reads)
    )


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    rails = listed(test.args.get("rails", ""))
    if "seconds" in test.args:
        if not outputs or not _cleared(builder, outputs[0]):
            return builder.result(test, outputs)
        outputs = outputs[1:]
    if len(outputs) != len(rails) or len(set(rails)) != len(rails) or not rails:
        builder.unjudged(f"{len(outputs)} of {len(set(rails))} rails were read")
        return builder.result(test, outputs)
    found = {rail: _rail(builder, test, rail, output) for rail, output in zip(rails, outputs, strict=True)}
    figures = {rail: each for rail, each in found.items() if each is not None}
    if len(figures) == len(rails):
        for name in {name: None for each in figures.values() for name in each}:
            values = {rail: each[name] for rail, each in figures.items() if name in each}
            builder.parts(name, values, worst=min if name in ("minutes", "eye_grade") else max)
    return builder.result(test, outputs)


def _cleared(builder: ResultBuilder, output: CommandResult) -> bool:
    if note_if_killed(builder, output):
        return False
    said = (output.stderr.strip().splitlines() or [""])[0]
    why = {_NOT_CLEARED: "the counters can't be cleared", _LOAD_ENDED: "args.load ended before the interval was over"}
    if output.exit_status != 0:
        builder.error(f"{why.get(output.exit_status, f'exit status {output.exit_status}')}: {said}")
    return output.exit_status == 0


def _rail(builder: ResultBuilder, test: GateTest, rail: str, output: CommandResult) -> Mapping[str, float] | None:
    """Return the figures of one rail; None, with a note, where they are not all there."""
    if note_if_killed(builder, output):
        return None
    if output.exit_status != 0:
        said = (output.stderr.strip() or output.stdout.strip()).splitlines()
        builder.error(f"{rail}: exit status {output.exit_status} {said[0] if said else ''}".strip())
        return None
    sections = _read(_COLOUR.sub("", output.stdout))
    if isinstance(sections, str) or not output.stdout.endswith("\n"):
        builder.error(
            f"{rail}: the output breaks off, or {sections if isinstance(sections, str) else 'its last line does'}"
        )
        return None
    builder.version = sections.get(_TOOL, {}).get("MFT Version", "").removeprefix("mft ")
    builder.check_version(test, KNOWN)
    _judge_link(builder, rail, sections)
    return _figures(builder, test, rail, sections)


def _judge_link(builder: ResultBuilder, rail: str, sections: _Sections) -> None:
    state = sections.get(_LINK, {}).get("State", "N/A")
    advice = sections.get(_TROUBLE, {}).get("Recommendation", "N/A")
    if "N/A" in (state, advice):
        builder.unjudged(f"{rail}: mlxlink does not say how the link is")
    elif state != "Active":
        builder.fail(f"{rail}: the link is {state}: {advice}")
    elif not advice.startswith("No issue"):
        builder.fail(f"{rail}: {advice}")


def _figures(builder: ResultBuilder, test: GateTest, rail: str, sections: _Sections) -> Mapping[str, float] | None:
    counters = sections.get(_COUNTERS, {})
    figures = {name: number(counters.get(key, "")) for name, key in _FIGURES.items()}
    if not counters.keys().isdisjoint(_DOWNS):  # some adapters have neither
        figures["link_downs"] = number(counters.get(_DOWNS[0], "")) if set(_DOWNS) <= counters.keys() else None
    if test.args.get("eye"):
        figures["eye_grade"] = _eye(sections)
    missing = [name for name, value in figures.items() if value is None or value < 0]
    if missing:
        builder.unjudged(f"{rail}: mlxlink gives no {', '.join(missing)}")
        return None
    found = {name: value for name, value in figures.items() if value is not None}
    if "seconds" in test.args:
        _judge_interval(builder, rail, found, int(test.args["seconds"]) / 60)
    return found


def _judge_interval(builder: ResultBuilder, rail: str, found: Mapping[str, float], asked: float) -> None:
    """Note a link that was lost since it was cleared, and counters that are not of the interval of `asked` minutes.

    A link that comes up anew clears the others, too: one lost in the first seconds shows in its own counter alone.
    """
    least = max(0.0, _SHORT * asked - 0.1)  # mlxlink tells tenths
    if found.get("link_downs") and found["minutes"] <= asked + _LONG:
        builder.fail(f"{rail}: the link was lost in the interval")
    elif not least <= found["minutes"] <= asked + _LONG:
        builder.unjudged(f"{rail}: the counters are of {found['minutes']:g} minutes, not of the {asked:g} asked for")


def _eye(sections: _Sections) -> float | None:
    """Return the grade of the worst lane."""
    eyes = [lines for title, lines in sections.items() if title.startswith(_EYE)]
    cells = [lines[grade].split(",") for lines in eyes for grade in _GRADES if grade in lines]
    grades = [number(cell) for cell in cells[0]] if len(cells) == 1 else []
    known = [grade for grade in grades if grade is not None]
    return min(known) if known and len(known) == len(grades) else None


def _read(text: str) -> _Sections | str:
    """Return the lines of each section by their names; what is wrong where there is more than one of a name."""
    sections: dict[str, dict[str, str]] = {}
    for title, lines in _split(text.splitlines()):
        if title in sections:
            return f"{title} is there twice"
        sections[title] = {}
        for line in lines:
            if found := _LINE.match(line):
                if found[1] in sections[title]:
                    return f"{found[1]} is there twice"
                sections[title][found[1]] = found[2].strip()
    return sections if {_LINK, _TROUBLE, _TOOL, _COUNTERS} <= sections.keys() else "a section is missing"


def _split(lines: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each title, which is above a rule, and the lines below it."""
    rules = [at for at, line in enumerate(lines) if at and line and not line.strip("-")]
    for at, end in zip(rules, [*(rule - 1 for rule in rules[1:]), len(lines)], strict=False):
        yield lines[at - 1].strip(), lines[at + 1 : end]


TOOL = Tool(_commands, _judge)
