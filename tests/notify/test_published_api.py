"""Our requests to GitHub against its published OpenAPI description, in Prism: a server that refuses what does not fit.

The packages come from npm, once: `npm install --prefix ~/.cache/gpu-fleet-reconciler/prism @octokit/openapi
@stoplight/prism-cli`. Where they are not there, these tests say so and are skipped.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconciler.drivers.forge.github import GitHub
from reconciler.drivers.forge.http import Rest
from reconciler.lab.inprocess import VirtualClock
from reconciler.model.errors import DriverError

pytestmark = [pytest.mark.wire, pytest.mark.tool]

PACKAGES = Path.home() / ".cache" / "gpu-fleet-reconciler" / "prism"
PRISM = PACKAGES / "node_modules" / ".bin" / "prism"
API = PACKAGES / "node_modules" / "@octokit" / "openapi" / "generated" / "api.github.com.json"
USED = ("/repos/{owner}/{repo}/issues", "/repos/{owner}/{repo}/issues/{issue_number}")
START_S = 120.0
# Prism knows the media types of the description alone; GitHub takes its own name for JSON too, as it recommends.
PLAIN = {"Accept": "application/json", "X-GitHub-Api-Version": "2022-11-28"}


@pytest.fixture(scope="module")
def prism(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not (PRISM.exists() and API.exists()):
        pytest.skip(f"no Prism: npm install --prefix {PACKAGES} @octokit/openapi @stoplight/prism-cli")
    file = tmp_path_factory.mktemp("openapi") / "issues.json"
    file.write_text(json.dumps(only(json.loads(API.read_text()), USED)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [str(PRISM), "mock", "--errors", "--host", "127.0.0.1", "--port", str(port), str(file)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        give_up = time.monotonic() + START_S
        while not answers(url):
            assert server.poll() is None, "Prism did not start"
            assert time.monotonic() < give_up, "Prism does not answer"
            time.sleep(0.2)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def answers(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.HTTPError:
        return False
    return True


def only(document: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """Return the description of these paths alone, with the components that they refer to: the whole takes minutes."""
    kept: dict[str, Any] = {"paths": {path: document["paths"][path] for path in paths}, "components": {}}
    for method in (one for path in kept["paths"].values() for one in path.values() if isinstance(one, dict)):
        for answer in method["responses"].values():
            answer.pop("headers", None)  # the example of Link leads to github.com
    asked, done = references(kept["paths"]), set[str]()
    while asked:
        name = asked.pop()
        if name in done:
            continue
        done.add(name)
        _, kind, key = name.removeprefix("#/").split("/", 2)
        found = document["components"][kind][key]
        kept["components"].setdefault(kind, {})[key] = found
        asked |= references(found)
    return {"openapi": document["openapi"], "info": document["info"]} | kept


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values())) if value else own
    return set().union(*map(references, value)) if isinstance(value, list) and value else set()


def ask(url: str, work: Any) -> Any:
    async def asking() -> Any:
        github = GitHub(Rest(url, "token", VirtualClock(), headers=PLAIN), "acme/fleet", login="bot")
        try:
            return await work(github)
        finally:
            await github.close()

    return asyncio.run(asking())


def test_each_request_about_a_ticket_is_one_that_github_describes(prism: str) -> None:
    assert ask(prism, lambda github: github.find_issue("no such marker", "gpu-fleet-reconciler")) is None
    opened = ask(prism, lambda github: github.open_ticket("title", "text", ("gpu-fleet-reconciler", "hardware")))
    assert opened.id > 0
    for closed in (False, True):
        ask(prism, lambda github, closed=closed: github.set_ticket(opened.id, "title", "text", closed=closed))


def test_what_github_does_not_describe_is_refused_there(prism: str) -> None:
    """So that the test above can fail."""

    async def wrong(github: GitHub) -> None:
        await github._rest.call("POST", "/repos/acme/fleet/issues", {"body": "a text without a title"})

    with pytest.raises(DriverError):
        ask(prism, wrong)
