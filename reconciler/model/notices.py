"""Notices: what people are told of, the channels that they are told through, and the messages that these get.

A notice is one matter from its beginning to its end: a node that was isolated, an incident, the storm brake. A message
may tell of one notice or of thousands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from reconciler.model.errors import ReconcilerError
from reconciler.model.limits import Hours
from reconciler.model.tickets import TicketStore, Tracker

if TYPE_CHECKING:
    from reconciler.model.fabric_report import FabricReport
    from reconciler.model.repairs import Repair


class NoticeEvent(StrEnum):
    """The event that a message tells of, in the words of the spec."""

    WINDOW = "window"  # a maintenance window begins soon, and work waits for it
    ISOLATED = "isolated"  # a node is out of service on evidence of illness
    REPAIR = "repair"  # a node waits for a person: nothing that the reconciler does brings it back
    INCIDENT = "incident"  # a signal on more nodes than isolation may take
    HALTED = "halted"  # the fleet, a rollout or a plan is stopped, or the reconciler reaches no node
    DONE = "done"  # one of these has ended


class Severity(StrEnum):
    """How much a message matters, from the least."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"  # a person must act: neither quiet hours nor a digest delay it

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as the Fleet declares it. `url`: name of the secret with its Apprise URL; "" where it is `kubernetes`:
    Events of the node objects. Empty selectors take all.

    `pools`: those that the spec lists and those of the owners that it lists. `digest_s` 0: messages go out at once.
    """

    name: str
    url: str
    events: tuple[NoticeEvent, ...] = tuple(NoticeEvent)
    severity: Severity = Severity.INFO  # the least that it is told
    pools: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()
    quiet: tuple[Hours, ...] = ()
    digest_s: float = 0.0
    ahead_s: float = 3600.0  # how long before a window it is told
    kubernetes: bool = False
    via: str = ""  # name of the notifier of an extension, which gets what `url` names


@dataclass(frozen=True, slots=True)
class Message:
    """A text for one channel.

    `key`: the same for every try at this message, so that a receiver can drop a second one. `thread`: the same for all
    messages of one notice, or of one storm. `over`: all that it tells of has ended.
    """

    key: str
    channel: str
    thread: str
    severity: Severity
    over: bool
    title: str
    body: str
    about: tuple[str, ...] = ()  # keys of the notices that it tells of


@dataclass(frozen=True, slots=True)
class Unsent:
    """A message in the outbox, with the tries at it. `error`: why the last one failed; "" = none did."""

    message: Message
    since: datetime
    tries: int = 0
    error: str = ""
    next_at: datetime | None = None  # of the next try; None: at once


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    """How a channel does. `error`: why the last try failed; "" = it works, as far as is known."""

    unsent: int = 0
    sent: int = 0  # by this process
    failures: int = 0  # tries of this process that failed
    error: str = ""


class NotDelivered(ReconcilerError):
    """A channel did not take a message, or nobody can say whether it did. Its text holds no secret."""


Recipient = Channel | Tracker


class Messenger(Protocol):
    """Sends messages, and keeps tickets up to date. It is slow, and may fail for days."""

    async def send(self, recipient: Recipient, message: Message) -> None:
        """Send a message. Raise NotDelivered."""


class NoticeStore(TicketStore, Protocol):
    """The state of each channel and tracker, and its outbox, which survive restarts and a change of leader."""

    @property
    def id(self) -> str: ...

    def channel_states(self) -> Mapping[str, str]:
        """Return what `save_notices` saved of each channel."""

    def save_notices(self, channel: str, state: str, messages: Sequence[Message], now: datetime) -> None:
        """Save the state of a channel and put messages into its outbox, in one transaction.

        A message whose key is known is not put there again.
        """

    def repairs(self) -> Sequence[Repair]:
        """Return all repairs, oldest first."""

    def last_search(self) -> FabricReport | None:
        """Return the report of the last search of the fleet's fabric; None where there was none that can be read."""

    def unsent(self) -> Sequence[Unsent]:
        """Return the messages that no channel has taken yet, oldest first."""

    def message_sent(self, key: str, now: datetime) -> None:
        """Take a message out of the outbox and journal it."""

    def message_failed(self, key: str, error: str, next_at: datetime) -> None:
        """Count a try that failed. `next_at`: when the next one is due."""

    def drop_channels(self, kept: Sequence[str]) -> None:
        """Forget every channel but these, with its messages."""
