from __future__ import annotations

import pytest

from reconciler.converge.actions import ACTIONS
from reconciler.converge.actions.context import outcome_of
from reconciler.model.errors import DriverError, Failure
from reconciler.model.outcome import Ambiguous, Permanent, Transient
from reconciler.planner.node import catalogue
from reconciler.planner.node.staged import ACTIVATES
from tests import builders as b


def test_there_is_a_function_for_every_row_and_no_other() -> None:
    assert set(ACTIONS) == set(catalogue.ACTIONS)


def test_the_witness_of_staged_settings_knows_what_the_catalogue_says() -> None:
    full = catalogue.catalogue(b.node(), clustered=True, registered=True, busy=False, cordoned=False)
    assert {row.name: row.activates for row in full.rows if row.activates} == ACTIVATES


@pytest.mark.parametrize("kind", list(Failure))
def test_every_failure_of_a_driver_has_one_outcome(kind: Failure) -> None:
    expected = {
        Failure.AMBIGUOUS: Ambiguous,
        Failure.AUTH: Permanent,
        Failure.REJECTED: Permanent,
        Failure.UNSUPPORTED: Permanent,
    }
    outcome = outcome_of(DriverError(kind, "why", retry_after=7.0))
    assert type(outcome) is expected.get(kind, Transient)
    assert "why" in outcome.detail
    if isinstance(outcome, Transient):
        assert outcome.retry_after_s == 7.0
