"""Foretell by stored metrics what a change of the gate's bars does: who falls below, who passes, what is not known.

The judge is that of the gate. It judges each metric by itself, before the change and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.gate.asked import bar_texts
from reconciler.gate.bars import beyond, histogram, limits_of, unit_of
from reconciler.gate.certificate import TestDigests, by_test, finite, judge_test, tests_changed, tests_digest
from reconciler.model.bars import BarSpread, Limits, Measured, MovedBar, NewTest
from reconciler.model.desired import Desired, Fleet, GateTest, Profile, Threshold
from reconciler.model.gate import TestResult, Verdict
from reconciler.model.records import NodeRecord
from reconciler.planner.node.certificate import same_test

_NO_TESTS = TestDigests("", {})


@dataclass(frozen=True, slots=True)
class _Bar:
    """One metric of one test at both revisions. `whole`: the test at head, with all its bars."""

    metric: str
    was: GateTest
    now: GateTest
    whole: GateTest
    place: str

    @property
    def key(self) -> tuple[object, ...]:
        return self.now.name, self.now.tool, self.metric, self.was.thresholds, self.now.thresholds, self.place


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two profiles: the bars that differ, and the tests of which more does, with their places. `digests`: of head's."""

    bars: list[_Bar]
    new: list[tuple[GateTest, str]]
    digests: TestDigests


@dataclass(slots=True)
class _Sum:
    bar: _Bar
    below: list[Measured] = field(default_factory=list)
    admitted: list[Measured] = field(default_factory=list)
    kept: int = 0
    unmeasured: list[str] = field(default_factory=list)
    values: dict[tuple[Limits, Limits], list[float]] = field(default_factory=dict)
    versions: dict[tuple[Limits, Limits], set[str]] = field(default_factory=dict)

    def add(self, node: str, result: TestResult | None) -> None:
        bar = self.bar
        value = None if result is None or result.tool != bar.now.tool else finite(result.metrics.get(bar.metric))
        if value is None or result is None:
            self.unmeasured.append(node)
            return
        limits = limits_of(bar.was.thresholds, result.tool_version), limits_of(bar.now.thresholds, result.tool_version)
        self.values.setdefault(limits, []).append(value)
        self.versions.setdefault(limits, set()).add(result.tool_version)
        was, now = judge_test(bar.was, result)[0], judge_test(bar.now, result)[0]
        if was is Verdict.PASS and now is Verdict.FAIL:
            self.below.append(Measured(node, value, *beyond(limits[1], value)))
        elif was is Verdict.FAIL and judge_test(bar.whole, result)[0] is Verdict.PASS:
            self.admitted.append(Measured(node, value, *beyond(limits[0], value)))
        else:
            self.kept += 1

    def made(self, head: Fleet, hours: Callable[[str], float]) -> MovedBar:
        names = [one.node for one in self.below]
        return MovedBar(
            test=self.bar.now.name,
            metric=self.bar.metric,
            unit=unit_of(self.bar.now.tool, self.bar.metric),
            before=tuple(_said(self.bar.was.thresholds)),
            after=tuple(_said(self.bar.now.thresholds)),
            place=self.bar.place,
            below=tuple(sorted(self.below, key=lambda one: (-one.share, one.node))),
            admitted=tuple(sorted(self.admitted, key=lambda one: (one.share, one.node))),
            kept=self.kept,
            unmeasured=tuple(self.unmeasured),
            spreads=tuple(self._spreads()),
            gpus=sum(_gpus(head.nodes[name]) for name in names),
            gpu_hours=round(sum(map(hours, names)), 2),
        )

    def _spreads(self) -> Iterator[BarSpread]:
        for (before, after), values in self.values.items():
            ends = [end for limits in (before, after) for end in (limits.least, limits.most) if end is not None]
            version = ", ".join(sorted(self.versions[before, after])) if len(self.values) > 1 else ""
            yield BarSpread(version, before, after, histogram(values, ends))


def moved_bars(
    base: Fleet,
    head: Fleet,
    names: Iterable[str],
    records: Mapping[str, NodeRecord],
    hours: Callable[[str], float],
) -> tuple[tuple[MovedBar, ...], tuple[NewTest, ...]]:
    """Return the bars that head moves, and the tests that it adds or changes, for the nodes `names`.

    `hours`: the GPU-hours out of service that head plans for a node beyond base.
    """
    known: dict[tuple[str, str], _Compared] = {}
    sums: dict[tuple[object, ...], _Sum] = {}
    new: dict[tuple[object, ...], list[str]] = {}
    for name in names:
        old, now = base.nodes[name].profile, head.nodes[name].profile
        pair = old.digest, now.digest
        if pair not in known:
            known[pair] = _compared(old, now)
        found = known[pair]
        for test, place in found.new:
            new.setdefault((test.name, test.tool, test.timeout_s, place), []).append(name)
        if not found.bars or now.acceptance is None:
            continue
        certificate = records[name].certificate if name in records else None
        results = {} if certificate is None or certificate.adopted else by_test(certificate.results)
        other = () if certificate is None else tests_changed(certificate, now.acceptance, found.digests)
        for bar in found.bars:
            result = None if bar.now.name in other else results.get(bar.now.name)
            sums.setdefault(bar.key, _Sum(bar)).add(name, result)
    return tuple(each.made(head, hours) for each in sums.values()), tuple(_new_tests(head, new))


def _new_tests(head: Fleet, found: Mapping[tuple[object, ...], list[str]]) -> Iterator[NewTest]:
    for (test, tool, timeout_s, place), names in found.items():
        gpus = sum(_gpus(head.nodes[name]) for name in names)
        assert isinstance(timeout_s, float)
        yield NewTest(str(test), str(tool), str(place), tuple(names), gpus, timeout_s)


def _compared(base: Profile, head: Profile) -> _Compared:
    """Return the bars that differ, and the tests of which more than bars does."""
    old = {} if base.acceptance is None else {test.name: test for test in base.acceptance.tests}
    bars, new = list[_Bar](), list[tuple[GateTest, str]]()
    for number, phase in enumerate(() if head.acceptance is None else head.acceptance.phases):
        for at, test in enumerate(phase.tests):
            path, was = f"acceptance.phases.{number}.tests.{at}", old.get(test.name)
            if was is None or not same_test(was, test):
                new.append((test, _place(head, path)))
            elif was.thresholds != test.thresholds:
                bars += _moved(was, test, head, path)
    return _Compared(bars, new, _NO_TESTS if head.acceptance is None else tests_digest(head.acceptance))


def _moved(was: GateTest, now: GateTest, head: Profile, path: str) -> Iterator[_Bar]:
    for metric in dict.fromkeys(bar.metric for bar in (*now.thresholds, *was.thresholds)):
        old, new = _of(was, metric), _of(now, metric)
        if old != new:
            at = next((f"{path}.thresholds.{n}" for n, bar in enumerate(now.thresholds) if bar.metric == metric), path)
            before, after = replace(now, thresholds=old), replace(now, thresholds=new)
            yield _Bar(metric, before, after, now, _place(head, at))


def _of(test: GateTest, metric: str) -> tuple[Threshold, ...]:
    return tuple(bar for bar in test.thresholds if bar.metric == metric)


def _said(bars: Iterable[Threshold]) -> Iterator[str]:
    for bar in bars:
        yield from (text.removeprefix(f"{bar.metric} ") for text in bar_texts(bar))


def _place(profile: Profile, path: str) -> str:
    at = profile.provenance.get(path)
    return "" if at is None else str(at)


def _gpus(desired: Desired) -> int:
    return desired.profile.inventory.gpus or 0
