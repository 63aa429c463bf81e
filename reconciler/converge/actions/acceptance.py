"""Check what runs on a node, and run its acceptance gate."""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, action
from reconciler.model.gate import GateJudgement, Verdict
from reconciler.model.outcome import Done, Outcome, Permanent, Transient


@action
async def check_trust(ctx: ActionContext) -> Outcome:
    """Check that the running image and firmware are those that were signed."""
    return _outcome(ctx.gate.trust(ctx.desired, ctx.observed), "what runs here is what was signed")


@action
async def run_gate(ctx: ActionContext) -> Outcome:
    """Run the acceptance tests. The ledger keeps the certificate with its measurements, whatever the verdict."""
    ctx.step("running the acceptance tests")
    certificate = await ctx.gate.run(ctx.desired, ctx.host, ctx.observed, ctx.clock)
    ctx.ledger.save_certificate(certificate)
    judgement = ctx.gate.judge(certificate, ctx.desired, ctx.observed, ctx.clock)
    return _outcome(judgement, f"{len(certificate.results)} tests passed")


def _outcome(judgement: GateJudgement, passed: str) -> Outcome:
    """Return the outcome of a judgement: a failure is permanent; what could not be judged is retried (DESIGN 7.4)."""
    if judgement.valid:
        return Done(passed)
    why = "; ".join(judgement.reasons) or judgement.verdict.value
    return Permanent(why) if judgement.verdict is Verdict.FAIL else Transient(f"{judgement.verdict}: {why}")
