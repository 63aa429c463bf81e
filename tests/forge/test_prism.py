"""A GitHub that we did not write: Prism serves its published OpenAPI document, and refuses what that lacks.

Both are packages of npm, fetched once: `npm install --prefix ~/.cache/gpu-fleet-reconciler/openapi @octokit/openapi
@stoplight/prism-cli`. Where they are not there, these tests say so and are skipped. The document is cut down to the
paths that we use, since Prism takes minutes for all of it, and answers also come as application/vnd.github+json, which
GitHub's documentation has clients ask for, and this document leaves out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.forge import connect
from reconciler.model.forge import Account, Check, ProposingForge, Pull
from tests.drivers.forge.test_github import Pacer
from tests.notify.test_published_api import API, PACKAGES

PRISM = PACKAGES / "node_modules" / ".bin" / "prism"
REPOSITORY, TOKEN = "octocat/Hello-World", "ghs_fake0123456789secret"
COMMIT = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
USED = (
    r"/user", r"/repos/\{owner\}/\{repo\}", r".*/pulls(/\{pull_number\}(/reviews|/files)?)?",
    r".*/commits/\{commit_sha\}/pulls",
    r".*/issues(/\{issue_number\}(/comments)?)?", r".*/issues/comments/\{comment_id\}", r".*/git/(trees|refs|commits)",
    r".*/git/commits/\{commit_sha\}", r".*/git/refs?/\{ref\}", r".*/commits/\{ref\}", r".*/compare/\{basehead\}",
    r".*/check-runs", r".*/statuses/\{sha\}",
    r".*/collaborators/\{username\}/permission",
)  # fmt: skip

pytestmark = [pytest.mark.wire, pytest.mark.tool]


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not API.exists():
        pytest.skip(f"no {API}: npm install --prefix {PACKAGES} @octokit/openapi")
    with mocked(cut_down(json.loads(API.read_text())), tmp_path_factory.mktemp("prism")) as url:
        yield url


@contextlib.contextmanager
def mocked(document: dict[str, Any], folder: Path) -> Iterator[str]:
    """Have Prism serve a document of OpenAPI; its URL."""
    if not PRISM.exists() or shutil.which("node") is None:
        pytest.skip(f"no {PRISM} or no node: npm install --prefix {PACKAGES} @stoplight/prism-cli")
    file = folder / "document.json"
    file.write_text(json.dumps(document))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PRISM), "mock", str(file), "--port", str(port), "--host", "127.0.0.1"]
    log = file.with_name("log")
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            _wait(port, process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    pytest.fail(f"Prism does not start: {log.read_text()[-500:]}")


def referred(whole: dict[str, Any], paths: dict[str, Any]) -> dict[str, Any]:
    """Return the components that these paths refer to."""
    kept: dict[str, Any] = {}
    waiting: list[Any] = [paths]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                _, _, kind, name = part["$ref"].split("/")
                if name not in kept.setdefault(kind, {}):
                    kept[kind][name] = whole["components"][kind][name]
                    waiting.append(kept[kind][name])
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return kept


def cut_down(whole: dict[str, Any]) -> dict[str, Any]:
    """The document with the paths that we use, and what these refer to."""
    paths = {path: said for path, said in whole["paths"].items() if any(re.fullmatch(one, path) for one in USED)}
    kept = referred(whole, paths)
    for file in kept["examples"]["commit"]["value"]["files"]:
        file.setdefault("sha", COMMIT)  # which its schema requires, and its example leaves out
    answers = [said for path in paths.values() for one in path.values() for said in one["responses"].values()]
    for said in (*answers, *kept.get("responses", {}).values()):
        said.pop("headers", None)  # its example of Link names a next page on api.github.com, where we send no token
        if "application/json" in said.get("content", {}):
            said["content"]["application/vnd.github+json"] = said["content"]["application/json"]
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": paths, "components": kept}


def test_github_takes_what_we_send_and_we_take_what_it_answers(prism: str) -> None:
    """Each call of the port. Prism answers what the document does not describe with 404 or 422, which raises here."""

    async def everything() -> dict[str, Any]:
        forge = connect(REPOSITORY, TOKEN, Pacer(), url=prism, login="octocat")
        assert isinstance(forge, ProposingForge)
        try:
            remark = await forge.add_remark(7, "a plan")
            await forge.edit_remark(remark, "a newer plan")
            await forge.edit_issue((await forge.add_issue("drift", "text")).id, "drift", "text", close=True)
            await forge.set_check(COMMIT, "reconciler/plan", Check.FAILURE, "t", "text", "https://ci.example/1")
            files, branch = {"fleet-spec/a.yaml": "x: 1\n"}, "reconciler/drift/demo"
            tip = await forge.tip(branch)
            made = await forge.write_branch(branch, COMMIT, files, "Adopt", over=tip)
            opened = await forge.open_proposal("reconciler/drift/demo", "main", "Adopt drift", "why")
            await forge.edit_proposal(opened.number, "Adopt drift", "why", close=True)
            return {
                "pull": await forge.pull(7), "pulls": await forge.open_pulls(), "of": await forge.pulls_of(COMMIT),
                "approvals": await forge.approvals(Pull(7, COMMIT)), "files": await forge.files(7),
                "remarks": await forge.remarks(7), "issues": await forge.open_issues(), "made": made,
                "branch": await forge.default_branch(), "commit": await forge.commit(COMMIT), "opened": opened,
                "contains": await forge.contains("main", COMMIT), "changed": await forge.changed(COMMIT),
                "proposals": await forge.proposals("new-topic"), "may": await forge.may_write(Account(1, "octocat")),
            }  # fmt: skip
        finally:
            await forge.close()

    found = asyncio.run(everything())
    assert (found["pull"].number, found["branch"]) == (1347, "master")
    assert found["files"] == ["file1.txt"]
    assert found["commit"].message == "added readme, because im a good github citizen"
    assert found["contains"] is False  # its example is one ahead
    assert (len(found["commit"].parents), list(found["changed"])) == (1, ["file1.txt"])
    assert re.fullmatch(r"[0-9a-f]{40}", found["made"])
    assert found["opened"].url.startswith("https://github.com/octocat/")
    assert [one.head for one in found["proposals"]] == [COMMIT]


REFUSED = [("PATCH", "/pulls/7", {"state": "done"}), ("GET", "/no-such-thing", None), ("POST", "/git/refs", {"ref": 1})]


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
def test_what_github_does_not_describe_is_refused(prism: str, method: str, path: str, body: Any) -> None:
    """That Prism checks at all."""
    assert refused_with(method, f"{prism}/repos/{REPOSITORY}{path}", body, Authorization="Bearer x") in (404, 422)


def refused_with(method: str, url: str, body: Any, **headers: str) -> int:
    """Send a request that Prism refuses; the status of its answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}, method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    refused.value.close()
    return refused.value.code
