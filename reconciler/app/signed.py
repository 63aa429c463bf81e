"""Only a spec that allowed signers have signed is acted upon, for whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from reconciler.app.session import Session
    from reconciler.drivers.ledger import SqlLedger

F = TypeVar("F", bound=Callable[..., Any])


def signer_options(function: F) -> F:
    keys = click.option(
        "--allowed-keys", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        envvar="RECONCILER_ALLOWED_KEYS",
        help="Accept commits with an OpenPGP signature of one of these public keys.",
    )  # fmt: skip
    signers = click.option(
        "--allowed-signers", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        envvar="RECONCILER_ALLOWED_SIGNERS",
        help="Accept commits with an SSH signature of one of these signers only (see ssh-keygen(1)).",
    )  # fmt: skip
    return signers(keys(function))


def check_signed(session: Session, ledger: SqlLedger, ssh: Path | None, gpg: Path | None) -> None:
    """Refused unless the commit of the spec is signed, and every one that changed the spec since the last apply.

    As `run` has it: a signature above an unsigned commit does not heal it.
    """
    from reconciler.app.session import run_async
    from reconciler.drivers.signers import Signers, unsigned
    from reconciler.model.errors import Refused

    signers = Signers(ssh, gpg)
    if not signers:
        return
    signers.check()
    source = session.fleet.source
    if not source.commit or source.dirty:
        raise Refused("the spec is not that of a commit, which could be signed: commit what was changed")
    if problem := run_async(unsigned(signers, session.common.spec, source.commit, ledger.last_commit())):
        raise Refused(f"{problem}. Signed commits alone are applied here")
