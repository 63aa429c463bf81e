"""Ask the TPM of a booted host what it booted, over SSH. reconciler/gate/attestation judges it, without any I/O."""

from __future__ import annotations

import secrets
from dataclasses import asdict

from reconciler.converge.observe import io_seconds
from reconciler.gate.attestation.buffers import Malformed
from reconciler.gate.attestation.exchange import Untrusted, challenge, verdict
from reconciler.gate.attestation.expected import expected_of_host
from reconciler.gate.attestation.host import BEGIN_S, FINISH_S, begin_command, finish_command, read_begin, read_finish
from reconciler.model.desired import Desired
from reconciler.model.gate import BootProof, CommandResult, GateJudgement, Verdict
from reconciler.model.install import ContractError
from reconciler.model.observed import Observed
from reconciler.model.ports import Clock, Host

_WORDS = 300  # characters of what a host printed


async def attest(desired: Desired, host: Host, observed: Observed, clock: Clock) -> BootProof:
    """Have one exchange with the host, under a nonce of its own. Raise DriverError when the host is lost."""
    expected = expected_of_host(desired, observed)
    if isinstance(expected, str):
        return _unproved(Verdict.UNJUDGED, expected)
    began = await host.run(begin_command(), timeout=io_seconds(clock, BEGIN_S))
    if began.exit_status != 0:
        return _unproved(Verdict.ERROR, f"the TPM made no keys: {_printed(began)}")
    try:
        sent, given = challenge(read_begin(began.stdout), expected.platform, secrets.token_bytes, clock.now())
    except ContractError as error:
        return _unproved(Verdict.ERROR, f"the host did not tell the TPM's keys: {error}")
    except (Malformed, Untrusted) as error:
        return _unproved(Verdict.FAIL, str(error))
    ended = await host.run(finish_command(sent), timeout=io_seconds(clock, FINISH_S))
    if ended.exit_status != 0:
        return _unproved(Verdict.ERROR, f"the TPM gave no quote: {_printed(ended)}")
    try:
        answer = read_finish(ended.stdout)
    except ContractError as error:
        return _unproved(Verdict.ERROR, f"the host did not tell the quote: {error}")
    judged = verdict(given, answer, expected)
    evidence = {} if judged.measured is None else asdict(judged.measured)
    if judged.reasons:
        return BootProof(GateJudgement(False, Verdict.FAIL, judged.reasons), evidence=evidence)
    return BootProof(GateJudgement(True, Verdict.PASS), given.endorsement, judged.phase, evidence)


def _unproved(verdict: Verdict, why: str) -> BootProof:
    return BootProof(GateJudgement(False, verdict, (why,)))


def _printed(result: CommandResult) -> str:
    if result.timed_out:
        return "it did not end in time"
    lines = (result.stderr or result.stdout).strip().splitlines()
    while len(lines) > 1 and "Unable to run" in lines[-1]:  # tpm2-tools say why in the line before
        lines.pop()
    return lines[-1][:_WORDS] if lines else f"exit status {result.exit_status}"
