"""The contract of the ledger, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.lab.inprocess.ledger import MemoryLedger
from reconciler.model.errors import LeaseHeld
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.model.records import UNHEALED, Applied, NodeRecord
from tests.ledger.conftest import Open

T0 = datetime(2026, 11, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def certificate(node: str, at: datetime = T0) -> Certificate:
    binding = Binding("S1", ("G1", "G2"), "ab" * 32, {"bmc": "1.2"}, "b", "t")
    result = TestResult("dcgm", "dcgmi-diag", Verdict.PASS, ("all 8 ran",), {"gpus": 8.0}, "3.3")
    return Certificate("1.0", node, at, binding, (result,))


def token(ledger: SqlLedger, now: datetime = T0) -> int:
    return ledger.acquire("demo", "runner", 600, now).token


def test_a_new_ledger_knows_nothing_of_any_node(ledger: SqlLedger) -> None:
    assert ledger.nodes(["a", "b"]) == {"a": NodeRecord("a"), "b": NodeRecord("b")}


def test_the_id_stays(reopen: Open) -> None:
    first = reopen()
    assert first.id
    assert reopen().id == first.id


def test_a_record_survives_the_process(reopen: Open) -> None:
    ledger = reopen()
    ledger.remember_identities({"a": ("S1", "u-1")}, T0)
    ledger.note_silences([("a", "ssh", True)], T0)
    ledger.set_nonce("a", "n-1", T0)
    ledger.remember_applied("a", {"bios.X": "On", "firmware.bmc": "1.2"}, "digest", "c0ffee", T0)
    ledger.save_certificate(certificate("a"))
    held = ledger.hold("a", "tracing a fault", "ops", None, T0)
    ledger.close()
    record = reopen().node("a")
    assert record == NodeRecord(
        "a",
        serial="S1",
        uuid="u-1",
        holds=(held,),
        applied={
            "bios.X": Applied("On", "digest", "c0ffee", T0),
            "firmware.bmc": Applied("1.2", "digest", "c0ffee", T0),
        },
        certificate=certificate("a"),
        newer=0,
        nonce="n-1",
        silent_since={"ssh": T0},
    )


def test_identity_is_only_replaced_by_what_was_read(ledger: SqlLedger) -> None:
    ledger.remember_identities({"a": ("S1", "u-1")}, T0)
    ledger.remember_identities({"a": ("S2", None)}, T0)
    assert (ledger.node("a").serial, ledger.node("a").uuid) == ("S2", "u-1")


def test_silence_counts_from_its_first_pass_until_an_answer(ledger: SqlLedger) -> None:
    ledger.note_silences([("a", "ssh", True)], T0)
    ledger.note_silences([("a", "ssh", True)], T0 + MINUTE)
    assert ledger.node("a").silent_since == {"ssh": T0}
    ledger.note_silences([("a", "ssh", False)], T0 + 2 * MINUTE)
    assert ledger.node("a").silent_since == {}


def test_the_newest_certificate_decides(ledger: SqlLedger) -> None:
    ledger.save_certificate(certificate("a", T0 + MINUTE))
    ledger.save_certificate(certificate("a", T0))  # written later, whatever its date says
    kept = ledger.node("a").certificate
    assert kept is not None
    assert kept.issued_at == T0


def test_an_attempt_counts_before_it_ends(reopen: Open) -> None:
    ledger = reopen()
    attempt = ledger.begin("r1", "a", "power_cycle", "", "remediation", {"boot_id": "b1"}, token(ledger), T0)
    ledger.close()  # the process died here
    ledger = reopen()
    (started,) = ledger.node("a").attempts
    assert (started.action, started.cause, started.outcome) == ("power_cycle", "remediation", "started")
    assert ledger.unfinished() == [(attempt, "a", "power_cycle", "", {"boot_id": "b1"})]
    ledger.finish(attempt, "ambiguous", "the run ended before the action did", T0 + MINUTE)
    assert ledger.unfinished() == []
    (ended,) = ledger.node("a").attempts
    assert (ended.outcome, ended.detail) == ("ambiguous", "the run ended before the action did")


def test_an_intent_can_be_amended_while_it_runs(ledger: SqlLedger) -> None:
    attempt = ledger.begin("r1", "a", "update_firmware", "bmc", "firmware.bmc", {"boot_id": "b"}, token(ledger), T0)
    ledger.amend(attempt, {"task": "/tasks/1"}, T0)
    assert ledger.unfinished() == [(attempt, "a", "update_firmware", "bmc", {"boot_id": "b", "task": "/tasks/1"})]


@pytest.mark.parametrize("memory", [False, True])
def test_what_the_attempt_before_learnt_outlives_its_end(ledger: SqlLedger, memory: bool) -> None:
    """In the ledger of a rehearsal too. Of another component or node nothing is told."""
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 3600.0, T0).token

    def begin(node: str, target: str) -> int:
        return book.begin("r1", node, "update_firmware", target, "", {"boot_id": "b"}, fence, T0)

    first = begin("a", "nic0")
    book.amend(first, {"task": None, "tasks": []}, T0)
    book.amend(first, {"task": "/tasks/1"}, T0)
    assert book.before(first) == {}
    book.finish(first, "transient", "did not end in time", T0)
    for other in (begin("a", "bmc"), begin("b", "nic0")):
        assert book.before(other) == {}
        book.finish(other, "done", "", T0)
    second = begin("a", "nic0")
    assert book.before(second) == {"boot_id": "b", "task": "/tasks/1", "tasks": []}
    book.finish(second, "done", "", T0)
    assert book.before(begin("a", "nic0")) == {"boot_id": "b"}


@pytest.mark.parametrize("memory", [False, True])
def test_the_newest_record_of_each_drive_is_found_in_whichever_attempt_wrote_it(
    ledger: SqlLedger, memory: bool
) -> None:
    """Only erases that have ended, of this node; those that another drive's boot did are kept with that attempt."""
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 3600.0, T0).token

    def record(serial: str, result: str) -> dict[str, str]:
        return {"serial": serial, "result": result, "ended_at": T0.isoformat()}

    first = book.begin("r1", "a", "erase", "D1", "", {}, fence, T0)
    book.amend(first, {"erasure": {"serial": "D1", "method": "nvme sanitize"}}, T0)
    assert book.erasures("a") == {}, "it has begun, and not ended"
    book.amend(first, {"erasures": {"D2": record("D2", "not erased")}}, T0)
    book.amend(first, {"erasure": record("D1", "erased")}, T0)
    assert book.erasures("a") == {"D1": record("D1", "erased"), "D2": record("D2", "not erased")}
    book.finish(first, "done", "", T0)
    second = book.begin("r1", "a", "erase", "D2", "", {}, fence, T0)
    book.amend(second, {"erasure": record("D2", "erased")}, T0)
    assert book.erasures("a") == {"D1": record("D1", "erased"), "D2": record("D2", "erased")}
    assert book.erasures("b") == {}


