"""`model.notices.Messenger` for all recipients: each kind of them has its own."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.drivers.extensions.notifiers import Chats
from reconciler.drivers.kube.node_events import NodeEvents
from reconciler.drivers.tickets.trackers import TrackerMessenger
from reconciler.model.notices import Message, Recipient
from reconciler.model.tickets import Tracker


@dataclass(frozen=True, slots=True)
class Delivery:
    chats: Chats
    tickets: TrackerMessenger
    events: NodeEvents

    async def send(self, recipient: Recipient, message: Message) -> None:
        if isinstance(recipient, Tracker):
            await self.tickets.send(recipient, message)
        elif recipient.kubernetes:
            await self.events.send(recipient, message)
        else:
            await self.chats.send(recipient, message)
