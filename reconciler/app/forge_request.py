"""The request in an event of a forge: a plan of a changed merge request, or a command in a comment.

The event only says where to look. Who wrote what, whether they may, and which commit is the head are read from the
forge. Whatever acts on the answer runs the default branch's code, with what is printed here as data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.app.comment_publisher import add_once
from reconciler.app.forge_job import connect_forge, forge_job
from reconciler.app.runtime import run_async
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Forge, ForgeKind
from reconciler.model.forge_commands import WORD, CommentCommand, UnknownCommand, Verb, read_command
from reconciler.model.json_text import parse_json
from reconciler.render.forge_reply import help_reply, output_reply, refusal_reply

_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_NAME: Final = re.compile(r"[\w.-]+(?:\[bot\])?")
_LARGEST: Final = 26 * 1024 * 1024  # bytes: GitHub's and GitLab's events end at 25 MiB
_LOG: Final = 20_000  # characters of a command's output
_FORK = "a fork's change is planned offline whenever it is pushed: run the job `review` of its newest commit again"


@dataclass(frozen=True, slots=True)
class ForgeEvent:
    """`remark`: the number of the new comment; None: the pull request itself is new or changed. `text`: of it."""

    pull: int
    remark: int | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class ForgeRequest:
    """The work to be done. `verb`: a Verb, `fork` for the offline plan of a fork, or `nothing`."""

    verb: str
    pull: int = 0
    head: str = ""
    account: str = ""
    command: CommentCommand | None = None

    def variables(self) -> Mapping[str, str]:
        """Return it as variables of a CI job, on one line each."""
        node, reason = (self.command.node, self.command.reason) if self.command else ("", "")
        return {
            "RECONCILER_VERB": self.verb, "RECONCILER_PULL": str(self.pull), "RECONCILER_HEAD": self.head,
            "RECONCILER_NODE": node, "RECONCILER_REASON": reason or f"asked for on #{self.pull}",
            "RECONCILER_ACTOR": self.account,
        }  # fmt: skip


NOTHING: Final = ForgeRequest("nothing")


def forge_request(repository: str, event: Path) -> ForgeRequest:
    """Return what an event asks for. Commands that are unknown, or of people who may not, are answered at once."""
    found = read_event(event, forge_job().kind)
    if found is None or (found.remark is not None and found.text.split(maxsplit=1)[:1] != [WORD]):
        return NOTHING

    async def ask() -> ForgeRequest:
        forge = connect_forge(repository)
        try:
            return await (_planned(forge, found) if found.remark is None else _commanded(forge, found, found.remark))
        finally:
            await forge.close()

    return run_async(ask())


def reply(repository: str, request: ForgeRequest, output: Path, *, failed: bool) -> str:
    """Post what a command printed. Return the address of the comment."""
    text = output.read_text(errors="replace")[-_LOG:] if output.is_file() else ""
    command = str(request.command) if request.command else request.verb
    body = output_reply(command, request.account, text, failed=failed, run_url=forge_job().run_url)

    async def post() -> str:
        forge = connect_forge(repository)
        try:
            return (await add_once(forge, request.pull, body)).url
        finally:
            await forge.close()

    return run_async(post())


# --- events ---------------------------------------------------------------------------------------------------------


def read_event(path: Path, kind: ForgeKind) -> ForgeEvent | None:
    """Return a new comment on a pull request, or a merge request that is new or changed; None for any other event."""
    if path.stat().st_size > _LARGEST:
        raise UsageError(f"{path}: an event is shorter")
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise UsageError(f"{path}: not the JSON of an event") from None
    try:
        return _of_github(document) if kind is ForgeKind.GITHUB else _of_gitlab(document)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"{path}: it has not what an event of {kind} has") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _of_github(document: Any) -> ForgeEvent | None:
    """https://docs.github.com/webhooks/webhook-events-and-payloads#issue_comment"""
    if document.get("action") != "created" or "comment" not in document or "pull_request" not in document["issue"]:
        return None
    return ForgeEvent(
        int(document["issue"]["number"]), int(document["comment"]["id"]), _text(document["comment"]["body"])
    )


def _of_gitlab(document: Any) -> ForgeEvent | None:
    """https://docs.gitlab.com/user/project/integrations/webhook_events/"""
    attributes = document.get("object_attributes", {})
    if document.get("object_kind") == "note" and attributes["noteable_type"] == "MergeRequest":
        if attributes.get("action", "create") != "create":
            return None
        return ForgeEvent(int(document["merge_request"]["iid"]), int(attributes["id"]), _text(attributes["note"]))
    if document.get("object_kind") == "merge_request" and attributes.get("action") in ("open", "reopen", "update"):
        return ForgeEvent(int(attributes["iid"]), None)
    return None


# --- what they ask for ----------------------------------------------------------------------------------------------


async def _planned(forge: Forge, event: ForgeEvent) -> ForgeRequest:
    pull = await forge.pull(event.pull)
    return ForgeRequest("fork" if pull.fork else Verb.PLAN, pull.number, _commit(pull.head), pull.author)


async def _commanded(forge: Forge, event: ForgeEvent, remark: int) -> ForgeRequest:
    said = await forge.said(event.pull, remark)
    name = said.account.name if _NAME.fullmatch(said.account.name) else "somebody"
    if not await forge.may_write(said.account):
        first = " ".join(event.text.partition("\n")[0].split()[1:])[:100]
        why = f"{name} may not write to this repository, and such commands are for those who may."
        await add_once(forge, event.pull, refusal_reply(first, why))
        return NOTHING
    problem, command = "", None
    try:
        command = read_command(said.text)
    except UnknownCommand as error:
        problem = str(error)
    if said.text != event.text:
        problem = "the comment was edited since; write it anew"
    if problem or command is None:
        await add_once(forge, event.pull, help_reply(problem))
        return NOTHING
    pull = await forge.pull(event.pull)
    verb: str = command.verb
    if command.verb is Verb.PLAN and pull.fork:
        if forge_job().kind is ForgeKind.GITHUB:
            await add_once(forge, event.pull, refusal_reply(str(command), _FORK))
            return NOTHING
        verb = "fork"
    return ForgeRequest(verb, pull.number, _commit(pull.head), name, command)


def _commit(head: str) -> str:
    if not _COMMIT.fullmatch(head):
        raise DriverError(Failure.MALFORMED, "the forge sent no commit")
    return head
