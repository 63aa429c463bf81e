"""What the attempts of a node say of its data: saved, lost with the disk, or back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.model.backup import DesiredBackup, Saved
from reconciler.model.desired import Desired
from reconciler.model.observed import Observed
from reconciler.model.records import ATTEMPTS_KEPT, ISOLATED, Attempt, NodeRecord
from tests import builders as b

BACKUP = DesiredBackup(("/srv/models",), "rest:https://backup.example/", {"RESTIC_PASSWORD": "restic"})
EVIDENCE = str(Saved("0123abcd", 2, "5" * 64, BACKUP.digest))
OUT = ("mark", "drain")


def wanted(backup: DesiredBackup | None = BACKUP) -> Desired:
    return b.node(profile=b.profile(backup=backup))


def record(*tried: str, desired: Desired | None = None, ago: timedelta = timedelta(minutes=30)) -> NodeRecord:
    """Return a record with these attempts: "back_up", "reimage!transient", "mark" for its health as "mark?"."""
    attempts = []
    for at, word in enumerate(tried):
        action, _, outcome = word.partition("!")
        detail = EVIDENCE if action == "back_up" and not outcome else ""
        ill = action.endswith("?")
        cause = f"{ISOLATED}health.xid_79" if ill else "image.version"
        when = b.NOW - ago + timedelta(seconds=at)
        attempts.append(Attempt(action.rstrip("?"), "", cause, when, outcome or "done", detail))
    return b.record(desired or wanted(), attempts=tuple(attempts))


def old_image() -> Observed:
    image = b.facts().image
    assert image is not None
    return b.observed(host=b.facts(image=replace(image, version="2026.10.2")))


def marked(seen: Observed) -> Observed:
    return replace(seen, member=b.observed(member=b.member(mark=b.our_mark(), pods=())).member)


def does(*tried: str, seen: Observed | None = None, desired: Desired | None = None) -> list[str]:
    spec = desired or wanted()
    return list(b.actions(b.planner().plan(spec, seen or old_image(), record(*tried, desired=spec))))


@pytest.mark.parametrize(
    ("tried", "saves"),
    [
        ((), True),
        ((*OUT, "back_up"), False),
        ((*OUT, "back_up!transient"), True),
        (("back_up", "mark"), True),  # work that a person let onto it wrote what that backup does not have
        (("back_up", "drain"), True),
        (("back_up", "admit"), True),
        (("back_up", "admit!transient"), False),
        ((*OUT, "back_up", "reimage!transient"), False),  # of a disk that may be half written nothing is saved
        ((*OUT, "back_up", "reimage!refused"), False),
        ((*OUT, "back_up", "reimage!transient", "drain"), False),
        ((*OUT, "back_up", "soft_restart"), True),  # its services began anew, and write
        ((*OUT, "back_up", "soft_restart!refused"), False),
        ((*OUT, "back_up", "reimage!transient", "soft_restart"), False),
        ((*OUT, "reimage"), False),  # since it served, an installation wrote its disk
        (("reimage", "admit"), True),
    ],
)
def test_a_disk_is_written_after_a_backup_that_still_counts(tried: tuple[str, ...], saves: bool) -> None:
    out = tried[:2] == OUT  # and not back since
    did = does(*tried, seen=marked(old_image()) if out else old_image())
    assert "reimage" in did, did
    assert ("back_up" in did) == saves, did
    if saves:
        assert did.index("back_up") < did.index("reimage")


@pytest.mark.parametrize(
    ("tried", "restores"),
    [
        ((), False),
        ((*OUT, "back_up"), False),
        ((*OUT, "back_up", "reimage"), True),
        ((*OUT, "back_up", "reimage!started"), True),
        ((*OUT, "back_up", "reimage!refused"), False),
        ((*OUT, "back_up", "reimage", "mark", "drain"), True),
        ((*OUT, "back_up", "reimage", "restore_backup!transient"), True),
        ((*OUT, "back_up", "reimage", "restore_backup"), False),
        ((*OUT, "back_up", "reimage", "restore_backup", "reimage"), True),
    ],
)
def test_what_was_wiped_is_owed_until_it_is_restored(tried: tuple[str, ...], restores: bool) -> None:
    did = does(*tried, seen=marked(b.observed()))
    assert ("restore_backup" in did) == restores, did


def test_a_backup_of_hours_ago_is_made_anew() -> None:
    """A drain takes pods away. What else runs on the host went on writing."""
    spec = wanted()
    for ago, saves in ((timedelta(minutes=50), False), (timedelta(minutes=70), True)):
        tried = record(*OUT, "back_up", desired=spec, ago=ago)
        assert ("back_up" in b.actions(b.planner().plan(spec, old_image(), tried))) == saves
    lost = record(*OUT, "back_up", "reimage", desired=spec, ago=timedelta(days=3))
    assert "restore_backup" in b.actions(b.planner().plan(spec, marked(b.observed()), lost)), "it is owed for ever"


@pytest.mark.parametrize("seen", [b.observed(), old_image()], ids=["as specified", "old image"])
def test_a_node_that_serves_without_its_data_is_left_to_a_person(seen: Observed) -> None:
    """Somebody took our mark away before it was restored: since then jobs may have written what no backup has."""
    tried = (*OUT, "back_up", "reimage")
    plan = b.planner().plan(wanted(), seen, record(*tried))
    assert not {"restore_backup", "reimage", "back_up"} & {*b.actions(plan)}
    assert plan.blocked is not None
    assert "served without what was saved before its disk was written (snapshot 0123abcd)" in plan.blocked.detail
    ill = b.planner().plan(wanted(), marked(seen), record(*tried, "mark?", "drain"))
    assert not {"restore_backup", "reimage", "back_up"} & {*b.actions(ill)}, "it was isolated, so it served"
    assert ill.blocked is not None


def test_what_is_owed_is_restored_only_where_nothing_runs() -> None:
    plan = b.planner().plan(wanted(), marked(b.observed()), record(*OUT, "back_up", "reimage"))
    restore = next(one for one in plan.actions if one.name == "restore_backup")
    assert "quiesced" in restore.requires


def test_it_is_back_before_the_gate() -> None:
    tried = replace(record(*OUT, "back_up", "reimage"), certificate=None)
    did = list(b.actions(b.planner().plan(wanted(), marked(b.observed()), tried)))
    gate = next(
        one for one in b.planner().plan(wanted(), marked(b.observed()), tried).actions if one.name == "run_gate"
    )
    assert "restored" in gate.requires
    assert did.index("restore_backup") < did.index("run_gate") < did.index("admit"), did


@pytest.mark.parametrize(
    "changed",
    [replace(BACKUP, paths=("/srv/models", "/srv/more")), replace(BACKUP, repository="rest:https://other.example/")],
    ids=["more paths", "another repository"],
)
def test_a_backup_of_something_else_is_no_evidence(changed: DesiredBackup) -> None:
    assert "back_up" in does(*OUT, "back_up", desired=wanted(changed))


@pytest.mark.parametrize(
    "tried",
    [
        ["set_bios!transient"] * ATTEMPTS_KEPT,
        ["reimage", *["restore_backup!transient"] * (ATTEMPTS_KEPT - 1)],
        ["reimage!transient"] * ATTEMPTS_KEPT,
    ],
    ids=["others", "restores", "installations"],
)
@pytest.mark.parametrize("seen", [old_image(), marked(b.observed())], ids=["old image", "installed"])
def test_more_attempts_than_are_kept_leave_it_unknown(tried: list[str], seen: Observed) -> None:
    """What was saved may be beyond those that can be read: neither wiped nor admitted."""
    spec = wanted()
    plan = b.planner().plan(spec, seen, record(*tried, desired=spec))
    assert not {"reimage", "admit"} & {*b.actions(plan)}
    assert plan.blocked is not None
    assert "too many attempts" in plan.blocked.detail


def test_without_a_backup_in_the_spec_nothing_is_asked() -> None:
    assert "back_up" not in does(desired=wanted(None))


@pytest.mark.parametrize(
    ("tried", "boot", "restores"),
    [
        (("back_up", "hold_for_reimage"), "b1", False),  # the spec went back to the image that runs
        (("back_up", "hold_for_reimage"), "b2", True),
        (("back_up", "hold_for_reimage"), "", True),
        (("back_up", "reimage", "hold_for_reimage"), "b1", True),  # lost before
    ],
)
def test_a_disk_that_nobody_came_to_write_is_not_overwritten(tried: tuple[str, ...], boot: str, restores: bool) -> None:
    known = record(*OUT, *tried)
    attempts = tuple(replace(one, boot_id=boot) for one in known.attempts)
    did = b.actions(b.planner().plan(wanted(), marked(b.observed()), replace(known, attempts=attempts)))
    assert ("restore_backup" in did) == restores, did
