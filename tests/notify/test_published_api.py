"""Our requests to GitHub against its published OpenAPI description: paths, methods, queries and bodies.

The description is a package of npm, fetched once: `npm install --prefix ~/.cache/gpu-fleet-reconciler/openapi
@octokit/openapi`. Where it is not there, these tests say so and are skipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema
import pytest

from reconciler.model.tickets import Tracker, TrackerKind
from tests.forge.server import REPOSITORY, TOKEN, serving
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
        pattern = re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(template))
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
