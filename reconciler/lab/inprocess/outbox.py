"""The outbox of a ledger in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from reconciler.model.notices import Message, Unsent


class MemoryOutbox:
    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._unsent: dict[str, Unsent] = {}

    def channel_states(self) -> Mapping[str, str]:
        return dict(self._states)

    def save_notices(self, channel: str, state: str, messages: Sequence[Message], now: datetime) -> None:
        self._states[channel] = state
        for message in messages:
            self._unsent.setdefault(message.key, Unsent(replace(message, about=()), now))

    def unsent(self) -> Sequence[Unsent]:
        return list(self._unsent.values())

    def message_sent(self, key: str, now: datetime) -> None:  # noqa: ARG002 - the port's signature
        self._unsent.pop(key, None)

    def message_failed(self, key: str, error: str, next_at: datetime) -> None:
        known = self._unsent[key]
        self._unsent[key] = replace(known, tries=known.tries + 1, error=error, next_at=next_at)

    def drop_channels(self, kept: Sequence[str]) -> None:
        self._states = {name: state for name, state in self._states.items() if name in kept}
        self._unsent = {key: one for key, one in self._unsent.items() if one.message.channel in kept}
