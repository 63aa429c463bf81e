"""The port of attestation: it judges what a machine's TPM says while its installer runs (DESIGN section 7.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reconciler.model.install import AttestationBegin, AttestationChallenge, AttestationFinish, InstallDocument


@dataclass(frozen=True, slots=True)
class AttestationVerdict:
    """The verdict on a machine. `trusted`: it is the one it says, and booted what the spec says. `reason`: why not."""

    trusted: bool
    reason: str = ""


class Attestor(Protocol):
    """Judges one machine at a time, by the document of its attempt.

    Both calls raise ContractError for what can't be parsed, and DriverError: REJECTED when this machine can't be
    trusted whatever it sends (its endorsement key is another node's, ...), other kinds when it can't be judged now.
    """

    async def begin(self, document: InstallDocument, begin: AttestationBegin) -> AttestationChallenge:
        """Return a challenge that only this TPM can open, with a nonce that counts once and for this attempt alone."""

    async def finish(self, document: InstallDocument, finish: AttestationFinish) -> AttestationVerdict:
        """Judge the opened secret, the quote and the event log. `host_key` is trusted with the verdict.

        A nonce that was used, or never given, is a verdict of its own and no error.
        """
