"""Reference documents of a spec reach the bars of peers, and of nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.model.desired import Cohort, Fleet, Peers
from reconciler.model.documents import dump
from reconciler.model.reference import REFERENCE_FORMAT, Distribution, Reference, hardware_of
from tests.spec.example import Edit, load, messages

BAR: Edit = (
    "persona.yaml",
    "{metric: busbw_peak, min: 440}",
    "{metric: busbw_peak, min: 440, cohort: {below: 2.5%, modifiedZ: 3.5}}",
)


def reference() -> Reference:
    """A reference for the nodes of the example that are tested."""
    fleet = load(BAR)
    profile = fleet.nodes["gpu-a001"].profile
    assert profile.acceptance is not None
    assert profile.image is not None
    [test] = [test for phase in profile.acceptance.phases for test in phase.tests if test.tool == "nccl-tests"]
    figures = {"busbw_peak": Distribution(42, 480.0, 2.0, 471.0)}
    hardware = hardware_of(profile.inventory)
    return Reference(
        REFERENCE_FORMAT, hardware, profile.image.sha256, test.name, test.tool, "2.13", dict(test.args), figures
    )


def cohort(fleet: Fleet) -> Cohort | None:
    acceptance = fleet.nodes["gpu-a001"].profile.acceptance
    assert acceptance is not None
    [found] = [bar.cohort for phase in acceptance.phases for test in phase.tests for bar in test.thresholds]
    return found


def file(made: Reference, name: str = "reference/one.json") -> Edit:
    return name, "", dump(made)


def test_a_bar_by_peers_has_the_figures_of_its_references() -> None:
    later = replace(reference(), tool_version="2.14")
    assert cohort(load(BAR)) == Cohort(0.025, 3.5)
    assert cohort(load(BAR, file(later, "reference/a.json"), file(reference()))) == Cohort(
        0.025, 3.5, (Peers("2.13", 42, 480.0, 2.0), Peers("2.14", 42, 480.0, 2.0))
    )
    assert cohort(load(file(reference()))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware": "another"},
        {"image": "f" * 64},
        {"test": "other"},
        {"tool": "fio"},
        {"args": {"size": "1G"}},
        {"metrics": {}},
    ],
    ids=str,
)
def test_others_are_no_peers(changes: dict[str, object]) -> None:
    made = replace(reference(), **changes)  # type: ignore[arg-type]
    assert cohort(load(BAR, file(made))) == Cohort(0.025, 3.5)


def test_a_reference_changes_the_digest_of_the_fleet() -> None:
    assert load(BAR).digest != load(BAR, file(reference())).digest
    assert load().digest == load(file(reference())).digest, "no bar asks for it"


@pytest.mark.parametrize(
    ("cohort", "problem"),
    [
        ("{below: 3, modifiedZ: 3.5}", "below"),
        ("{below: 0%, modifiedZ: 3.5}", "is no share between 0% and 100%"),
        ("{below: 300%, modifiedZ: 3.5}", "is no share between 0% and 100%"),
        ("{below: 3%, modifiedZ: 0}", "modifiedZ"),
        ("{below: 3%}", "modifiedZ"),
    ],
)
def test_a_bar_that_means_nothing_is_refused(cohort: str, problem: str) -> None:
    [said] = messages((BAR[0], BAR[1], f"{{metric: busbw_peak, min: 440, cohort: {cohort}}}"))
    assert problem in said


def test_peers_alone_are_no_bar() -> None:
    """Under ten peers nothing would judge."""
    [said] = messages((BAR[0], BAR[1], "{metric: busbw_peak, cohort: {below: 3%, modifiedZ: 3.5}}"))
    assert "give min, max or both" in said


def test_a_file_that_is_no_reference_is_an_error() -> None:
    [said] = messages(("reference/one.json", "", '{"format_version": "1.0"}'))
    assert said.startswith("reference/one.json")
    assert "this is no reference" in said
