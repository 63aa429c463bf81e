"""Switch power and reboot nodes. Only a new boot id proves a reboot, never a BMC's answer (pitfalls A9, I1)."""

from __future__ import annotations

from reconciler.converge.actions.activation import Pending, pending_settings, verify_activation
from reconciler.converge.actions.context import ActionContext, Stop, action, outcome_of, poll, tolerate
from reconciler.converge.actions.medium import eject_left_over
from reconciler.converge.guarded_ports import known
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, HostFacts, Silent
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.ports import PowerAction
from reconciler.model.units import format_duration
from reconciler.model.vocab import Power
from reconciler.planner.node.corroboration import BOOT_S

GRACEFUL_S = 180.0  # a hung system never ends by itself (pitfall C3)
FORCED_S = 60.0
POWER_ON_TRIES = 6
BETWEEN_TRIES_S = 10.0  # pitfall A7: BMCs answer 409 to On for a while after power-off
_MAY_HAVE_WORKED = (Failure.AMBIGUOUS, Failure.CONFLICT, Failure.BUSY)


@action
async def power_on(ctx: ActionContext) -> Outcome:
    """Switch the node on. No answer from the host is no failure: there may be no system to boot."""
    if await _power(ctx) is Power.OFF:
        await eject_left_over(ctx)  # or it boots an installer that gets no answer
    changed = await ensure_on(ctx)
    facts = await _host_after(ctx, unlike=None)
    return Done("on, and the host answers" if facts else "on, but no system answers", changed=changed)


@action
async def power_cycle(ctx: ActionContext) -> Outcome:
    """Switch the node off and on, verify each by reading it back, and wait for a new boot id."""
    boot_id = ctx.intent.get("boot_id")
    if ctx.resumed and await has_rebooted(ctx, boot_id):
        return Done("it had rebooted before the last run ended", changed=False)
    pending = await pending_settings(ctx)
    await ensure_off(ctx)
    await ensure_on(ctx)
    return await _came_back(ctx, boot_id, pending)


@action
async def soft_restart(ctx: ActionContext) -> Outcome:
    """Reboot the system through its host, and wait for a new boot id."""
    boot_id = ctx.intent.get("boot_id")
    if boot_id is None:
        return Declined("unknown", "the host gives no boot id, so a reboot could not be proved")
    if ctx.resumed and await has_rebooted(ctx, boot_id):
        return Done("it had rebooted before the last run ended", changed=False)
    pending = await pending_settings(ctx) if ctx.bmc_port is not None else Pending({}, ())
    await reboot(ctx)
    return await _came_back(ctx, boot_id, pending)


async def reboot(ctx: ActionContext) -> None:
    """Ask the system to reboot. The connection may close before an answer comes."""
    ctx.step("rebooting the system")
    seconds = ctx.clock.real_seconds(30.0)
    try:
        result = await ctx.host.run(("systemctl", "reboot"), timeout=max(2.0, seconds))
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            raise
        return
    if result.exit_status > 0:
        raise Stop(Transient(f"systemctl reboot: exit {result.exit_status}: {result.stderr.strip()[:200]}"))


async def has_rebooted(ctx: ActionContext, boot_id: str | None) -> bool:
    reading = await ctx.host.facts((), ())
    return isinstance(reading, Answered) and boot_id is not None and reading.value.boot_id not in (None, boot_id)


async def _came_back(ctx: ActionContext, boot_id: str | None, pending: Pending) -> Outcome:
    facts = await wait_for_host(ctx, unlike=boot_id)
    await verify_activation(ctx, pending)
    return Done(f"rebooted, boot id {facts.boot_id}")


async def wait_for_host(ctx: ActionContext, *, unlike: str | None) -> HostFacts:
    """Wait until the host answers with a boot id other than `unlike`. Raise Stop if it does not in time."""
    facts = await _host_after(ctx, unlike=unlike)
    if facts is None:
        hot = await ctx.bmc_port.hot() if ctx.bmc_port is not None else None
        shown = f": the machine is in {hot.value.boot_phase}" if isinstance(hot, Answered) else ""
        raise Stop(Transient(f"the host did not come back within {format_duration(BOOT_S)}{shown}"))
    return facts


async def _host_after(ctx: ActionContext, *, unlike: str | None) -> HostFacts | None:
    """Wait as `wait_for_host` does; if no host answers, record since when and return None."""
    ctx.step("waiting for the host")
    since = ctx.clock.now()

    async def probe() -> HostFacts | None:
        reading = await ctx.host.facts((), ())
        if isinstance(reading, Silent) or reading.value.boot_id in (None, unlike):
            return None
        return reading.value

    facts = await poll(ctx, probe, within_s=BOOT_S, every_s=3.0, soon=True)
    if facts is None:
        ctx.ledger.note_silences([(ctx.node, "ssh", True)], since)
    return facts


async def ensure_off(ctx: ActionContext) -> None:
    """Ask the system to shut down, then force it off, until the BMC twice shows that it is off. Raise Stop if not."""
    if await _power(ctx) is Power.OFF:
        return
    failed: DriverError | None = None
    for order, seconds in ((PowerAction.GRACEFUL_OFF, GRACEFUL_S), (PowerAction.FORCE_OFF, FORCED_S)):
        if order is PowerAction.GRACEFUL_OFF and isinstance(ctx.observed.host, Silent):
            continue  # no system answers that could shut down
        ctx.step("powering off" if order is PowerAction.GRACEFUL_OFF else "forcing power off")
        failed = await tolerate(ctx.bmc.power(order), *_MAY_HAVE_WORKED, Failure.UNSUPPORTED, Failure.REJECTED)
        if await poll(ctx, lambda: _reached(ctx, Power.OFF), within_s=seconds, every_s=2.0, soon=True):
            return
    raise Stop(outcome_of(failed) if failed else Transient("it did not power off, neither on request nor by force"))


async def ensure_on(ctx: ActionContext) -> bool:
    """Switch the power on unless it is on, and return whether that was needed. Raise Stop if it fails."""
    if await _power(ctx) is Power.ON:
        return False
    ctx.step("powering on")
    failed: DriverError | None = None
    for _ in range(POWER_ON_TRIES):
        failed = await tolerate(ctx.bmc.power(PowerAction.ON), *_MAY_HAVE_WORKED)
        if await poll(ctx, lambda: _reached(ctx, Power.ON), within_s=BETWEEN_TRIES_S, every_s=5.0, soon=True):
            return True
    raise Stop(outcome_of(failed) if failed else Transient("it did not power on"))


async def is_off(ctx: ActionContext) -> bool:
    """Return whether the BMC twice shows that the machine is off. Its silence says nothing."""
    return await _reached(ctx, Power.OFF) is True


async def _power(ctx: ActionContext) -> Power | None:
    return known(await ctx.bmc.hot()).power


async def _reached(ctx: ActionContext, wanted: Power) -> bool | None:
    """Return True if two readings show the wanted power state: BMCs sometimes show a stale one (pitfall A11)."""
    for _ in range(2):
        reading = await ctx.bmc.hot()
        if isinstance(reading, Silent) or reading.value.power is not wanted:
            return None
    return True
