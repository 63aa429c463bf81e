"""Read the BMC and the host of one node, each within its deadlines, whatever the other does.

Redfish is read in two tiers, to spare BMCs (DESIGN 5): the hot facts in each pass, the inventory when something says
that it may have changed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from reconciler.converge.answer import answer, crashed
from reconciler.health import bmc as bmc_health
from reconciler.model.bmc_log import unread_part
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.desired import Desired, Settings
from reconciler.model.observed import Answered, HostFacts, Observed, RedfishHot, RedfishInventory, Silent
from reconciler.model.observer_port import Readings
from reconciler.model.ports import Bmc, Clock, Fabric, Host
from reconciler.model.vocab import BootPhase, Health, Power, UnknownReason

INVENTORY_DEADLINES: Final = 4  # a BMC that can't expand collections is asked a hundred times and more
IN_DOUBT_S: Final = 900.0  # how old an inventory gets while the BMC says that something is wrong
SLOW_DOUBT_S: Final = 3600.0  # and while it only warns, or entries of its log may have gone unread
OFF_GRACE_S: Final = 1.0  # wall clock: a host whose BMC says that it is off has this long to accept; BMCs lie
_EXPLAINING: Final = frozenset({BootPhase.OFF, BootPhase.POST, BootPhase.OS_BOOTING})

HostReading = Answered[HostFacts] | Silent


async def own_readings(
    desired: Desired, fabric: Fabric, clock: Clock, settings: Settings, before: Observed | None
) -> Readings:
    """Read the BMC and the host. A bug while reading costs this node its readings and no other node (invariant 22)."""

    def nothing(crash: Crash) -> Readings:
        silent = crashed(clock, crash)
        return Readings(silent, silent, silent)

    return await of_its_own_async(
        desired.node, "reading it", lambda: _read_node(desired, fabric, clock, settings, before), nothing
    )


async def _read_node(
    desired: Desired, fabric: Fabric, clock: Clock, settings: Settings, before: Observed | None
) -> Readings:
    bmc, answers = fabric.bmc(desired), fabric.host(desired)
    async with asyncio.TaskGroup() as group:
        ssh = group.create_task(_read_host(answers, desired, clock, settings))

        def powered_off() -> None:
            if answers is not None:
                group.create_task(_end_unless_reached(ssh, answers))

        redfish = group.create_task(_read_redfish(desired, bmc, clock, settings, before, powered_off))
    hot, inventory = redfish.result()
    host = Silent(clock.now(), UnknownReason.UNREACHABLE, "no connection") if ssh.cancelled() else ssh.result()
    if bmc is not None and before is not None and inventory is before.inventory and _rebooted(before, host):
        inventory = await _read_inventory(bmc, clock, settings, desired.node)
    return Readings(hot, inventory, _explain(host, hot))


async def _end_unless_reached(ssh: asyncio.Task[HostReading], host: Host) -> None:
    """Wait no longer for a host of which its BMC says that it is off. One that accepts connections has all its time."""
    await asyncio.wait({ssh}, timeout=OFF_GRACE_S)
    if not host.reached:
        ssh.cancel()


async def _read_redfish(
    desired: Desired,
    bmc: Bmc | None,
    clock: Clock,
    settings: Settings,
    before: Observed | None,
    powered_off: Callable[[], None],
) -> tuple[Answered[RedfishHot] | Silent, Answered[RedfishInventory] | Silent]:
    if bmc is None:
        silent = Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no BMC for this node")
        return silent, silent
    hot = await answer(bmc.hot, settings.redfish_deadline_s, clock, node=desired.node)
    if isinstance(hot, Silent):
        return hot, Silent(hot.at, hot.reason, hot.detail)
    if hot.value.power is Power.OFF:
        powered_off()
    kept = _still_good(desired, before, hot, clock, settings)
    if kept is not None and await _log_tells(desired, bmc, kept, clock, settings):
        kept = None
    return hot, kept or await _read_inventory(bmc, clock, settings, desired.node)


async def _read_inventory(bmc: Bmc, clock: Clock, settings: Settings, node: str) -> Answered[RedfishInventory] | Silent:
    return await answer(bmc.inventory, INVENTORY_DEADLINES * settings.redfish_deadline_s, clock, node=node)


def _rebooted(before: Observed, host: HostReading) -> bool:
    """Return whether the host restarted since, which may bring staged settings and firmware into force."""
    if isinstance(host, Silent) or isinstance(before.host, Silent):
        return False
    return before.host.value.boot_id != host.value.boot_id


def _still_good(
    desired: Desired, before: Observed | None, hot: Answered[RedfishHot], clock: Clock, settings: Settings
) -> Answered[RedfishInventory] | None:
    """Return the inventory of an earlier pass, with its own time, unless something says that it changed since."""
    if before is None or isinstance(before.inventory, Silent) or isinstance(before.hot, Silent):
        return None
    if _moved(before.hot.value, hot.value):
        return None
    ill = hot.value.health is Health.CRITICAL or any(bmc_health.bmc_signals(desired.profile, before))
    # A roll-up stays at a warning for months, and a log that floods costs its BMC much (A12): mostly only a person
    # changes either. A roll-up that changes has the inventory read at once.
    steady = hot.value.health is Health.WARNING or unread_part(before.inventory)
    doubt_s = IN_DOUBT_S if ill else SLOW_DOUBT_S if steady else math.inf
    oldest = min(doubt_s, settings.inventory_max_age_s)
    age = (clock.now() - before.inventory.at).total_seconds()  # below 0: the clock was set back, so its age is unknown
    return before.inventory if 0 <= age <= oldest else None


async def _log_tells(
    desired: Desired, bmc: Bmc, kept: Answered[RedfishInventory], clock: Clock, settings: Settings
) -> bool:
    """Return whether the log has a new sign of illness, or can't be read any more, so that the inventory is due.

    Many BMCs push no events, and an inventory is good for a day. One that is younger than a doubt lasts is not asked.
    """
    age = (clock.now() - kept.at).total_seconds()
    if age < (SLOW_DOUBT_S if unread_part(kept) else IN_DOUBT_S):
        return False  # one that floods has news each time
    deadline_s = INVENTORY_DEADLINES * settings.redfish_deadline_s
    found = await answer(lambda: bmc.log_news(kept.value.events or ()), deadline_s, clock, node=desired.node)
    return age > SLOW_DOUBT_S if isinstance(found, Silent) else found.value


def _moved(before: RedfishHot, now: RedfishHot) -> bool:
    """Return whether the BMC reports a change of the machine. During a boot it does not see all parts."""
    up = now.boot_phase is BootPhase.OS_RUNNING and before.boot_phase in _EXPLAINING
    return up or (before.etag, before.health, before.power) != (now.etag, now.health, now.power)


async def _read_host(host: Host | None, desired: Desired, clock: Clock, settings: Settings) -> HostReading:
    if host is None:
        return Silent(clock.now(), UnknownReason.NOT_ASKED, "the spec names no host address for this node")
    wanted = desired.profile.host
    return await answer(
        lambda: host.facts(tuple(wanted.sysctls), tuple(wanted.services)),
        settings.ssh_deadline_s,
        clock,
        node=desired.node,
    )


def _explain(host: HostReading, hot: Answered[RedfishHot] | Silent) -> HostReading:
    """Explain a silent host by its BMC, which may say that it is off or still booting. That explains no bug of ours."""
    if isinstance(host, Answered) or isinstance(hot, Silent):
        return host
    if host.reason in (UnknownReason.NOT_ASKED, UnknownReason.CRASHED):
        return host
    if hot.value.power is Power.OFF:
        return Silent(host.at, UnknownReason.EXPLAINED, "powered off")
    if hot.value.boot_phase in _EXPLAINING:
        return Silent(host.at, UnknownReason.EXPLAINED, f"in {hot.value.boot_phase}")
    return host
