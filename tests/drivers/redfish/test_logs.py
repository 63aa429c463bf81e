"""Logs that are long, flooded, full, wrongly dated or cleared: a sign in them is read, or its reader is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.redfish import RedfishBmc, logs
from reconciler.health.bmc import bmc_signals, unread_bmc_signals
from reconciler.lab.hardware.parts import MAX_RECORDS
from reconciler.lab.inprocess.bmc import MachineBmc
from reconciler.model.bmc_log import LOOKED_BACK_S, MOST, NEWEST, NO_LOG, kept_events, unread_part
from reconciler.model.desired import IgnoreRule
from reconciler.model.observed import Answered, BmcEvent, RedfishInventory
from reconciler.model.vocab import Health
from tests import builders as b
from tests.drivers.redfish.bench import NOW, ROOT, SYSTEM, Bench, machine, play
from tests.drivers.redfish.test_failed_parts import Now, seen
from tests.drivers.redfish.test_failed_parts import trust as trust  # a fixture
from tests.drivers.redfish.test_lab import MAKES, Lab
from tests.drivers.redfish.test_lab import play as play_lab
from tests.drivers.redfish.test_reads import inventory
from tests.lab.redfish_bench import EPOCH, Trust

SEL = f"{SYSTEM}/LogServices/SEL"
ENTRIES = f"{SEL}/Entries"
UE = {"Message": "Uncorrectable ECC @ DIMM7", "Severity": "Critical", "SensorType": "Memory"}


def signals(found: RedfishInventory) -> set[str]:
    return {name for name, _ in bmc_signals(b.PROFILE, b.observed(inventory=found))}


def entry(number: int, seconds_ago: float = 60.0, **says: Any) -> dict[str, Any]:
    at = NOW - timedelta(seconds=seconds_ago)
    common = {"@odata.id": f"{ENTRIES}/{number}", "Id": str(number), "Created": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    return common | {"Severity": "Critical", "Message": f"Chassis intrusion {number}"} | says


def read(entries: Sequence[dict[str, Any]], page: int = 1000, **service: Any) -> RedfishInventory:
    """Read a machine whose log is this, in pages, at a BMC whose clock is right."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents["/redfish/v1/Managers/1"] |= {"DateTime": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
        bench.documents[SEL] |= service
        for start in range(0, len(entries), page):
            where = f"{ENTRIES}/page{start}" if start else ENTRIES
            bench.documents[where] = {"Members": list(entries[start : start + page])}
            if start + page < len(entries):
                bench.documents[where]["Members@odata.nextLink"] = f"{ENTRIES}/page{start + page}"
        return await inventory(bmc)

    return play(machine(), steps)  # type: ignore[no-any-return]  # play returns what its steps return


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_sign_that_stands_before_a_flood_is_read(newest_first: bool) -> None:
    flood = [entry(1, 7200.0, **UE), *(entry(number) for number in range(2, 302))]
    found = read(flood[::-1] if newest_first else flood, page=100)
    assert "dimm_ue" in signals(found)
    assert "events" not in found.unknown


def test_a_log_that_begins_with_its_newest_is_read_past_entries_of_a_wrong_date() -> None:
    """Entries that were written while the clock was wrong look old; ten in a row are (B6)."""
    ahead = [entry(number, 30 * 86400.0 if number % 3 == 0 else 60.0) for number in range(900, 300, -1)]
    found = read([*ahead, entry(300, 7200.0, **UE), *(entry(number, 9e6) for number in range(299, 0, -1))], page=100)
    assert "dimm_ue" in signals(found)


def test_a_log_of_more_pages_than_are_read_says_so() -> None:
    found = read([entry(number) for number in range(1, 83)], page=2)
    assert len(found.events or ()) == 80
    assert found.unknown["events"] == (f"the log at {ENTRIES} was not read whole: {ENTRIES} has more than 40 pages")


def test_a_log_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_S", 0.0)
    found = read([entry(number) for number in range(82, 0, -1)], page=2)
    assert "its pages took more than 0 s" in found.unknown["events"]


