"""Tickets: one per part that a person must exchange, in a tracker of the site's own, from its opening to its closing.

The messages that keep a ticket up to date go through the same outbox as those of channels. A message is the whole
ticket as it is to be; so the last one counts, and a tracker that was away misses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

PREFIX = "ticket/"  # before a tracker's name: its name in outbox and metrics, which no channel can have


class TrackerKind(StrEnum):
    GITHUB = "github"
    JIRA = "jira"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class Tracker:
    """A tracker as the Fleet declares it. `secret`: name of its token, or of a webhook's URL. Empty selectors take all.

    `url`: of the API; "" = github.com's. `place`: OWNER/NAME of a GitHub repository, or the key of a Jira project.
    `labels`: that its tickets get. `user`, `issue_type`, `version`: of Jira, see the spec.
    """

    name: str
    kind: TrackerKind
    secret: str
    url: str = ""
    place: str = ""
    labels: tuple[str, ...] = ()
    user: str = ""
    issue_type: str = "Task"
    version: int = 2
    pools: tuple[str, ...] = ()
    personas: tuple[str, ...] = ()

    @property
    def channel(self) -> str:
        """Return its name in the outbox."""
        return PREFIX + self.name


@dataclass(frozen=True, slots=True)
class TicketPlace:
    """A ticket in its tracker. `number`: as the tracker calls it; "" = a creation began, and its end is not known."""

    number: str
    url: str
    begun_at: datetime


class TicketStore(Protocol):
    """The tickets that trackers have, by the thread of their messages."""

    def ticket(self, tracker: str, thread: str) -> TicketPlace | None:
        """Return a ticket, or a creation that began; None where neither is known."""

    def tickets(self) -> Mapping[str, TicketPlace]:
        """Return the tickets of all trackers by thread."""

    def ticket_begun(self, tracker: str, thread: str, now: datetime) -> None:
        """Save that the creation of a ticket begins now."""

    def ticket_opened(self, tracker: str, thread: str, number: str, url: str, now: datetime) -> None:
        """Save and journal a ticket that the tracker has."""

    def ticket_gone(self, tracker: str, thread: str, now: datetime) -> None:
        """Forget a ticket that the tracker has no more."""
