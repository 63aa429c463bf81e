"""States that are gone: a node that was taken out for one comes back by its row's proof, and by nothing less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.model.observed import DimmErrors
from reconciler.model.plan import BlockCode, Goal
from reconciler.model.records import HEALED, UNHEALED, Attempt, Hold, NodeRecord
from reconciler.model.vocab import Health
from reconciler.planner.node.unhealed import unhealed_signals
from tests import builders as b
from tests.planner.ill_states import (
    ALONE,
    BOOT,
    GONE,
    LEFT,
    MINUTE,
    MODULES,
    MORE,
    NODE,
    STATES,
    acts,
    dimm,
    drained,
    gpus,
    look,
    noted,
    passed,
    plan_of,
    sata,
)

LATER = LEFT + 60 * MINUTE


def ill_and_drained(name: str) -> NodeRecord:
    """It was seen twice in service, marked, drained, and seen once more."""
    record = passed(name)
    for at, out in ((b.NOW + MINUTE / 4, False), (b.NOW + MINUTE / 2, False), (LEFT + MINUTE, True)):
        record = noted(record, look(name, STATES[name].ill, at, out=out))
        if not out:
            record = replace(record, attempts=drained(name).attempts, newer=2)
    return record


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_state_that_asks_for_another_part_is_not_healed_by_being_gone(name: str, seen_before: bool) -> None:
    """The BMC shows the module as OK after its own reset: the node went through drain, gate and admission."""
    record = ill_and_drained(name) if seen_before else drained(name)
    gone = look(name, STATES[name].well, LATER)
    found = plan_of(record, gone)
    assert found.goal is Goal.ISOLATED
    assert not {"run_gate", "admit"} & {action.name for action in found.actions}
    assert "not proved healed: that takes another part" in found.situation
    for seen in (gone, look(name, STATES[name].well, LATER, boot="b2")):
        record = noted(record, seen)
        assert "admit" not in acts(record, seen), "however often it is looked at, and booted"
    other = look(name, STATES[name].other, LATER + MINUTE)
    if name == "disk_failing" and not seen_before:
        return  # certificates bind no drive of SATA that the host alone tells of: a person says that it is another one
    assert acts(record, other)[-2:] == ["run_gate", "admit"]
    (key,) = noted(record, other).silent_since or {HEALED}
    assert key.startswith(HEALED)


@pytest.mark.parametrize("name", GONE)
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_part_that_was_missing_is_healed_by_being_there_and_a_gate(name: str, seen_before: bool) -> None:
    """Nobody can say that it is another one; and a BMC that counts nothing has not counted it."""
    record = ill_and_drained(name) if seen_before else drained(name)
    for seen in (look(name, STATES[name].ill, LATER), look(name, STATES[name].unread, LATER + MINUTE)):
        assert not {"run_gate", "admit"} & set(acts(record, seen)), plan_of(record, seen).situation
        record = noted(record, seen)
    there = look(name, STATES[name].well, LATER + 2 * MINUTE)
    assert acts(record, there) == ["run_gate", "admit"], plan_of(record, there).situation


@pytest.mark.parametrize("name", BOOT)
@pytest.mark.parametrize("seen_before", [False, True])
def test_a_state_that_asks_for_a_boot_is_not_healed_by_being_gone(name: str, seen_before: bool) -> None:
    """Somebody loaded the driver anew, and its counter was 0."""
    record = ill_and_drained(name) if seen_before else drained(name)
    gone = look(name, STATES[name].well, LATER)
    assert "next rung of the ladder: power_cycle" in plan_of(record, gone).situation
    record = noted(record, gone)
    assert acts(record, gone)[0] == "power_cycle"
    booted = look(name, STATES[name].well, LATER, boot="b2")
    assert acts(record, booted) == ["run_gate", "admit"]
    (key,) = noted(record, booted).silent_since or {HEALED}
    assert key.startswith(HEALED)
    again = noted(record, look(name, STATES[name].ill, LATER, boot="b2"))
    assert acts(again, booted)[0] == "power_cycle", "it came back in the new boot"


@pytest.mark.parametrize("name", [*MORE, *BOOT, *ALONE])
def test_a_source_that_is_silent_heals_nothing(name: str) -> None:
    """The fact timed out, its signal was gone, and the plan was to admit the node."""
    for record in (drained(name), ill_and_drained(name)):
        for boot in ("b1", "b2"):
            dark = look(name, STATES[name].unread, LATER, boot=boot)
            assert not {"run_gate", "admit"} & {action.split(":")[0] for action in acts(record, dark)[:1]}
        booted = look(name, STATES[name].unread, LATER, boot="b2")
        if name not in MORE:
            assert acts(record, booted) == []
            blocked = plan_of(record, booted).blocked
            assert blocked is not None
            assert blocked.code is BlockCode.UNKNOWN
        released = replace(record, released_at=LATER - MINUTE, after_release=0)
        if name in ("dimm_failed", "disk_failing", "edac_ue", "ras_ue", "dcgm_failure", "amd_ecc"):
            assert acts(released, booted)[-1:] == ["admit"], "a person has looked; what is declared is read here"


@pytest.mark.parametrize("name", [*MORE, *BOOT, *ALONE])
def test_what_a_node_that_serves_shows_no_more_or_what_was_not_read_takes_nobody_out(name: str) -> None:
    record = noted(noted(passed(name), look(name, STATES[name].ill, b.NOW, out=False)),
                   look(name, STATES[name].ill, LEFT, out=False))  # fmt: skip
    for shows in (STATES[name].well, STATES[name].unread):
        seen = look(name, shows, LATER, out=False)
        assert acts(record, seen) == []
    assert noted(record, look(name, STATES[name].well, LATER, out=False)).silent_since == {}


@pytest.mark.parametrize("name", [*MORE, *BOOT])
def test_a_person_who_held_the_node_and_released_it_ends_it(name: str) -> None:
    record = replace(ill_and_drained(name), released_at=LATER, after_release=0)
    well = look(name, STATES[name].well, LATER + MINUTE)
    assert acts(record, well)[-2:] == ["run_gate", "admit"]
    ill = look(name, STATES[name].ill, LATER + MINUTE)
    again = noted(noted(record, ill), replace(ill, host=replace(ill.host, at=LATER + 2 * MINUTE),
                                              inventory=replace(ill.inventory, at=LATER + 2 * MINUTE)))  # fmt: skip
    first = acts(again, look(name, STATES[name].well, LATER + 3 * MINUTE))[:1]
    assert first == (["power_cycle"] if name in BOOT else []), "shown after it, it is new"


def test_one_reading_of_what_takes_two_is_no_evidence() -> None:
    """A node is out for an update, and one reading calls a module critical."""
    name, tidy = "dimm_failed", look("dimm_failed", STATES["dimm_failed"].well, LATER, reason="bios.X")
    record = replace(passed(name), attempts=(Attempt("mark", "", "bios.X", LEFT, "done", ended_at=LEFT),), newer=1)
    once = noted(record, look(name, STATES[name].ill, LEFT, reason="bios.X"))
    assert len(once.silent_since) == 1
    assert "admit" in acts(once, tidy)
    assert noted(once, tidy).silent_since == {}
    kept = look(name, STATES[name].ill, LEFT, reason="bios.X")
    assert noted(once, kept) == once, "an inventory that is kept is no second reading"
    twice = noted(once, look(name, STATES[name].ill, LEFT + MINUTE, reason="bios.X"))
    assert "admit" not in acts(twice, tidy)


def test_each_part_at_fault_has_to_be_another_one() -> None:
    """Two GPUs failed. One was exchanged; that the other one is quiet heals nothing."""
    name = "row_remap_failed"
    record = drained(name)
    both = (b.gpu(0, remap_failed=True), b.gpu(1, serial="G1", remap_failed=True))
    record = noted(record, look(name, {"gpus": both}, LEFT + MINUTE))
    assert "admit" not in acts(record, look(name, {"gpus": gpus("G9")}, LATER))
    assert "admit" in acts(record, look(name, {"gpus": (b.gpu(0, serial="G8"), b.gpu(1, serial="G9"))}, LATER))
    one = noted(record, look(name, {"gpus": (b.gpu(0), b.gpu(1, serial="G9", remap_failed=True))}, LATER))
    assert "admit" not in acts(one, look(name, {"gpus": (b.gpu(0), b.gpu(1, serial="G7"))}, LATER + MINUTE))


def test_a_part_that_reads_no_more_is_no_other_part() -> None:
    record = ill_and_drained("dimm_failed")
    assert "admit" not in acts(record, look("dimm_failed", {"parts": MODULES[1:]}, LATER))
    assert "admit" in acts(record, look("dimm_failed", {"parts": (MODULES[1], dimm("C1"))}, LATER))


def test_a_module_without_a_serial_number_is_ended_by_a_person_alone() -> None:
    nameless = tuple(replace(one, serial=None) for one in MODULES)
    record = noted(drained("dimm_failed"), look("dimm_failed", {"parts": (replace(nameless[0], health=Health.CRITICAL),
                                                                          nameless[1])}, LATER))  # fmt: skip
    well = look("dimm_failed", {"parts": nameless}, LATER + MINUTE)
    assert "admit" not in acts(record, well)
    assert "admit" in acts(replace(record, released_at=LATER + MINUTE, after_release=0), well)


def test_a_certificate_of_a_gate_by_hand_does_not_take_the_exchange_away() -> None:
    """The certificate binds the new module by then, and the old one is gone all the same."""
    record = ill_and_drained("dimm_failed")
    other = look("dimm_failed", STATES["dimm_failed"].other, LATER)
    bound = replace(record, certificate=replace(b.certificate(NODE, other), issued_at=LATER), newer=0)
    assert acts(bound, other) == ["admit"]


def test_what_is_healed_is_not_brought_up_again_by_what_the_node_was_drained_for() -> None:
    """The certificate binds no drive of SATA that the host alone tells of, so only the ledger's key proves it."""
    record = ill_and_drained("disk_failing")
    other = look("disk_failing", STATES["disk_failing"].other, LATER)
    healed = noted(record, other)
    for record in (healed, noted(healed, other)):
        assert acts(record, other) == ["run_gate", "admit"]
    ill = noted(healed, look("disk_failing", {"disks": (sata("S2", passed=False),)}, LATER))
    assert acts(ill, look("disk_failing", STATES["disk_failing"].other, LATER + MINUTE)) == [], "the new one fails, too"
    assert acts(ill, look("disk_failing", {"disks": (sata("S3"),)}, LATER + MINUTE)) == ["run_gate", "admit"]
    admitted = replace(healed, attempts=(*healed.attempts, Attempt("admit", "", "", LATER, "done")), newer=3)
    assert noted(admitted, look("disk_failing", STATES["disk_failing"].other, LATER, out=False)).silent_since == {}


