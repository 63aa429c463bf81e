"""The outbox of a ledger in memory, and the searches that people are told of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from reconciler.model.fabric_report import FabricReport
from reconciler.model.notices import Message, Unsent
from reconciler.model.tickets import TicketPlace


class MemoryOutbox:
    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, str] = {}
        self._unsent: dict[str, Unsent] = {}
        self._tickets: dict[tuple[str, str], TicketPlace] = {}
        self._searches: list[FabricReport] = []

    def channel_states(self) -> Mapping[str, str]:
        return dict(self._states)

    def save_notices(self, channel: str, state: str, messages: Sequence[Message], now: datetime) -> None:
        self._states[channel] = state
        for message in messages:
            self._unsent.setdefault(message.key, Unsent(message, now))

    def save_search(self, report: FabricReport, told: str) -> int:  # noqa: ARG002 - the port's signature
        self._searches.append(report)
        return len(self._searches)

    def last_search(self) -> FabricReport | None:
        return self._searches[-1] if self._searches else None

    def unsent(self) -> Sequence[Unsent]:
        return list(self._unsent.values())

    def message_sent(self, key: str, now: datetime) -> None:  # noqa: ARG002 - the port's signature
        self._unsent.pop(key, None)

    def message_failed(self, key: str, error: str, next_at: datetime) -> None:
        known = self._unsent[key]
        self._unsent[key] = replace(known, tries=known.tries + 1, error=error, next_at=next_at)

    def ticket(self, tracker: str, thread: str) -> TicketPlace | None:
        return self._tickets.get((tracker, thread))

    def tickets(self) -> Mapping[str, TicketPlace]:
        return {thread: place for (_, thread), place in self._tickets.items() if place.number}

    def ticket_begun(self, tracker: str, thread: str, now: datetime) -> None:
        self._tickets[tracker, thread] = TicketPlace("", "", now)

    def ticket_opened(self, tracker: str, thread: str, number: str, url: str, now: datetime) -> None:
        self._tickets[tracker, thread] = TicketPlace(number, url, now)

    def ticket_gone(self, tracker: str, thread: str, now: datetime) -> None:  # noqa: ARG002 - the port's signature
        self._tickets.pop((tracker, thread), None)

    def drop_channels(self, kept: Sequence[str]) -> None:
        self._states = {name: state for name, state in self._states.items() if name in kept}
        self._unsent = {key: one for key, one in self._unsent.items() if one.message.channel in kept}
