"""What `--record` writes: the same for the same fleet, whenever it is asked; and a message that says what counts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from reconciler.model.desired import SpecSource
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import Scope
from reconciler.model.recording import KEPT
from reconciler.model.report import ActionEnd, ApplyOutcome, DriftReport, NodeEnd
from reconciler.model.vocab import Concern
from reconciler.render.record import of_apply, of_drift

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
POOLS = {"a1": "train", "a2": "train", "b1": "serve", "b2": "serve"}
FIRMWARE = DriftItem("a1", Concern.FIRMWARE, "firmware.bmc", DriftClass.DRIFTED, "2", "1", "2", first_seen=NOW)
ITEMS = (
    FIRMWARE,
    replace(FIRMWARE, node="a2"),
    DriftItem("a2", Concern.HOST, "host.sysctls.x", DriftClass.PENDING, "1", "60\x1b[31m\nFrom: me", "60"),
    DriftItem("b1", Concern.BIOS, "bios.X", DriftClass.UNKNOWN, "1", None, detail="timeout after 30.1 s"),
    DriftItem("b2", Concern.BIOS, "bios.Y", DriftClass.UNMANAGED, None, 1),
)


def report(*items: DriftItem, at: datetime = NOW, commit: str = "c0ffee" * 6, selected: int = 4) -> DriftReport:
    return DriftReport(
        "1.0", "0.1.0", "lab", SpecSource("fleet-spec", commit), at, at, at, Scope((), (), selected, 4), ("b1",), True,
        True, items, {},
    )  # fmt: skip


def outcome(*actions: ActionEnd, nodes: dict[str, NodeEnd] | None = None) -> ApplyOutcome:
    return ApplyOutcome(
        "1.0", "0.1.0", "run-1", "plan-1", "lab", SpecSource("fleet-spec"), Scope((), (), 4, 4), NOW, NOW, False,
        nodes or {}, actions, (), (), True, False,
    )  # fmt: skip


def test_each_node_that_differs_has_a_file() -> None:
    made = of_drift(report(*ITEMS), POOLS)
    assert set(made.files) == {
        KEPT, "lab/drift/train/a1.json", "lab/drift/train/a2.json", "lab/drift/serve/b1.json",
    }  # fmt: skip
    assert json.loads(made.files["lab/drift/train/a2.json"]) == {
        "firmware.bmc": {"class": "drifted", "found": "1", "wanted": "2"},
        "host.sysctls.x": {"applied": "60", "class": "pending", "found": "60\x1b[31m\nFrom: me", "wanted": "1"},
    }
    assert all(text.isascii() and text.endswith("}\n") for path, text in made.files.items() if path != KEPT)


def test_times_ages_words_and_commits_change_no_file() -> None:
    first = of_drift(report(*ITEMS), POOLS)
    later = NOW + timedelta(days=3)
    others = [replace(item, first_seen=later, last_seen=later, detail="timeout after 29.9 s") for item in ITEMS[::-1]]
    again = of_drift(report(*others, at=later, commit="beef" * 10), POOLS)
    assert again.files == first.files
    assert again.body != first.body


def test_the_message_says_what_counts() -> None:
    made = of_drift(report(*ITEMS), POOLS)
    assert made.subject == "drift: 2 nodes differ (2 firmware, 1 host); 1 not read in full"
    lines = made.body.splitlines()
    assert "- firmware.bmc drifted: 1 instead of 2 on a[1-2] (2)" in lines
    assert "- host.sysctls.x pending: 60\\x1b[31m From: me instead of 1 on a2" in lines
    assert lines[-2:] == ["Fleet: lab", "Spec: fleet-spec at c0ffeec0ffee"]
    assert of_drift(replace(report(), incomplete=()), POOLS).subject == "drift: no node differs"


def test_a_message_is_short_however_much_differs() -> None:
    items = [replace(FIRMWARE, path=f"firmware.f{number}", observed="x" * 900) for number in range(500)]
    made = of_drift(report(*items), POOLS)
    assert len(made.body) < 30_000
    assert "- and 440 more" in made.body


def test_a_look_at_some_speaks_of_those() -> None:
    pools = {"a1": "train"}
    made = of_drift(report(selected=1), pools)
    assert made.is_over("lab/drift/old-pool/a1.json")
    assert not made.is_over("lab/drift/train/a2.json")
    assert "Scope: 1 of 4 nodes" in made.body
    whole = of_drift(report(), POOLS)
    assert whole.is_over("lab/drift/train/gone.json")
    assert not whole.is_over("lab/applies/run-1.json")
    assert not whole.is_over("other/drift/train/a1.json")


def test_a_run_has_a_file_and_says_how_it_ended() -> None:
    ends = {"a1": NodeEnd("done", ""), "a2": NodeEnd("failed", "it\nburns"), "b1": NodeEnd("converged", "")}
    actions = [ActionEnd("a1", "drain", "done", "", NOW, 60.0), ActionEnd("a2", "drain", "permanent", "no", NOW, 60.0)]
    made = of_apply(outcome(*actions, nodes=ends), report(*ITEMS), POOLS)
    assert made.subject == "apply: 1 failed, 1 done; 2 actions"
    assert "- a2: it burns" in made.body
    assert "Left: 2 nodes differ" in made.body
    assert set(of_drift(report(*ITEMS), POOLS).files) < set(made.files)
    assert json.loads(made.files["lab/applies/run-1.json"])["run"] == "run-1"


def test_a_run_that_did_nothing_is_no_news() -> None:
    assert of_apply(outcome(), report(*ITEMS), POOLS) == of_drift(report(*ITEMS), POOLS)