def test_a_slow_log_that_begins_with_its_oldest_is_read_to_its_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_S", 0.0)
    quiet = [entry(number, 9e6) for number in range(1, 300)]
    found = read([*quiet, entry(300, 60.0, **UE)], page=100)
    assert "dimm_ue" in signals(found)
    assert "events" not in found.unknown


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_log_that_is_full_and_takes_no_new_entries_says_so_however_old_they_are(newest_first: bool) -> None:
    numbers = range(512, 0, -1) if newest_first else range(1, 513)
    full = {"MaxNumberOfRecords": 512, "OverWritePolicy": "NeverOverWrites"}
    found = read([entry(number, 9e6) for number in numbers], page=100, **full)
    assert "takes no new ones" in found.unknown["events"]


@pytest.mark.parametrize(
    ("ages", "service", "told"),
    [
        ([60.0] * 512, {"MaxNumberOfRecords": 512}, "drops older ones"),
        ([9e6] * 100 + [60.0] * 412, {"MaxNumberOfRecords": 512}, ""),
        ([9e6] * 9 + [60.0] * 503, {"MaxNumberOfRecords": 512}, "drops older ones"),  # those are wrongly dated
        ([60.0] * 511, {"MaxNumberOfRecords": 512}, ""),
        ([9e6] * 512, {"MaxNumberOfRecords": 512, "OverWritePolicy": "NeverOverWrites"}, "takes no new ones"),
        ([60.0] * 512, {}, ""),
    ],
)  # fmt: skip
def test_a_log_that_is_full_says_what_it_may_have_lost(ages: list[float], service: dict[str, Any], told: str) -> None:
    found = read([entry(number, age) for number, age in enumerate(ages, 1)], **service)
    assert told in found.unknown.get("events", "")
    assert bool(told) == ("events" in found.unknown)


@pytest.mark.parametrize(
    "file",
    [
        "supermicro/Systems__1__LogServices__Log1__Entries",
        "dell-idrac9/Managers__iDRAC.Embedded.1__LogServices__Sel__Entries",
    ],
)
def test_recorded_logs_are_read_whole_before_and_in_a_flood(samples: Path, file: str) -> None:
    """Logs of a Supermicro (oldest first) and a Dell (newest first, numbers to 1024), with an error and a flood."""
    recorded = json.loads((samples / f"redfish/{file}.json").read_text())["Members"]
    quiet = read(recorded)
    assert len(quiet.events or ()) == len(recorded)
    assert "events" not in quiet.unknown
    first, last = (int(one["Id"]) for one in (recorded[0], recorded[-1]))
    top = max(first, last)
    more = [entry(top + 1, 7200.0, **UE), *(entry(top + number) for number in range(2, 402))]
    found = read([*recorded, *more] if first < last else [*more[::-1], *recorded])
    assert "dimm_ue" in signals(found)
    assert "events" not in found.unknown


@pytest.mark.wire
@pytest.mark.parametrize("make", list(MAKES)[:2])
@pytest.mark.parametrize(("flood", "told"), [(300, False), (MAX_RECORDS, True)])
def test_the_lab_floods_alike_on_the_wire_and_in_process(trust: Trust, make: str, flood: int, told: bool) -> None:
    lab = Lab(make, MAKES[make], trust)
    inside = MachineBmc(lab.machine, Now(lab), EPOCH, latency_s=0)  # type: ignore[arg-type]

    async def steps(lab: Lab, bmc: RedfishBmc) -> None:
        lab.machine.inject("failed_part", part="dimm", how="logged")
        for number in range(flood):
            lab.machine._log("Warning", f"Chassis intrusion {number}")
        for _, found in (await seen(bmc), await seen(inside)):
            assert ("dimm_ue" in signals(found)) is not told, "a log that dropped it can't tell it"
            assert ("events" in found.unknown) is told
            assert ("dimm_ue" in unread_bmc_signals(b.observed(inventory=found))) is told

    play_lab(lab, steps)


EVENT = BmcEvent("1", "", Health.CRITICAL, "x")
AGES = st.none() | st.floats(0, 2 * LOOKED_BACK_S)


