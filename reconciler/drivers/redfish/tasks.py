"""Decode tasks. Pure. What a BMC says about a task is a hint; the outcome is judged by what changed (A5, A6)."""

from __future__ import annotations

import re

from reconciler.drivers.redfish.failures import messages_of
from reconciler.drivers.redfish.fields import Document, integer, member, objects, path, quote, text
from reconciler.drivers.redfish.quirks import Quirks, TaskEnd
from reconciler.model.observed import BmcTask

_MOST_MESSAGES = 8
_TASK_URI = re.compile(r"/redfish/v1/(?:TaskService/Tasks|JobService/Jobs)/[\w.:-]+")


def task(uri: str, document: Document, quirks: Quirks) -> BmcTask:
    """Decode a task. `ok` is None where its end is not clearly good or bad. An unknown state means not done (A6)."""
    state = text(document, "TaskState") or text(document, "JobState") or "unknown"
    end = quirks.task_states.get(state)
    bad, done = end is TaskEnd.BAD, end is not None
    percent = integer(document, "PercentComplete")
    return BmcTask(
        uri,
        quote(state),
        done,
        _verdict(document, bad) if done else None,
        percent if percent is not None and 0 <= percent <= 100 else None,
        _messages(document),
    )


def _verdict(document: Document, bad: bool) -> bool | None:
    """Say whether an ended task went well: some complete although parts of them failed (A6)."""
    severities = {text(message, "Severity") or text(message, "MessageSeverity") for message in _entries(document)}
    status = text(document, "TaskStatus") or text(document, "JobStatus")
    if bad or status == "Critical" or "Critical" in severities:
        return False
    return True if status == "OK" or (status is None and "JobState" in document) else None  # Dell's jobs have no status


def _entries(document: Document) -> list[Document]:
    return list(objects(document, "Messages"))


def _messages(document: Document) -> tuple[str, ...]:
    words = [text(entry, "Message") or text(entry, "MessageId") for entry in _entries(document)]
    words.append(text(document, "Message"))  # Dell's jobs have it here
    return tuple(quote(word) for word in words if word)[:_MOST_MESSAGES]


def task_of_reply(body: Document, location: str | None) -> str | None:
    """Return the URI of the task that a write started, None where the reply names none.

    A task's own URI is better than its monitor's, which is gone once it has been read at the end. Supermicro names
    the task in the text of a message alone.
    """
    own = path(body.get("@odata.id"))
    kind = text(body, "@odata.type") or ""
    if own is not None and (".Task" in kind or ".Job" in kind):
        return own
    words = [
        word for message in messages_of(member(body, "Accepted") or body) for word in (*message.args, message.text)
    ]
    named = next((found[0] for word in words if (found := _TASK_URI.search(word))), None)
    if location is not None and _TASK_URI.search(location):
        return location
    return named or location
