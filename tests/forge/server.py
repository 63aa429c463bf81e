"""GitHub's REST API on loopback, as far as we use it: pages, limits, permissions, and failures on demand.

Written from GitHub's documentation, apart from the driver. `requests` has everything that was asked, in order.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from aiohttp import web

REPOSITORY = "acme/fleet"
TOKEN = "ghs_fake0123456789secret"
BOT = "github-actions[bot]"
LOGIN = web.RequestKey("login", str)


@dataclass
class Failure:
    """What the next matching requests get instead. `done`: the request is carried out all the same."""

    method: str
    path: str  # regular expression
    status: int = 500
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "Server Error"
    errors: tuple[Any, ...] = ()
    times: int = 1
    done: bool = False


@dataclass
class Asked:
    method: str
    path: str
    body: Any


def blob(text: str) -> str:
    """Git's id of the content of a file."""
    return hashlib.sha1(f"blob {len(text.encode())}\0{text}".encode(), usedforsecurity=False).hexdigest()


async def fail(failures: Iterable[Failure], request: web.Request, handler: Any) -> web.Response | None:
    """Answer with the next failure that matches the request; None: there is none."""
    for failure in failures:
        if failure.times and failure.method == request.method and re.search(failure.path, request.path):
            failure.times -= 1
            if failure.done:
                await handler(request)
            document = {"message": failure.message, "errors": list(failure.errors)}
            return web.json_response(document, status=failure.status, headers=dict(failure.headers))
    return None