@pytest.mark.parametrize("memory", [False, True])
def test_what_came_after_a_certificate_is_told_by_order_and_by_no_clock(ledger: SqlLedger, memory: bool) -> None:
    """The controller's clock is set back by 37 minutes between the treatment of a node and its gate, and again later.

    What was begun earlier and is gone on with later comes after it too; and an entry of another node tells nothing.
    """
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 1e6, T0).token

    def begin(action: str, at: datetime, node: str = "a") -> int:
        return book.begin("r1", node, action, "", "remediation", {}, fence, at)

    def since(node: str = "a") -> list[str]:
        return [attempt.action for attempt in book.node(node).since_certificate]

    flash, reset = begin("update_firmware", T0), begin("gpu_reset", T0 + 38 * MINUTE)
    book.finish(reset, "done", "", T0 + 39 * MINUTE)
    assert since() == ["update_firmware", "gpu_reset"], "there is no certificate yet"
    gate = begin("run_gate", T0 + 2 * MINUTE)
    book.save_certificate(certificate("a", T0 + 5 * MINUTE))
    assert since() == [], "it is newer than a reset at a later time"
    book.finish(gate, "done", "", T0 + 6 * MINUTE)
    begin("power_cycle", T0 - 31 * MINUTE)
    begin("mark", T0 + 60 * MINUTE, "b")
    assert since() == ["power_cycle"], "and older than what began at an earlier time"
    book.resume(flash, "r2", fence, T0 - 30 * MINUTE)
    assert since() == ["power_cycle", "update_firmware"]
    book.resume(flash, "r3", fence, T0 - 29 * MINUTE)
    assert since() == ["power_cycle", "update_firmware"], "it still counts once"
    book.save_certificate(certificate("a", T0 - 40 * MINUTE))
    assert since() == []
    assert since("b") == ["mark"]


