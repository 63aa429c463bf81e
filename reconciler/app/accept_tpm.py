"""The `ledger accept-tpm` use case: a mainboard was replaced, and its node may go on with the TPM that came with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.app.holds import check_subject
from reconciler.app.runtime import new_id, run_async, whoami
from reconciler.app.workspace import Workspace
from reconciler.converge.lease import held_lease
from reconciler.model.errors import UsageError


@dataclass(frozen=True, slots=True)
class Exchange:
    """Fingerprints of the endorsement keys of a node's TPM: the enrolled one, and the one that was refused since."""

    node: str
    before: str
    after: str


def accept_tpm(workspace: Workspace, node: str, reason: str, confirm: Callable[[Exchange], None]) -> Exchange:
    """Enrol the TPM that was refused last in place of the node's own.

    It has proved itself when it was refused, so nobody need type a fingerprint. `confirm` gets both before anything is
    written, and raises to stop; another TPM that is refused meanwhile is not accepted.
    """
    check_subject(workspace.fleet, node)
    with workspace.ledger() as ledger:
        before, after = ledger.node(node).endorsement, ledger.refused_endorsement(node)
        if before is None:
            raise UsageError(f"no TPM of {node} is enrolled: the first one that proves itself is")
        if not after:
            raise UsageError(
                f"no other TPM was refused on {node} since its own was enrolled, so there is none to accept"
            )
        found = Exchange(node, before, after)
        confirm(found)

        async def write() -> str:
            clock, fleet = workspace.clock, workspace.fleet
            run = new_id("accept-tpm", clock.now())
            async with held_lease(ledger, fleet.settings.fleet, f"{whoami()}, {run}", clock):
                return ledger.accept_endorsement(node, before, after, f"by {whoami()}: {reason}", clock.now())

        if problem := run_async(write()):
            raise UsageError(f"{node}: {problem}")
    return found
