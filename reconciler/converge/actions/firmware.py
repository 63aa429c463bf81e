"""Update firmware and reset BMCs. A task shows the progress of an update, only the version its success (pitfall A6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reconciler.converge.actions.activation import (
    answers_again,
    pending_settings,
    satisfies,
    steady_inventory,
    verify_activation,
    version_of,
)
from reconciler.converge.actions.context import ActionContext, Stop, action, poll, tolerate
from reconciler.converge.firmware_files import firmware_file
from reconciler.converge.guarded_ports import WrongMachine, known
from reconciler.converge.lease import Occupied
from reconciler.model.desired import DesiredFirmware
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, BmcTask, Silent
from reconciler.model.outcome import Ambiguous, Declined, Done, Outcome, Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import Activation, Power
from reconciler.planner.node.staged import is_unverified

POLL_S = 12.0  # old iDRACs delete a finished task after a minute (pitfall A5)
GRACE_S = 60.0  # how long a new task may be unknown, or a BMC that flashes itself silent
BMC_BACK_S = 900.0
OUTLAST = 1.5  # times the usual duration: how long a flash without a task may take
AGAIN_S = 60.0
# How a requested flash ended, as the journal keeps it. After FAILED nothing is left to continue.
SUCCEEDED, LOST, FAILED = "well", "lost", "failed"
_JOURNALED = ("task", "tasks", "version", "asked", "ended")


@dataclass(frozen=True, slots=True)
class _Task:
    """The BMC task of a requested flash. `uri` is "" when it is unknown, `asked` is None when no time was journaled."""

    uri: str
    asked: datetime | None


@action
async def update_firmware(ctx: ActionContext) -> Outcome:
    """Flash one component once: a flash that an earlier attempt began is continued, and never blindly repeated."""
    item = next((item for item in ctx.desired.profile.firmware if item.component == ctx.action.target), None)
    if item is None or item.url is None:
        return Declined("no_image", f"the spec gives no URL to flash {ctx.action.target} from")
    earlier = _earlier_flash(ctx, item)
    before = version_of(known(await ctx.bmc.inventory()), item)
    if satisfies(item, before):
        return Done(f"{item.component} runs {before} already", changed=False)
    if before is None and not earlier:
        if known(await ctx.bmc.hot()).power is Power.OFF:  # a BMC may list its devices only while they have power
            return Transient(f"the BMC lists no firmware {item.inventory_id!r} while the machine is off")
        return Declined("unknown", f"the BMC lists no firmware {item.inventory_id!r}")
    ended, failure = earlier.get("ended"), ""
    if ended is None:
        task = await _earlier_task(ctx, item, earlier) or await _start(ctx, item)
        ctx.step(f"flashing {item.component} {before} -> {item.version}")
        verdict = await _follow(ctx, item, task)
        ended = LOST if verdict is None or verdict.ok is None else SUCCEEDED if verdict.ok else FAILED
        if verdict is not None and ended == FAILED:
            failure = f"the update of {item.component} failed: {'; '.join(verdict.messages) or verdict.state}"
        ctx.journal(ended=ended)
    try:
        return await _read_back(ctx, item, before, failure)
    except (Stop, DriverError) as unread:
        return _outcome_if_unread(item, ended, failure, unread)


async def _read_back(ctx: ActionContext, item: DesiredFirmware, before: str | None, failure: str) -> Outcome:
    if item.settle_s:
        ctx.step(f"settling for {format_duration(item.settle_s)}")
        await ctx.clock.sleep(item.settle_s)
    if not await answers_again(ctx, BMC_BACK_S):
        raise Stop(Transient("the BMC did not come back after the update"))
    after = version_of(await steady_inventory(ctx), item)
    if satisfies(item, after):
        return Done(f"{item.component} {before} -> {after}")
    if failure:
        return Transient(failure, AGAIN_S)
    if item.activation is not Activation.IMMEDIATE:
        return Done(f"{item.component} {item.version} is staged; {item.activation} brings it in")
    if after is None:
        raise Stop(Transient(f"the BMC lists no firmware {item.inventory_id!r} after the update"))
    ctx.journal(ended=FAILED)
    return Transient(f"the update ended, but {item.component} still runs {after}", AGAIN_S)


def _outcome_if_unread(item: DesiredFirmware, ended: str, failure: str, unread: Stop | DriverError) -> Outcome:
    """Return the outcome if the version can't be read back: the end of the BMC's task decides.

    Firmware that takes effect at once is read again before anything else is done. Firmware that waits for a restart
    counts as staged: the restart shows whether it is.
    """
    why = unread.detail if isinstance(unread, DriverError) else unread.outcome.detail
    if failure:
        return Transient(failure, AGAIN_S)
    if item.activation is Activation.IMMEDIATE:
        return Transient(f"{item.component} {item.version} is flashed and can't be read back: {why}", AGAIN_S)
    doubt = "" if ended == SUCCEEDED else ", but the BMC lost its task"
    return Done(f"{item.component} {item.version} is staged{doubt}; it could not be read back: {why}")


# --- a flash that an earlier attempt began ----------------------------------------------------------------------------


def _earlier_flash(ctx: ActionContext, item: DesiredFirmware) -> Mapping[str, Any]:
    """Return the journal of an earlier flash to this version whose result no read has shown yet; {} if there is none.

    It is journaled for this attempt too, since the next attempt reads only this one.
    """
    found: Mapping[str, Any] = ctx.resumed
    if not found and is_unverified(ctx.record, "update_firmware", item.component, item.activation):
        found = ctx.ledger.before(ctx.attempt)
    if "tasks" not in found or found.get("version", item.version) != item.version or found.get("ended") == FAILED:
        return {}  # no flash was requested, the spec wants another version, or the flash failed
    kept = {key: found[key] for key in _JOURNALED if key in found}
    if not ctx.resumed:
        ctx.journal(**kept)
    return kept


async def _earlier_task(ctx: ActionContext, item: DesiredFirmware, earlier: Mapping[str, Any]) -> _Task | None:
    """Return the task of an earlier attempt (pitfall F8); None if the BMC was not asked, or shows that none began.

    A run that died before it learned the task's URI had journaled which tasks existed before its request: a task that
    is new since then is its own. As long as a flash would still be running, no new task means that none began. Later
    it means nothing, since BMCs delete ended tasks (pitfall A5), and only the version shows the result.
    """
    if not earlier:
        return None
    asked = _parse_time(earlier.get("asked"))
    uri = earlier.get("task")
    if isinstance(uri, str):
        return _Task(uri, asked)
    known_tasks = earlier["tasks"]
    if asked is not None:
        await ctx.clock.sleep(max(GRACE_S - (ctx.clock.now() - asked).total_seconds(), 0.0))
    new = set(await ctx.bmc.tasks()) - set(known_tasks if isinstance(known_tasks, list) else ())
    if len(new) == 1:
        ctx.journal(task=(found := new.pop()))
        return _Task(found, asked)
    if not new and asked is not None and ctx.clock.now() - asked < timedelta(minutes=item.minutes):
        return None
    return _Task("", asked)


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


# --- the task --------------------------------------------------------------------------------------------------------


async def _start(ctx: ActionContext, item: DesiredFirmware) -> _Task:
    file = await firmware_file(ctx.firmware_files, item)
    running = await _running(ctx)
    if running:
        raise Stop(Transient(f"another task is running on the BMC: {', '.join(sorted(running))}", 120.0))
    before = set(await ctx.bmc.tasks())
    asked = ctx.clock.now()
    ctx.journal(task=None, tasks=sorted(before), version=item.version, asked=asked.isoformat(), ended=None)
    try:
        uri = await ctx.bmc.update_firmware(item.inventory_id, file)
    except (Occupied, WrongMachine):
        ctx.journal(ended=FAILED)  # nothing was sent
        raise
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            ctx.journal(ended=FAILED)  # the BMC refused it, or never got it
            raise
        new = set(await ctx.bmc.tasks()) - before
        if len(new) != 1:
            raise Stop(Ambiguous(f"{error.detail}; the BMC shows {len(new)} new tasks")) from error
        uri = new.pop()
    ctx.journal(task=uri)
    return _Task(uri, asked)


async def _running(ctx: ActionContext) -> set[str]:
    tasks = known(await ctx.bmc.hot()).tasks
    if tasks is None:
        raise Stop(Transient("the BMC does not say which tasks are running"))
    return {task.uri for task in tasks if not task.done}


async def _follow(ctx: ActionContext, item: DesiredFirmware, flash: _Task) -> BmcTask | None:
    """Wait for the end of a task and return it; None if the BMC lost it: then only the version counts (A5)."""
    began = last_seen = ctx.clock.monotonic()
    asked = began if flash.asked is None else began - max((ctx.clock.now() - flash.asked).total_seconds(), 0.0)
    if not flash.uri:
        await _wait_out(ctx, item, asked)
        return None
    while ctx.clock.monotonic() - began < 2 * item.minutes * 60 + 300:
        await ctx.clock.sleep(POLL_S)
        task = await _read_task(ctx, flash.uri)
        if task is not None:
            last_seen = ctx.clock.monotonic()
            if task.done:
                return task
        elif _is_lost(ctx, last_seen) and not isinstance(await ctx.bmc.hot(), Silent):
            await _wait_out(ctx, item, asked)
            return None
    raise Stop(Transient(f"the update of {item.component} did not end in time; its task is {flash.uri}"))


async def _wait_out(ctx: ActionContext, item: DesiredFirmware, began: float) -> None:
    """Wait as long as a flash without a task may still run, so that nothing restarts under it.

    `began`: by the monotonic clock.
    """
    ctx.step("the BMC lost the task; waiting for its effect")
    left = began + item.minutes * 60 * OUTLAST - ctx.clock.monotonic()

    async def shown() -> bool | None:
        inventory = await ctx.bmc.inventory()
        return True if isinstance(inventory, Answered) and satisfies(item, version_of(inventory.value, item)) else None

    await poll(ctx, shown, within_s=left, every_s=30.0)


async def _read_task(ctx: ActionContext, uri: str) -> BmcTask | None:
    try:
        return await ctx.bmc.task(uri)
    except DriverError as error:
        if error.kind is Failure.AUTH:
            raise
        return None  # a BMC that flashes itself is silent for a while


def _is_lost(ctx: ActionContext, last_seen: float) -> bool:
    return ctx.clock.monotonic() - last_seen > GRACE_S


@action
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