def test_an_attempt_that_is_gone_on_with_counts_once_and_from_then(ledger: SqlLedger) -> None:
    fence = token(ledger)
    first = ledger.begin("r1", "a", "update_firmware", "nic0", "", {"x": 1}, fence, T0)
    other = ledger.begin("r2", "a", "power_cycle", "", "", {}, fence, T0 + MINUTE)
    ledger.finish(other, "done", "", T0 + MINUTE)
    ledger.resume(first, "r2", fence, T0 + 2 * MINUTE)
    assert ledger.unfinished() == [(first, "a", "update_firmware", "nic0", {"x": 1})]
    ledger.finish(first, "done", "staged", T0 + 3 * MINUTE)
    found = [(attempt.action, attempt.at, attempt.outcome) for attempt in ledger.node("a").attempts]
    assert found == [("power_cycle", T0 + MINUTE, "done"), ("update_firmware", T0 + 2 * MINUTE, "done")]
    assert [entry.event for entry in ledger.history("a")] == ["intent", "intent", "outcome", "resume", "outcome"]


def test_going_on_needs_a_lease_too(ledger: SqlLedger) -> None:
    lease = ledger.acquire("demo", "x", 60, T0)
    attempt = ledger.begin("r1", "a", "mark", "", "", {}, lease.token, T0)
    ledger.drop(lease)
    with pytest.raises(LeaseHeld):
        ledger.resume(attempt, "r2", lease.token, T0)


def test_attempts_come_oldest_first_and_per_node(ledger: SqlLedger) -> None:
    fence = token(ledger)
    for number, node in enumerate(["a", "b", "a"]):
        attempt = ledger.begin("r", node, f"action{number}", "", "", {}, fence, T0 + number * MINUTE)
        ledger.finish(attempt, "done", "", T0 + number * MINUTE)
    assert [attempt.action for attempt in ledger.node("a").attempts] == ["action0", "action2"]
    assert [attempt.action for attempt in ledger.node("b").attempts] == ["action1"]


def test_history_has_a_node_s_entries_with_their_commits(ledger: SqlLedger) -> None:
    ledger.start_run("r1", "apply", "c0ffee", "plan-1", T0)
    attempt = ledger.begin("r1", "a", "update_firmware", "bmc", "firmware.bmc", {}, token(ledger), T0)
    ledger.finish(attempt, "done", "1.2 -> 1.3", T0 + MINUTE)
    ledger.hold("a", "wait", "ops", None, T0 + MINUTE)
    ledger.release("a", "ops", T0 + MINUTE)
    ledger.end_run("r1", 0, "1 done", T0 + MINUTE)
    entries = ledger.history("a")
    assert [(entry.event, entry.action, entry.detail) for entry in entries] == [
        ("intent", "update_firmware:bmc", "firmware.bmc"),
        ("outcome", "update_firmware:bmc", "done: 1.2 -> 1.3"),
        ("hold", "", "ops: wait"),
        ("release", "", "ops"),
    ]
    assert {(entry.commit, entry.plan) for entry in entries[:2]} == {("c0ffee", "plan-1")}
    assert [entry.event for entry in ledger.history("a", limit=1)] == ["release"]
    assert [entry.detail for entry in ledger.history("")] == ["apply started", "exit 0: 1 done"]


def test_holds_last_until_released(ledger: SqlLedger) -> None:
    ledger.hold("a", "one", "ops", None, T0)
    ledger.hold("a", "two", "ops", T0 + MINUTE, T0)
    pool = ledger.hold("pool/train", "all", "ops", None, T0)
    assert [hold.reason for hold in ledger.node("a").holds] == ["one", "two"]
    assert ledger.release("a", "ops", T0 + MINUTE) == 2
    assert ledger.release("a", "ops", T0 + MINUTE) == 0
    assert list(ledger.holds()) == [pool]


def test_a_look_at_signals_alone_ends_no_other_drift(ledger: SqlLedger) -> None:
    ledger.record_drift("r", [("a", "bios.X", "drifted", "On", "Off")], ["a"], T0)
    ledger.record_drift("r", [("a", "health.xid", "drifted", None, "79")], ["a"], T0, under="health.")
    assert [row[0] for row in ledger.open_drift("a")] == ["bios.X", "health.xid"]
    ledger.record_drift("r", [], ["a"], T0 + MINUTE, under="health.")
    assert [row[0] for row in ledger.open_drift("a")] == ["bios.X"]


