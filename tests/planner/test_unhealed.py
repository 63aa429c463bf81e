"""Events that were seen: they count until their row's proof, and neither age nor a log that rotates heals them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.health.signals import Signal, signals
from reconciler.model.desired import Desired
from reconciler.model.observed import BmcEvent, Observed, Part, Xid
from reconciler.model.plan import Goal
from reconciler.model.records import ISOLATED, Attempt, NodeRecord
from reconciler.model.signal_changes import SignalChange
from reconciler.model.vocab import Health
from reconciler.planner.node.unhealed import kept_updates, unhealed_signals
from tests import builders as b

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NODE = b.node()
DIMMS = tuple(Part("dimm", f"DIMM{at}", Health.OK, f"D{at}") for at in range(4))
SWAPPED = (*DIMMS[:3], replace(DIMMS[3], serial="D9"))
UE = BmcEvent("1", "x", Health.CRITICAL, "Uncorrectable ECC @ DIMM3", kind="memory_ue", age_s=3600.0)
LID = BmcEvent("2", "x", Health.CRITICAL, "Chassis lid opened", age_s=3600.0)
LATER = timedelta(days=3)


def seen(
    *events: BmcEvent, after: timedelta = timedelta(0), dimms: Sequence[Part] = DIMMS, boot: str = "b1", **host: Any
) -> Observed:
    """The node at a time after NOW, with these entries in the log of its BMC, older by as much."""
    aged = tuple(replace(one, age_s=(one.age_s or 0.0) + after.total_seconds()) for one in events)
    found = b.observed(
        inventory=b.inventory(events=aged, parts=dimms), host=b.facts(**({"boot_id": boot, "xids": ()} | host))
    )
    at = b.NOW + after
    return replace(
        found, hot=replace(found.hot, at=at), host=replace(found.host, at=at), inventory=replace(found.inventory, at=at)
    )


PASSED = b.record(NODE, seen())


def noted(record: NodeRecord, observed: Observed, node: Desired = NODE) -> NodeRecord:
    """The record after a pass that noted what is shown and what is not healed."""
    shown = signals(node.profile, observed)
    kept = dict(record.silent_since)
    news = list(kept_updates(node, observed, record, shown))
    for key, new in sorted(news, key=lambda one: one[1]):
        if new:
            kept[key] = observed.host.at
        else:
            del kept[key]
    return replace(record, silent_since=kept)


def unhealed(record: NodeRecord, observed: Observed, node: Desired = NODE) -> list[str]:
    found: tuple[Signal, ...] = unhealed_signals(node, observed, record, signals(node.profile, observed))
    return sorted(signal.name for signal in found)


def goal(record: NodeRecord, observed: Observed) -> Goal:
    planner = b.planner(now=observed.host.at)
    return planner.plan(NODE, observed, record).goal


def test_an_uncorrectable_error_that_grows_old_is_not_healed() -> None:
    """The row says: a new module. Three days later the entry is outside the window, and the module is the same."""
    ill = seen(UE)
    assert goal(PASSED, ill) is Goal.ISOLATED
    record = noted(PASSED, ill)
    assert len(record.silent_since) == 1
    later = seen(UE, after=LATER)
    assert signals(NODE.profile, later) == ()
    assert unhealed(record, later) == ["dimm_ue"]
    assert goal(record, later) is Goal.ISOLATED
    assert noted(record, later) == record


@pytest.mark.parametrize(
    ("what", "healed"),
    [
        (seen(after=LATER), False),  # the log was cleared: that is no module
        (seen(UE, after=LATER, boot="b2"), False),
        (seen(UE, after=LATER, dimms=DIMMS[:3]), False),  # a module that reads no more is no exchange
        (seen(UE, after=LATER, dimms=SWAPPED), True),
        (seen(replace(UE, settled=True), after=LATER), True),  # the BMC takes it back
        (replace(seen(UE, after=LATER, dimms=SWAPPED), inventory=b.silent()), False),
    ],
)
def test_only_its_proof_heals_an_uncorrectable_error(what: Observed, healed: bool) -> None:
    record = noted(PASSED, seen(UE))
    assert unhealed(record, what) == ([] if healed else ["dimm_ue"])
    assert len(noted(record, what).silent_since) == (0 if healed else 1)
    if healed:
        assert goal(record, what) is not Goal.ISOLATED


def test_a_person_who_held_the_node_and_released_it_has_looked() -> None:
    record = noted(PASSED, seen(UE))
    assert unhealed(replace(record, released_at=b.NOW - DAY), seen(UE, after=LATER)) == ["dimm_ue"]
    assert unhealed(replace(record, released_at=b.NOW + DAY), seen(UE, after=LATER)) == []


def test_a_code_whose_line_has_rotated_away_is_healed_by_a_new_boot() -> None:
    fallen = seen(xids=(Xid(79, "0000:03:00", 1),))
    record = noted(PASSED, fallen)
    gone = seen(after=HOUR)
    assert unhealed(record, gone) == ["xid_79"]
    assert "next rung of the ladder: " in b.planner(now=gone.host.at).plan(NODE, gone, record).situation
    assert unhealed(record, seen(after=HOUR, xids=None)) == ["xid_79"], "nobody has read that log"
    assert unhealed(record, seen(after=HOUR, boot="b2")) == []
    assert unhealed(record, replace(gone, host=b.silent())) == ["xid_79"]
    again = noted(record, seen(after=HOUR, boot="b2", xids=(Xid(79, "0000:03:00", 1),)))
    assert unhealed(again, seen(after=2 * HOUR, boot="b2")) == ["xid_79"], "it came back in the new boot"
    assert len(again.silent_since) == 1


def test_a_code_that_the_policy_or_the_log_takes_back_is_not_kept() -> None:
    record = noted(PASSED, seen(xids=(Xid(154, "0000:03:00", 1, text="GPU recovery action changed (Drain)"),)))
    assert unhealed(record, seen(after=HOUR)) == ["xid_154"]
    assert unhealed(record, seen(after=HOUR, xids=(Xid(154, "0000:03:00", 2, text="changed to 0x0 (None)"),))) == []
    lax = replace(NODE, profile=b.profile(remediation=replace(b.REMEDIATION, ignore_xids=(154,))))
    assert unhealed(record, seen(after=HOUR), lax) == []


def test_what_is_only_reported_is_reported_until_its_entry_is_gone_or_settled() -> None:
    record = noted(PASSED, seen(LID))
    assert unhealed(record, seen(LID, after=LATER)) == ["bmc_event_critical"]
    assert goal(record, seen(LID, after=LATER)) is Goal.IN_SERVICE
    assert unhealed(record, seen(after=LATER)) == []
    assert unhealed(record, seen(replace(LID, settled=True), after=LATER)) == []
    years_ago = replace(LID, age_s=1e8)
    assert unhealed(record, seen(years_ago, after=LATER)) == [], "another entry, too old from the first"


def test_a_row_of_the_fleets_own_is_kept_as_well_and_forgotten_with_its_row() -> None:
    own = SignalChange(
        "lid_open", "x", "bmc.events", "lid", "node", "persistent", window="2d", first="drain", next="person",
        healed_by=("fact_clear_after_new_boot", "gate"), source="x",
    )  # fmt: skip
    node = replace(NODE, profile=b.profile(health=(own,)))
    record = noted(PASSED, seen(LID), node)
    assert unhealed(record, seen(LID, after=LATER), node) == ["bmc_event_critical", "lid_open"]
    assert unhealed(record, seen(LID, after=LATER, boot="b2"), node) == ["bmc_event_critical"]
    assert unhealed(record, seen(LID, after=LATER)) == ["bmc_event_critical"]


@pytest.mark.parametrize(
    ("attempts", "kept"),
    [
        ([("mark", ISOLATED + "health.dimm_ue", "done")], ["dimm_ue"]),
        ([("mark", ISOLATED + "health.dimm_ue", "done"), ("drain", "health.dimm_ue, bios.X", "done")], ["dimm_ue"]),
        ([("mark", ISOLATED + "health.dimm_ue", "refused")], []),
        ([("mark", ISOLATED + "health.dimm_ue", "done"), ("admit", "x", "done")], []),
        ([("mark", ISOLATED + "health.gpu_missing", "done")], []),  # a state, which is read anew
    ],
)
def test_a_ledger_of_an_older_version_tells_what_a_node_was_taken_out_for(
    attempts: list[tuple[str, str, str]], kept: list[str]
) -> None:
    """It kept no events. What still is out for one stays out; what was let back in is not condemned by an upgrade."""
    tried = [Attempt(name, "", why, b.NOW + HOUR * at, end) for at, (name, why, end) in enumerate(attempts, 1)]
    record = replace(PASSED, attempts=tuple(tried))
    assert unhealed(record, seen(UE, after=LATER)) == kept
    assert unhealed(noted(record, seen(UE, after=LATER)), seen(UE, after=2 * LATER)) == kept
    certified = replace(record, certificate=replace(b.certificate(NODE, seen()), issued_at=b.NOW + DAY))
    assert unhealed(certified, seen(UE, after=LATER)) == [], "its gate has passed since"


def test_a_boot_that_was_not_known_is_judged_by_the_uptime() -> None:
    own = SignalChange(
        "lid_open", "x", "bmc.events", "lid", "node", "persistent", window="2d", first="drain", next="person",
        healed_by=("fact_clear_after_new_boot", "gate"), source="x",
    )  # fmt: skip
    node = replace(NODE, profile=b.profile(health=(own,)))
    dark = replace(seen(replace(LID, severity=Health.WARNING)), host=replace(b.silent(), at=b.NOW))
    record = noted(PASSED, dark, node)
    assert unhealed(record, seen(LID, after=LATER, uptime_s=LATER.total_seconds() + 60), node) == ["lid_open"]
    assert unhealed(record, seen(LID, after=LATER, uptime_s=600.0), node) == []


def test_a_reading_from_before_the_end_of_a_reset_tells_nothing_new() -> None:
    """A pass that took minutes noted the XID again that the reset had healed: the node climbed one more rung."""
    minute = timedelta(minutes=1)
    ill = seen(xids=(Xid(48, "00000000:1b:00.0", 1),))
    reset = Attempt("gpu_reset", "", "remediation", b.NOW + minute, "done", ended_at=b.NOW + 2 * minute, boot_id="b1")
    healed = replace(noted(PASSED, ill), attempts=(reset,))
    healed = noted(healed, seen(after=3 * minute))
    assert healed.silent_since == {}
    assert noted(healed, ill).silent_since == {}
    again = noted(healed, seen(after=4 * minute, xids=(Xid(48, "00000000:1b:00.0", 1),)))
    assert len(again.silent_since) == 1, "what is seen after it is a new one"
