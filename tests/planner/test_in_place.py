"""Which way an image takes: in place where a node is well, else by the installer, and why, before it is drained."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.model import desired as d
from reconciler.model import observed as o
from reconciler.model.errors import Position
from reconciler.model.records import Attempt
from reconciler.model.vocab import Provision
from tests import builders as b

LAYOUT = d.DiskLayout(1, 2, 3)
IMAGE = replace(b.IMAGE, layout=LAYOUT, preserve=("/state", "/data"))
SLOT = o.Slot("a", {"esp": 1, "root": 2, "state": 3, "data": 1}, None, ())
AT = {f"image.{name}": Position("images.yaml", at, 7) for at, name in enumerate(("in_place", "layout", "preserve"), 1)}


def found(slot: o.Slot | None = SLOT, **facts: Any) -> o.Observed:
    image = b.facts().image
    assert image is not None
    return b.observed(host=b.facts(image=replace(image, version="2026.10.2", slot=slot), **facts))


def planned(
    seen: o.Observed, *, image: d.DesiredImage = IMAGE, attempts: Any = (), **node: Any
) -> tuple[list[str], str]:
    wanted = b.node(profile=b.profile(image=image, provenance=AT), **node)
    plan = b.planner().plan(wanted, seen, b.record(wanted, attempts=tuple(attempts)))
    (told,) = [item.detail for item in plan.drift if item.path == "image.version"]
    return [name for name in b.actions(plan) if name.startswith("reimage")], told


def test_a_node_that_is_well_writes_its_other_slot() -> None:
    assert planned(found()) == (["reimage:slot"], "in place, by the running system")


OTHER = replace(SLOT, layout={**SLOT.layout, "root": 9})


@pytest.mark.parametrize(
    ("slot", "preserve", "why"),
    [
        (None, ("/data",), "the disk has no layout; /data would be lost (images.yaml:3:7)"),
        (OTHER, ("/data",), "the disk was laid out with another root; /data would be lost (images.yaml:3:7)"),
        (OTHER, (), ""),
        (replace(SLOT, layout={}), ("/data",), ""),
    ],
)
def test_what_the_installer_would_refuse_is_refused_before_the_drain(
    slot: o.Slot | None, preserve: tuple[str, ...], why: str
) -> None:
    wanted = b.node(profile=b.profile(image=replace(IMAGE, preserve=preserve), provenance=AT))
    plan = b.planner().plan(wanted, found(slot), b.record(wanted))
    assert (plan.actions == ()) is bool(why), "a healthy node would be drained in vain"
    assert why in (plan.blocked.detail if plan.blocked is not None else "")
    assert (plan.blocked is not None) is bool(why)


def test_another_disk_than_the_one_that_runs_may_be_written() -> None:
    image = b.facts().image
    assert image is not None
    seen = b.observed(host=b.facts(image=replace(image, version="2026.10.2", booted_disk="D7")))
    assert planned(seen)[0] == ["reimage"]


def attempt(outcome: str, target: str = "slot", action: str = "reimage") -> Attempt:
    return Attempt(action, target, "image.version", b.NOW, outcome)


@pytest.mark.parametrize(
    ("seen", "options", "why"),
    [
        (found(None), {"image": replace(IMAGE, preserve=())}, "no slot of a layout runs"),
        (found(replace(SLOT, lacks=("zstd", "python3"))), {}, "the host lacks zstd, python3 (images.yaml:1:7)"),
        (found(replace(SLOT, layout={})), {}, "another esp and root and state and data (images.yaml:2:7)"),
        (found(), {"image": replace(IMAGE, in_place=False)}, "the image asks for it (images.yaml:1:7)"),
        (found(), {"image": replace(IMAGE, preserve=("/data",))}, "/state would be made anew (images.yaml:3:7)"),
        (found(), {"provision": Provision.BLANK}, "provision: blank"),
        (found(), {"attempts": [attempt("transient")]}, "the last attempt failed"),
        (found(), {"attempts": [attempt("permanent", "")]}, "the last attempt failed"),
        (found(), {"attempts": [attempt("started", "")]}, "an install by it was begun"),
        (
            found(replace(SLOT, newer="ubuntu-gpu 2026.11.1")), {},
            "ubuntu-gpu 2026.11.1 was installed and did not come up: slot a runs",
        ),
    ],
)  # fmt: skip
def test_otherwise_the_installer_is_needed_and_the_plan_says_why(
    seen: o.Observed, options: dict[str, Any], why: str
) -> None:
    actions, told = planned(seen, **options)
    assert actions == ["reimage"]
    assert told.startswith("by the installer")
    assert told.endswith(why)


@pytest.mark.parametrize(
    "attempts",
    [
        [attempt("transient"), attempt("done", "", "admit")],  # it served since: another change
        [attempt("transient"), attempt("done", "")],
        [attempt("refused")],
        [attempt("started")],  # its run died, and the program on the node goes on
    ],
)
def test_what_does_not_count_against_it(attempts: list[Attempt]) -> None:
    assert planned(found(), attempts=attempts)[0] == ["reimage:slot"]


def test_an_image_without_a_layout_has_no_other_way() -> None:
    assert planned(found(), image=b.IMAGE) == (["reimage"], "")


FELL_BACK = replace(SLOT, newer="ubuntu-gpu 2026.11.1")
SAID = "ubuntu-gpu 2026.11.1 did not come up: the boot loader fell back to slot a, ubuntu-gpu 2026.10.2"


@pytest.mark.parametrize("served", [[], [attempt("done", "", "admit")]])
def test_an_image_that_was_proved_and_does_not_come_up_later_is_not_written_again(served: list[Attempt]) -> None:
    """It would be proved again, and fall back again: a loop, with a drain each time."""
    wanted = b.node(profile=b.profile(image=IMAGE, provenance=AT))
    record = b.record(wanted, attempts=(attempt("done"), *served), nonce="of-the-new-one")
    plan = b.planner().plan(wanted, found(FELL_BACK), record)
    assert b.actions(plan) == []
    assert plan.blocked is not None
    assert plan.blocked.detail.startswith(SAID)
    (told,) = [item.detail for item in plan.drift if item.path == "image.nonce"]
    assert told.startswith(SAID), "drift names the cause"
    released = replace(record, released_at=b.NOW + timedelta(hours=1))
    assert "reimage" in b.actions(b.planner().plan(wanted, found(FELL_BACK), released)), "a person has seen to it"
    other = replace(wanted, profile=b.profile(image=replace(IMAGE, version="2026.12.1"), provenance=AT))
    planner = b.planner(signatures={("ubuntu-gpu", "2026.12.1"): True})
    assert any(name.startswith("reimage") for name in b.actions(planner.plan(other, found(FELL_BACK), record)))
