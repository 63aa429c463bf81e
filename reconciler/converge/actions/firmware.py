"""Firmware updates and BMC resets. A task says how an update goes; only the version says that it went (pitfall A6)."""

from __future__ import annotations

from reconciler.converge.actions.activation import (
    answers_again,
    pending_settings,
    satisfies,
    steady_inventory,
    verify_activation,
    version_of,
)
from reconciler.converge.actions.context import ActionContext, Stop, tolerate, until
from reconciler.converge.guard import known
from reconciler.model.desired import DesiredFirmware
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, BmcTask, Silent
from reconciler.model.outcome import Ambiguous, Declined, Done, Outcome, Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import Activation

POLL_S = 12.0  # old iDRACs delete a finished task after a minute (pitfall A5)
GRACE_S = 60.0  # so long may a new task be unknown, or a BMC that flashes itself be silent
BMC_BACK_S = 900.0
OUTLAST = 1.5  # times the usual duration


async def update_firmware(ctx: ActionContext) -> Outcome:
    item = next((item for item in ctx.desired.profile.firmware if item.component == ctx.action.target), None)
    if item is None or item.url is None:
        return Declined("no_image", f"the spec gives no URL to flash {ctx.action.target} from")
    before = version_of(known(await ctx.bmc.inventory()), item)
    if before is None:
        return Declined("unknown", f"the BMC lists no firmware {item.inventory_id!r}")
    if satisfies(item, before):
        return Done(f"{item.component} runs {before} already", changed=False)
    task = await _adopted(ctx, item) or await _started(ctx, item, item.url)
    ctx.step(f"flashing {item.component} {before} -> {item.version}")
    verdict = await _follow(ctx, item, task)
    if item.settle_s:
        ctx.step(f"settling for {format_duration(item.settle_s)}")
        await ctx.clock.sleep(item.settle_s)
    if not await answers_again(ctx, BMC_BACK_S):
        return Transient("the BMC did not come back after the update")
    after = version_of(await steady_inventory(ctx), item)
    if satisfies(item, after):
        return Done(f"{item.component} {before} -> {after}")
    if verdict is not None and verdict.ok is False:
        return Transient(f"the update of {item.component} failed: {'; '.join(verdict.messages) or verdict.state}", 60.0)
    if item.activation is Activation.IMMEDIATE:
        return Transient(f"the update ended, but {item.component} still runs {after}", 60.0)
    return Done(f"{item.component} {item.version} is staged; {item.activation} brings it in")


async def _adopted(ctx: ActionContext, item: DesiredFirmware) -> str | None:
    """The task of an earlier attempt whose run ended, if the BMC still knows it (pitfall F8).

    A run that died before it was told the task's URI had journaled which tasks there were before it asked: the one
    that came since is its own. It may have ended by now, and nothing but it shows that firmware is staged.
    """
    uri, before = ctx.resumed.get("task"), ctx.resumed.get("tasks")
    if ctx.resumed.get("version", item.version) != item.version:
        return None  # the spec has moved on
    if isinstance(uri, str):
        return uri if await ctx.bmc.task(uri) is not None else None
    if not isinstance(before, list):
        return None  # it died before it asked
    new = set(await ctx.bmc.tasks()) - set(before)
    if len(new) != 1:
        return None
    ctx.learn(task=(found := new.pop()))
    return found


async def _started(ctx: ActionContext, item: DesiredFirmware, url: str) -> str:
    running = await _running(ctx)
    if running:
        raise Stop(Transient(f"another task is running on the BMC: {', '.join(sorted(running))}", 120.0))
    before = set(await ctx.bmc.tasks())
    ctx.learn(task=None, tasks=sorted(before), version=item.version)
    try:
        uri = await ctx.bmc.update_firmware(item.inventory_id, url)
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            raise
        new = set(await ctx.bmc.tasks()) - before
        if len(new) != 1:
            raise Stop(Ambiguous(f"{error.detail}; the BMC shows {len(new)} new tasks")) from error
        uri = new.pop()
    ctx.learn(task=uri)
    return uri


async def _running(ctx: ActionContext) -> set[str]:
    tasks = known(await ctx.bmc.hot()).tasks
    if tasks is None:
        raise Stop(Transient("the BMC does not say which tasks are running"))
    return {task.uri for task in tasks if not task.done}


async def _follow(ctx: ActionContext, item: DesiredFirmware, uri: str) -> BmcTask | None:
    """The ended task; None when the BMC lost it, so that its effect must speak for it (pitfall A5)."""
    began = last_seen = ctx.clock.monotonic()
    while ctx.clock.monotonic() - began < 2 * item.minutes * 60 + 300:
        await ctx.clock.sleep(POLL_S)
        task = await _look(ctx, uri)
        if task is not None:
            last_seen = ctx.clock.monotonic()
            if task.done:
                return task
        elif _gone(ctx, last_seen) and not isinstance(await ctx.bmc.hot(), Silent):
            await _outlast(ctx, item, began)
            return None
    raise Stop(Transient(f"the update of {item.component} did not end in time; its task is {uri}"))


async def _outlast(ctx: ActionContext, item: DesiredFirmware, began: float) -> None:
    """Nobody can say whether the flash still runs: leave it the time that it may take before anything restarts."""
    ctx.step("the BMC lost the task; waiting for its effect")
    left = began + item.minutes * 60 * OUTLAST - ctx.clock.monotonic()

    async def shown() -> bool | None:
        inventory = await ctx.bmc.inventory()
        return True if isinstance(inventory, Answered) and satisfies(item, version_of(inventory.value, item)) else None

    await until(ctx, shown, within_s=left, every_s=30.0)


async def _look(ctx: ActionContext, uri: str) -> BmcTask | None:
    try:
        return await ctx.bmc.task(uri)
    except DriverError as error:
        if error.kind is Failure.AUTH:
            raise
        return None  # a BMC that flashes itself is silent for a while


def _gone(ctx: ActionContext, last_seen: float) -> bool:
    return ctx.clock.monotonic() - last_seen > GRACE_S


async def reset_bmc(ctx: ActionContext) -> Outcome:
    """Restart the BMC, and check the firmware that waited for it."""
    pending = await pending_settings(ctx)
    ctx.step("resetting the BMC")
    await tolerate(ctx.bmc.reset(), Failure.AMBIGUOUS)
    await ctx.clock.sleep(GRACE_S / 2)  # one that has not gone down yet would answer
    if not await answers_again(ctx, BMC_BACK_S):
        return Transient("the BMC did not come back after its reset")
    await ctx.clock.sleep(max((item.settle_s for item in pending.firmware), default=0.0))
    await steady_inventory(ctx)
    await verify_activation(ctx, pending)
    return Done("the BMC restarted")
