"""A source that stays silent is a signal that reports, and nothing is done for it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.converge.remember import silences
from reconciler.health.table import Effect, health_table
from reconciler.model.observed import Answered, Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import UnknownReason
from reconciler.planner.node.watchdog import silence_signals
from tests import builders as b

NODE = b.node()
LONG, SHORT = timedelta(minutes=15), timedelta(minutes=14)


def silent(reason: UnknownReason = UnknownReason.TIMEOUT) -> Silent:
    return Silent(b.NOW, reason, "")


def without(**facts: Any) -> Observed:
    host = b.facts(**facts, unknown=dict.fromkeys(facts, "timeout: nvidia-smi did not end"))
    return replace(b.observed(), host=Answered(b.NOW, host))


def told(seen: Observed, since: timedelta, *sources: str) -> list[tuple[str, str]]:
    """What is told where the ledger says that these sources have been silent since then."""
    record = NodeRecord(NODE.node, silent_since=dict.fromkeys(sources, b.NOW - since))
    return [(one.name, one.detail) for one in silence_signals(NODE, seen, record)]


CASES = [
    (replace(b.observed(), hot=silent()), "redfish", "bmc_silent", "it has not answered for 15m"),
    (replace(b.observed(), host=silent()), "ssh", "host_silent", "it has not answered for 15m"),
    (without(gpus=None), "gpus", "facts_silent", "its GPUs could not be read for 15m: timeout: nvidia-smi did not end"),
    (without(xids=None), "xids", "facts_silent", "its kernel log could not be read for 15m: timeout"),
    (without(links=None), "links", "facts_silent", "its ports could not be read for 15m: timeout"),
    (without(counters=None), "counters", "facts_silent", "its counters of errors could not be read for 15m: timeout"),
    (
        b.observed(inventory=b.inventory(events=(), unknown={"events": "the log was not read whole: it is full"})),
        "bmc_log", "facts_silent", "for 15m now the log was not read whole: it is full",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "source", "name", "detail"), CASES)
def test_a_source_that_is_silent_for_the_window_is_told_and_reported(
    seen: Observed, source: str, name: str, detail: str
) -> None:
    assert silences(seen)[source], "the ledger keeps since when"
    ((found, said),) = told(seen, LONG, source)
    assert (found, said.startswith(detail)) == (name, True), said
    assert health_table().effect_of(name) is Effect.REPORTS
    assert told(seen, SHORT, source) == []
    assert told(b.observed(), LONG, source) == [], "it answers again, though the ledger has not learnt it yet"


def test_a_kubelet_that_is_not_ready_while_its_host_answers_is_told_with_its_reason() -> None:
    reasons = {"Ready": "KubeletNotReady: container runtime is down"}
    seen = b.observed(member=b.member(ready=False, conditions={"Ready": "False"}, reasons=reasons))
    assert silences(seen)["not_ready"]
    said = "its kubelet has not been ready for 15m: KubeletNotReady: container runtime is down"
    assert told(seen, LONG, "not_ready")[0][0] == "kubelet_not_ready"
    assert told(seen, LONG, "not_ready")[0][1].startswith(said[:45])
    assert told(seen, timedelta(minutes=4), "not_ready") == []
    assert told(replace(seen, host=silent()), LONG, "not_ready") == [], "that is the host's silence"


@pytest.mark.parametrize("reason", [UnknownReason.EXPLAINED, UnknownReason.NOT_ASKED, UnknownReason.CRASHED])
def test_a_silence_with_a_known_cause_is_none(reason: UnknownReason) -> None:
    seen = replace(b.observed(), hot=silent(reason), host=silent(reason))
    assert told(seen, LONG, "redfish", "ssh") == []


def test_a_silent_host_is_one_signal_and_its_facts_are_none() -> None:
    seen = replace(b.observed(), host=silent())
    assert [name for name, _ in told(seen, LONG, "ssh", "gpus", "xids")] == ["host_silent"]
    assert "gpus" not in silences(seen), "what the ledger knows of them stays"
