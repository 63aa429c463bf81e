"""GitHub's published OpenAPI description: our requests are described there, and we understand its examples of answers.

The description is a package of npm, fetched once: `npm install --prefix ~/.cache/gpu-fleet-reconciler/openapi
@octokit/openapi`. Where it is not there, these tests say so and are skipped.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema
import pytest
from aiohttp import web

from reconciler.drivers.forge import connect
from reconciler.model.forge import Account, Check, ProposingForge, Pull
from reconciler.model.tickets import Tracker, TrackerKind
from tests.drivers.forge.test_github import Pacer
from tests.forge.server import REPOSITORY, TOKEN, serve, serving
from tests.notify.test_tickets import Desk, message

pytestmark = [pytest.mark.wire, pytest.mark.tool]

PACKAGES = Path.home() / ".cache" / "gpu-fleet-reconciler" / "openapi"
API = PACKAGES / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    if not API.exists():
        pytest.skip(f"no description of GitHub's API: npm install --prefix {PACKAGES} @octokit/openapi")
    found: dict[str, Any] = json.loads(API.read_text())
    return found


def problem(described: dict[str, Any], method: str, path: str, body: Any) -> str:
    """Return what of a request the description does not have; "" when it has all."""
    parts = urlsplit(path)
    for template, methods in described["paths"].items():
        pattern = re.escape(template).replace(r"\{ref\}", ".+")  # x-multi-segment: refs have slashes
        pattern = re.sub(r"\\\{[^}]+\\\}", "[^/]+", pattern)
        if re.fullmatch(pattern, parts.path) and method.lower() in methods:
            operation = methods[method.lower()]
            break
    else:
        return f"no {method} {parts.path}"
    known = [_resolved(described, one) for one in operation.get("parameters", ())]
    for name, value in parse_qsl(parts.query):
        one = next((one for one in known if (one["in"], one["name"]) == ("query", name)), None)
        if one is None:
            return f"no parameter {name}"
        words = one["schema"].get("enum")
        if words is not None and value not in words:
            return f"{name} can't be {value}"
    if body is None:
        return ""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    errors = jsonschema.Draft7Validator({**schema, "components": described["components"]}).iter_errors(body)
    unknown = set(body) - set(schema["properties"])
    return "; ".join([*(error.message for error in errors), *(f"no property {name}" for name in sorted(unknown))])


def _resolved(described: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in one:
        return one
    _, _, kind, name = one["$ref"].split("/")
    found: dict[str, Any] = described["components"][kind][name]
    return found


def test_each_request_about_a_ticket_is_one_that_github_describes(described: dict[str, Any], tmp_path: Path) -> None:
    with serving() as fake:
        desk = Desk(tmp_path, Tracker("t", TrackerKind.GITHUB, "token", fake.url, REPOSITORY, ("hardware",)), TOKEN)
        desk.send(message())
        desk.send(message(2, body="more"))
        desk.send(message(3, over=True))
        desk.send(message(4))
        asked = [one for one in fake.requests if "/issues" in one.path]
    assert {one.method for one in asked} == {"GET", "POST", "PATCH"}
    for one in asked:
        assert problem(described, one.method, one.path.removeprefix("/api/v3"), one.body) == ""


def test_each_request_about_a_pull_request_is_one_that_github_describes(described: dict[str, Any]) -> None:
    async def everything() -> None:
        forge = connect(REPOSITORY, TOKEN, Pacer(), url=fake.url)
        pull = await forge.pull(7)
        await forge.open_pulls()
        await forge.pulls_of("c" * 40)
        await forge.approvals(pull)
        await forge.files(7)
        await forge.edit_remark(await forge.add_remark(7, "text"), "more")
        said = await forge.said(7, (await forge.remarks(7))[0].id)
        await forge.may_write(said.account)
        await forge.edit_issue((await forge.add_issue("t", "text")).id, "t", "text", close=True)
        await forge.open_issues()
        await forge.set_check("c" * 40, "reconciler/plan", Check.FAILURE, "t", "text", "https://x/1")
        assert isinstance(forge, ProposingForge)
        branch, into = "reconciler/drift/demo", await forge.default_branch()
        assert await forge.contains(into, base)
        for text in ("a: 1\n", "a: 2\n"):
            over = await forge.tip(branch)
            made = await forge.write_branch(branch, base, {"fleet-spec/a.yaml": text}, "Adopt drift", over=over)
            await forge.commit(made)
            await forge.changed(made)
        opened = await forge.open_proposal(branch, into, "Adopt drift", "why")
        await forge.edit_proposal((await forge.proposals(branch))[0].number, "t", opened.text, close=True)
        fake.permissions.discard("checks")
        await forge.set_check("c" * 40, "reconciler/plan", Check.ERROR, "t", "text", "https://x/1")
        await forge.close()

    with serving() as fake:
        fake.permissions.add("checks")
        fake.open_pull(7, "c" * 40)
        base = fake.commit("before", "its tree")["sha"]
        asyncio.run(everything())
    assert len({(one.method, urlsplit(one.path).path) for one in fake.requests}) >= 15
    for one in fake.requests:
        assert problem(described, one.method, one.path.removeprefix("/api/v3"), one.body) == ""


def test_what_github_shows_as_an_answer_is_understood(described: dict[str, Any]) -> None:
    """Its own examples of each answer, served in place of ours."""
    shown: dict[tuple[str, str], Any] = {}
    for template, methods in described["paths"].items():
        for method, operation in methods.items():
            for status, said in operation.get("responses", {}).items():
                examples = said.get("content", {}).get("application/json", {}).get("examples", {})
                if status in ("200", "201") and examples:
                    shown[method.upper(), template] = _example(described, next(iter(examples.values())))
    at = "/repos/{owner}/{repo}"
    one = shown["GET", at + "/pulls/{pull_number}"]

    async def read() -> tuple[Any, ...]:
        forge = connect(REPOSITORY, TOKEN, Pacer(), url=fake.url, login="octocat")
        try:
            return (
                await forge.pull(7), await forge.open_pulls(), await forge.approvals(Pull(7, _COMMIT)),
                await forge.files(7), await forge.remarks(7), await forge.add_remark(7, "text"),
                await forge.open_issues(), await forge.said(1347, 1), await forge.may_write(Account(1, "octocat")),
            )  # fmt: skip
        finally:
            await forge.close()

    with serve(Shown({
        ("GET", "/pulls/7"): one, ("GET", "/pulls"): shown["GET", at + "/pulls"],
        ("GET", "/pulls/7/reviews"): shown["GET", at + "/pulls/{pull_number}/reviews"],
        ("GET", "/pulls/7/files"): shown["GET", at + "/pulls/{pull_number}/files"],
        ("GET", "/issues/7/comments"): shown["GET", at + "/issues/{issue_number}/comments"],
        ("POST", "/issues/7/comments"): shown["POST", at + "/issues/{issue_number}/comments"],
        ("GET", "/issues"): shown["GET", at + "/issues"],
        ("GET", "/issues/comments/1"): shown["GET", at + "/issues/comments/{comment_id}"]
        | {"issue_url": f"https://api.github.com/repos/{REPOSITORY}/issues/1347"},
        ("GET", "/collaborators/octocat/permission"):
        shown["GET", at + "/collaborators/{username}/permission"],
    }), "/api/v3") as fake:  # fmt: skip
        pull, pulls, approvals, files, remarks, made, issues, said, may = asyncio.run(read())
    assert (pull.number, pull.head, pull.author) == (one["number"], one["head"]["sha"], "octocat")
    assert len(pulls) == 1
    assert (approvals, files) == ([Account(1, "octocat")], ["file1.txt"])
    assert [remark.text for remark in remarks] == ["Me too"] == [made.text]
    assert made.url.startswith("https://github.com/octocat/Hello-World/issues/")
    assert (said.account, said.text, may) == (Account(1, "octocat"), "Me too", True)
    assert issues == [], "the example is a pull request too"


_COMMIT = "ecdd80bb57125d7ba9641ffaa4d7d2c19d3f3091"  # of the example of a review


def _example(described: dict[str, Any], said: dict[str, Any]) -> Any:
    if "$ref" in said:
        said = described["components"]["examples"][said["$ref"].rpartition("/")[2]]
    return said["value"]


class Shown:
    """Serves answers by method and the end of the path."""

    def __init__(self, answers: dict[tuple[str, str], Any]) -> None:
        self.url = ""
        self._answers = answers

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response(
            self._answers[request.method, request.path.removeprefix(f"/api/v3/repos/{REPOSITORY}")]
        )


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/repos/a/b/issues", {"body": "x"}, "'title' is a required property"),
        ("PATCH", "/repos/a/b/issues/1", {"state": "done"}, "'done' is not one of"),
        ("PATCH", "/repos/a/b/issues/1", {"status": "open"}, "no property status"),
        ("GET", "/repos/a/b/issues?state=every", None, "state can't be every"),
        ("GET", "/repos/a/b/issues?label=x", None, "no parameter label"),
        ("PUT", "/repos/a/b/issues/1", {}, "no PUT /repos/a/b/issues/1"),
    ],
)
def test_what_github_does_not_describe_is_noticed(
    described: dict[str, Any], method: str, path: str, body: Any, says: str
) -> None:
    assert says in problem(described, method, path, body)
