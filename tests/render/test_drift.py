"""The drift report: what is shown of a difference, what is only counted, and what to do next."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from reconciler.model.documents import dump
from reconciler.model.drift import DriftClass
from reconciler.model.report import DriftReport
from reconciler.render import drift
from reconciler.render.comment import as_markdown
from tests import builders as b
from tests.render.test_text import item, report


def forms(made: DriftReport) -> tuple[str, str]:
    return drift.human(made), as_markdown(made).replace("\\", "")


def test_what_matters_comes_first_and_the_rest_is_counted() -> None:
    """Conventions C7, D3: what nobody manages, what is ignored and what is as it should be have a number each."""
    made = report(
        item("n1", "bios.Unmanaged", kind=DriftClass.UNMANAGED),
        item("n1", "bios.Ignored", kind=DriftClass.IGNORED),
        item("n2", "bios.Ignored", kind=DriftClass.IGNORED),
        item("n1", "bios.Same", kind=DriftClass.CONVERGED),
        item("n1", "bios.Unread", None, DriftClass.UNKNOWN, "timeout"),
        item("n1", "bios.Off"),
        item("n1", "bios.Both", kind=DriftClass.CONFLICT),
    )
    for text in forms(made):
        assert "1 unmanaged, 2 ignored, 1 converged" in text
        for hidden in ("bios.Unmanaged", "bios.Ignored", "bios.Same"):
            assert hidden not in text
        assert text.index("bios.Both") < text.index("bios.Off") < text.index("bios.Unread")
    paths = {one["path"] for one in json.loads(dump(made))["items"]}
    assert {"bios.Unmanaged", "bios.Ignored", "bios.Same"} <= paths, "JSON says all of it (conventions C6)"


def test_a_difference_has_both_values_since_when_and_who_says_so() -> None:
    """Conventions D4."""
    seen = b.NOW - timedelta(days=3)
    [one] = json.loads(dump(report(item("n1", found="Off", first_seen=seen, last_seen=b.NOW))))["items"]
    assert (one["desired"], one["observed"], one["source"]) == ("On", "Off", "redfish")
    assert (one["first_seen"], one["last_seen"]) == ("2026-11-18T12:00:00Z", "2026-11-21T12:00:00Z")
    for text in forms(report(item("n1", found="Off", first_seen=seen, last_seen=b.NOW))):
        [row] = [line for line in text.splitlines() if "bios.X" in line]
        assert all(said in row for said in ("On", "Off", "11-18 12:00", "n1"))


@pytest.mark.parametrize(
    ("kind", "incomplete", "said"),
    [
        (DriftClass.DRIFTED, (), ("reconciler plan", "reconciler adopt")),
        (DriftClass.UNKNOWN, ("n1",), ("reconciler doctor",)),
    ],
)
def test_a_report_ends_with_what_to_do(kind: DriftClass, incomplete: tuple[str, ...], said: tuple[str, ...]) -> None:
    """Conventions D10: by command, behind all else that is said of nodes."""
    for text in forms(report(item("n1", kind=kind, detail="timeout"), incomplete=incomplete)):
        for command in said:
            assert text.rindex(command) > text.rindex("n1 ")
    for text in forms(report()):
        assert "Next:" not in text
        assert "What to do next" not in text