def test_drift_has_times_of_first_and_last_sighting(ledger: SqlLedger) -> None:
    item = ("a", "bios.X", "drifted", "On", "Off")
    assert ledger.record_drift("r", [item], ["a"], T0) == {("a", "bios.X"): (T0, T0)}
    later = T0 + MINUTE
    assert ledger.record_drift("r", [item], ["a", "b"], later) == {("a", "bios.X"): (T0, later)}
    assert ledger.record_drift("r", [], ["b"], later) == {}, "a was not looked at: its drift stands"
    assert ledger.record_drift("r", [item], ["a"], later + MINUTE) == {("a", "bios.X"): (T0, later + MINUTE)}
    ledger.record_drift("r", [], ["a"], later + 2 * MINUTE)
    again = later + 3 * MINUTE
    assert ledger.record_drift("r", [item], ["a"], again) == {("a", "bios.X"): (again, again)}
    assert [entry.detail for entry in ledger.history("a")] == [
        'bios.X drifted: "Off" instead of "On"',
        "bios.X as desired again",
        'bios.X drifted: "Off" instead of "On"',
    ]


def test_drift_that_can_not_be_read_any_more_stays_open_as_seen_last(ledger: SqlLedger) -> None:
    setting, fault = ("a", "bios.X", "drifted", "On", "Off"), ("a", "health.xid_79", "drifted", "absent", "XID 79")
    ledger.record_drift("r", [setting, fault, ("b", *fault[1:])], ["a", "b"], T0)
    stood = ledger.open_drift("a")
    dark = [("a", "bios.X", "unknown", "On", None), ("a", "bios.Y", "unknown", "On", None)]
    ledger.record_drift("r", dark, ["a", "b"], T0 + MINUTE, unread={"a": ("health.ecc", "health.xid_")})
    assert ledger.open_drift("a")[:2] == stood
    assert [row[:2] for row in ledger.open_drift("a")[2:]] == [("bios.Y", "unknown")]
    assert ledger.open_drift("b") == [], "it was read, and it is gone"
    ledger.record_drift("r", [], ["a"], T0 + 2 * MINUTE, unread={"b": ("health.",)})
    assert ledger.open_drift("a") == []
    since = {one.path: (one.kind, one.until) for one in ledger.past(T0, T0 + MINUTE).episodes if one.node == "a"}
    assert since["bios.X"] == since["health.xid_79"] == ("drifted", T0 + 2 * MINUTE)


def test_what_a_rule_ignores_from_now_on_or_no_longer_is_not_what_was_seen_last(ledger: SqlLedger) -> None:
    for minute, kind in enumerate(("drifted", "ignored", "unknown", "drifted")):
        ledger.record_drift("r", [("a", "bios.X", kind, "On", "Off")], ["a"], T0 + minute * MINUTE)
        assert [row[1] for row in ledger.open_drift("a")] == [kind]


def test_a_plan_is_used_once(ledger: SqlLedger) -> None:
    assert not ledger.plan_used("p")
    ledger.use_plan("p", T0)
    ledger.use_plan("p", T0 + MINUTE)
    assert ledger.plan_used("p")


def test_a_batch_is_written_together_or_not_at_all(ledger: SqlLedger) -> None:
    def die_half_way() -> None:
        with ledger.batch():
            ledger.set_nonce("a", "n", T0)
            ledger.remember_identities({"b": ("S", None)}, T0)
            assert ledger.node("a").nonce == "n", "a batch reads what it wrote"
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        die_half_way()
    assert ledger.nodes(["a", "b"]) == {"a": NodeRecord("a"), "b": NodeRecord("b")}


def test_text_that_a_database_cannot_store_is_made_storable(ledger: SqlLedger) -> None:
    attempt = ledger.begin("r", "a", "set_bios", "", "", {"raw": "\0\ud800"}, token(ledger), T0)
    ledger.finish(attempt, "permanent", "BMC said: \0\ud800!", T0)
    assert ledger.node("a").attempts[0].detail == "BMC said: ?!"


def test_ten_thousand_nodes_are_read_in_one_pass(ledger: SqlLedger) -> None:
    names = [f"n{number:05}" for number in range(10_000)]
    with ledger.batch():
        for name in names[::10]:
            ledger.remember_identities({name: (f"S-{name}", None)}, T0)
    items = [(name, "bios.X", "drifted", 1, 2) for name in names]
    ledger.record_drift("r", items, names, T0)
    assert len(ledger.record_drift("r", items, names, T0 + MINUTE)) == len(names)
    records = ledger.nodes(names)
    assert list(records) == names
    assert records["n00010"].serial == "S-n00010"
    assert records["n00011"] == NodeRecord("n00011")


