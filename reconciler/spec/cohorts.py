"""Read the reference documents of a spec, and find those of a test's peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.model.desired import Acceptance, Cohort, GateTest, Threshold
from reconciler.model.errors import Diagnostic
from reconciler.model.reference import FOLDER, Reference
from reconciler.spec.kinds.acceptance_profile import Threshold as ThresholdSpec
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.parse import UnreadableFile


def read_references(tree: SpecTree) -> tuple[list[Reference], list[Diagnostic]]:
    """Return the documents in reference/*.json, and a problem for each file that is none."""
    if not (names := tree.json_names(FOLDER)):
        return [], []
    from reconciler.model.documents import DocumentError, load  # every kind of document: 90 ms, and few specs have one

    found: list[Reference] = []
    problems: list[Diagnostic] = []
    for name in names:
        try:
            found.append(load(Reference, tree.read(name)))
        except UnreadableFile as problem:
            problems.append(problem.diagnostic)
        except DocumentError as error:
            problems.append(
                Diagnostic(tree.where(name), "", str(error), "`reconciler reference build` writes these files")
            )
    return found, problems


def threshold_of(bar: ThresholdSpec, rates: Mapping[str, float]) -> Threshold:
    """Return a limit in the metric's unit, before the peers of its test are known.

    A rate that is not declared is a problem of the spec by itself.
    """
    limits = {"min": bar.min, "max": bar.max} | {name: share.of(rates) for name, share in bar.shares().items()}
    low, high = (limit if isinstance(limit, float) else None for limit in (limits["min"], limits["max"]))
    cohort = None
    if bar.cohort is not None:
        cohort = Cohort(float(bar.cohort.below[:-1]) / 100, bar.cohort.modified_z)
    return Threshold(bar.metric, low, high, cohort)


def with_peers(acceptance: Acceptance, known: Sequence[Reference], hardware: str, image: str) -> Acceptance:
    """Return the tests with the figures of the node's peers, where a bar asks for them."""
    if not any(bar.cohort for phase in acceptance.phases for test in phase.tests for bar in test.thresholds):
        return acceptance

    def fill(test: GateTest) -> GateTest:
        mine = [reference for reference in known if reference.fits(hardware, image, test)]
        return replace(test, thresholds=tuple(_fill(bar, mine) for bar in test.thresholds))

    phases = [replace(phase, tests=tuple(map(fill, phase.tests))) for phase in acceptance.phases]
    return replace(acceptance, phases=tuple(phases))


def _fill(bar: Threshold, references: Sequence[Reference]) -> Threshold:
    """Return the bar with the figures of its metric, by version of the tool."""
    if bar.cohort is None:
        return bar
    peers = [found for reference in references if (found := reference.peers(bar.metric)) is not None]
    return replace(bar, cohort=replace(bar.cohort, peers=tuple(sorted(peers, key=lambda found: found.tool_version))))
