"""`model.notices.Messenger` for trackers: the message is the ticket as it is to be.

A ticket is never opened twice. Before a creation begins, that is saved; where its answer was lost, the tracker is asked
for the marker in the ticket, and a new one is created only when it would have shown the first one by now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Protocol

from reconciler.drivers.forge.http import Rest
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.tickets.github import GitHubTickets
from reconciler.drivers.tickets.jira import JiraTickets
from reconciler.drivers.tickets.webhook import WebhookTickets
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.notices import Message, NotDelivered
from reconciler.model.ports import Clock
from reconciler.model.tickets import TicketPlace, TicketStore, Tracker, TrackerKind

SETTLES: Final = timedelta(minutes=2)  # until a tracker shows what was created: Jira's index lags by seconds
DEADLINE_S: Final = 120.0  # wall clock: of one try


class Client(Protocol):
    """A tracker. Each call raises DriverError; UNSUPPORTED: the ticket is not there, or not visible."""

    async def find(self, thread: str) -> tuple[str, str] | None:
        """Return number and address of the ticket with this thread, open or closed; None where there is none."""

    async def create(self, message: Message) -> tuple[str, str]:
        """Open a ticket, and return its number and address. Not idempotent."""

    async def update(self, number: str, message: Message) -> None:
        """Make a ticket what the message says, open or closed. Idempotent."""

    async def close(self) -> None: ...


class TrackerMessenger:
    """`client` connects to a tracker, and raises UsageError where it can't. `deadline_s`: wall clock, of one try."""

    def __init__(
        self, client: Callable[[Tracker], Client], store: TicketStore, clock: Clock, *, deadline_s: float = DEADLINE_S
    ) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._deadline_s = deadline_s

    async def send(self, tracker: Tracker, message: Message) -> None:
        """Bring the ticket of a message up to date. Raise NotDelivered."""
        try:
            client = self._client(tracker)
            try:
                async with asyncio.timeout(self._deadline_s):
                    await self._keep(tracker, client, message)
            finally:
                await client.close()
        except TimeoutError:
            raise NotDelivered(f"no answer within {self._deadline_s:g} s") from None
        except (DriverError, UsageError) as error:
            raise NotDelivered(str(error)[:300]) from None

    async def _keep(self, tracker: Tracker, client: Client, message: Message) -> None:
        place = self._store.ticket(tracker.name, message.thread)
        if place is None or not place.number:
            place = await self._found_or_made(tracker, client, message, place)
        if place is None:
            return
        try:
            await client.update(place.number, message)
        except DriverError as error:
            if error.kind is not Failure.UNSUPPORTED:
                raise
            self._store.ticket_gone(tracker.name, message.thread, self._clock.now())
            raise NotDelivered(f"ticket {place.number} is not there any more: {error.detail}"[:300]) from None

    async def _found_or_made(
        self, tracker: Tracker, client: Client, message: Message, begun: TicketPlace | None
    ) -> TicketPlace | None:
        """Return the ticket to update; None where the message needs no more."""
        store, now = self._store, self._clock.now()
        found = await client.find(message.thread)
        if found is None:
            if message.over:
                return None  # what was never told of needs no end
            if begun is not None and now - begun.begun_at < SETTLES:
                raise NotDelivered("a ticket may have been created already, and not be shown yet")
            store.ticket_begun(tracker.name, message.thread, now)
            number, url = await client.create(message)
            store.ticket_opened(tracker.name, message.thread, number, url, self._clock.now())
            return None
        store.ticket_opened(tracker.name, message.thread, *found, now)
        return TicketPlace(*found, now)


def client_of(tracker: Tracker, secrets: SecretStore, clock: Clock) -> Client:
    """Return a client of a tracker. Raise UsageError for a secret that is not there, or may not be sent to it."""
    match tracker.kind:
        case TrackerKind.GITHUB:
            return GitHubTickets(tracker, secrets, clock)
        case TrackerKind.JIRA:
            token = secrets.resolve(tracker.secret, tracker.url, fresh=True).reveal()
            headers = {"Accept": "application/json"}
            return JiraTickets(tracker, Rest(tracker.url, token, clock, headers=headers, user=tracker.user))
        case TrackerKind.WEBHOOK:
            return WebhookTickets(secrets.url(tracker.secret, fresh=True))