# --- leases ----------------------------------------------------------------------------------------------------------


def test_a_lease_excludes_others_and_names_its_holder(ledger: SqlLedger) -> None:
    ledger.acquire("demo", "host-1 pid 7", 60, T0)
    with pytest.raises(LeaseHeld, match="host-1 pid 7, until 2026-11-01 12:01:00Z") as raised:
        ledger.acquire("demo", "host-2 pid 8", 60, T0)
    assert raised.value.holder == "host-1 pid 7"
    ledger.acquire("other", "host-2 pid 8", 60, T0)


def test_fencing_tokens_grow_over_every_holder_and_scope(ledger: SqlLedger) -> None:
    one = ledger.acquire("demo", "x", 60, T0)
    ledger.drop(one)
    two = ledger.acquire("demo", "y", 60, T0)
    three = ledger.acquire("other", "y", 60, T0)
    four = ledger.acquire("demo", "z", 60, T0 + 2 * MINUTE)  # y's ran out
    assert one.token < two.token < three.token < four.token


def test_a_lost_lease_can_neither_be_renewed_nor_write_intents(ledger: SqlLedger) -> None:
    old = ledger.acquire("demo", "x", 60, T0)
    new = ledger.acquire("demo", "y", 60, T0 + 2 * MINUTE)
    with pytest.raises(LeaseHeld, match="lost to y"):
        ledger.renew(old, 60, T0 + 2 * MINUTE)
    with pytest.raises(LeaseHeld):
        ledger.begin("r", "a", "power_cycle", "", "", {}, old.token, T0 + 2 * MINUTE)
    assert ledger.node("a").attempts == ()
    ledger.drop(old)  # must not free y's
    assert ledger.renew(new, 60, T0 + 2 * MINUTE).expires_at == T0 + 3 * MINUTE


def test_a_lease_that_ran_out_writes_nothing_until_it_is_renewed(ledger: SqlLedger) -> None:
    lease = ledger.acquire("demo", "x", 60, T0)
    late = T0 + 5 * MINUTE
    with pytest.raises(LeaseHeld, match="ran out"):
        ledger.begin("r", "a", "power_cycle", "", "", {}, lease.token, late)
    renewed = ledger.renew(lease, 60, late)
    ledger.begin("r", "a", "power_cycle", "", "", {}, renewed.token, late)


def test_a_dropped_lease_is_free_at_once(ledger: SqlLedger) -> None:
    lease = ledger.acquire("demo", "x", 600, T0)
    ledger.drop(lease)
    assert ledger.acquire("demo", "y", 600, T0).holder == "y"
    with pytest.raises(LeaseHeld):
        ledger.begin("r", "a", "reimage", "", "", {}, lease.token, T0)


def test_nodes_are_known_by_what_was_applied_until_they_are_forgotten(ledger: SqlLedger) -> None:
    for node in ("b", "a", "c"):
        ledger.remember_applied(node, {"bios.X": "On", "bios.Y": "Off"}, "digest", "c0ffee", T0)
    ledger.remember_identities({"d": ("S1", None)}, T0)
    assert ledger.known() == ["a", "b", "c"]
    held = ledger.hold("a", "tracing a fault", "ops", None, T0)
    begun = ledger.begin("run-1", "a", "drain", "", "drift", {}, token(ledger), T0)
    ledger.forget(["a", "c"], T0)
    ledger.forget([], T0)
    assert ledger.known() == ["b"]
    record = ledger.node("a")
    assert (record.applied, record.holds) == ({}, (held,)), "a hold outlives its node's line in the spec"
    assert len(record.attempts) == 1
    assert begun
    assert [entry.event for entry in ledger.history("c")] == ["forget"]


def test_an_attempt_tells_when_it_ended(ledger: SqlLedger) -> None:
    begun = ledger.begin("run-1", "a", "drain", "", "drift", {}, token(ledger), T0)
    [attempt] = ledger.node("a").attempts
    assert attempt.ended_at is None
    ledger.finish(begun, "transient", "it hangs", T0 + 7 * MINUTE)
    [attempt] = ledger.node("a").attempts
    assert attempt.ended_at == T0 + 7 * MINUTE


