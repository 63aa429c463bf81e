"""GitLab, of gitlab.com or of one's own: merge requests, notes, issues, approvals and commit statuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from reconciler.drivers.forge.fields import MOST_PROPOSALS, check_tip, cut, field
from reconciler.drivers.forge.http import Rest
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Account, Check, Commit, Proposal, Pull, Remark, Said

API: Final = "https://gitlab.com/api/v4"
HEADERS: Final[Mapping[str, str]] = {"Accept": "application/json"}
NOTE: Final = 1_000_000  # characters of a note: https://docs.gitlab.com/api/notes/
_PROJECT: Final = re.compile(r"\d+|[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)+")
_TITLE: Final = 255  # characters of an issue's title, and of a status' name and description
_STATES: Final = {Check.SUCCESS: "success", Check.FAILURE: "failed", Check.ERROR: "failed"}
_DEVELOPER: Final = 30  # access level: https://docs.gitlab.com/api/members/
_OUTDATED: Final = "<details><summary>Outdated: a newer report follows</summary>\n\n"


class GitLab:
    """One project, by its path or number. `login`: the token's account; "" asks GitLab for it."""

    def __init__(self, rest: Rest, project: str, *, login: str = "") -> None:
        if not _PROJECT.fullmatch(project):
            raise UsageError(f"{project!r} is no project: GROUP/NAME is expected, or its number")
        self._rest = rest
        self._at = f"/projects/{quote(project, safe='')}"
        self._login = login
        self._web = ""

    async def close(self) -> None:
        await self._rest.close()

    # --- merge requests ----------------------------------------------------------------------------------------------

    async def pull(self, number: int) -> Pull:
        return _pull(await self._rest.call("GET", f"{self._at}/merge_requests/{number}"))

    async def open_pulls(self) -> Sequence[Pull]:
        return [_pull(entry) async for entry in self._rest.pages(f"{self._at}/merge_requests?state=opened")]

    async def pulls_of(self, commit: str) -> Sequence[Pull]:
        """Return merged ones only: an open one may contain the commit without having brought it."""
        path = f"{self._at}/repository/commits/{quote(commit, safe='')}/merge_requests"
        return [_pull(entry) async for entry in self._rest.pages(path) if field(entry, "state", str) == "merged"]

    async def approvals(self, pull: Pull) -> Sequence[Account]:
        """Return who approved. It is a setting of the project that a new commit removes approvals."""
        found = await self._rest.call("GET", f"{self._at}/merge_requests/{pull.number}/approvals")
        accounts = [_account(field(entry, "user", Mapping)) for entry in field(found, "approved_by", list)]
        return [account for account in accounts if account.name != pull.author]

    async def files(self, pull: int) -> Sequence[str]:
        found: dict[str, None] = {}
        async for entry in self._rest.pages(f"{self._at}/merge_requests/{pull}/diffs"):
            found[field(entry, "new_path", str)] = None
            found[field(entry, "old_path", str)] = None
        return list(found)

    # --- notes -------------------------------------------------------------------------------------------------------

    async def remarks(self, pull: int) -> Sequence[Remark]:
        login, web = await self._account(), await self._address()
        path = f"{self._at}/merge_requests/{pull}/notes?sort=asc&order_by=created_at"
        return [
            _note(entry, pull, web)
            async for entry in self._rest.pages(path)
            if _name(entry.get("author")) == login and not field(entry, "system", object)
        ]

    async def said(self, pull: int, remark: int) -> Said:
        found = await self._rest.call("GET", f"{self._at}/merge_requests/{pull}/notes/{remark}")
        author = field(found, "author", Mapping)
        return Said(_account(author), field(found, "body", str))

    async def may_write(self, account: Account) -> bool:
        """Return whether it is a Developer at least: of the project, of a group, or by invitation."""
        try:
            found = await self._rest.call("GET", f"{self._at}/members/all/{account.id}")
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return False
            raise
        level: int = field(found, "access_level", int)
        return level >= _DEVELOPER and field(found, "state", str) == "active"

    async def add_remark(self, pull: int, text: str) -> Remark:
        web = await self._address()
        path = f"{self._at}/merge_requests/{pull}/notes"
        return _note(await self._rest.call("POST", path, {"body": _fitting(text)}), pull, web)

    async def edit_remark(self, remark: Remark, text: str) -> None:
        await self._rest.call("PUT", f"{self._at}/{remark.handle}", {"body": _fitting(text)})

    async def hide_remark(self, remark: Remark) -> None:
        """Fold its text: GitLab folds away threads that were resolved, and no notes."""
        mark, _, body = remark.text.partition("\n")
        if not body.startswith(_OUTDATED):
            await self.edit_remark(remark, f"{mark}\n{_OUTDATED}{body}\n\n</details>")

    # --- issues ------------------------------------------------------------------------------------------------------

    async def open_issues(self) -> Sequence[Remark]:
        login = await self._account()
        path = f"{self._at}/issues?state=opened&scope=created_by_me"
        return [_issue(entry) async for entry in self._rest.pages(path) if _name(entry.get("author")) == login]

    async def add_issue(self, title: str, text: str) -> Remark:
        body = {"title": cut(title, _TITLE), "description": text}
        return _issue(await self._rest.call("POST", f"{self._at}/issues", body))

    async def edit_issue(self, issue: int, title: str, text: str, *, close: bool) -> None:
        body = {"title": cut(title, _TITLE), "description": text}
        if close:
            body["state_event"] = "close"
        await self._rest.call("PUT", f"{self._at}/issues/{issue}", body)

    # --- statuses ----------------------------------------------------------------------------------------------------

    async def set_check(self, commit: str, name: str, verdict: Check, title: str, text: str, url: str) -> None:  # noqa: ARG002 - a status has no room for the report
        """Set a commit status, which GitLab shows as a job of the commit's pipeline.

        A judgement that a person has to look at fails as one that nobody could make: GitLab knows no third state.
        """
        body = {"state": _STATES[verdict], "name": cut(name, _TITLE), "description": cut(title, _TITLE)}
        if url:
            body["target_url"] = url
        await self._rest.call("POST", f"{self._at}/statuses/{quote(commit, safe='')}", body, repeatable=True)

    # --- merge requests of ours ---------------------------------------------------------------------------------------

    async def default_branch(self) -> str:
        return str(field(await self._rest.call("GET", self._at), "default_branch", str))

    async def proposals(self, branch: str) -> Sequence[Proposal]:
        query = f"state=all&order_by=created_at&sort=desc&source_branch={quote(branch, safe='')}"
        found = []
        async for entry in self._rest.pages(f"{self._at}/merge_requests?{query}"):
            if not _pull(entry).fork:
                found.append(_proposal(entry))
            if len(found) == MOST_PROPOSALS:
                break
        return found

    async def contains(self, branch: str, commit: str) -> bool:
        query = f"from={quote(branch, safe='')}&to={quote(commit, safe='')}"
        try:
            found = await self._rest.call("GET", f"{self._at}/repository/compare?{query}")
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return False
            raise
        return not field(found, "commits", list)  # those that the branch lacks

    async def tip(self, branch: str) -> str | None:
        try:
            found = await self._rest.call("GET", f"{self._at}/repository/branches/{quote(branch, safe='')}")
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return None
            raise
        return str(field(field(found, "commit", Mapping), "id", str))

    async def commit(self, commit: str) -> Commit:
        found = await self._rest.call("GET", f"{self._at}/repository/commits/{quote(commit, safe='')}")
        return Commit(field(found, "message", str), tuple(map(str, field(found, "parent_ids", list))))

    async def changed(self, commit: str) -> Mapping[str, str]:
        """Return what a commit changes. A list of changes has no ids: each file is asked for."""
        found: dict[str, str] = {}
        sha = quote(commit, safe="")
        async for entry in self._rest.pages(f"{self._at}/repository/commits/{sha}/diff"):
            found[field(entry, "old_path", str)] = ""
            if not field(entry, "deleted_file", object):
                path = field(entry, "new_path", str)
                found[path] = field(await self._rest.call("GET", self._file(path, commit)), "blob_id", str)
        return found

    async def write_branch(
        self, branch: str, base: str, files: Mapping[str, str], message: str, *, over: str | None
    ) -> str:
        actions = [
            {"action": await self._action(path, base), "file_path": path, "content": text}
            for path, text in files.items()
        ]
        body: dict[str, Any] = {"branch": branch, "start_sha": base, "commit_message": message, "actions": actions}
        if over is not None:
            check_tip(branch, await self.tip(branch), over)
            body["force"] = True  # without it, GitLab refuses when the branch is there
        again = over is not None
        made = await self._rest.call("POST", f"{self._at}/repository/commits", body, repeatable=again)
        return str(field(made, "id", str))

    async def _action(self, path: str, base: str) -> str:
        """Return the word for writing the file on `base`: GitLab creates none that is there, and updates no other."""
        try:
            await self._rest.call("GET", self._file(path, base))
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return "create"
            raise
        return "update"

    def _file(self, path: str, commit: str) -> str:
        return f"{self._at}/repository/files/{quote(path, safe='')}?ref={quote(commit, safe='')}"

    async def open_proposal(self, branch: str, into: str, title: str, text: str) -> Proposal:
        body = {"source_branch": branch, "target_branch": into, "title": cut(title, _TITLE), "description": text}
        return _proposal(await self._rest.call("POST", f"{self._at}/merge_requests", body))

    async def edit_proposal(self, number: int, title: str, text: str, *, close: bool) -> None:
        body = {"title": cut(title, _TITLE), "description": text} | ({"state_event": "close"} if close else {})
        await self._rest.call("PUT", f"{self._at}/merge_requests/{number}", body)

    # --- our account, and where people read --------------------------------------------------------------------------

    async def _account(self) -> str:
        if not self._login:
            self._login = field(await self._rest.call("GET", "/user"), "username", str)
        return self._login

    async def _address(self) -> str:
        """Return the project's page. A note has no address of its own in GitLab's answers."""
        if not self._web:
            self._web = field(await self._rest.call("GET", self._at), "web_url", str)
        return self._web


