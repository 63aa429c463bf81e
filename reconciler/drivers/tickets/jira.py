"""Tickets as issues of a Jira project: REST 2 (Data Center) with wiki text, REST 3 (Cloud) with Atlassian's documents.

Issues are found by a label that has the thread. What closes one is a transition to a status of the category `done`, and
what opens it again is one to another category: workflows name both as they like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from reconciler.drivers.forge.http import Rest
from reconciler.model.errors import DriverError, Failure
from reconciler.model.notices import Message
from reconciler.model.tickets import Tracker

LABEL: Final = "gpu-fleet-reconciler"
_SUMMARY: Final = 250  # characters; Jira takes 255


class JiraTickets:
    def __init__(self, tracker: Tracker, rest: Rest) -> None:
        self._tracker = tracker
        self._rest = rest
        self._at = f"/rest/api/{tracker.version}"

    async def find(self, thread: str) -> tuple[str, str] | None:
        """Cloud has taken /search away for /search/jql, which Data Center lacks."""
        jql = f'project = "{self._tracker.place}" AND labels = "{_label(thread)}" ORDER BY created ASC'
        search = "search/jql" if self._tracker.version == 3 else "search"
        query = urlencode({"jql": jql, "fields": "status", "maxResults": 1})
        answer = await self._rest.call("GET", f"{self._at}/{search}?{query}")
        issues = answer.get("issues") if isinstance(answer, Mapping) else None
        if not isinstance(issues, list):
            raise DriverError(Failure.MALFORMED, "Jira sent no issues")
        return self._place(issues[0]) if issues else None

    async def create(self, message: Message) -> tuple[str, str]:
        fields = self._fields(message) | {
            "project": {"key": self._tracker.place},
            "issuetype": {"name": self._tracker.issue_type},
            "labels": [LABEL, _label(message.thread), *self._tracker.labels],
        }
        return self._place(await self._rest.call("POST", f"{self._at}/issue", {"fields": fields}))

    async def update(self, number: str, message: Message) -> None:
        where = f"{self._at}/issue/{quote(number, safe='')}"
        shown = await self._rest.call("GET", f"{where}?fields=status")
        await self._rest.call("PUT", where, {"fields": self._fields(message)})
        if _is_done(_member(_member(shown, "fields"), "status")) is not message.over:
            await self._move(where, done=message.over)

    async def close(self) -> None:
        await self._rest.close()

    async def _move(self, where: str, *, done: bool) -> None:
        answer = await self._rest.call("GET", f"{where}/transitions")
        listed = answer.get("transitions") if isinstance(answer, Mapping) else None
        fits = [one for one in listed or () if _is_done(_member(one, "to")) is done]
        if not fits:
            raise DriverError(
                Failure.REJECTED, f"the workflow has no transition that {'closes' if done else 'opens'} it"
            )
        await self._rest.call(
            "POST", f"{where}/transitions", {"transition": {"id": str(fits[0].get("id"))}}, repeatable=True
        )

    def _fields(self, message: Message) -> dict[str, Any]:
        summary = message.title if len(message.title) <= _SUMMARY else message.title[: _SUMMARY - 1] + "…"
        text: Any = wiki(message.body) if self._tracker.version == 2 else document(message.body)
        return {"summary": summary, "description": text}

    def _place(self, issue: Any) -> tuple[str, str]:
        key = issue.get("key") if isinstance(issue, Mapping) else None
        if not isinstance(key, str):
            raise DriverError(Failure.MALFORMED, "Jira sent no key of an issue")
        return key, f"{self._tracker.url}/browse/{quote(key, safe='')}"


def wiki(text: str) -> str:
    """Return text in Jira's wiki markup in which nothing formats, links or calls anybody."""
    return "{noformat}\n" + text.replace("{noformat}", "{\u200bnoformat}") + "\n{noformat}"


def document(text: str) -> dict[str, Any]:
    """Return text as a document of Atlassian: its characters are data there."""
    block = {"type": "codeBlock", "attrs": {"language": "text"}, "content": [{"type": "text", "text": text}]}
    return {"version": 1, "type": "doc", "content": [block]}


def _label(thread: str) -> str:
    return f"{LABEL}-{thread}"


def _member(value: Any, name: str) -> Mapping[str, Any]:
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _is_done(status: Mapping[str, Any]) -> bool:
    return _member(status, "statusCategory").get("key") == "done"
