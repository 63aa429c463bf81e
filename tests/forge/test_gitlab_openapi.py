"""A GitLab that we did not write: Prism serves its published OpenAPI document, and refuses what that lacks.

`GITLAB_OPENAPI` names the document: doc/api/openapi/openapi_v2.yaml or openapi_v3.yaml of gitlab.com/gitlab-org/gitlab,
which no package carries. Prism is a package of npm, fetched once (see test_prism). The document is cut down to the
paths that we use. It is generated from GitLab's source, of which it has most and not all: each call is a test of its
own, and one whose path it lacks is skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from reconciler.drivers.forge import connect
from reconciler.drivers.forge.gitlab import GitLab
from reconciler.model.forge import Account, Check, ForgeKind, Pull, Remark
from tests.drivers.forge.test_github import Pacer
from tests.forge.test_prism import mocked, referred, refused_with

DOCUMENT: Final = Path(os.environ.get("GITLAB_OPENAPI", "/nonexistent"))
PROJECT, TOKEN = "5", "glpat-fake0123456789secret"
COMMIT = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
USED: Final = (
    r"/user", r"/projects/\{id\}",
    r".*/merge_requests(/\{merge_request_iid\}(/approvals|/diffs)?)?",
    r".*/merge_requests/\{\w+\}/notes(/\{note_id\})?",
    r".*/repository/commits(/\{sha\}(/diff|/merge_requests)?)?", r".*/statuses/\{sha\}", r".*/members/all/\{user_id\}",
    r".*/issues(/\{issue_iid\})?", r".*/repository/(compare|branches/\{branch\}|files/\{file_path\})",
)  # fmt: skip

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(not DOCUMENT.is_file(), reason="GITLAB_OPENAPI names no OpenAPI document of GitLab's"),
]


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    whole: dict[str, Any] = YAML(typ="safe", pure=False).load(DOCUMENT.read_text())
    found: dict[str, Any] = json.loads(json.dumps(cut_down(whole), default=str))  # some examples are dates of YAML
    return found


@pytest.fixture(scope="module")
def prism(described: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mocked(described, tmp_path_factory.mktemp("prism")) as url:
        yield f"{url}/api/v4"


def cut_down(whole: dict[str, Any]) -> dict[str, Any]:
    """The document with the paths that we use, and what these refer to."""
    used = [re.compile(rf"/api/v4({one})") for one in USED]
    paths = {
        path: said
        for path, said in whole["paths"].items()
        if path.startswith(("/api/v4/user", "/api/v4/projects/{id}")) and any(one.fullmatch(path) for one in used)
    }
    rest = {key: value for key, value in whole.items() if key in ("swagger", "openapi", "info", "produces")}
    if "definitions" in whole:  # version 2
        kept = {**rest, "paths": paths, "definitions": whole["definitions"]}
    else:
        kept = {**rest, "paths": paths, "components": referred(whole, paths)}
    correct(kept)
    return kept


# What the document, which is generated, says of answers and requests in another way than docs.gitlab.com/api does, and
# than GitLab does. A field whose type nobody noted in its source is said to be text.
LISTS: Final = ("/merge_requests", "/merge_requests/{}/diffs", "/issues", "/merge_requests/{}/notes")
NUMBERS: Final = ("source_project_id", "target_project_id", "access_level")


def correct(document: dict[str, Any]) -> None:
    for path, said in document["paths"].items():
        if _shape(path).removeprefix("/api/v4/projects/{}") in LISTS:
            _make_list(said["get"]["responses"]["200"])
        for one in (one for method in said.values() for one in method.get("parameters", ())):
            if (one["in"], one["name"]) == ("path", "branch"):  # a name, that is said to be a number
                (one.get("schema") or one).update(type="string", format="")
    for part in _schemas(document):
        fields = part["properties"]
        for name in NUMBERS:
            if fields.get(name, {}).get("type") == "string":
                fields[name]["type"] = "integer"
        if isinstance(fields.get("approved_by"), dict) and fields["approved_by"].get("type") != "array":
            fields["approved_by"] = {"type": "array", "items": fields["approved_by"]}
        if isinstance(fields.get("parent_ids", {}).get("example"), str):
            fields["parent_ids"]["example"] = [fields["parent_ids"]["example"]]
        if {"previous_path", "execute_filemode"} <= fields.keys():  # of a move, and of chmod
            part["required"] = ["action", "file_path"]


def _make_list(answer: dict[str, Any]) -> None:
    for holder in (answer, *answer.get("content", {}).values()):
        schema = holder.get("schema")
        if schema is not None and schema.get("type") != "array":
            holder["schema"] = {"type": "array", "items": schema}


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield each schema of an object."""
    if isinstance(part, dict):
        if isinstance(part.get("properties"), dict):
            yield part
        for value in list(part.values()):
            yield from _schemas(value)
    elif isinstance(part, list):
        for value in part:
            yield from _schemas(value)


