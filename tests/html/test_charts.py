"""Charts are rectangles: each within its frame, and as large as what it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.gate.certificate import by_test, judge_test
from reconciler.model.gate import Verdict
from reconciler.model.period_report import Day
from reconciler.render.html import charts, measured, page
from reconciler.render.html.charts import Rect
from tests import builders as b
from tests.html import world


@pytest.fixture(scope="module")
def material() -> Any:
    return world.make(80)


def few(material: Any) -> Any:
    """Twelve nodes have something to do."""
    nodes = list(material.plan.nodes.items())
    going = [name for name, node in nodes if node.start is not None and node.end is not None][:12]
    idle = {name: replace(node, actions=(), start=None, end=None) for name, node in nodes if name not in going}
    return replace(material, plan=replace(material.plan, nodes={**material.plan.nodes, **idle}))


def rects(material: Any) -> Iterator[Rect]:
    gantts = [*charts.waves(material), *([turns] if (turns := charts.schedule(material)) else [])]
    yield from (row.bar for gantt in gantts for row in gantt.rows if row.bar is not None)
    panels = [*charts.over_time(material.report), *([work] if (work := charts.at_work(material)) else [])]
    yield from (column for panel in panels for column in panel.columns)
    yield from (row.bar for row in charts.recoveries(material.report, 99) if row.bar is not None)


@pytest.mark.parametrize("narrow", [False, True])
def test_everything_stays_in_its_frame(material: Any, narrow: bool) -> None:
    drawn = list(rects(few(material) if narrow else material))
    assert len(drawn) > 20
    for rect in drawn:
        assert 0 <= rect.x <= 100
        assert rect.x + rect.width <= 100.5, "the shortest can still be seen"
        assert 0 <= rect.y <= rect.y + rect.height <= 100.01
        assert rect.title


def test_nodes_that_follow_one_another_in_one_column_are_not_at_work_at_once() -> None:
    """A budget of 15: the chart may not say 22, whose work only falls into one and the same column."""
    start, hour = b.NOW, timedelta(hours=1)
    spans = [(start, start + hour)] * 15 + [(start + hour, start + 2 * hour)] * 15
    assert charts.most_at_once(spans, [start + at * 0.75 * hour for at in range(5)]) == [15, 15, 15, 0]
    assert charts.most_at_once(spans, [start, start + 2 * hour]) == [15]


def test_few_turns_are_told_one_by_one_and_many_are_counted(material: Any) -> None:
    assert charts.schedule(material) is None
    work = charts.at_work(material)
    assert work is not None
    most = max(work.columns, key=lambda column: column.height)
    assert f": {work.top} node" in most.title
    some = few(material)
    turns = charts.schedule(some)
    assert turns is not None
    assert charts.at_work(some) is None
    going = {name: node for name, node in some.plan.nodes.items() if node.actions}
    assert {row.node for row in turns.rows} == going.keys()
    starts = [row.bar.x for row in turns.rows if row.bar is not None]
    assert starts == sorted(starts)
    longest = max(going.values(), key=lambda node: node.end - node.start)
    widest = max(turns.rows, key=lambda row: 0.0 if row.bar is None else row.bar.width)
    spans = {row.node: going[row.node].end - going[row.node].start for row in turns.rows}
    assert spans[widest.node] == spans[longest.node]
    assert "Each node&#39;s turn" in page(some)


def test_waves_stand_where_they_are_expected(material: Any) -> None:
    (rollout,) = material.plan.rollouts
    (gantt,) = charts.waves(material)
    assert len(gantt.rows) == len(rollout.waves)
    for wave, row in zip(rollout.waves, gantt.rows, strict=True):
        assert (row.bar is not None) == (wave.end is not None)
        assert row.state == wave.state.value


def test_columns_are_as_high_as_their_numbers(material: Any) -> None:
    begin = material.report.since
    days = tuple(Day(begin + timedelta(days=at), at, 2 * at, 10 * at) for at in range(5))
    still, turns = charts.over_time(replace(material.report, days=days, bucket_s=86400.0))
    assert [round(column.height, 1) for column in still.columns] == [0, 25, 50, 75, 100]
    assert (still.top, turns.top) == ("40", "8")
    came = [round(column.height, 1) for column in turns.columns if column.kind == "introduced"]
    assert came == [0, 12.5, 25, 37.5, 50]
    assert charts.over_time(replace(material.report, days=())) == []


def test_an_empty_period_draws_nothing_and_divides_by_nothing(material: Any) -> None:
    day = Day(material.report.since, 0, 0, 0)
    made = replace(material.report, days=(day,), recoveries=())
    assert all(column.height == 0 for panel in charts.over_time(made) for column in panel.columns)
    assert charts.recoveries(made, 9) == []
    assert "No node was out of service" in page(replace(material, report=made))


# --- what the gate measured -------------------------------------------------------------------------------------------


def test_the_distribution_counts_each_measured_node_and_names_whom_the_judge_refuses(material: Any) -> None:
    measured_by, refused = 0, set()
    for name, node in material.fleet.nodes.items():
        certificate = material.records[name].certificate
        if certificate is None or node.state.value != "active":
            continue
        [test] = [test for phase in node.profile.acceptance.phases for test in phase.tests if test.thresholds]
        [result] = [result for result in certificate.results if result.test == test.name]
        measured_by += 1
        refused |= {name} if judge_test(test, result)[0] is Verdict.FAIL else set()
    figures, left = measured.distributions(material)
    assert refused
    assert {each.node for one in figures for each in one.outliers} == refused
    assert all(each.why.endswith("below the bar 440") for one in figures for each in one.outliers)
    told = sum(int(row.rpartition(": ")[2].split()[0].replace(",", "")) for one in figures for row in one.rows)
    assert told == measured_by
    assert left == "1 node without measurements"
    for one in figures:
        assert " in GB/s" in one.title
        assert len(one.marks) == 1
        assert {column.kind for column in one.columns} == {"passes", "refused"}
        assert all(0 <= column.x <= column.x + column.width <= 100 for column in one.columns)
        assert all(0 <= column.y <= column.y + column.height <= 100.01 for column in one.columns)


def test_a_bar_beyond_the_axis_is_said_and_not_drawn(material: Any) -> None:
    bars = [page_of_bar(material, minimum) for minimum in (1.0, 1e6)]
    for figures, _ in bars:
        assert all(not one.marks and "is off this axis" in one.said for one in figures)


def page_of_bar(material: Any, minimum: float) -> Any:
    nodes = {}
    for name, node in material.fleet.nodes.items():
        acceptance = node.profile.acceptance
        phases = tuple(
            replace(
                phase,
                tests=tuple(
                    replace(test, thresholds=tuple(replace(bar, min=minimum) for bar in test.thresholds))
                    for test in phase.tests
                ),
            )
            for phase in acceptance.phases
        )
        profile = replace(node.profile, acceptance=replace(acceptance, phases=phases))
        nodes[name] = replace(node, profile=profile)
    return measured.distributions(replace(material, fleet=replace(material.fleet, nodes=nodes)))


def test_the_distribution_names_a_node_that_is_less_than_it_was_itself(material: Any) -> None:
    """No bar refuses it and its peers are as slow: only its own first result tells."""
    declined, name = world.declining(material)
    figures, _ = measured.distributions(declined)
    [told] = [each for one in figures for each in one.outliers if each.node == name]
    certificate = material.records[name].certificate
    now = by_test(certificate.results)["nccl"].metrics["busbw_peak"]
    day = certificate.issued_at - timedelta(days=90)
    said = f"4.8% less than the {1.05 * now:.6g} GB/s when it first passed, on {day:%Y-%m-%d}"
    assert (told.value, told.why) == (f"{now:.6g} GB/s", said)
