"""Every fault of the lab, with every action of the catalogue."""

from __future__ import annotations

import pytest

from reconciler.lab.hardware.faults import FAULTS
from reconciler.planner.node.actions import ACTIONS
from tests.faults.cells import CLUSTER_DOWN, Scene, interrupted
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
    # test_signal_matrix.py plays the first two, of which a run with one apply alone sees nothing; no node here waits
    # for operators: test_operators.py of tests/converge plays the third, and that action.
    # A BMC that hangs is reset after a quarter of an hour: test_bmc_reset.py.
    # And no spec here changes passwords of BMCs: test_bmc_password.py.
    # `run` alone subscribes to events: test_event_posts.py.
    apart = {"dimm_errors", "optic", "gpu_not_advertised", "bmc_hung", "password_change", "subscriptions_lost"}
    assert {row.fault.kind for row in ROWS} == {*FAULTS, CLUSTER_DOWN} - apart
    # Decommissioning needs a typed consent, a repair a person's order, and a certificate is due after weeks:
    # test_decommission.py, test_repair.py and test_host_certificate.py of tests/converge play their faults. No node
    # here is a spare, which ends out of service: test_spares.py has those. Nor has this spec a K3s, or data to save:
    # test_k3s_killed.py and, below and in test_backup.py, what interrupts a wipe of a node with data. None serves in a
    # group: test_serving.py has those. And all have a BMC: test_by_person.py has those that a person reimages.
    elsewhere = {
        "renew_host_certificate", "reset_bmc_from_host", "reserve", "install_k3s", "configure_k3s", "await_operators",
        "back_up", "restore_backup", "sync_serving", "degrade_serving", "restore_serving", "hold_for_reimage",
        "await_reimage", "rotate_bmc_password",
    }  # fmt: skip
    planned = {spec.name for spec in ACTIONS.values() if not spec.decommissions and not spec.repairs} - elsewhere
    assert {name.partition(":")[0] for name in SCENES} == planned
    assert {letter for row in ROWS for letter in row.ends} <= set(LETTERS)


WIPED = Scene("reimage", ("old image",), saved=True)


@pytest.mark.parametrize("hard", [True, False], ids=["a power cut", "Ctrl-C"])
@pytest.mark.parametrize("scene", ["restart_service", "gpu_reset", "ac_cycle", "reimage, with data"])
def test_what_is_interrupted_at_any_point_is_gone_on_with(scene: str, hard: bool) -> None:
    """The next run ends well, no invariant breaks, a rung has used up one attempt at most, and no data is lost."""
    reached, wrong = 0, []
    for calls in range(1, 1000, 1 if hard else 3):  # Ctrl-C has more points, and leaves less behind: each third
        died, why = interrupted(SCENES.get(scene, WIPED), calls, hard=hard)
        wrong += [f"at call {calls}: {one}" for one in why]
        if not died:
            break
        reached = calls
    assert not wrong, "\n".join(wrong)
    assert reached > 20, "so few calls can't be a whole run"