REMARK: Final = Remark(3, "text", "https://gitlab.example", "merge_requests/7/notes/3")
PULL: Final = Pull(7, COMMIT)
FILES: Final = {"fleet-spec/a.yaml": "x: 1\n"}
# Each call of the port, by the path that it needs.
CALLS: Final[Mapping[str, tuple[str, Callable[[GitLab], Awaitable[Any]]]]] = {
    "pull": ("/merge_requests/{merge_request_iid}", lambda forge: forge.pull(7)),
    "open_pulls": ("/merge_requests", lambda forge: forge.open_pulls()),
    "pulls_of": ("/repository/commits/{sha}/merge_requests", lambda forge: forge.pulls_of(COMMIT)),
    "approvals": ("/merge_requests/{merge_request_iid}/approvals", lambda forge: forge.approvals(PULL)),
    "files": ("/merge_requests/{merge_request_iid}/diffs", lambda forge: forge.files(7)),
    "remarks": ("/merge_requests/{noteable_id}/notes", lambda forge: forge.remarks(7)),
    "add_remark": ("/merge_requests/{noteable_id}/notes", lambda forge: forge.add_remark(7, "a plan")),
    "said": ("/merge_requests/{noteable_id}/notes/{note_id}", lambda forge: forge.said(7, 3)),
    "edit_remark": ("/merge_requests/{noteable_id}/notes/{note_id}", lambda forge: forge.edit_remark(REMARK, "new")),
    "may_write": ("/members/all/{user_id}", lambda forge: forge.may_write(Account(1, "octocat"))),
    "open_issues": ("/issues", lambda forge: forge.open_issues()),
    "add_issue": ("/issues", lambda forge: forge.add_issue("drift", "text")),
    "edit_issue": ("/issues/{issue_iid}", lambda forge: forge.edit_issue(4, "drift", "text", close=True)),
    "set_check": (
        "/statuses/{sha}",
        lambda forge: forge.set_check(COMMIT, "reconciler/plan", Check.FAILURE, "t", "text", "https://ci.example/1"),
    ),
    "default_branch": ("", lambda forge: forge.default_branch()),
    "proposals": ("/merge_requests", lambda forge: forge.proposals("reconciler/drift/demo")),
    "contains": ("/repository/compare", lambda forge: forge.contains("main", COMMIT)),
    "tip": ("/repository/branches/{branch}", lambda forge: forge.tip("main")),
    "commit": ("/repository/commits/{sha}", lambda forge: forge.commit(COMMIT)),
    "changed": ("/repository/commits/{sha}/diff", lambda forge: forge.changed(COMMIT)),
    "write_branch": (
        "/repository/commits",
        lambda forge: forge.write_branch("reconciler/drift/demo", COMMIT, FILES, "Adopt", over=None),
    ),
    "open_proposal": ("/merge_requests", lambda forge: forge.open_proposal("b", "main", "Adopt drift", "why")),
    "edit_proposal": (
        "/merge_requests/{merge_request_iid}",
        lambda forge: forge.edit_proposal(7, "Adopt drift", "why", close=True),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_gitlab_takes_what_we_send_and_we_take_what_it_answers(
    name: str, described: dict[str, Any], prism: str
) -> None:
    """Prism answers what the document does not describe with 404 or 422, which raises here."""
    needs, call = CALLS[name]
    if not any(_shape(path) == _shape(f"/api/v4/projects/{{id}}{needs}") for path in described["paths"]):
        pytest.skip(f"{DOCUMENT.name} does not describe {needs}")

    async def ask() -> Any:
        forge = connect(PROJECT, TOKEN, Pacer(), kind=ForgeKind.GITLAB, url=prism, login="octocat")
        assert isinstance(forge, GitLab)
        try:
            return await call(forge)
        finally:
            await forge.close()

    asyncio.run(ask())


def test_most_calls_are_described(described: dict[str, Any]) -> None:
    shapes = {_shape(path) for path in described["paths"]}
    known = [name for name, (needs, _) in CALLS.items() if _shape(f"/api/v4/projects/{{id}}{needs}") in shapes]
    assert len(known) > 0.7 * len(CALLS), "the tests above would be skipped"


def _shape(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


REFUSED = [("POST", "/issues", {"state": "done"}), ("GET", "/no-such-thing", None), ("GET", "/issues?state=1", None)]


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
def test_what_gitlab_does_not_describe_is_refused(prism: str, method: str, path: str, body: Any) -> None:
    """That Prism checks at all."""
    token = {"PRIVATE-TOKEN": "x"}
    assert refused_with(method, f"{prism}/projects/{PROJECT}{path}", body, **token) in (400, 404, 422)