@pytest.mark.parametrize("memory", [False, True])
def test_what_came_after_a_hold_was_lifted_is_told_by_order_and_by_no_clock(ledger: SqlLedger, memory: bool) -> None:
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 1e6, T0).token
    unhealed, plain = f"{UNHEALED}health.xid_79", "ssh"

    def begin(action: str, at: datetime) -> int:
        return book.begin("r1", "a", action, "", "remediation", {}, fence, at)

    def since() -> list[str]:
        return [attempt.action for attempt in book.node("a").since_release]

    first = begin("run_gate", T0 + 38 * MINUTE)
    book.finish(first, "permanent", "", T0 + 39 * MINUTE)
    book.note_silences([("a", unhealed, True)], T0 + 39 * MINUTE)
    running = begin("drain", T0 + 40 * MINUTE)
    book.hold("a", "a person looks", "ann", None, T0 + 40 * MINUTE)
    assert since() == ["run_gate", "drain"]
    assert book.release("a", "ann", T0 + 2 * MINUTE) == 1  # set back by 38 minutes
    assert since() == []
    record = book.node("a")
    assert record.is_seen_to(record.attempts[0])
    assert record.released_at is not None
    assert record.released_at > record.silent_since[unhealed]
    book.note_silences([("a", unhealed, False), ("a", unhealed, True), ("a", plain, True)], T0 + 3 * MINUTE)
    record = book.node("a")
    assert record.silent_since[unhealed] > (record.released_at or T0), "it is seen after the hold was lifted"
    assert record.silent_since[plain] == T0 + 3 * MINUTE, "how long a source is silent is counted"
    book.finish(running, "transient", "", T0 + 4 * MINUTE)
    assert since() == ["drain"], "nobody has seen how it ended"
    begin("mark", T0 + 5 * MINUTE)
    assert since() == ["drain", "mark"]


@pytest.mark.parametrize("memory", [False, True])
def test_attempts_go_by_the_clock_as_it_is_set_now(ledger: SqlLedger, memory: bool) -> None:
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 1e6, T0).token
    book.finish(book.begin("r1", "a", "gpu_reset", "", "remediation", {}, fence, T0), "done", "", T0 + MINUTE)
    book.note_clock([("a", 3600.0), ("b", 60.0)], T0 + 62 * MINUTE)
    book.begin("r1", "a", "power_cycle", "", "remediation", {}, fence, T0 + 63 * MINUTE)
    book.note_clock([("a", -1800.0)], T0 + 34 * MINUTE)
    reset, cycle = book.node("a").attempts
    assert (reset.begun, reset.ended) == (T0 + 30 * MINUTE, T0 + 31 * MINUTE)
    assert (cycle.begun, cycle.ended) == (T0 + 33 * MINUTE, T0 + 33 * MINUTE)
    assert (reset.at, cycle.at) == (T0, T0 + 63 * MINUTE), "the journal says what the clock said"


@pytest.mark.parametrize("memory", [False, True])
def test_the_end_of_an_attempt_goes_by_the_clock_that_dated_it(ledger: SqlLedger, memory: bool) -> None:
    """The clock is set while the attempt is under way: its end is dated by the clock as it then goes."""
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 1e6, T0).token
    number = book.begin("r1", "a", "power_cycle", "", "remediation", {}, fence, T0)
    book.note_clock([("a", -3600.0)], T0 - 55 * MINUTE)
    book.finish(number, "done", "", T0 - 50 * MINUTE)
    (cycle,) = book.node("a").attempts
    assert (cycle.begun, cycle.ended) == (T0 - 60 * MINUTE, T0 - 50 * MINUTE)
    book.note_clock([("a", 3600.0)], T0 + 11 * MINUTE)
    (cycle,) = book.node("a").attempts
    assert (cycle.begun, cycle.ended) == (T0, T0 + 10 * MINUTE)


@pytest.mark.parametrize("memory", [False, True])
def test_a_step_may_move_only_what_is_dated_later_than_a_time(ledger: SqlLedger, memory: bool) -> None:
    book = MemoryLedger("x") if memory else ledger
    fence = book.acquire("fleet", "a", 1e6, T0).token
    for at in (T0, T0 + 600 * MINUTE):
        book.finish(book.begin("r1", "a", "mark", "", "", {}, fence, at), "done", "", at)
    book.note_clock([("a", -36000.0)], T0 + MINUTE, T0 + 2 * MINUTE)
    assert [one.begun for one in book.node("a").attempts] == [T0, T0]
    assert [one.ended for one in book.node("a").attempts] == [T0, T0]
