"""Exit codes: which errors lead to which, and which one wins (DESIGN 11)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest

from reconciler.app.apply import StaleNodes
from reconciler.app.rehearsal.processes import RunLost
from reconciler.app.worker import SchedulerLost
from reconciler.cli.commands.apply import exit_code
from reconciler.cli.exit_codes import MEANING, ExitCode, exit_code_of, strongest
from reconciler.converge.apply import AllNodesStale, ApplyReport
from reconciler.converge.k3s_restore_run import RestoreBroke
from reconciler.converge.k3s_teardown import TeardownBroke
from reconciler.drivers.boot_images.partitions import NoTable
from reconciler.drivers.boot_images.tools import BuildFailed
from reconciler.drivers.boot_images.uki import BadStub
from reconciler.drivers.endpoints import EndpointsError
from reconciler.drivers.extensions.fit import ExtensionRefused
from reconciler.drivers.git import GitError
from reconciler.drivers.redfish.quirks import QuirksError
from reconciler.drivers.secrets import SecretConflict, SecretError
from reconciler.lab.control import NoLab
from reconciler.model.desired import SpecSource
from reconciler.model.documents import DocumentError
from reconciler.model.errors import (
    BadLedgerUrl,
    Blind,
    DriverError,
    Failure,
    LeaseHeld,
    LedgerError,
    NoLedger,
    PartlyDone,
    ReconcilerError,
    Refused,
    SpecError,
    StalePlan,
    UsageError,
)
from reconciler.model.live import NoSuchNode, NotReady
from reconciler.model.notices import NotDelivered
from reconciler.model.plan import Scope
from reconciler.model.recording import RecordError
from reconciler.model.report import APPLY_FORMAT, ActionEnd, ApplyOutcome, NodeEnd
from tests.builders import NOW

# DESIGN: 1, 7, 5, 6, 8, 3, 4, 2, 0; the others end a command by themselves
ORDER = [64, 130, 1, 7, 5, 6, 8, 3, 4, 2, 0]  # fmt: skip


def test_the_precedence_table_is_total() -> None:
    assert sorted(ORDER) == sorted(ExitCode)
    for one, other in itertools.product(ExitCode, repeat=2):
        wins = min(one, other, key=ORDER.index)
        assert strongest([one, other]) is strongest([other, one]) is wins
    for codes in itertools.combinations(ExitCode, 3):
        assert strongest(codes) is min(codes, key=ORDER.index)
    assert strongest([]) is ExitCode.DONE


def test_every_code_has_a_meaning() -> None:
    assert set(MEANING) == set(ExitCode)
    assert all(MEANING.values())


def outcome(
    states: str, *, acts: bool = True, interrupted: bool = False, tolerated: bool = True, changes: bool = False,
    incomplete: tuple[str, ...] = (), braked: str = "",
) -> ApplyOutcome:  # fmt: skip
    nodes = {f"n{at}": NodeEnd(state, "") for at, state in enumerate(states.split())}
    done = (ActionEnd("n0", "mark", "done", "", NOW, 1.0),) if acts else ()
    return ApplyOutcome(
        APPLY_FORMAT, "0", "run", "plan", "fleet", SpecSource("spec", "c0ffee"), Scope((), (), 1, 1), NOW,
        NOW + timedelta(minutes=1), interrupted, nodes, done, (), incomplete, tolerated, changes, braked=braked,
    )  # fmt: skip


REPORT: ApplyReport = None  # type: ignore[assignment]  # nobody looks into it here
ERRORS = {
    SpecError(()): 3, UsageError("x"): 64, DocumentError("x"): 64, SecretError("x"): 64,
    SecretConflict("x"): 64, GitError("x"): 64, EndpointsError("x"): 64, NoLab("x"): 64, LeaseHeld("ops", "x"): 6,
    StalePlan("x"): 5, AllNodesStale("x", REPORT): 5,
    StaleNodes("x", outcome("stale")): 5, Refused("x"): 8, Blind("x"): 4, QuirksError("x"): 1, RecordError("x"): 1,
    LedgerError("x"): 1, BadLedgerUrl("x"): 64, NoLedger("x"): 64, DriverError(Failure.TIMEOUT, "x"): 1,
    ReconcilerError("x"): 1, NoTable("x"): 64, BadStub("x"): 64, BuildFailed("x"): 1,
    NotDelivered("x"): 1, PartlyDone("x"): 7, TeardownBroke("x"): 7, RestoreBroke("x"): 7, NotReady("x"): 1,
    NoSuchNode("x"): 1, ExtensionRefused("x"): 64, SchedulerLost("x"): 1, RunLost("x"): 1,
}  # fmt: skip


def _subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for found in kind.__subclasses__():
        yield found
        yield from _subclasses(found)


@pytest.mark.parametrize(("error", "code"), ERRORS.items(), ids=lambda value: type(value).__name__)
def test_an_error_has_its_code(error: ReconcilerError, code: int) -> None:
    assert exit_code_of(error) == code


def test_every_error_that_ends_a_command_has_a_row_here() -> None:
    """Those of one BMC, host or cluster stay within its node."""
    found = [kind for kind in _subclasses(ReconcilerError) if not issubclass(kind, DriverError)]
    ours = {kind for kind in found if kind.__module__.startswith("reconciler.")}
    assert ours <= {type(error) for error in ERRORS}


@pytest.mark.parametrize(
    ("found", "plain", "detailed"),
    [
        (outcome("done converged"), 0, 0),
        (outcome("converged", acts=False), 0, 0),
        (outcome("done not_started"), 0, 2),
        (outcome("done not_started", changes=True), 0, 2),
        (outcome("done failed"), 7, 7),
        (outcome("failed", acts=False), 7, 7),
        (outcome("done stale"), 7, 7),
        (outcome("not_started", acts=False, changes=True), 8, 8),
        (outcome("postponed", acts=False), 8, 8),
        (outcome("done postponed"), 0, 2),
        (outcome("converged", acts=False, tolerated=False, incomplete=("n0",)), 4, 4),
        (outcome("converged", acts=False, incomplete=("n0",)), 0, 2),
        (outcome("failed", tolerated=False, incomplete=("n0",)), 7, 7),
        (outcome("postponed", acts=False, tolerated=False), 8, 8),
        (outcome("done converged", braked="storm brake: 6 of 10 nodes"), 8, 8),  # a person is to look
        (outcome("done failed", braked="storm brake: 6 of 10 nodes"), 7, 7),
        (outcome("done failed", interrupted=True), 130, 130),
    ],
)
def test_a_run_ends_with_the_strongest_of_what_happened(found: ApplyOutcome, plain: int, detailed: int) -> None:
    assert exit_code(found, detailed=False) == plain
    assert exit_code(found, detailed=True) == detailed
