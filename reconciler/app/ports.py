"""The inputs of a use case: requests, and the frontend that it reports to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from reconciler.model.errors import ReconcilerError

if TYPE_CHECKING:  # every command imports this module, and few show the events of a pass
    from datetime import datetime

    from reconciler.converge.events import Progress as Progress


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """The spec, the nodes, the ledger and the endpoints that a use case works with.

    `rev`: a git revision of the spec; None reads the work tree. `limit`, `exclude`: node expressions.
    `ledger`: a file or a postgresql:// URL; None takes the default. `create_ledger`: make it when it is not there, also
    for a command that only reads. `endpoints`: the endpoints.json of a lab.
    `engine`: tls://host:port of a scheduler whose workers read the nodes; None: this process does. `engine_tls`: the
    directory of its certificates. `fleet`: the name of the fleet, for use cases that read the ledger and no spec.
    """

    spec: Path
    rev: str | None = None
    limit: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ledger: str | None = None
    endpoints: Path | None = None
    fleet: str | None = None
    create_ledger: bool = False
    engine: str | None = None
    engine_tls: Path | None = None


@dataclass(frozen=True, slots=True)
class PlanSource:
    """The source of a plan. `observation`: a file; None reads the nodes. `base`, `head`: revisions of a change.

    Without `base`, the plan is of one revision. Without `head`, the change leads to the work tree.
    """

    observation: Path | None = None
    base: str | None = None
    head: str | None = None


@dataclass(frozen=True, slots=True)
class AllowedSigners:
    """Files of the signers whose commits may be acted on: SSH signers as in ssh-keygen(1), and OpenPGP public keys.

    Without either, every commit may be.
    """

    ssh: Path | None = None
    gpg: Path | None = None


@dataclass(frozen=True, slots=True)
class RecordTarget:
    """The target of --record: a branch of the spec's repository, or a directory."""

    branch: str = ""
    directory: Path | None = None


class ShowProgress(Protocol):
    def __call__(
        self, what: str, now: Callable[[], datetime], *, terse: bool = False
    ) -> AbstractContextManager[Progress]:
        """Show the events of one pass while the context is open.

        `what` names the pass, such as "observing". `now` is the clock of the fleet. `terse` leaves out every text that
        a machine reported.
        """


@contextmanager
def no_progress(
    what: str,  # noqa: ARG001 - as `ShowProgress` has it: nothing is shown
    now: Callable[[], datetime],  # noqa: ARG001 - likewise
    *,
    terse: bool = False,  # noqa: ARG001 - likewise
) -> Iterator[Progress]:
    """Show nothing of a pass: the default of a frontend."""
    from reconciler.converge.events import ignore

    yield ignore


@dataclass(frozen=True, slots=True)
class Frontend:
    """The receiver of what a use case reports while it works. The defaults show nothing.

    `say` takes one line for people. `exit_code` maps the error that ended a run to the code that the ledger records;
    it gets a KeyboardInterrupt for an interrupted run.
    """

    say: Callable[[str], None] = lambda _line: None
    progress: ShowProgress = no_progress
    exit_code: Callable[[ReconcilerError | KeyboardInterrupt], int] = lambda _error: 1
