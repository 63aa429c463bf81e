"""Take a machine out of the fleet for good: out of the cluster, without trust, cleared, off, and with a tombstone.

Each step can be repeated, and is proved by a read of its own. The host key's certificate is revoked by the tombstone:
until the drives are erased, it is what proves that the host that erases them is this node's.
"""

from __future__ import annotations

import secrets

from reconciler.converge.actions.adjust import take_back_all
from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action, poll, tolerate
from reconciler.converge.actions.membership import TRIES, mark_of
from reconciler.converge.actions.power import ensure_off, ensure_on
from reconciler.converge.erasure_records import named
from reconciler.converge.guarded_ports import known
from reconciler.model.errors import Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.vocab import BootPhase, NodeState, Power
from reconciler.planner.node.corroboration import BOOT_S, same_uuid
from reconciler.planner.node.decommission import tombstones_of, tpm_attribute

KUBELETS = ("kubelet", "k3s", "k3s-agent", "rke2-agent")  # units whose start registers the node
STAYS_AWAY_S = 15.0


def _check(ctx: ActionContext) -> str:
    """Return the serial number of the machine that the spec gives up. Raise Stop where it gives up none."""
    if ctx.desired.state is not NodeState.DECOMMISSIONED or ctx.desired.serial is None:
        raise Stop(Declined("not_declared", "the spec does not say that this machine is to be decommissioned"))
    return ctx.desired.serial


@action
async def remove_node(ctx: ActionContext) -> Outcome:
    """Stop what would register the node again, and delete its node object."""
    _check(ctx)
    member = await ctx.cluster.member(ctx.node)
    if member is None:
        return Done("the cluster has no such node", changed=False)
    if mark_of(member, ctx.ledger.id) is None or not member.unschedulable:
        return Declined("not_marked", "the node does not carry our mark, so it has not been drained")
    drains = ctx.desired.profile.drain.provider.asks_cluster
    if drains and (left := member.work(ctx.observed.host, ctx.clock.now())):
        return Declined("not_drained", f"{len(left)} pods are still on it")
    uuid = ctx.desired.uuid or ctx.record.uuid
    if uuid is not None and member.system_uuid and not same_uuid(member.system_uuid, uuid):
        return Declined("identity", f"the node object is of the machine {member.system_uuid}, this one is {uuid}")
    stopped = await _stop_kubelet(ctx)
    await take_back_all(ctx.cluster, member, ctx.ledger.id)
    failed = None
    for _ in range(TRIES):
        failed = await tolerate(ctx.cluster.remove(member), Failure.CONFLICT, Failure.AMBIGUOUS)
        if (found := await ctx.cluster.member(ctx.node)) is None:
            break
        member = found
    else:
        return Transient(f"the node object is still there: {failed or 'it was made again'}")
    await ctx.clock.sleep(STAYS_AWAY_S)
    if await ctx.cluster.member(ctx.node) is not None:
        return Transient("a kubelet registered the node again")
    return Done(f"its node object is deleted{stopped}")


async def _stop_kubelet(ctx: ActionContext) -> str:
    """Stop kubelets, now and at each boot, where a host answers. Return what was done, as the end of a sentence."""
    reading = await ctx.host.facts((), ()) if ctx.host_port is not None else None
    if reading is None or isinstance(reading, Silent):
        return "; no host answers, so what would register it again could not be stopped"
    stopped = []
    for unit in KUBELETS:
        enabled = await ctx.host.run(("systemctl", "is-enabled", unit), timeout=max(2.0, ctx.clock.real_seconds(30.0)))
        active = await ctx.host.run(("systemctl", "is-active", unit), timeout=max(2.0, ctx.clock.real_seconds(30.0)))
        if 0 in (enabled.exit_status, active.exit_status):
            await run(ctx, ("systemctl", "disable", "--now", unit))
            stopped.append(unit)
    return f", and {', '.join(stopped)} stopped" if stopped else ""


@action
async def revoke(ctx: ActionContext) -> Outcome:
    """Take back what the machine was trusted for. Its certificate is void by this very attempt."""
    _check(ctx)
    ctx.ledger.set_nonce(ctx.node, f"revoked-{secrets.token_hex(16)}", ctx.clock.now())  # no system carries this one
    return Done("certificate and installation count no more")


@action
async def clear_tpm(ctx: ActionContext) -> Outcome:
    """Clear the TPM by the BIOS attribute of this make, which the next POST carries out; the machine is off then."""
    _check(ctx)
    found = tpm_attribute(known(await ctx.bmc.inventory()))
    if found is None:
        return Declined("unsupported", "the BMC has no BIOS attribute that is known to clear the TPM")
    name, value = found
    if not ctx.resumed.get("staged"):
        ctx.step(f"staging {name}={value}")
        failed = await tolerate(ctx.bmc.stage_bios({name: value}), Failure.AMBIGUOUS)
        if (known(await ctx.bmc.hot()).pending_bios or {}).get(name) != value:
            return Transient(f"{failed or 'accepted'}, but the BMC does not show {name}={value} as pending")
        ctx.journal(staged=True)
    if name in (known(await ctx.bmc.hot()).pending_bios or {}):
        await ensure_off(ctx)
        await ensure_on(ctx)

        async def posted() -> bool | None:
            hot = await ctx.bmc.hot()
            if not isinstance(hot, Answered) or hot.value.boot_phase in (BootPhase.POST, BootPhase.OFF):
                return None
            pending = hot.value.pending_bios
            return True if pending is not None and name not in pending else None

        ctx.step("waiting for POST, which clears the TPM")
        if await poll(ctx, posted, within_s=BOOT_S, every_s=15.0) is None:
            return Transient(f"POST did not carry out {name}={value}")
    await ensure_off(ctx)
    shown = (known(await ctx.bmc.inventory()).bios or {}).get(name)
    if shown is None or shown == value:
        return Transient(f"{name} still shows {shown!r}: nothing proves that the TPM was cleared")
    return Done(f"{name}={value} was carried out by POST, and shows {shown!r} again")


@action
async def power_off(ctx: ActionContext) -> Outcome:
    """Switch the machine off."""
    _check(ctx)
    if known(await ctx.bmc.hot()).power is Power.OFF:
        return Done("it was off", changed=False)
    await ensure_off(ctx)
    return Done("off")


@action
async def tombstone(ctx: ActionContext) -> Outcome:
    """Keep in the ledger, by serial number and UUID, that this machine comes back only with a new consent.

    Its BMC posts no events to us any more, first.
    """
    serial = _check(ctx)
    system = known(await ctx.bmc.hot())
    wanted = tombstones_of((serial,), (ctx.desired.uuid, ctx.record.uuid, system.uuid))
    there = {hold.subject for hold in ctx.ledger.holds() if hold.until is None}
    if there.issuperset(wanted):
        return Done("it has its tombstone", changed=False)
    if system.power is not Power.OFF:
        return Declined("not_off", "the machine is on")
    await tolerate(ctx.bmc.unsubscribe(ctx.ledger.id), Failure.UNSUPPORTED)
    records = ctx.ledger.erasures(ctx.node)
    erased = f"erased: {named(ctx.desired.erase, records)}" if ctx.desired.erase else "no drive was to be erased"
    reason = f"{ctx.node}, {serial}; {erased}; plan {ctx.plan}, spec {ctx.commit[:12] or 'outside of git'}"
    with ctx.ledger.batch():
        for subject in wanted:
            if subject not in there:
                ctx.ledger.hold(subject, reason, ctx.operator or "reconciler", None, ctx.clock.now())
    return Done(f"{serial} has left the fleet for good; {erased}")
