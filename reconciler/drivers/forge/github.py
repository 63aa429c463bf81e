"""GitHub, and GitHub Enterprise under another address."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from reconciler.drivers.forge.fields import MOST_PROPOSALS, check_tip, cut, field
from reconciler.drivers.forge.http import Rest
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Account, Check, Commit, Proposal, Pull, Remark, Said

API: Final = "https://api.github.com"
ACTIONS: Final = "github-actions[bot]"  # the account of a job's token
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
_TITLE: Final = 140  # characters of a commit status
_HEADING: Final = 250  # characters of an issue's or a check's title
_FILES: Final = 3000  # of a commit that it lists: https://docs.github.com/rest/commits/commits#get-a-commit
_PAGE: Final = 100
_CONCLUSIONS: Final = {Check.SUCCESS: "success", Check.FAILURE: "action_required", Check.ERROR: "failure"}
_WRITERS: Final = frozenset({"write", "admin"})  # "maintain" is told as write
_HIDE: Final = (
    "mutation($id: ID!) { minimizeComment(input: {subjectId: $id, classifier: OUTDATED}) { clientMutationId } }"
)


class GitHub:
    """One repository. `login`: the token's account; "" asks GitHub for it."""

    def __init__(self, rest: Rest, repository: str, *, login: str = "") -> None:
        if not _REPOSITORY.fullmatch(repository) or repository.endswith(("/.", "/..")):
            raise UsageError(f"{repository!r} is no repository: OWNER/NAME is expected")
        self._rest = rest
        self._at = f"/repos/{repository}"
        self._owner = repository.partition("/")[0]
        self._login = login

    async def close(self) -> None:
        await self._rest.close()

    # --- pull requests -----------------------------------------------------------------------------------------------

    async def pull(self, number: int) -> Pull:
        return _pull(await self._rest.call("GET", f"{self._at}/pulls/{number}"))

    async def open_pulls(self) -> Sequence[Pull]:
        return [_pull(entry) async for entry in self._rest.pages(f"{self._at}/pulls?state=open")]

    async def pulls_of(self, commit: str) -> Sequence[Pull]:
        """Return merged pull requests only: an open one may contain the commit without having brought it."""
        path = f"{self._at}/commits/{quote(commit, safe='')}/pulls"
        return [_pull(entry) async for entry in self._rest.pages(path) if field(entry, "merged_at", object)]

    async def approvals(self, pull: Pull) -> Sequence[Account]:
        """Return who approved. The latest review of an account counts, and comments say neither yes nor no."""
        latest: dict[Account, bool] = {}
        async for entry in self._rest.pages(f"{self._at}/pulls/{pull.number}/reviews"):
            state, user = field(entry, "state", str), entry.get("user")
            if user is not None and state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):  # deleted accounts: None
                latest[_account(user)] = state == "APPROVED" and entry.get("commit_id") == pull.head
        return [account for account, approved in latest.items() if approved and account.name != pull.author]

    async def files(self, pull: int) -> Sequence[str]:
        found: dict[str, None] = {}
        async for entry in self._rest.pages(f"{self._at}/pulls/{pull}/files"):
            found[field(entry, "filename", str)] = None
            if entry.get("previous_filename"):
                found[field(entry, "previous_filename", str)] = None
        return list(found)

    # --- comments ----------------------------------------------------------------------------------------------------

    async def remarks(self, pull: int) -> Sequence[Remark]:
        login = await self._name()
        path = f"{self._at}/issues/{pull}/comments"
        return [_remark(entry, "id") async for entry in self._rest.pages(path) if _author(entry) == login]

    async def said(self, pull: int, remark: int) -> Said:
        found = await self._rest.call("GET", f"{self._at}/issues/comments/{remark}")
        if not field(found, "issue_url", str).endswith(f"{self._at}/issues/{pull}"):
            raise DriverError(Failure.UNSUPPORTED, f"comment {remark} is not on #{pull}")
        return Said(_account(field(found, "user", Mapping)), field(found, "body", str))

    async def may_write(self, account: Account) -> bool:
        path = f"{self._at}/collaborators/{quote(account.name, safe='')}/permission"
        try:
            found = await self._rest.call("GET", path)
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return False  # neither a collaborator nor a member
            raise
        same = _account(field(found, "user", Mapping)) == account  # not another who has the name by now
        return same and field(found, "permission", str) in _WRITERS

    async def add_remark(self, pull: int, text: str) -> Remark:
        return _remark(await self._rest.call("POST", f"{self._at}/issues/{pull}/comments", {"body": text}), "id")

    async def edit_remark(self, remark: Remark, text: str) -> None:
        await self._rest.call("PATCH", f"{self._at}/issues/comments/{remark.id}", {"body": text})

    async def hide_remark(self, remark: Remark) -> None:
        await self._rest.mutate(_HIDE, {"id": remark.handle})

    # --- issues ------------------------------------------------------------------------------------------------------

    async def open_issues(self) -> Sequence[Remark]:
        """Return our open issues, without pull requests, which are issues to GitHub."""
        login = await self._name()
        path = f"{self._at}/issues?state=open&creator={quote(login, safe='')}"
        return [
            _remark(entry, "number")
            async for entry in self._rest.pages(path)
            if _author(entry) == login and "pull_request" not in entry
        ]

    async def add_issue(self, title: str, text: str) -> Remark:
        body = {"title": cut(title, _HEADING), "body": text}
        return _remark(await self._rest.call("POST", f"{self._at}/issues", body), "number")

    async def find_issue(self, marker: str, label: str) -> Remark | None:
        """Return the first of our issues with this label whose text has the marker, open or closed.

        They are listed and not searched: GitHub's search shows a new issue only after a while.
        """
        path = f"{self._at}/issues?state=all&labels={quote(label, safe='')}&sort=created&direction=asc"
        async for entry in self._rest.pages(path):
            if "pull_request" not in entry and marker in str(entry.get("body") or ""):
                return _remark(entry, "number")
        return None

    async def open_ticket(self, title: str, text: str, labels: Sequence[str]) -> Remark:
        body = {"title": cut(title, _HEADING), "body": text, "labels": list(labels)}
        return _remark(await self._rest.call("POST", f"{self._at}/issues", body), "number")

    async def set_ticket(self, issue: int, title: str, text: str, *, closed: bool) -> None:
        body: dict[str, Any] = {"title": cut(title, _HEADING), "body": text, "state": "closed" if closed else "open"}
        body["state_reason"] = "completed" if closed else "reopened"
        await self._rest.call("PATCH", f"{self._at}/issues/{issue}", body)

    async def edit_issue(self, issue: int, title: str, text: str, *, close: bool) -> None:
        body = {"title": cut(title, _HEADING), "body": text}
        if close:
            body |= {"state": "closed", "state_reason": "completed"}
        await self._rest.call("PATCH", f"{self._at}/issues/{issue}", body)

    # --- checks ------------------------------------------------------------------------------------------------------

    async def set_check(self, commit: str, name: str, verdict: Check, title: str, text: str, url: str) -> None:
        """Set a check run, which has room for a report, or a commit status where the token may set no check run."""
        output = {"title": cut(title, _HEADING), "summary": text}
        body = {"name": name, "head_sha": commit, "status": "completed", "conclusion": _CONCLUSIONS[verdict]}
        where = {"details_url": url} if url else {}
        try:
            await self._rest.call(
                "POST", f"{self._at}/check-runs", {**body, "output": output, **where}, repeatable=True
            )
        except DriverError as error:
            if error.kind is not Failure.AUTH or "HTTP 401" in error.detail:
                raise
            await self._set_status(commit, name, verdict, title, url)

    async def _set_status(self, commit: str, name: str, verdict: Check, title: str, url: str) -> None:
        body = {"state": verdict.value, "context": name, "description": cut(title, _TITLE)}
        if url:
            body["target_url"] = url
        await self._rest.call("POST", f"{self._at}/statuses/{quote(commit, safe='')}", body, repeatable=True)

    # --- pull requests of ours ----------------------------------------------------------------------------------------

    async def default_branch(self) -> str:
        return str(field(await self._rest.call("GET", self._at), "default_branch", str))

    async def proposals(self, branch: str) -> Sequence[Proposal]:
        head = quote(f"{self._owner}:{branch}", safe="")
        path = f"{self._at}/pulls?state=all&sort=created&direction=desc&head={head}"
        found = []
        async for entry in self._rest.pages(path):
            if field(field(entry, "head", Mapping), "ref", str) == branch:
                found.append(_proposal(entry))
            if len(found) == MOST_PROPOSALS:
                break
        return found

    async def contains(self, branch: str, commit: str) -> bool:
        path = f"{self._at}/compare/{quote(branch, safe='')}...{quote(commit, safe='')}?per_page=1"
        try:
            return bool(field(await self._rest.call("GET", path), "ahead_by", int) == 0)
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return False
            raise

    async def tip(self, branch: str) -> str | None:
        try:
            found = await self._rest.call("GET", f"{self._at}/git/ref/heads/{quote(branch)}")
        except DriverError as error:
            if error.kind is Failure.UNSUPPORTED:
                return None
            raise
        return str(field(field(found, "object", Mapping), "sha", str))

    async def commit(self, commit: str) -> Commit:
        found = await self._rest.call("GET", f"{self._at}/git/commits/{quote(commit, safe='')}")
        parents = tuple(field(one, "sha", str) for one in field(found, "parents", list))
        return Commit(field(found, "message", str), parents)

    async def changed(self, commit: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for page in range(1, _FILES // _PAGE + 1):
            path = f"{self._at}/commits/{quote(commit, safe='')}?per_page={_PAGE}&page={page}"
            entries = field(await self._rest.call("GET", path), "files", list)
            for entry in entries:
                gone = field(entry, "status", str) == "removed"
                found[field(entry, "filename", str)] = "" if gone else field(entry, "sha", str)
                if entry.get("previous_filename"):
                    found[field(entry, "previous_filename", str)] = ""
            if len(entries) < _PAGE:
                break
        return found

    async def write_branch(
        self, branch: str, base: str, files: Mapping[str, str], message: str, *, over: str | None
    ) -> str:
        at = f"{self._at}/git"
        before = field(await self._rest.call("GET", f"{at}/commits/{quote(base, safe='')}"), "tree", Mapping)
        entries = [{"path": path, "mode": "100644", "type": "blob", "content": text} for path, text in files.items()]
        body = {"base_tree": field(before, "sha", str), "tree": entries}
        tree = field(await self._rest.call("POST", f"{at}/trees", body, repeatable=True), "sha", str)
        commit = {"message": message, "tree": tree, "parents": [base]}
        made: str = field(await self._rest.call("POST", f"{at}/commits", commit, repeatable=True), "sha", str)
        if over is None:
            await self._rest.call("POST", f"{at}/refs", {"ref": f"refs/heads/{branch}", "sha": made})
        else:
            check_tip(branch, await self.tip(branch), over)
            await self._rest.call("PATCH", f"{at}/refs/heads/{quote(branch)}", {"sha": made, "force": True})
        return made

    async def open_proposal(self, branch: str, into: str, title: str, text: str) -> Proposal:
        body = {"title": cut(title, _HEADING), "head": branch, "base": into, "body": text}
        return _proposal(await self._rest.call("POST", f"{self._at}/pulls", body))

    async def edit_proposal(self, number: int, title: str, text: str, *, close: bool) -> None:
        body = {"title": cut(title, _HEADING), "body": text} | ({"state": "closed"} if close else {})
        await self._rest.call("PATCH", f"{self._at}/pulls/{number}", body)

    # --- our account ------------------------------------------------------------------------------------------------

    async def _name(self) -> str:
        """Return our account. A job's token may not ask for it, and is that of GitHub Actions."""
        if not self._login:
            try:
                self._login = field(await self._rest.call("GET", "/user"), "login", str)
            except DriverError as error:
                if error.kind is not Failure.AUTH or "HTTP 401" in error.detail:
                    raise
                self._login = ACTIONS
        return self._login


def _author(entry: Any) -> str:
    user = entry.get("user") if isinstance(entry, Mapping) else None
    return str(user.get("login")) if isinstance(user, Mapping) else ""  # a deleted account has none


def _account(user: Mapping[str, Any]) -> Account:
    return Account(field(user, "id", int), field(user, "login", str))


def _pull(entry: Any) -> Pull:
    head, base = field(entry, "head", Mapping), field(entry, "base", Mapping)
    origin = head.get("repo")  # None: a fork that was deleted
    ours = field(field(base, "repo", Mapping), "id", int)
    fork = not isinstance(origin, Mapping) or field(origin, "id", int) != ours
    return Pull(field(entry, "number", int), field(head, "sha", str), fork, _author(entry))


def _proposal(entry: Any) -> Proposal:
    text = field(entry, "body", object)
    return Proposal(
        field(entry, "number", int),
        field(field(entry, "head", Mapping), "sha", str),
        field(entry, "title", str),
        text if isinstance(text, str) else "",
        field(entry, "html_url", str),
        field(entry, "state", str) == "open",
        field(entry, "merged_at", object) is not None,
    )


def _remark(entry: Any, number: str) -> Remark:
    text = field(entry, "body", object)
    handle = entry.get("node_id")
    return Remark(
        field(entry, number, int),
        text if isinstance(text, str) else "",
        field(entry, "html_url", str),
        handle if isinstance(handle, str) else "",
    )
