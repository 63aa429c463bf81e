"""Signals of counters: by the rise since a look of the ledger, of this boot, within a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.table import Effect, health_table
from reconciler.model.observed import Answered, Observed
from reconciler.model.records import COUNTED, NodeRecord
from reconciler.planner.node.counted import counter_signals, counter_updates
from reconciler.planner.node.unhealed import kept_updates, unhealed_signals
from tests import builders as b

NODE = b.node()
HOUR = timedelta(hours=1)
PORT = "mlx5_3/1"
Counts = Mapping[str, Mapping[str, int]]


def seen(counts: Counts | None, at: datetime = b.NOW, boot: str = "b1", gpus: Counts | None = None) -> Observed:
    others: Counts | None = None if counts is None else {}
    facts = b.facts(
        counters=counts,
        gpu_counters=gpus or others,
        nvlink_counters=others,
        daemon_counters=others,
        dcgm_counters=others,
        boot_id=boot,
    )
    return replace(b.observed(), host=Answered(at, facts))


def passed(record: NodeRecord, look: Observed) -> tuple[NodeRecord, list[str]]:
    """A pass: what is shown, and the record that it leaves."""
    at = look.host.at
    shown = counter_signals(NODE, look, record)
    earlier = unhealed_signals(NODE, look, record, shown)
    kept = dict(record.silent_since)
    updates = [*kept_updates(NODE, look, record, shown), *counter_updates(NODE, look, record, shown)]
    for key, is_kept in sorted(updates, key=lambda one: one[1]):  # what is over goes first, as in the ledger
        kept.pop(key, None)
        if is_kept:
            kept[key] = at
    return replace(record, silent_since=kept), sorted({one.name for one in (*shown, *earlier)})


def played(*looks: Observed, record: NodeRecord = NodeRecord(NODE.node)) -> list[list[str]]:  # noqa: B008
    told = []
    for look in looks:
        record, names = passed(record, look)
        told.append(names)
    return told


def counts(**values: int) -> Counts:
    return {PORT: values}


def test_a_value_alone_is_no_evidence_and_its_rise_is() -> None:
    assert played(seen(counts(link_downed=200))) == [[]]
    later = seen(counts(link_downed=201), b.NOW + HOUR)
    assert played(seen(counts(link_downed=200)), later) == [[], ["port_dropped"]]
    again = seen(counts(link_downed=203), b.NOW + HOUR)
    assert played(seen(counts(link_downed=200)), again) == [[], ["port_dropped", "port_flap"]]


def test_a_counter_that_was_zero_at_the_look_and_has_risen_since() -> None:
    assert played(seen({}), seen(counts(local_link_integrity_errors=1), b.NOW + HOUR / 2)) == [[], ["port_integrity"]]


@pytest.mark.parametrize(
    ("name", "rises", "field"),
    [
        ("port_symbol_errors", {"symbol_error": 120}, "counters"),
        ("port_recoveries", {"link_error_recovery": 300}, "counters"),
        ("port_receive_errors", {"port_rcv_errors": 36_000}, "counters"),
        ("port_discards", {"port_xmit_discards": 360_000}, "counters"),
        ("port_retries", {"rnr_nak_retry_err": 1200, "local_ack_timeout_err": 2400}, "counters"),
        ("port_integrity", {"excessive_buffer_overrun_errors": 1}, "counters"),
        ("link_dropped", {"carrier_downs": 3}, "counters"),
        ("link_uncorrected", {"fec_uncorrected": 120}, "counters"),
        ("module_hot", {"module_hot": 1}, "counters"),
        ("module_shorted", {"module_shorted": 1}, "counters"),
        ("aer_fatal", {"aer_fatal": 1}, "counters"),
        ("aer_nonfatal", {"aer_nonfatal": 1}, "counters"),
        ("aer_corrected", {"aer_corrected": 3600}, "counters"),
        ("thermal_time", {"thermal_s": 360}, "gpu_counters"),
        ("brake_time", {"power_brake_s": 360}, "gpu_counters"),
    ],
)
def test_each_signal_is_raised_from_its_threshold_on_and_not_below(
    name: str, rises: dict[str, int], field: str
) -> None:
    def told(less: int) -> list[str]:
        after = {at: 7 + value for at, value in rises.items()}
        first = next(iter(after))
        after[first] -= less
        found: dict[str, Counts] = {"counters": {}, "gpu_counters": {}}
        before, now = found | {field: counts(**dict.fromkeys(rises, 7))}, found | {field: counts(**after)}
        looks = (seen(one["counters"], at, gpus=one["gpu_counters"]) for one, at in ((before, b.NOW), (now, LATER)))
        return played(*looks)[1]

    assert told(0) == [name]
    assert told(1) == []


LATER = b.NOW + timedelta(minutes=9)


def test_a_link_of_pam4_that_corrects_errors_all_the_time_is_well() -> None:
    """100 an hour for a week, which is 16,800 in all: below the rate of IBTA."""
    looks = [seen(counts(symbol_error=1000 + 50 * at), b.NOW + at * HOUR / 2) for at in range(7 * 48)]
    assert played(*looks) == [[]] * len(looks)


def test_looks_that_are_rare_ask_for_the_rate_and_not_for_the_count() -> None:
    """119 an hour for ten hours between two looks."""
    assert played(seen(counts(symbol_error=1)), seen(counts(symbol_error=1191), b.NOW + 10 * HOUR)) == [[], []]
    assert played(seen(counts(symbol_error=1)), seen(counts(symbol_error=1201), b.NOW + 10 * HOUR))[1] != []


def test_what_takes_a_node_out_of_service_is_not_healed_by_a_counter_that_rests() -> None:
    flapped = seen(counts(link_downed=3), b.NOW + HOUR)
    rests = [seen(counts(link_downed=3), b.NOW + at * 13 * HOUR) for at in range(1, 9)]
    told = played(seen({}), flapped, *rests)
    assert all("port_flap" in names for names in told[1:]), "a boot is the proof"
    assert told[-1] == ["port_flap"], "that it went down once is over with its window"


def test_a_boot_drops_the_look_and_is_the_proof() -> None:
    flapped = seen(counts(link_downed=3), b.NOW + HOUR)
    booted = seen(counts(link_downed=1), b.NOW + 2 * HOUR, boot="b2")
    record, names = passed(NodeRecord(NODE.node), seen({}))
    for look in (flapped, booted):
        record, names = passed(record, look)
    assert names == [], "its links were trained by the boot, and other parts may be in it"
    keys = [key for key in record.silent_since if key.startswith(COUNTED)]
    assert len({key[-12:] for key in keys}) == 1
    again = seen(counts(link_downed=4), b.NOW + 3 * HOUR, boot="b2")
    assert passed(record, again)[1] == ["port_dropped", "port_flap"]


def test_a_counter_that_was_reset_counts_anew() -> None:
    looks = [seen(counts(link_downed=value), b.NOW + at * HOUR) for at, value in enumerate((200, 0, 1, 2))]
    assert played(*looks) == [[], [], ["port_dropped"], ["port_dropped"]]
    looks = [seen(counts(link_downed=value), b.NOW + at * HOUR) for at, value in enumerate((200, 2, 2, 5))]
    assert played(*looks) == [[], [], [], ["port_dropped", "port_flap"]]


def test_what_a_person_exchanged_under_a_hold_counts_anew() -> None:
    record, _ = passed(NodeRecord(NODE.node), seen({}))
    record, names = passed(record, seen(counts(link_downed=9), b.NOW + HOUR))
    assert names == ["port_dropped", "port_flap"]
    record = replace(record, released_at=b.NOW + 2 * HOUR)
    for hours in (3, 4):
        record, names = passed(record, seen(counts(link_downed=9), b.NOW + hours * HOUR))
        assert names == []


def test_without_an_answer_a_look_and_what_was_seen_stay() -> None:
    record, _ = passed(NodeRecord(NODE.node), seen({}))
    flapped, _ = passed(record, seen(counts(link_downed=3), b.NOW + HOUR))
    for silent in (seen(None, b.NOW + 30 * HOUR), replace(b.observed(), host=b.silent())):
        assert passed(flapped, silent) == (flapped, ["port_dropped", "port_flap"])


def test_a_clock_that_jumps_back_makes_no_rise_larger() -> None:
    told = played(seen(counts(symbol_error=5)), seen(counts(symbol_error=100), b.NOW - 5 * HOUR))
    assert told == [[], []]


def test_a_key_of_the_ledger_that_can_t_be_read_is_no_look() -> None:
    damaged = NodeRecord(NODE.node, silent_since={f"{COUNTED}counters 12h mlx5_3/1 x in boot abc": b.NOW})
    record, names = passed(damaged, seen(counts(link_downed=3), b.NOW + HOUR))
    assert names == []
    assert not any(" x " in key for key in record.silent_since)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), min_size=1, max_size=40),
    st.integers(0, 255),
)
def test_a_port_that_never_goes_down_is_never_told_of_and_one_that_flaps_always_is(
    steps: list[tuple[int, int]], start: int
) -> None:
    """Steps of (downs, minutes since): four downs in an hour are a flap, however the looks lie."""
    at, value, record, told = b.NOW, start, NodeRecord(NODE.node), False
    record, _ = passed(record, seen(counts(link_downed=value), at))
    for downs, minutes in steps:
        at, value = at + timedelta(minutes=minutes), value + downs
        record, names = passed(record, seen(counts(link_downed=value), at))
        told = told or downs >= 4
        assert ("port_flap" in names) >= told
        assert value > start or not names


def test_the_rows_of_counters_say_what_follows() -> None:
    table = health_table()
    names = {rule.name for rules in table.counted.values() for rule in rules}
    acts = {name for name in names if table.effect_of(name) is not Effect.REPORTS}
    assert acts == {
        "port_flap",
        "port_integrity",
        "port_symbol_errors",
        "aer_fatal",
        "nvlink_crc",
        "nvlink_recovery_failed",
    }


class Dcgm:
    """Samples of DCGM's fields, an hour apart: what has no value is not zero."""

    def __init__(self) -> None:
        self.record, self.at = NodeRecord(NODE.node), b.NOW

    def look(self, fields: Mapping[str, int], *unread: str) -> list[str]:
        facts = b.facts(
            dcgm_counters={"gpu0": fields} if fields else {},
            unknown={f"dcgm_counters.{one}": "unsupported: DCGM has no value" for one in unread},
            counters={},
            gpu_counters={},
            nvlink_counters={},
            daemon_counters={},
        )
        self.record, names = passed(self.record, replace(b.observed(), host=Answered(self.at, facts)))
        self.at += HOUR / 4
        return names


