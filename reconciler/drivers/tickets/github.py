"""Tickets as issues on GitHub. The text is in a fence, in which nothing formats, links or calls anybody (R7)."""

from __future__ import annotations

import re
from typing import Final

from reconciler.drivers.forge.github import API, GitHub
from reconciler.drivers.forge.http import Rest
from reconciler.drivers.secrets import SecretStore
from reconciler.model.forge import Remark
from reconciler.model.notices import Message
from reconciler.model.ports import Clock
from reconciler.model.tickets import Tracker

LABEL: Final = "gpu-fleet-reconciler"  # by which our issues are listed


class GitHubTickets:
    def __init__(self, tracker: Tracker, secrets: SecretStore, clock: Clock) -> None:
        url = tracker.url or API
        token = secrets.resolve(tracker.secret, url, fresh=True).reveal()
        self._labels = (LABEL, *tracker.labels)
        self._github = GitHub(Rest(url, token, clock), tracker.place)

    async def find(self, thread: str) -> tuple[str, str] | None:
        found = await self._github.find_issue(_marker(thread), LABEL)
        return None if found is None else _place(found)

    async def create(self, message: Message) -> tuple[str, str]:
        return _place(await self._github.open_ticket(title_of(message), text_of(message), self._labels))

    async def update(self, number: str, message: Message) -> None:
        await self._github.set_ticket(int(number), title_of(message), text_of(message), closed=message.over)

    async def close(self) -> None:
        await self._github.close()


def title_of(message: Message) -> str:
    """Return the title, in which a mention would call somebody."""
    return message.title.replace("@", "@\u200b").replace("#", "#\u200b")


def text_of(message: Message) -> str:
    longest = max((len(run) for run in re.findall(r"`+", message.body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{_marker(message.thread)}\n\n{fence}text\n{message.body}\n{fence}\n"


def _marker(thread: str) -> str:
    return f"<!-- gpu-fleet-reconciler:ticket:{thread} -->"


def _place(issue: Remark) -> tuple[str, str]:
    return str(issue.id), issue.url
