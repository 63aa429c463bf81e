"""Check what runs on a node, and run its acceptance gate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from reconciler.converge.actions.context import ActionContext, action
from reconciler.converge.ports import SoakRun
from reconciler.converge.soak import stop
from reconciler.gate.attestation.expected import is_measured, must_prove, reference_of
from reconciler.gate.certificate import compose, tests_digest
from reconciler.gate.decline import first_results
from reconciler.gate.results import recorded
from reconciler.model.errors import LedgerError
from reconciler.model.gate import BootProof, Certificate, GateJudgement, Verdict
from reconciler.model.measurements import Attestation
from reconciler.model.outcome import Done, Outcome, Permanent, Transient
from reconciler.model.records import REFUTED, UNPROVED
from reconciler.model.soak import NAME as SOAK
from reconciler.model.soak_progress import JOURNALED, SoakProgress
from reconciler.planner.node.retest import left_out_tests

_NOTED_S: Final = 1800.0  # between two notes of how far a soak is, at most
_NOTES: Final = 50  # of a soak that is too short for that


@action
async def check_trust(ctx: ActionContext) -> Outcome:
    """Check that the running image and firmware are those that were signed."""
    judgement = ctx.gate.trust(ctx.desired, ctx.observed)
    if judgement.valid and must_prove(ctx.desired.profile):
        return await _prove_boot(ctx)
    return _outcome(judgement, "what runs here is what was signed")


async def _prove_boot(ctx: ActionContext) -> Outcome:
    """Let the TPM prove the present boot, and components what they run in it, as far as declared; record that.

    The TPM must be the one that the node was enrolled with.
    """
    boot_id = (await ctx.facts()).boot_id
    proof = BootProof(GateJudgement(True, Verdict.PASS))
    if is_measured(ctx.desired.profile):
        ctx.step("asking the TPM what was booted")
        proof = await ctx.gate.attest(ctx.desired, ctx.host, ctx.observed, ctx.clock)
        if proof.judgement.verdict is Verdict.FAIL:
            return _refuted(ctx, boot_id, "; ".join(proof.judgement.reasons))
        if proof.judgement.verdict is Verdict.ERROR:
            return Transient(UNPROVED + "; ".join(proof.judgement.reasons))
        if not proof.judgement.valid:
            return _outcome(proof.judgement, "")
    evidence, platform = dict(proof.evidence), ctx.desired.profile.measurements
    if platform is not None and platform.components:
        # A failure here takes no node out of service: it may be of the BMC, which hands on what components sign.
        measured = await ctx.gate.measure(ctx.desired, ctx.bmc, ctx.observed, ctx.clock, ctx.step)
        if not measured.judgement.valid:
            return _outcome(measured.judgement, "")
        evidence["components"] = dict(measured.evidence)
    if boot_id is None or (await ctx.facts()).boot_id != boot_id:
        return Transient("it is not known of which boot the proof is: the host does not say, or was booted meanwhile")
    if proof.endorsement is not None:
        problem = ctx.ledger.bind_endorsement(ctx.node, proof.endorsement, ctx.clock.now())
        if problem:
            return _refuted(ctx, boot_id, problem)
    proved = Attestation(reference_of(ctx.desired.profile), ctx.clock.now(), proof.phase, boot_id)
    ctx.ledger.save_attestation(ctx.node, proved, evidence)
    return Done("what runs here is what was signed and measured")


def _refuted(ctx: ActionContext, boot_id: str | None, why: str) -> Permanent:
    """Return the failure for which the planner takes the node out of service, while it is in the boot of the intent."""
    seen = boot_id is not None and ctx.intent.get("boot_id") == boot_id
    return Permanent((REFUTED if seen else "") + why)


@action
async def run_gate(ctx: ActionContext) -> Outcome:
    """Run the acceptance tests that what was done asks for. What earlier gates measured stands for the others.

    The ledger keeps certificate, measurements and outputs, whatever the verdict. Other tests than the node's own, which
    a person asked for, certify nothing, and what they find is no failure of it.
    """
    if ctx.partners is not None and (left := ctx.resumed.get("partners")):
        await ctx.partners.recover(left)
    if (other := ctx.desired.other_tests) is not None:
        return await _run_other(ctx, other.name)
    acceptance = ctx.desired.profile.acceptance
    soaks = frozenset(test.name for test in (acceptance.tests if acceptance else ()) if test.tool == SOAK)
    loads = tests_digest(acceptance).each[SOAK] if acceptance and soaks else ""
    left_out = left_out_tests(ctx.desired, ctx.observed, ctx.record, ctx.clock.now())
    begun, begun_with = ctx.resumed.get("soak"), ctx.resumed.get("loads")
    goes_on = bool(begun) and begun_with == loads and not soaks <= left_out
    if (soaks or begun) and not goes_on:
        await stop(ctx.host, ctx.clock)  # it is of nobody, or of other loads, and would run beside the tests
        if JOURNALED in ctx.resumed:
            ctx.journal(**{JOURNALED: None})
    ctx.step("running the acceptance tests" + (f", but for {', '.join(sorted(left_out))}" if left_out else ""))
    certificate, judgement = await _run(ctx, left_out, soaks, ctx.record.certificate)
    if soaks - left_out and judgement.by_test.keys() == soaks:
        soak = str(begun) if goes_on else f"{ctx.node}-{ctx.attempt}"
        ctx.journal(soak=soak, loads=loads)  # before it begins: whoever comes after us goes on with it
        run = SoakRun(soak, goes_on, ctx.step, _noted(ctx))
        every = frozenset(result.test for result in certificate.results)
        certificate, judgement = await _run(ctx, every - soaks, frozenset(), certificate, run)
    kept = len(certificate.results) - len(certificate.measured)
    return _outcome(judgement, f"{len(certificate.measured)} tests passed" + (f", {kept} stand" if kept else ""))


def _noted(ctx: ActionContext) -> Callable[[SoakProgress], None]:
    """Return what journals how far a soak is: often enough for people, and few rows for days."""
    due = ctx.clock.monotonic()

    def note(progress: SoakProgress) -> None:
        nonlocal due
        if ctx.clock.monotonic() < due:
            return
        due = ctx.clock.monotonic() + min(_NOTED_S, progress.seconds / _NOTES)
        with suppress(LedgerError):  # the lease decides whether a run without its ledger goes on, and no note
            ctx.journal(**{JOURNALED: progress.journaled()})

    return note


async def _run(
    ctx: ActionContext,
    kept: frozenset[str],
    later: frozenset[str],
    known: Certificate | None,
    soak: SoakRun | None = None,
) -> tuple[Certificate, GateJudgement]:
    """Run tests, record what they measured together with what stands, and judge all of it.

    `kept`: tests whose earlier results stand. `later`: tests that are still to come, of which
    nothing stands.
    """
    run = await ctx.gate.run(ctx.desired, ctx.host, ctx.observed, ctx.clock, kept | later, soak, ctx.partners)
    found = recorded(run, ctx.desired, ctx.attempt)
    certificate = compose(found.certificate, known, kept)
    if (acceptance := ctx.desired.profile.acceptance) is not None:
        certificate = replace(certificate, first=first_results(certificate, known, acceptance))
    with ctx.ledger.batch():
        ctx.ledger.save_results(found.runs, found.outputs)
        ctx.ledger.save_certificate(certificate)
    return certificate, ctx.gate.judge(certificate, ctx.desired, ctx.observed, ctx.clock)


async def _run_other(ctx: ActionContext, name: str) -> Outcome:
    ctx.step(f"running the tests of {name}")
    run = await ctx.gate.run(ctx.desired, ctx.host, ctx.observed, ctx.clock, partners=ctx.partners)
    found = recorded(run, ctx.desired, ctx.attempt)
    ctx.ledger.save_results(found.runs, found.outputs)
    told = ", ".join(f"{run.test} {run.verdict}" for run in found.runs)
    return Done(f"tests of {name}, which certify nothing: {told}")


def _outcome(judgement: GateJudgement, passed: str) -> Outcome:
    """Return the outcome of a judgement: a failure is permanent; what could not be judged is retried (DESIGN 7.4)."""
    if judgement.valid:
        return Done(passed)
    why = "; ".join(judgement.reasons) or judgement.verdict.value
    return Permanent(why) if judgement.verdict is Verdict.FAIL else Transient(f"{judgement.verdict}: {why}")