@given(st.lists(st.tuples(AGES, st.sampled_from(["", "memory_ue"])), max_size=NEWEST + 40), st.integers(0, 2200))
def test_nothing_of_late_is_dropped_in_silence(rows: list[tuple[float | None, str]], flood: int) -> None:
    events = [replace(EVENT, id=str(at), age_s=age, kind=kind) for at, (age, kind) in enumerate(rows)]
    events += [replace(EVENT, id=f"f{at}", age_s=60.0) for at in range(flood)]
    kept, lost = kept_events(events)
    dropped = [one for one in events if one not in set(kept)]
    late = [one for one in dropped if one.age_s is None or one.age_s <= LOOKED_BACK_S]
    assert bool(late) == bool(lost)
    assert not any(one.kind for one in late), "signs go last"
    assert set(events[-NEWEST:]) <= set(kept)
    assert len(kept) <= MOST
    assert [one for one in events if one in set(kept)] == list(kept)


LISTED = {"Members": [{"@odata.id": f"{ENTRIES}/1"}]}  # only links


@pytest.mark.parametrize(
    ("where", "status", "told"),
    [
        (f"{SYSTEM}/LogServices", 404, ""),  # it keeps none
        (f"{SYSTEM}/LogServices", 500, "the log could not be read: "),
        (SEL, 404, "the log could not be read: "),
        (ENTRIES, 404, "the log could not be read: "),
        (ENTRIES, 503, "the log could not be read: "),
        (f"{ENTRIES}/1", 404, "the log could not be read: "),
    ],
)
def test_a_log_of_which_nothing_is_read_is_unread_and_one_that_is_not_there_is_not(
    where: str, status: int, told: str
) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents[ENTRIES] = LISTED
        bench.answer("GET", where, status, forever=True)
        return await inventory(bmc)

    found = play(machine(), steps)
    assert found.events is None
    why = unread_part(b.observed(inventory=found).inventory)
    assert why.startswith(told)
    assert bool(why) == bool(told)
    assert "dimm_ue" in unread_bmc_signals(b.observed(inventory=found))


@pytest.mark.parametrize(
    ("events", "unknown", "admitted"),
    [
        ((), {}, True),
        (None, {"events": NO_LOG}, True),
        (None, {"events": "HTTP 404"}, False),
        ((), {"events": "the log at /x was not read whole: it is full"}, False),
        ((), {"events.boards": "HTTP 500"}, False),
        ((), {"events.boards": f"{NO_LOG} with entries"}, True),
    ],
)
def test_a_node_that_is_out_is_admitted_only_when_its_logs_were_read(
    events: tuple[BmcEvent, ...] | None, unknown: dict[str, str], admitted: bool
) -> None:
    node = b.node()
    seen = b.observed(inventory=b.inventory(events=events, unknown=unknown))
    out = replace(seen, member=Answered(b.NOW, b.member(mark=b.our_mark())))
    plan = b.planner().plan(node, out, b.record(node, out))
    assert ("admit" in [action.name for action in plan.actions]) is admitted, plan.blocked
    serving = b.planner().plan(node, seen, b.record(node, seen))
    assert not serving.actions, "an unknown takes no node out"


def test_an_unread_log_keeps_nothing_but_an_admission_from_a_node_and_may_be_ignored() -> None:
    """New firmware of a BMC may be what makes its log readable, and some never give theirs."""
    node = b.node(profile=b.profile(bios={"Mode": "A"}))
    inventory = b.inventory(events=None, bios={"Mode": "B"}, unknown={"events": "HTTP 500"})
    seen = b.observed(inventory=inventory)
    record = b.record(node, b.observed(inventory=b.inventory(bios={"Mode": "A"})))
    planned = [action.name for action in b.planner().plan(node, seen, record).actions]
    assert "set_bios" in planned, "a node in service is worked on"
    out = replace(seen, member=Answered(b.NOW, b.member(mark=b.our_mark())))
    assert "set_bios" in [action.name for action in b.planner().plan(node, out, record).actions]
    well = b.node()
    waits = replace(out, inventory=Answered(b.NOW, b.inventory(events=None, unknown={"events": "HTTP 500"})))
    plan = b.planner().plan(well, waits, b.record(well, waits))
    assert plan.actions == ()
    assert plan.blocked is not None
    assert "it is not admitted before that is read" in plan.blocked.detail
    rule = IgnoreRule("health.facts_silent", "its firmware gives no log")
    assert b.actions(b.planner(rules=(rule,)).plan(well, waits, b.record(well, waits))) == ["admit"]
