"""Every fault of the lab, with every action of the catalogue."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.faults import FAULTS
from reconciler.planner.node.actions import ACTIONS
from tests.faults.cells import CLUSTER_DOWN
from tests.faults.matrix import LETTERS, ROWS, SCENES, Row, differences


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_node_ends_converged_or_safely_stopped(row: Row) -> None:
    """It reports the reason, exceeds no deadline, breaks no invariant, and recovers when the fault is over."""
    wrong = [
        f"{row.name} x {action}: {why}; again: python -m tests.faults matrix --fault {row.name!r} --action {action}"
        for action, _, why in differences(row)
        if why
    ]
    assert not wrong, "\n".join(wrong)


def test_the_matrix_is_whole() -> None:
    # test_gpu_reset.py and test_ac_cycle.py of tests/converge play these, each against each rung.
    of_rungs = {"xid", "gpu_reset_fails", "fabric_manager", "outlets_elsewhere"}
    assert {row.fault.kind for row in ROWS} == {*FAULTS, CLUSTER_DOWN} - of_rungs
    # Decommissioning needs a typed consent, a repair a person's order, and a certificate is due after weeks:
    # test_decommission.py, test_repair.py and test_host_certificate.py of tests/converge play their faults. No node
    # here is a spare: test_spares.py has those.
    elsewhere = {"renew_host_certificate", "reserve", "restart_service", "gpu_reset", "ac_cycle"}
    planned = {spec.name for spec in ACTIONS.values() if not spec.decommissions and not spec.repairs} - elsewhere
    assert {name.partition(":")[0] for name in SCENES} == planned
    assert {letter for row in ROWS for letter in row.ends} <= set(LETTERS)