FULL = {"dcgm_202": 70000, "dcgm_310": 5000, "dcgm_241": 9 * 10**13, "dcgm_1212": 40, "dcgm_1424": 9 * 10**13}
NO_NAMES, NO_DEVICE = tuple(FULL), ("gpu0",)


@pytest.mark.parametrize("unread", [NO_NAMES, NO_DEVICE, ("dcgm_310", "dcgm_1212")])
@pytest.mark.parametrize("between", range(3))
def test_a_counter_that_was_not_read_neither_falls_nor_rises(unread: tuple[str, ...], between: int) -> None:
    there = Dcgm()
    left = {} if unread == NO_DEVICE else {name: value for name, value in FULL.items() if name not in unread}
    told = [there.look(FULL)] if between else []
    told += [there.look(left, *unread) for _ in range(between or 1)]
    assert [*told, *(there.look(FULL) for _ in range(4))] == [[]] * (len(told) + 4)


def test_a_counter_that_rises_while_it_is_not_read_has_risen_by_just_that() -> None:
    there = Dcgm()
    assert there.look(FULL) == []
    assert there.look({"dcgm_202": 70000}, "dcgm_310", "dcgm_241", "dcgm_1212", "dcgm_1424") == []
    assert there.look(FULL | {"dcgm_1212": 41}) == ["nvlink_recovery_failed"]
    there = Dcgm()
    assert there.look({}, *NO_NAMES) == []
    assert there.look(FULL) == [], "its first value is what the next ones are compared with"
    assert there.look(FULL | {"dcgm_310": 5600}) == ["ecc_corrected"]


def test_what_was_read_as_zero_rises_from_zero_and_a_reset_counts_anew() -> None:
    there = Dcgm()
    assert there.look({}) == []
    assert there.look({"dcgm_1212": 1}) == ["nvlink_recovery_failed"]
    there = Dcgm()
    assert there.look(FULL) == []
    assert there.look({"dcgm_202": 3}, "dcgm_310") == [], "the driver was loaded anew"
    assert there.look({"dcgm_202": 1863}, "dcgm_310") == ["pcie_replay_rate"]
