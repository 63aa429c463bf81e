"""`model.attestor.Attestor`: judges what a machine's TPM says while its installer runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime

from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.credential import Entropy
from reconciler.gate.attestation.exchange import Challenge, Expected, Untrusted, challenge, verdict
from reconciler.model.attestor import AttestationVerdict
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    AttestationBegin,
    AttestationChallenge,
    AttestationFinish,
    ContractError,
    InstallDocument,
)
from reconciler.model.ledger_ports import NodeStore


class TpmAttestor:
    """`expected`: what the installer on a node must prove, or why that is not known (`expected_of_installer`).

    Challenges are kept in memory alone: after a change of leader, an installer begins again. There is one for each
    node, so that a machine that begins without end takes no more memory than another.
    """

    def __init__(
        self,
        expected: Callable[[str], Expected | str],
        ledger: NodeStore,
        now: Callable[[], datetime],
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self._expected = expected
        self._ledger = ledger
        self._now = now
        self._entropy = entropy
        self._open: dict[str, tuple[str, Challenge]] = {}  # by node: the attempt's nonce, and what was asked

    async def begin(self, document: InstallDocument, begin: AttestationBegin) -> AttestationChallenge:
        expected = self._wanted(document.node)
        try:
            sent, given = challenge(begin, expected.platform, self._entropy, self._now())
        except Malformed as error:
            raise ContractError(str(error)) from None
        except Untrusted as error:
            raise DriverError(Failure.REJECTED, str(error)) from None
        self._open[document.node] = (document.nonce, given)
        return sent

    async def finish(self, document: InstallDocument, finish: AttestationFinish) -> AttestationVerdict:
        attempt, given = self._open.pop(document.node, ("", None))
        if given is None or attempt != document.nonce:
            return AttestationVerdict(False, "no challenge is open for this attempt: one counts once, so begin again")
        judged = verdict(given, finish, self._wanted(document.node))
        if judged.reasons:
            return AttestationVerdict(False, "; ".join(judged.reasons))
        problem = self._ledger.bind_endorsement(document.node, given.endorsement, self._now())
        return AttestationVerdict(not problem, problem)

    def _wanted(self, node: str) -> Expected:
        expected = self._expected(node)
        if isinstance(expected, str):
            raise DriverError(Failure.REJECTED, f"{node} can't be attested: {expected}")
        return expected