@dataclass
class FakeGitHub:
    """One repository. Comments are by pull request or issue, oldest first."""

    url: str = ""
    page: int = 100  # most entries of a page that it gives, whatever was asked for
    tokens: dict[str, str] = field(default_factory=lambda: {TOKEN: BOT})
    permissions: set[str] = field(default_factory=lambda: {"pull_requests", "issues", "statuses"})
    requests: list[Asked] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    pulls: dict[int, dict[str, Any]] = field(default_factory=dict)
    files: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)  # account -> admin, maintain, write, triage, read or none
    numbers: dict[str, int] = field(default_factory=dict)  # account -> its number, where another has the name by now
    reviews: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    commits: dict[str, dict[str, Any]] = field(default_factory=dict)
    trees: dict[str, dict[str, Any]] = field(default_factory=dict)  # as they were asked for
    branches: dict[str, str] = field(default_factory=dict)
    unmerged: set[str] = field(default_factory=set)  # commits that main lacks
    statuses: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    edits: list[int] = field(default_factory=list)  # comments that were edited
    hidden: dict[str, str] = field(default_factory=dict)  # node id of a comment -> why it is folded away
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    # --- what a test sets up and looks at ---

    def account(self, login: str) -> dict[str, Any]:
        return {"id": self.numbers.get(login, sum(login.encode())), "login": login}

    def review(self, number: int, login: str, state: str, commit: str = "") -> None:
        commit = commit or self.pulls[number]["head"]["sha"]
        said = {"id": next(self._ids), "user": self.account(login), "state": state, "commit_id": commit}
        self.reviews.setdefault(number, []).append(said)

    def open_pull(self, number: int, head: str, *files: str, fork: str = "") -> None:
        """`fork`: the repository that it comes from, if that is another."""
        ours = {"id": 1, "full_name": REPOSITORY}
        self.pulls[number] = {
            "number": number, "state": "open", "merged_at": None, "base": {"repo": ours}, "user": {"login": "alice"},
            "head": {"sha": head, "repo": {"id": 2, "full_name": fork} if fork else ours},
        }  # fmt: skip
        self.files[number] = [{"filename": name, "status": "modified"} for name in files]

    def merge(self, number: int, commit: str) -> None:
        self.pulls[number] |= {"state": "closed", "merged_at": "2026-11-21T12:00:00Z", "merge_commit_sha": commit}

    def say(self, number: int, text: str, login: str = "alice") -> int:
        return int(self._comment(number, text, login)["id"])

    def event(self, number: int, text: str, login: str = "alice", *, action: str = "created") -> dict[str, Any]:
        """A new comment, and GitHub's event about it, which says of its author what a stranger may not rely on."""
        id_ = self.say(number, text, login)
        comment = next(one for one in self.comments[number] if one["id"] == id_)
        issue = {"number": number, "pull_request": {"url": f"https://api.github.com/repos/{REPOSITORY}/pulls/{number}"}}
        return {"action": action, "issue": issue, "comment": {**comment, "author_association": "OWNER"},
                "repository": {"full_name": REPOSITORY}, "sender": comment["user"]}  # fmt: skip

    def texts(self, number: int, login: str = BOT) -> list[str]:
        return [one["body"] for one in self.comments.get(number, ()) if one["user"] and one["user"]["login"] == login]

    def asked(self, method: str, path: str = "") -> list[Asked]:
        return [one for one in self.requests if one.method == method and re.search(path, one.path)]

    def env(self, **more: str) -> dict[str, str]:
        return {"GITHUB_API_URL": self.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_TOKEN": TOKEN, **more}

    # --- the server ---

    def app(self) -> web.Application:
        @web.middleware
        async def gate(request: web.Request, handler: Any) -> web.StreamResponse:
            body = await request.json() if request.can_read_body else None
            self.requests.append(Asked(request.method, request.path_qs, body))
            if (failed := await fail(self.failures, request, handler)) is not None:
                return failed
            login = self.tokens.get(request.headers.get("Authorization", "").removeprefix("Bearer "))
            if login is None:
                return web.json_response({"message": "Bad credentials"}, status=401)
            request[LOGIN] = login
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[gate])
        at = f"/api/v3/repos/{REPOSITORY}"
        app.add_routes(
            [
                web.get("/api/v3/user", self._user),
                web.get(at + "/pulls", self._pulls),
                web.get(at + "/pulls/{number}", self._pull),
                web.get(at + "/pulls/{number}/files", self._files),
                web.get(at + "/pulls/{number}/reviews", self._reviews),
                web.get(at + "/commits/{sha}/pulls", self._pulls_of),
                web.get(at, self._repository),
                web.post(at + "/pulls", self._add_pull),
                web.patch(at + "/pulls/{number}", self._edit_pull),
                web.get(at + "/git/commits/{sha}", self._commit),
                web.get(at + "/commits/{sha}", self._commit_with_files),
                web.get(at + "/compare/{base}...{head}", self._compare),
                web.get(at + "/git/ref/heads/{branch:.+}", self._ref),
                web.post(at + "/git/trees", self._add_tree),
                web.post(at + "/git/commits", self._add_commit),
                web.patch(at + "/git/refs/heads/{branch:.+}", self._move_branch),
                web.post(at + "/git/refs", self._add_branch),
                web.get(at + "/issues/{number}/comments", self._comments),
                web.post(at + "/issues/{number}/comments", self._add_comment),
                web.get(at + "/issues/comments/{id}", self._comment_alone),
                web.get(at + "/collaborators/{login}/permission", self._collaborator),
                web.patch(at + "/issues/comments/{id}", self._edit_comment),
                web.get(at + "/issues", self._issues),
                web.post(at + "/issues", self._add_issue),
                web.patch(at + "/issues/{number}", self._edit_issue),
                web.post(at + "/statuses/{sha}", self._status),
                web.post(at + "/check-runs", self._check),
                web.post("/api/graphql", self._graphql),
            ]
        )
        return app

    def _paged(self, request: web.Request, entries: list[dict[str, Any]]) -> web.Response:
        size = min(int(request.query.get("per_page", "30")), self.page)
        at = int(request.query.get("page", "1"))
        headers = {}
        if at * size < len(entries):
            following = request.url.update_query(page=str(at + 1))
            headers["Link"] = f'<{following}>; rel="next", <{request.url.update_query(page="99")}>; rel="last"'
        return web.json_response(entries[(at - 1) * size : at * size], headers=headers)

    def _refused(self, permission: str) -> web.Response | None:
        if permission in self.permissions:
            return None
        headers = {"X-Accepted-GitHub-Permissions": f"{permission}=write"}
        return web.json_response({"message": "Resource not accessible by integration"}, status=403, headers=headers)

    async def _user(self, request: web.Request) -> web.Response:
        if request[LOGIN].endswith("[bot]"):  # an installation is no user
            return web.json_response({"message": "Resource not accessible by integration"}, status=403)
        return web.json_response({"login": request[LOGIN]})

    async def _pulls(self, request: web.Request) -> web.Response:
        state, head = request.query.get("state", "open"), request.query.get("head")
        listed = [one for one in self.pulls.values() if state in ("all", one["state"])]
        if head is not None:
            listed = [one for one in listed if f"{REPOSITORY.partition('/')[0]}:{one['head'].get('ref')}" == head]
        return self._paged(request, listed[::-1] if request.query.get("direction") == "desc" else listed)

    # --- branches and pull requests of ours: https://docs.github.com/rest/git, https://docs.github.com/rest/pulls ---

    async def _repository(self, _request: web.Request) -> web.Response:
        return web.json_response({"id": 1, "full_name": REPOSITORY, "default_branch": "main"})

    async def _commit(self, request: web.Request) -> web.Response:
        found = self.commits.get(request.match_info["sha"])
        return web.json_response(found) if found else web.json_response({"message": "Not Found"}, status=404)

    async def _commit_with_files(self, request: web.Request) -> web.Response:
        found = self.commits[request.match_info["sha"]]
        tree = self.trees.get(found["tree"]["sha"], {"tree": []})["tree"]
        listed = [{"filename": one["path"], "sha": blob(one["content"]), "status": "modified"} for one in tree]
        size, at = int(request.query.get("per_page", "30")), int(request.query.get("page", "1"))
        return web.json_response({"sha": found["sha"], "files": listed[(at - 1) * size : at * size]})

    async def _compare(self, request: web.Request) -> web.Response:
        head = request.match_info["head"]
        if request.match_info["base"] != "main" or head not in self.commits:
            return web.json_response({"message": "Not Found"}, status=404)
        ahead = int(head in self.unmerged)
        return web.json_response({"status": "ahead" if ahead else "behind", "ahead_by": ahead, "behind_by": 1})

    async def _ref(self, request: web.Request) -> web.Response:
        branch = request.match_info["branch"]
        if branch not in self.branches:
            return web.json_response({"message": "Not Found"}, status=404)
        found = {"sha": self.branches[branch], "type": "commit"}
        return web.json_response({"ref": f"refs/heads/{branch}", "object": found})

    async def _add_tree(self, request: web.Request) -> web.Response:
        sha = f"{next(self._ids):040x}"
        self.trees[sha] = await request.json()
        return web.json_response({"sha": sha, "tree": [], "truncated": False}, status=201)

    async def _add_commit(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["tree"] not in self.trees or any(parent not in self.commits for parent in body["parents"]):
            return web.json_response({"message": "Tree SHA does not exist"}, status=422)
        return web.json_response(self.commit(body["message"], body["tree"], *body["parents"]), status=201)

    def commit(self, message: str, tree: str = "", *parents: str) -> dict[str, Any]:
        sha = f"{next(self._ids):040x}"
        found = {"sha": sha, "message": message, "tree": {"sha": tree}, "parents": [{"sha": one} for one in parents]}
        self.commits[sha] = found
        return found

    async def _move_branch(self, request: web.Request) -> web.Response:
        branch, body = request.match_info["branch"], await request.json()
        if branch not in self.branches:
            return web.json_response({"message": "Reference does not exist"}, status=422)
        self.push(branch, body["sha"])
        return web.json_response({"ref": f"refs/heads/{branch}", "object": {"sha": body["sha"], "type": "commit"}})

    async def _add_branch(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["ref"].removeprefix("refs/heads/") in self.branches:
            return web.json_response({"message": "Reference already exists"}, status=422)
        self.push(body["ref"].removeprefix("refs/heads/"), body["sha"])
        return web.json_response({"ref": body["ref"], "object": {"sha": body["sha"], "type": "commit"}}, status=201)

    def push(self, branch: str, sha: str) -> None:
        """Move a branch, and the open pull request from it."""
        self.branches[branch] = sha
        for one in self.pulls.values():
            if one["state"] == "open" and one["head"].get("ref") == branch:
                one["head"]["sha"] = sha

    async def _add_pull(self, request: web.Request) -> web.Response:
        body = await request.json()
        if any(one["state"] == "open" and one["head"].get("ref") == body["head"] for one in self.pulls.values()):
            message = f"A pull request already exists for acme:{body['head']}."
            return web.json_response({"message": "Validation Failed", "errors": [{"message": message}]}, status=422)
        number = next(self._ids)
        self.open_pull(number, self.branches[body["head"]])
        self.pulls[number] |= {"title": body["title"], "body": body["body"],
                               "html_url": f"https://github.com/{REPOSITORY}/pull/{number}"}  # fmt: skip
        self.pulls[number]["base"] = {**self.pulls[number]["base"], "ref": body["base"]}
        self.pulls[number]["head"]["ref"] = body["head"]
        return web.json_response(self.pulls[number], status=201)

    async def _edit_pull(self, request: web.Request) -> web.Response:
        number, body = int(request.match_info["number"]), await request.json()
        if len(body.get("body", "")) > 65536:
            errors = [{"message": "body is too long (maximum is 65536 characters)"}]
            return web.json_response({"message": "Validation Failed", "errors": errors}, status=422)
        self.pulls[number] |= body
        return web.json_response(self.pulls[number])

    async def _pull(self, request: web.Request) -> web.Response:
        found = self.pulls.get(int(request.match_info["number"]))
        return web.json_response(found) if found else web.json_response({"message": "Not Found"}, status=404)

    async def _files(self, request: web.Request) -> web.Response:
        return self._paged(request, self.files[int(request.match_info["number"])])

    async def _reviews(self, request: web.Request) -> web.Response:
        return self._paged(request, self.reviews.get(int(request.match_info["number"]), []))

    async def _pulls_of(self, request: web.Request) -> web.Response:
        sha = request.match_info["sha"]
        return self._paged(
            request, [p for p in self.pulls.values() if sha in (p.get("merge_commit_sha"), p["head"]["sha"])]
        )

    async def _comments(self, request: web.Request) -> web.Response:
        return self._paged(request, self.comments.get(int(request.match_info["number"]), []))

    def _comment(self, number: int, text: str, login: str) -> dict[str, Any]:
        id_ = next(self._ids)
        made = {"id": id_, "node_id": f"IC_{id_}", "body": text, "user": {"id": sum(login.encode()), "login": login},
                "issue_url": f"https://api.github.com/repos/{REPOSITORY}/issues/{number}",
                "html_url": f"https://github.com/{REPOSITORY}/pull/{number}#issuecomment-{id_}"}  # fmt: skip
        self.comments.setdefault(number, []).append(made)
        return made

    async def _add_comment(self, request: web.Request) -> web.Response:
        if refused := self._refused("pull_requests"):
            return refused
        number = int(request.match_info["number"])
        if number not in self.pulls and number not in self.issues:
            return web.json_response({"message": "Not Found"}, status=404)
        text = (await request.json())["body"]
        if len(text) > 65536:
            errors = [{"resource": "IssueComment", "code": "unprocessable", "field": "data",
                       "message": "Body is too long (maximum is 65536 characters)"}]  # fmt: skip
            return web.json_response({"message": "Validation Failed", "errors": errors}, status=422)
        return web.json_response(self._comment(number, text, request[LOGIN]), status=201)

    async def _comment_alone(self, request: web.Request) -> web.Response:
        id_ = int(request.match_info["id"])
        found = [one for one in itertools.chain(*self.comments.values()) if one["id"] == id_]
        return web.json_response(found[0]) if found else web.json_response({"message": "Not Found"}, status=404)

    async def _collaborator(self, request: web.Request) -> web.Response:
        """Of a public repository everybody may read; of a private one, strangers get 404."""
        login = request.match_info["login"]
        role = self.roles.get(login)
        if role is None:
            return web.json_response({"message": f"{login} is not a user"}, status=404)
        told = {"maintain": "write", "triage": "read"}.get(role, role)
        return web.json_response({"permission": told, "role_name": role, "user": self.account(login)})

    async def _edit_comment(self, request: web.Request) -> web.Response:
        id_ = int(request.match_info["id"])
        for one in itertools.chain(*self.comments.values()):
            if one["id"] == id_:
                one["body"] = (await request.json())["body"]
                self.edits.append(id_)
                return web.json_response(one)
        return web.json_response({"message": "Not Found"}, status=404)

    async def _issues(self, request: web.Request) -> web.Response:
        found = [
            issue
            for issue in self.issues.values()
            if request.query.get("state", "open") in ("all", issue["state"])
            and request.query.get("labels", "") in ("", *issue.get("labels", ()))
            and issue["user"]["login"] == request.query.get("creator", issue["user"]["login"])
        ]
        return self._paged(request, found)

    async def _add_issue(self, request: web.Request) -> web.Response:
        if refused := self._refused("issues"):
            return refused
        number = next(self._ids)
        self.issues[number] = {
            "number": number, "state": "open", "user": {"login": request[LOGIN]},
            "html_url": f"https://github.com/{REPOSITORY}/issues/{number}", **await request.json(),
        }  # fmt: skip
        return web.json_response(self.issues[number], status=201)

    async def _edit_issue(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if number not in self.issues:
            return web.json_response({"message": "Not Found"}, status=404)
        self.issues[number] |= await request.json()
        return web.json_response(self.issues[number])

    async def _status(self, request: web.Request) -> web.Response:
        if refused := self._refused("statuses"):
            return refused
        self.statuses.append({"sha": request.match_info["sha"], **await request.json()})
        return web.json_response(self.statuses[-1], status=201)

    async def _check(self, request: web.Request) -> web.Response:
        """For apps alone, such as that of GitHub Actions."""
        if refused := self._refused("checks"):
            return refused
        body = await request.json()
        if (
            body["conclusion"] not in ("success", "failure", "action_required")
            or len(body["output"]["summary"]) > 65535
        ):
            return web.json_response({"message": "Validation Failed"}, status=422)
        self.checks.append(body)
        return web.json_response(body, status=201)

    async def _graphql(self, request: web.Request) -> web.Response:
        """Of all there is, what folds a comment away. Errors come with 200."""
        body = await request.json()
        node = body["variables"]["id"]
        if "minimizeComment" not in body["query"] or "pull_requests" not in self.permissions:
            message = "Resource not accessible by integration"
            return web.json_response({"data": None, "errors": [{"type": "FORBIDDEN", "message": message}]})
        if all(one.get("node_id") != node for one in itertools.chain(*self.comments.values())):
            return web.json_response({"errors": [{"type": "NOT_FOUND", "message": f"Could not resolve {node}"}]})
        self.hidden[node] = re.findall(r"classifier: (\w+)", body["query"])[0]
        return web.json_response({"data": {"minimizeComment": {"clientMutationId": None}}})


class Fake(Protocol):
    url: str

    def app(self) -> web.Application: ...


F = TypeVar("F", bound=Fake)


@contextmanager
def serve(fake: F, at: str) -> Iterator[F]:
    """Up while the block runs, on a thread of its own: commands under test have loops of their own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()

    async def up() -> web.AppRunner:
        runner = web.AppRunner(fake.app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]  # asyncio's server has some
        fake.url = f"http://127.0.0.1:{port}{at}"
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(up())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@contextmanager
def serving() -> Iterator[FakeGitHub]:
    with serve(FakeGitHub(), "/api/v3") as fake:
        yield fake


def secretless(fake: FakeGitHub, *texts: str) -> None:
    """The token is in no text, nor in anything that was sent but for its header."""
    assert all(TOKEN not in text for text in (*texts, json.dumps([one.body for one in fake.requests])))