def _fitting(text: str) -> str:
    if len(text) > NOTE:
        raise DriverError(Failure.REJECTED, f"a note of {len(text)} characters: GitLab takes {NOTE}")
    return text


def _name(user: Any) -> str:
    return str(user.get("username")) if isinstance(user, Mapping) else ""


def _account(user: Mapping[str, Any]) -> Account:
    return Account(field(user, "id", int), field(user, "username", str))


def _pull(entry: Any) -> Pull:
    # A fork that was deleted has no number any more.
    fork = field(entry, "source_project_id", object) != field(entry, "target_project_id", int)
    return Pull(field(entry, "iid", int), field(entry, "sha", str), fork, _name(entry.get("author")))


def _proposal(entry: Any) -> Proposal:
    text, state = field(entry, "description", object), field(entry, "state", str)
    return Proposal(
        field(entry, "iid", int),
        field(entry, "sha", str),
        field(entry, "title", str),
        text if isinstance(text, str) else "",
        field(entry, "web_url", str),
        state == "opened",
        state == "merged",
    )


def _note(entry: Any, pull: int, web: str) -> Remark:
    number = field(entry, "id", int)
    url = f"{web}/-/merge_requests/{pull}#note_{number}"
    return Remark(number, field(entry, "body", str), url, f"merge_requests/{pull}/notes/{number}")


def _issue(entry: Any) -> Remark:
    text = field(entry, "description", object)
    return Remark(field(entry, "iid", int), text if isinstance(text, str) else "", field(entry, "web_url", str))
