"""Check what runs on a node, and run its acceptance gate."""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, action
from reconciler.gate.attestation.expected import is_measured, reference_of
from reconciler.gate.certificate import compose
from reconciler.gate.results import recorded
from reconciler.model.gate import GateJudgement, Verdict
from reconciler.model.measurements import Attestation
from reconciler.model.outcome import Done, Outcome, Permanent, Transient
from reconciler.planner.node.retest import left_out_tests


@action
async def check_trust(ctx: ActionContext) -> Outcome:
    """Check that the running image and firmware are those that were signed."""
    judgement = ctx.gate.trust(ctx.desired, ctx.observed)
    if judgement.valid and is_measured(ctx.desired.profile):
        return await _prove_boot(ctx)
    return _outcome(judgement, "what runs here is what was signed")


async def _prove_boot(ctx: ActionContext) -> Outcome:
    """Let the TPM prove the present boot, and record that. The TPM must be the one that the node was enrolled with."""
    ctx.step("asking the TPM what was booted")
    boot_id = (await ctx.facts()).boot_id
    proof = await ctx.gate.attest(ctx.desired, ctx.host, ctx.observed, ctx.clock)
    if not proof.judgement.valid:
        return _outcome(proof.judgement, "")
    if boot_id is None or (await ctx.facts()).boot_id != boot_id:
        return Transient("it is not known of which boot the quote is: the host does not say, or was booted meanwhile")
    if proof.endorsement is not None:
        problem = ctx.ledger.bind_endorsement(ctx.node, proof.endorsement, ctx.clock.now())
        if problem:
            return Permanent(problem)
    proved = Attestation(reference_of(ctx.desired.profile), ctx.clock.now(), proof.phase, boot_id)
    ctx.ledger.save_attestation(ctx.node, proved, proof.evidence)
    return Done("what runs here is what was signed and measured")


@action
async def run_gate(ctx: ActionContext) -> Outcome:
    """Run the acceptance tests that what was done asks for. What earlier gates measured stands for the others.

    The ledger keeps certificate, measurements and outputs, whatever the verdict. Other tests than the node's own, which
    a person asked for, certify nothing, and what they find is no failure of it.
    """
    if (other := ctx.desired.other_tests) is not None:
        return await _run_other(ctx, other.name)
    known = ctx.record.certificate
    left_out = left_out_tests(ctx.desired, ctx.observed, ctx.record, ctx.clock.now())
    ctx.step("running the acceptance tests" + (f", but for {', '.join(sorted(left_out))}" if left_out else ""))
    run = await ctx.gate.run(ctx.desired, ctx.host, ctx.observed, ctx.clock, left_out)
    found = recorded(run, ctx.desired, ctx.attempt)
    measured = found.certificate
    certificate = compose(measured, known, left_out)
    with ctx.ledger.batch():
        ctx.ledger.save_results(found.runs, found.outputs)
        ctx.ledger.save_certificate(certificate)
    judgement = ctx.gate.judge(certificate, ctx.desired, ctx.observed, ctx.clock)
    kept = len(certificate.results) - len(measured.results)
    return _outcome(judgement, f"{len(measured.results)} tests passed" + (f", {kept} stand" if kept else ""))


async def _run_other(ctx: ActionContext, name: str) -> Outcome:
    ctx.step(f"running the tests of {name}")
    found = recorded(await ctx.gate.run(ctx.desired, ctx.host, ctx.observed, ctx.clock), ctx.desired, ctx.attempt)
    ctx.ledger.save_results(found.runs, found.outputs)
    told = ", ".join(f"{run.test} {run.verdict}" for run in found.runs)
    return Done(f"tests of {name}, which certify nothing: {told}")


def _outcome(judgement: GateJudgement, passed: str) -> Outcome:
    """Return the outcome of a judgement: a failure is permanent; what could not be judged is retried (DESIGN 7.4)."""
    if judgement.valid:
        return Done(passed)
    why = "; ".join(judgement.reasons) or judgement.verdict.value
    return Permanent(why) if judgement.verdict is Verdict.FAIL else Transient(f"{judgement.verdict}: {why}")
