"""GitLab's REST API on loopback, as far as we use it. Written from its documentation, apart from the driver.

https://docs.gitlab.com/api/: notes, merge_requests, merge_request_approvals, commits, issues. That it is one which a
client of others understands, tests/drivers/forge/test_gitlab.py shows with python-gitlab.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tests.forge.server import Asked, Failure, blob, fail, serve

PROJECT = "acme/hpc/fleet"
NUMBER = 42
TOKEN = "glpat-fake0123456789secret"
BOT = "project_42_bot_1a2b"
USER = web.RequestKey("user", dict)
AT = "2026-11-21T12:00:00.000Z"


@dataclass
class FakeGitLab:
    """One project. Notes are by merge request, oldest first."""

    url: str = ""
    page: int = 100
    users: dict[str, dict[str, Any]] = field(default_factory=dict)  # by token
    levels: dict[int, int] = field(default_factory=dict)  # user -> access level in the project
    blocked: set[int] = field(default_factory=set)  # users
    requests: list[Asked] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    merges: dict[int, dict[str, Any]] = field(default_factory=dict)
    approved: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    diffs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    notes: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    commits: dict[str, dict[str, Any]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    unmerged: set[str] = field(default_factory=set)  # commits that main lacks
    statuses: list[dict[str, Any]] = field(default_factory=list)
    edits: list[int] = field(default_factory=list)  # notes that were edited
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1000))

    def __post_init__(self) -> None:
        self.users[TOKEN] = self.user(BOT)

    # --- what a test sets up and looks at ---

    def user(self, name: str) -> dict[str, Any]:
        known = [one for one in self.users.values() if one["username"] == name]
        return known[0] if known else {"id": sum(name.encode()), "username": name, "name": name, "state": "active"}

    def open_merge(self, number: int, head: str, *files: str, fork: int | None = NUMBER) -> None:
        """`fork`: the number of the project that it comes from; None: that project was deleted."""
        self.merges[number] = {
            "id": 5000 + number, "iid": number, "project_id": NUMBER, "title": "t", "state": "opened", "sha": head,
            "source_project_id": fork, "target_project_id": NUMBER, "author": self.user("alice"),
            "source_branch": "change", "target_branch": "main", "merge_commit_sha": None,
            "web_url": f"https://gitlab.example/{PROJECT}/-/merge_requests/{number}",
        }  # fmt: skip
        self.diffs[number] = [
            {"old_path": name, "new_path": name, "a_mode": "100644", "b_mode": "100644", "diff": "@@ -1 +1 @@",
             "new_file": False, "renamed_file": False, "deleted_file": False}
            for name in files
        ]  # fmt: skip

    def merge(self, number: int, commit: str) -> None:
        self.merges[number] |= {"state": "merged", "merge_commit_sha": commit}

    def approve(self, number: int, name: str) -> None:
        self.approved.setdefault(number, []).append({"user": self.user(name)})

    def say(self, number: int, text: str, name: str = "alice", *, system: bool = False) -> int:
        return int(self._note(number, text, self.user(name), system=system)["id"])

    def event(self, number: int, text: str, name: str = "alice", *, action: str = "create") -> dict[str, Any]:
        """A new note, and the webhook's event about it."""
        id_ = self.say(number, text, name)
        attributes = {"id": id_, "note": text, "noteable_type": "MergeRequest", "action": action,
                      "author_id": self.user(name)["id"], "system": False}  # fmt: skip
        return {"object_kind": "note", "event_type": "note", "user": self.user(name), "project_id": NUMBER,
                "object_attributes": attributes, "merge_request": {"iid": number, "id": 5000 + number}}  # fmt: skip

    def texts(self, number: int, name: str = BOT) -> list[str]:
        return [one["body"] for one in self.notes.get(number, ()) if one["author"]["username"] == name]

    def env(self, **more: str) -> dict[str, str]:
        return {"CI_API_V4_URL": self.url, "CI_PROJECT_PATH": PROJECT, "GITLAB_TOKEN": TOKEN, "GITLAB_CI": "true",
                "CI_JOB_URL": f"https://gitlab.example/{PROJECT}/-/jobs/7", **more}  # fmt: skip

    # --- the server ---

    def app(self) -> web.Application:
        @web.middleware
        async def gate(request: web.Request, handler: Any) -> web.StreamResponse:
            body = await request.json() if request.can_read_body else None
            self.requests.append(Asked(request.method, request.path_qs, body))
            if (failed := await fail(self.failures, request, handler)) is not None:
                return failed
            token = request.headers.get("PRIVATE-TOKEN") or request.headers.get("Authorization", "")[7:]
            if token not in self.users:
                return web.json_response({"message": "401 Unauthorized"}, status=401)
            request[USER] = self.users[token]
            answer: web.StreamResponse = await handler(request)
            return answer

        app = web.Application(middlewares=[gate])
        for name in (quote(PROJECT, safe=""), str(NUMBER)):
            app.add_routes(self._routes(f"/api/v4/projects/{name}"))
        app.add_routes([web.get("/api/v4/user", self._self)])
        return app

    def _routes(self, at: str) -> list[web.RouteDef]:
        one = at + "/merge_requests/{iid:[0-9]+}"
        return [
            web.get(at, self._project),
            web.get(at + "/merge_requests", self._merges),
            web.get(one, self._merge),
            web.get(one + "/diffs", self._diffs),
            web.get(one + "/approvals", self._approvals),
            web.get(one + "/notes", self._notes),
            web.post(one + "/notes", self._add_note),
            web.get(one + "/notes/{id}", self._note_alone),
            web.put(one + "/notes/{id}", self._edit_note),
            web.get(at + "/repository/commits/{sha}/merge_requests", self._merges_of),
            web.post(at + "/merge_requests", self._add_merge),
            web.put(one, self._edit_merge),
            web.get(at + "/repository/commits/{sha}", self._commit),
            web.get(at + "/repository/commits/{sha}/diff", self._commit_diff),
            web.get(at + "/repository/compare", self._compare),
            web.get(at + "/repository/files/{path:.+}", self._file),
            web.get(at + "/repository/branches/{branch:.+}", self._branch),
            web.post(at + "/repository/commits", self._add_commit),
            web.get(at + "/issues", self._issues),
            web.post(at + "/issues", self._add_issue),
            web.put(at + "/issues/{iid}", self._edit_issue),
            web.post(at + "/statuses/{sha}", self._status),
            web.get(at + "/members/all/{user:[0-9]+}", self._member),
        ]

    def _paged(self, request: web.Request, entries: list[dict[str, Any]]) -> web.Response:
        size, at = min(int(request.query.get("per_page", "20")), self.page), int(request.query.get("page", "1"))
        headers = {"X-Total": str(len(entries)), "X-Page": str(at), "X-Per-Page": str(size)}
        if at * size < len(entries):
            headers["Link"] = f'<{request.url.update_query(page=str(at + 1))}>; rel="next"'
        return web.json_response(entries[(at - 1) * size : at * size], headers=headers)

    def _at(self, request: web.Request) -> int:
        iid = int(request.match_info["iid"])
        if iid not in self.merges:
            raise web.HTTPNotFound(text='{"message":"404 Not found"}', content_type="application/json")
        return iid

    async def _self(self, request: web.Request) -> web.Response:
        return web.json_response(request[USER])

    async def _project(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "id": NUMBER,
                "path_with_namespace": PROJECT,
                "web_url": f"https://gitlab.example/{PROJECT}",
                "default_branch": "main",
            }
        )

    async def _merges(self, request: web.Request) -> web.Response:
        state, branch = request.query.get("state", "all"), request.query.get("source_branch")
        listed = [one for one in self.merges.values() if state in ("all", one["state"])]
        if branch is not None:
            listed = [one for one in listed if one.get("source_branch") == branch]
        return self._paged(request, listed[::-1] if request.query.get("sort") == "desc" else listed)

    # --- branches and merge requests of ours: https://docs.gitlab.com/api/commits, .../api/merge_requests ---

    async def _commit(self, request: web.Request) -> web.Response:
        found = self.commits.get(request.match_info["sha"])
        return web.json_response(found) if found else web.json_response({"message": "404 Not found"}, status=404)

    async def _add_commit(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["start_sha"] not in self.commits:
            return web.json_response({"message": "Invalid start_sha"}, status=400)
        if body["branch"] in self.branches and not body.get("force"):
            return web.json_response({"message": "A branch called that already exists."}, status=400)
        there = self.tree(body["start_sha"])
        for one in body["actions"]:  # in Gitaly's words
            if one["action"] == "create" and one["file_path"] in there:
                return web.json_response({"message": "A file with this name already exists"}, status=400)
            if one["action"] == "update" and one["file_path"] not in there:
                return web.json_response({"message": "A file with this name doesn't exist"}, status=400)
        made = self.commit(body["commit_message"], body["actions"], body["start_sha"])
        self.push(body["branch"], made["id"])
        return web.json_response(made, status=201)

    def commit(self, message: str, actions: Any = (), *parents: str) -> dict[str, Any]:
        """`actions`: with which it was made; a text for those of a commit that nobody looks into."""
        sha = f"{next(self._ids):040x}"
        self.commits[sha] = {"id": sha, "message": message, "title": message.partition("\n")[0], "actions": actions,
                             "parent_ids": list(parents)}  # fmt: skip
        return self.commits[sha]

    async def _commit_diff(self, request: web.Request) -> web.Response:
        paths = [one["file_path"] for one in self.commits[request.match_info["sha"]]["actions"]]
        return self._paged(request, [{"old_path": one, "new_path": one, "deleted_file": False} for one in paths])

    def tree(self, sha: str) -> dict[str, str]:
        """The files of a commit: those of its parents, and what it writes."""
        said = self.commits[sha]
        found: dict[str, str] = {}
        for parent in said["parent_ids"]:
            found |= self.tree(parent)
        if isinstance(said["actions"], list | tuple):
            found |= {one["file_path"]: one["content"] for one in said["actions"]}
        return found

    async def _file(self, request: web.Request) -> web.Response:
        path, sha = request.match_info["path"], request.query["ref"]
        text = self.tree(sha).get(path) if sha in self.commits else None
        if text is None:
            return web.json_response({"message": "404 File Not Found"}, status=404)
        return web.json_response({"file_path": path, "blob_id": blob(text)})

    async def _compare(self, request: web.Request) -> web.Response:
        to = request.query["to"]
        if request.query["from"] != "main" or to not in self.commits:
            return web.json_response({"message": "404 Ref Not Found"}, status=404)
        return web.json_response({"commits": [self.commits[to]] if to in self.unmerged else [], "diffs": []})

    async def _branch(self, request: web.Request) -> web.Response:
        found = self.branches.get(request.match_info["branch"])
        if found is None:
            return web.json_response({"message": "404 Branch Not Found"}, status=404)
        return web.json_response({"name": request.match_info["branch"], "commit": {"id": found}})

    def push(self, branch: str, sha: str) -> None:
        """Move a branch, and the open merge request from it."""
        self.branches[branch] = sha
        for one in self.merges.values():
            if one["state"] == "opened" and one.get("source_branch") == branch:
                one["sha"] = sha

    async def _add_merge(self, request: web.Request) -> web.Response:
        body = await request.json()
        branch = body["source_branch"]
        if any(one["state"] == "opened" and one.get("source_branch") == branch for one in self.merges.values()):
            message = ["Another open merge request already exists for this source branch: !1"]
            return web.json_response({"message": message}, status=409)
        number = next(self._ids)
        self.open_merge(number, self.branches[branch])
        self.merges[number] |= {**body, "web_url": f"https://gitlab.example/{PROJECT}/-/merge_requests/{number}"}
        return web.json_response(self.merges[number], status=201)

    async def _edit_merge(self, request: web.Request) -> web.Response:
        merge, body = self.merges[self._at(request)], await request.json()
        if body.pop("state_event", None) == "close":
            merge["state"] = "closed"
        merge |= body
        return web.json_response(merge)

    async def _merge(self, request: web.Request) -> web.Response:
        return web.json_response(self.merges[self._at(request)])

    async def _diffs(self, request: web.Request) -> web.Response:
        return self._paged(request, self.diffs[self._at(request)])

    async def _approvals(self, request: web.Request) -> web.Response:
        approved = self.approved.get(self._at(request), [])
        return web.json_response({"user_has_approved": False, "approved": bool(approved), "approved_by": approved})

    async def _merges_of(self, request: web.Request) -> web.Response:
        sha = request.match_info["sha"]
        return self._paged(
            request, [one for one in self.merges.values() if sha in (one["sha"], one["merge_commit_sha"])]
        )

    async def _notes(self, request: web.Request) -> web.Response:
        found = self.notes.get(self._at(request), [])
        return self._paged(request, found if request.query.get("sort", "desc") == "asc" else found[::-1])

    def _note(self, number: int, text: str, user: dict[str, Any], *, system: bool = False) -> dict[str, Any]:
        made = {"id": next(self._ids), "body": text, "author": user, "created_at": AT, "updated_at": AT,
                "system": system, "noteable_type": "MergeRequest", "noteable_iid": number, "project_id": NUMBER,
                "resolvable": False, "internal": False}  # fmt: skip
        self.notes.setdefault(number, []).append(made)
        return made

    async def _note_alone(self, request: web.Request) -> web.Response:
        found = [one for one in self.notes.get(self._at(request), []) if one["id"] == int(request.match_info["id"])]
        return web.json_response(found[0]) if found else web.json_response({"message": "404 Not found"}, status=404)

    @staticmethod
    def _long(text: str) -> web.Response | None:
        if len(text) <= 1_000_000:
            return None
        return web.json_response({"message": {"note": ["is too long (maximum is 1000000 characters)"]}}, status=400)

    async def _add_note(self, request: web.Request) -> web.Response:
        text = (await request.json())["body"]
        return self._long(text) or web.json_response(self._note(self._at(request), text, request[USER]), status=201)

    async def _edit_note(self, request: web.Request) -> web.Response:
        """An author's own notes alone."""
        text, id_ = (await request.json())["body"], int(request.match_info["id"])
        for one in self.notes.get(self._at(request), []):
            if one["id"] == id_ and one["author"] == request[USER] and not self._long(text):
                one["body"] = text
                self.edits.append(id_)
                return web.json_response(one)
        return web.json_response({"message": "403 Forbidden"}, status=403)

    async def _issues(self, request: web.Request) -> web.Response:
        state, mine = request.query.get("state", "all"), request.query.get("scope") == "created_by_me"
        return self._paged(request, [
            one for one in self.issues.values()
            if state in ("all", one["state"]) and (not mine or one["author"] == request[USER])
        ])  # fmt: skip

    async def _add_issue(self, request: web.Request) -> web.Response:
        number = next(self._ids)
        self.issues[number] = {"id": number + 9000, "iid": number, "project_id": NUMBER, "state": "opened",
                               "author": request[USER], **await request.json(),
                               "web_url": f"https://gitlab.example/{PROJECT}/-/issues/{number}"}  # fmt: skip
        return web.json_response(self.issues[number], status=201)

    async def _edit_issue(self, request: web.Request) -> web.Response:
        issue, body = self.issues[int(request.match_info["iid"])], await request.json()
        if body.pop("state_event", None) == "close":
            issue["state"] = "closed"
        issue |= body
        return web.json_response(issue)

    async def _status(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["state"] not in ("pending", "running", "success", "failed", "canceled", "skipped"):
            return web.json_response({"error": "state does not have a valid value"}, status=400)
        self.statuses.append({"id": next(self._ids), "sha": request.match_info["sha"], **body, "status": body["state"]})
        return web.json_response(self.statuses[-1], status=201)

    async def _member(self, request: web.Request) -> web.Response:
        user = int(request.match_info["user"])
        if user not in self.levels:
            return web.json_response({"message": "404 Not found"}, status=404)
        state = "blocked" if user in self.blocked else "active"
        return web.json_response({"id": user, "access_level": self.levels[user], "state": state})


@contextmanager
def serving() -> Iterator[FakeGitLab]:
    with serve(FakeGitLab(), "/api/v4") as fake:
        yield fake