def test_a_retracted_state_holds_nobody_back() -> None:
    record, gone = ill_and_drained("dimm_failed"), look("dimm_failed", STATES["dimm_failed"].well, LATER)
    hold = Hold(1, "isolation/dimm_failed", "wrong", "ops", b.NOW)
    planner = b.planner(holds=(hold,), now=LATER)
    assert "admit" in b.actions(planner.plan(NODE, gone, record))
    dark = look("edac_ue", STATES["edac_ue"].unread, LATER, boot="b2")
    planner = b.planner(holds=(replace(hold, subject="isolation/edac_ue"),), now=LATER)
    assert "admit" in b.actions(planner.plan(NODE, dark, drained("edac_ue")))


def test_an_isolation_that_nobody_treated_ends_with_a_gate() -> None:
    """The GPU is back before there was room in the budget to drain the node: its row asks for a gate (K2)."""
    isolated = replace(drained("fabric"), attempts=(Attempt("mark", "", "isolated: health.gpu_missing", LEFT, "done"),),
                       newer=1)  # fmt: skip
    seen = look("fabric", STATES["fabric"].well, LATER, reason="isolated: health.gpu_missing")
    assert acts(isolated, seen) == ["run_gate", "admit"]


def test_a_key_tells_no_serial_number_and_an_older_one_is_read() -> None:
    (key,) = ill_and_drained("dimm_failed").silent_since
    assert key.startswith(f"{UNHEALED}health.dimm_failed in boot ")
    assert "A1" not in key
    old = replace(drained("edac_ue"), attempts=(), silent_since={f"{UNHEALED}health.edac_ue in boot abc": LEFT})
    gone = look("edac_ue", STATES["edac_ue"].well, LATER)
    assert unhealed_signals(NODE, gone, old, ()) == (), "another boot than that"
    dark = look("edac_ue", {"dimm_errors": (DimmErrors("mc0/dimm0", "A", 0, 1),)}, LATER)
    assert noted(old, dark).silent_since != {}
