"""Plans as text: by whose clock they speak, what of them nobody can say, and cells that no machine can break."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given

from reconciler.model.desired import SpecSource
from reconciler.model.documents import dump
from reconciler.model.plan import (
    BlockCode,
    Blocked,
    Goal,
    NodePlan,
    Plan,
    PlannedAction,
    RolloutPlan,
    Scope,
    Totals,
    Wave,
    WaveState,
    WorkloadCost,
)
from reconciler.model.vocab import Certainty, Concern, Disruption
from reconciler.render.comment import as_markdown
from reconciler.render.plan import human
from reconciler.render.text import fit
from tests import builders as b
from tests.render.test_text import HOSTILE

HOUR = timedelta(hours=1)
DRAIN = PlannedAction("drain", "", Concern.HOST, ("why",), Disruption.DRAIN, 600.0, Certainty.EXACT, (), ())


def node(name: str, **changes: Any) -> NodePlan:
    fields: dict[str, Any] = {
        "node": name, "pool": "a", "goal": Goal.IN_SERVICE, "situation": "", "in_service": True, "observed_at": b.NOW,
        "incomplete": (), "drift": (), "actions": (DRAIN,), "blocked": None, "wave": 0, "fingerprint": "f",
    }  # fmt: skip
    return NodePlan(**(fields | changes))


def waiting(name: str, minutes: int | None, code: BlockCode = BlockCode.BUDGET) -> NodePlan:
    start = None if minutes is None else b.NOW + timedelta(minutes=minutes)
    return node(
        name, blocked=Blocked(code, "wait"), wave=1, start=start, end=None if start is None else start + DRAIN_TAKES
    )


DRAIN_TAKES = timedelta(minutes=10)


def plan(*nodes: NodePlan, **changes: Any) -> Plan:
    made: dict[str, Any] = {
        "format_version": "1.0", "tool_version": "0", "id": "p", "created_at": b.NOW, "expires_at": b.NOW + 2 * HOUR,
        "fleet": "f", "source": SpecSource("spec"), "scope": Scope((), (), len(nodes), len(nodes)), "incomplete": (),
        "tolerated": True, "nodes": {one.node: one for one in nodes}, "budget": (), "fingerprint": "0" * 64,
        "totals": Totals(len(nodes), len(nodes), 0, 0, 1.5, 5400.0, 2),
    }  # fmt: skip
    return Plan(**(made | changes))


def rollout(**changes: Any) -> RolloutPlan:
    waves = (Wave(("a1",), WaveState.OPEN, "a1 is ill (XID 79)"), Wave(("a2", "a3"), WaveState.WAITING, "wait"))
    made: dict[str, Any] = {
        "pool": "a", "digest": "d" * 64, "changes": {"image.version": ("2",)}, "waves": waves, "rollback": False,
        "started_at": None, "bake_s": 600.0,
    }  # fmt: skip
    return RolloutPlan(**(made | changes))


def test_a_lab_says_by_whose_clock_it_speaks() -> None:
    here = node("a1", start=b.NOW, end=b.NOW + DRAIN_TAKES)
    text = human(plan(here, time_scale=60.0, expires_at=b.NOW + 120 * HOUR))
    assert "valid for 2h00m of your time (2026-11-26 12:00:00 UTC of the fleet's)" in text
    assert "done in about 1h30m of the fleet's time (1m30s of yours)" in text
    text = human(plan(here))
    assert "valid until 2026-11-21 14:00:00 UTC;" in text
    assert "done in about 1h30m;" in text


def test_who_has_no_times_is_said() -> None:
    text = human(plan(waiting("a1", None), waiting("a2", None)))
    assert "nobody can say when it will be done" in text
    assert "a[1-2] (2) [a]: up to drain, about 10m each; nobody can say when" in text
    text = human(plan(waiting("a1", 30), waiting("a2", None)))
    assert "1 of 2 done in about 1h30m, of the others nobody can say" in text
    assert "expected 12:30 - 12:40 UTC, and of 1 of them nobody can say when" in text
    assert [line.split()[:3] for line in text.splitlines() if " budget " in line] == [
        ["a1", "budget", "12:30"],
        ["a2", "budget", "nobody"],
    ]


def test_few_turns_are_told_apart_and_many_are_not() -> None:
    def rows(count: int) -> list[str]:
        text = human(plan(*(waiting(f"a{at}", 10 * at) for at in range(1, count + 1))))
        return [line for line in text.splitlines() if line.endswith("  wait")]

    assert [row.split()[0] for row in rows(4)] == ["a1", "a2", "a3", "a4"]
    assert [row.split()[:5] for row in rows(5)] == [["a[1-5]", "budget", "12:10", "-", "12:50"]]


def test_a_healthy_node_shares_no_entry_with_one_that_is_left_alone() -> None:
    silent = "BMC unreachable: power not known"
    left = node("a1", situation=f"left alone: {silent}", blocked=Blocked(BlockCode.UNKNOWN, silent), wave=None)
    text = human(plan(left, node("a2"), node("a3")))
    entries = text.split("because")[1]
    assert entries.index("a1 [a]") < entries.index(f"    left alone: {silent}") < entries.index("a[2-3] (2) [a]")
    assert entries.count("left alone:") == 1


def test_what_a_plan_was_made_from_is_in_it() -> None:
    """Conventions P3: which spec, how old what was seen of each node is, and of how many nodes it speaks."""
    seen = node("a1", observed_at=b.NOW - timedelta(minutes=3), incomplete=("BMC unreachable",))
    made = plan(
        seen, source=SpecSource("fleet-spec", "c0ffee" * 6, True), scope=Scope(("a*",), ("a9",), 1, 40),
        incomplete=("a1",),
    )  # fmt: skip
    read = json.loads(dump(made))
    assert read["source"] == {"directory": "fleet-spec", "commit": "c0ffee" * 6, "dirty": True, "rev": ""}
    assert read["scope"] == {"limit": ["a*"], "exclude": ["a9"], "selected": 1, "total": 40}
    assert (read["nodes"]["a1"]["observed_at"], read["incomplete"]) == ("2026-11-21T11:57:00Z", ["a1"])
    for text in (human(made), as_markdown(made)):
        assert "c0ffee" in text
        assert "scope 1 of 40 nodes" in text


def test_disruption_is_ordered_and_the_worst_is_shown() -> None:
    """Conventions P5."""
    words = ["none", "service_restart", "drain", "reboot", "power_cycle", "ac_cycle", "firmware", "reimage"]
    assert [one.label for one in sorted(Disruption)] == words
    steps = [replace(DRAIN, name=one.label, disruption=one) for one in (Disruption.REIMAGE, Disruption.SERVICE_RESTART)]
    made = plan(node("a1", actions=(DRAIN, *steps)), node("a2"))
    assert {name: one.disruption.label for name, one in made.nodes.items()} == {"a1": "reimage", "a2": "drain"}
    text = human(made)
    assert "a1 [a]: up to reimage" in text
    assert "a2 [a]: up to drain" in text


def test_another_day_has_its_date() -> None:
    text = human(plan(waiting("a1", 24 * 60)))
    assert "expected 2026-11-22 12:00 - 12:10 UTC" in text


def test_a_plan_without_actions_has_no_timetable() -> None:
    held = node("a1", actions=(), goal=Goal.NOTHING, blocked=Blocked(BlockCode.HELD, "held by ops: why"), wave=None)
    text = human(plan(held, totals=Totals(0, 0, 1, 0, 0.0, 0.0, 0)))
    assert "nothing to do; 1 node left alone" in text
    assert "begins" not in text


def test_many_values_of_a_rollout_are_counted() -> None:
    many = rollout(changes={"host.hostname": ("a", "b"), "bios.X": tuple("abcd"), "image.version": ("1", "2")})
    text = human(plan(node("a1"), rollouts=(many,)))
    assert "bios.X -> 4 different values" in text
    assert "image.version -> 1 or 2" in text
    assert "host.hostname" not in text, "every node has its own"


def test_a_halted_rollout_is_in_the_verdict_and_says_what_resumes_it() -> None:
    halted = rollout(halted="the rollout of pool a is halted: 1 failed", resume=("mend it", "or hold it"))
    for text in (human(plan(node("a1"), rollouts=(halted,))), as_markdown(plan(node("a1"), rollouts=(halted,)))):
        assert "the rollout of pool a is HALTED" in text
        assert "- mend it\n" in text
        assert "- or hold it\n" in text


@given(HOSTILE)
def test_what_machines_say_breaks_no_table_of_a_rollout(text: str) -> None:
    one = rollout(
        waves=(Wave(("a1",), WaveState.OPEN, text),), halted=text or "x", resume=(text,), changes={"bios.X": (text,)}
    )
    made = plan(
        node("a1"), rollouts=(one, replace(one, halted="", failed=("a1",), left_out=("a2",), supersedes="e" * 64))
    )
    shown = human(made)
    assert not any(ord(char) < 32 and char != "\n" for char in shown)
    assert shown.count("\n  rollout in pool a") == 2
    assert max(map(len, fit(shown, 80).splitlines())) <= 80


def test_what_the_drains_end_for_good_is_shown() -> None:
    pods = tuple(f"default/job-{number}" for number in range(7))
    made = plan(node("n1", unmanaged_pods=pods), node("n2", local_pods=("default/cache",)), node("n3"))
    shown = human(made)
    names = ", ".join(pods[:5])
    assert re.search(rf"pods that declare no controller +{names} and 2 more \(7\)", shown)
    assert re.search(r"data of pods with local storage +default/cache \(1\)", shown)
    comment = as_markdown(made)
    assert "Lost with the drains: 7 pods that declare no controller" in comment
    assert "default/job-0" not in comment, "a comment says how many"
    assert "Lost" not in human(plan(node("n3")))


def test_what_the_drains_wait_for_is_shown() -> None:
    waits = "up to 6h for 2 pods of finite work"
    made = plan(node("n1", drain_waits=(waits,)), node("n2", drain_waits=(waits,)), node("n3"))
    assert re.search(rf"Before they evict, the drains wait:\n.*\n *{waits} +n\[1-2\] \(2\)", human(made))
    assert f"Drains wait {waits}: 2 nodes" in as_markdown(made)


def test_what_the_drains_interrupt_is_shown() -> None:
    costs = (
        WorkloadCost("JobSet ml/llama", "research", 8, 64, 8),
        WorkloadCost("LeaderWorkerSet serve/vllm", "", 4, 16, 4, 1, 4),
    )
    made = replace(plan(node("n1")), workloads=costs)
    shown = human(made)
    assert re.search(r"JobSet ml/llama \(queue research\) +8 of 64, on 8 nodes +all of its pods depend", shown)
    assert re.search(r"LeaderWorkerSet serve/vllm +4 of 16, on 4 nodes +1 of 4 replicas restart whole", shown)
    jobs = tuple(WorkloadCost(f"Job ml/train-{n}", "", 1, 1, 1) for n in range(10, 70))
    many = human(replace(made, workloads=(*jobs, WorkloadCost("Job ml/train-70", "", 2, 2, 1))))
    assert "Job ml/train-[10-69] (60)  1 of 1, on 1 node each" in re.sub(" {3,}", "  ", many), "one row for sixty"
    assert "Job ml/train-70 " in many, "it loses more"
    assert "Interrupted by the drains: 2 workloads" in as_markdown(made)
    assert "ml/llama" not in as_markdown(made), "a comment says how many"
