"""A Jira on loopback, as far as tickets use it, written from Atlassian's documentation of REST 2 and 3."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_STATUS = {"open": {"name": "To Do", "statusCategory": {"key": "new"}},
           "done": {"name": "Done", "statusCategory": {"key": "done"}}}  # fmt: skip


@dataclass
class FakeJira:
    """One project. `hidden`: issues that its search does not show yet; `lost`: answers to creations that get lost."""

    url: str = ""
    version: int = 2
    issues: dict[str, dict[str, Any]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    lost: int = 0
    authorizations: set[str] = field(default_factory=set)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        at = f"/rest/api/{self.version}"
        search = f"{at}/search/jql" if self.version == 3 else f"{at}/search"
        if (method, path) == ("GET", search):
            wanted = re.findall(r'labels = "([^"]+)"', query["jql"][0])[0]
            shown = [
                issue
                for key, issue in self.issues.items()
                if wanted in issue["fields"]["labels"] and key not in self.hidden
            ]
            return 200, {"issues": shown}
        if (method, path) == ("POST", f"{at}/issue"):
            return self._create(body["fields"])
        found = re.fullmatch(rf"{at}/issue/([A-Z]+-\d+)(/transitions)?", path)
        if found is None or found[1] not in self.issues:
            return 404, {"errorMessages": ["Issue does not exist or you do not have permission to see it."]}
        return self._issue(method, self.issues[found[1]], body, transitions=bool(found[2]))

    def _create(self, fields: dict[str, Any]) -> tuple[int, Any]:
        wrong = (self.version == 3) is not isinstance(fields["description"], dict)
        if wrong or len(fields["summary"]) > 255 or any(" " in label for label in fields["labels"]):
            return 400, {"errorMessages": [], "errors": {"description": "Operation value must be a string"}}
        key = f"{fields['project']['key']}-{len(self.issues) + 1}"
        self.issues[key] = {
            "id": str(10000 + len(self.issues)),
            "key": key,
            "fields": {**fields, "status": _STATUS["open"]},
        }
        if self.lost:
            self.lost -= 1
            return 0, None
        return 201, {"id": self.issues[key]["id"], "key": key, "self": f"{self.url}/rest/api/2/issue/{key}"}

    def _issue(self, method: str, issue: dict[str, Any], body: Any, *, transitions: bool) -> tuple[int, Any]:
        if not transitions and method == "GET":
            return 200, issue
        if not transitions:
            issue["fields"] |= body["fields"]
            return 204, None
        listed = [{"id": "11", "to": _STATUS["open"]}, {"id": "31", "to": _STATUS["done"]}]
        if method == "GET":
            return 200, {"transitions": listed}
        issue["fields"]["status"] = next(one["to"] for one in listed if one["id"] == body["transition"]["id"])
        return 204, None

    def status(self, key: str) -> str:
        return str(self.issues[key]["fields"]["status"]["name"])


@contextmanager
def jira(version: int = 2) -> Iterator[FakeJira]:
    fake = FakeJira(version=version)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            fake.authorizations.add(str(self.headers["Authorization"]))
            document = json.loads(body) if body else None
            status, answer = fake.answer(self.command, parts.path, parse_qs(parts.query), document)
            if status == 0:
                self.connection.close()
                return
            self.send_response(status)
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
