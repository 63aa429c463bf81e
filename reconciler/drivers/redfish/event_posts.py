"""Follow the events that a BMC posts: keep one subscription on it, and say when that is not possible.

It is asked every few minutes whether it still has the subscription, and after each new login, since it may have
restarted. One that was lost is made anew, and the node read, since nobody heard what was told meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.event_listener import EventListener, Expected, addresses_of
from reconciler.drivers.redfish.news import is_news
from reconciler.drivers.redfish.subscription import Subscription, is_kept, subscribe
from reconciler.drivers.source_watch import SourceWatch
from reconciler.model.errors import DriverError, Failure

_KEPT_S: Final = 600.0
_LOOK_S: Final = 2.0
_NONE_YET_S: Final = 86400.0  # other firmware may bring a BMC events
_AGAIN_S: Final = 600.0
_LOST_AGAIN: Final = (
    "the BMC lost our subscription again before an event came: does it reach redfish.events.url of the Fleet, and "
    "trust its certificate?"
)


async def _proved(_name: str) -> None:
    """Let a test write to whatever BMC answers."""


class Posts:
    """How BMCs without a stream are followed.

    `listener` returns what takes their posts now, None where the spec declares nothing. `prove` raises DriverError
    unless a node's BMC is proved to be that node's, which comes before each write.
    """

    def __init__(
        self,
        bmc_of: Callable[[str], RedfishBmc | None],
        listener: Callable[[], EventListener | None] = lambda: None,
        prove: Callable[[str], Awaitable[None]] = _proved,
    ) -> None:
        self._bmc_of = bmc_of
        self._listener = listener
        self._prove = prove
        self._unheard: dict[str, int] = {}  # node -> subscriptions in a row that were lost before a post came

    async def follow(self, name: str, bmc: RedfishBmc, watch: SourceWatch) -> None:
        """Follow one BMC as SourceWatch.follow_once does, until its subscription is lost or the spec changes."""
        listener = self._listener()
        if listener is None:
            await self._until_declared(_NONE_YET_S * random.uniform(0.5, 1.0))  # noqa: S311 - it spreads load
            return
        base, addresses = await listener.start(), await addresses_of(bmc.address)
        async with watch.connecting:
            await self._prove(name)
            try:
                found = await bmc.ask(partial(subscribe, owner=listener.owner, base=base))
            except DriverError as error:
                if error.kind is not Failure.UNSUPPORTED:
                    raise
                raise DriverError(error.kind, f"it pushes no events: {error.detail}", retry_after=_NONE_YET_S) from None

        def take(body: bytes) -> None:
            if is_news(body):
                watch.hear(name)

        with listener.expecting(found.token, addresses, take) as expected:
            watch.open(name)
            if await self._is_lost(name, bmc, listener, (found, expected)):
                watch.hear(name)
                self._judge_loss(name, expected)

    async def _until_declared(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends and self._listener() is None:  # noqa: ASYNC110 - a spec tells nobody
            await asyncio.sleep(_LOOK_S)

    async def _is_lost(
        self, name: str, bmc: RedfishBmc, listener: EventListener, ours: tuple[Subscription, Expected]
    ) -> bool:
        """Wait until the subscription is lost, or the spec names another BMC or listener, which is no loss."""
        subscription, expected = ours
        loop = asyncio.get_running_loop()
        asked, logins, pause = loop.time(), bmc.logins, _KEPT_S * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load
        while listener is self._listener() and bmc is self._bmc_of(name):
            await asyncio.sleep(_LOOK_S)
            if expected.trouble is not None:
                raise expected.trouble
            if loop.time() < asked + pause and bmc.logins == logins:
                continue
            await listener.start()  # which takes a certificate that was renewed
            if not await bmc.ask(partial(is_kept, subscription=subscription)):
                return True
            asked, logins = loop.time(), bmc.logins
        return False

    def _judge_loss(self, name: str, expected: Expected) -> None:
        """Raise DriverError where it is lost again, and no post ever came: BMCs give up what they can't deliver."""
        unheard = self._unheard[name] = 0 if expected.heard else self._unheard.get(name, 0) + 1
        if unheard > 1:
            raise DriverError(Failure.UNREACHABLE, _LOST_AGAIN, retry_after=_AGAIN_S)
