"""Interpret a failed kubectl by the server's Status, or else by kubectl's message. Pure.

kubectl prints one line for people and, at -v=4, the Status object that the API server sent. Its reason and causes are
stable, its messages are not: messages are matched only where no server answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.model.errors import DriverError, Failure
from reconciler.model.json_text import parse_json
from reconciler.model.printable import without_secrets
from reconciler.model.vocab import UnknownReason

_LONGEST_DETAIL = 300
_KLOG = re.compile(r"^[IWEF]\d{4} ")
_RESPONSE = "server response object: "
_QUOTED_URL = re.compile(r'"(https?://[^/?#"\\\s]*)(?:[^"\\]|\\.)*"')

_BY_REASON = {
    "Unauthorized": Failure.AUTH,
    "Forbidden": Failure.AUTH,
    "Conflict": Failure.CONFLICT,
    "TooManyRequests": Failure.BUSY,
    "ServiceUnavailable": Failure.BUSY,
    "Expired": Failure.BUSY,  # the token of a list's next page has expired twice in a row
    "Timeout": Failure.TIMEOUT,
    "ServerTimeout": Failure.TIMEOUT,
    "InternalError": Failure.UNREACHABLE,  # an error of etcd or of a webhook; the write may have happened
}

# Nothing reached the server: no connection, or no usable address or credentials.
_NEVER_SENT = re.compile(
    r"was refused|connection refused|no such host|no route to host|network is unreachable|dial tcp|dial unix"
    r"|x509:|tls: |TLS handshake|HTTP response to HTTPS client"
    r"|getting credentials|error loading config|[Cc]ontext .*does not exist|no such file|unknown flag"
)
_MESSAGES = (  # the first match counts
    (Failure.AUTH, re.compile(r"x509:|tls: (?!handshake)|HTTP response to HTTPS client")),
    (Failure.AUTH, re.compile(r"must be logged in|provide credentials|getting credentials|Unauthorized|[Ff]orbidden")),
    (
        Failure.AUTH,
        re.compile(r"error loading config|[Cc]ontext .*does not exist|no such file|[Ii]nvalid configuration"),
    ),
    (Failure.TIMEOUT, re.compile(r"[Tt]imeout|timed out|deadline exceeded")),
    (Failure.MALFORMED, re.compile(r"invalid character|unmarshal|malformed|serializer for|couldn't get version/kind")),
    (Failure.UNREACHABLE, re.compile(r"refused|no such host|unreachable|no route|reset by peer|EOF|broken pipe|dial ")),
    (Failure.UNREACHABLE, re.compile(r"Unable to connect|connection lost|GOAWAY|stream error")),
    (Failure.UNSUPPORTED, re.compile(r"unknown flag|unknown command|doesn't have a resource type")),
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A call that failed. `status`: the API server's own answer, {} when none came."""

    kind: Failure
    detail: str
    status: Mapping[str, Any] = field(default_factory=dict)
    never_sent: bool = False

    @property
    def code(self) -> int:
        code = self.status.get("code")
        return code if isinstance(code, int) else 0

    @property
    def causes(self) -> tuple[str, ...]:
        causes = self._details.get("causes")
        rows = causes if isinstance(causes, list) else []
        return tuple(str(row["message"]) for row in rows if isinstance(row, dict) and row.get("message"))

    def not_found(self, resource: str) -> bool:
        """Say whether the object is absent; a 404 for the whole path says nothing about the object."""
        return self.code == 404 and self._details.get("kind") == resource

    def unknown(self) -> UnknownReason:
        """Return the problem as the reason why a source is silent."""
        match self.kind:
            case Failure.AUTH | Failure.TIMEOUT | Failure.MALFORMED | Failure.UNSUPPORTED | Failure.UNREACHABLE:
                return UnknownReason(self.kind.value)
            case Failure.BUSY:
                return UnknownReason.UNREACHABLE
            case _:  # 400, 404 and the like for a list of nodes: this is no Kubernetes API
                return UnknownReason.UNSUPPORTED

    def of_read(self) -> DriverError:
        return DriverError(self.kind, self.detail, retry_after=self._retry_after)

    def of_write(self) -> DriverError:
        """Return the error of a write: AMBIGUOUS when it may have reached the server and was not refused (A3)."""
        unsure = self.kind in (Failure.TIMEOUT, Failure.UNREACHABLE, Failure.MALFORMED) and not self.never_sent
        return DriverError(Failure.AMBIGUOUS if unsure else self.kind, self.detail, retry_after=self._retry_after)

    @property
    def _details(self) -> Mapping[str, Any]:
        details = self.status.get("details")
        return details if isinstance(details, dict) else {}

    @property
    def _retry_after(self) -> float | None:
        seconds = self._details.get("retryAfterSeconds")
        return float(seconds) if isinstance(seconds, int) and seconds > 0 else None


class KubeFailure(Exception):
    """Raised inside this package; the public methods turn it into the results of their port."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def malformed(what: str) -> KubeFailure:
    return KubeFailure(Problem(Failure.MALFORMED, f"not an answer of a Kubernetes API: {what}"[:_LONGEST_DETAIL]))


def from_stderr(stderr: str) -> KubeFailure:
    """Return the failure of a kubectl that ended with another status than 0."""
    line, status = _message(stderr), _status(stderr)
    if status:
        return KubeFailure(Problem(_BY_REASON.get(str(status.get("reason")), Failure.REJECTED), line, status))
    kind = next((kind for kind, words in _MESSAGES if words.search(line)), Failure.REJECTED)
    return KubeFailure(Problem(kind, line, never_sent=_NEVER_SENT.search(line) is not None))


_BY_CODE = {
    401: Failure.AUTH, 403: Failure.AUTH, 409: Failure.CONFLICT, 429: Failure.BUSY, 503: Failure.BUSY,
    504: Failure.TIMEOUT,
}  # fmt: skip


def from_response(code: int, body: bytes) -> KubeFailure:
    """Return the failure that a `kubectl proxy` answered: the server's Status, or a message of kubectl's."""
    text = body.decode(errors="replace")
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        reason = str(found.get("reason") or "")  # the eviction of a pod with two budgets is refused without one
        line = _one_line(f"Error from server{reason and f' ({reason})'}: {found.get('message', '')}")
        return KubeFailure(Problem(_BY_REASON.get(reason, Failure.REJECTED), line, found))
    line = _one_line(text.strip() or "no message") + f" (HTTP status {code})"
    kind = next((kind for kind, words in _MESSAGES if words.search(line)), None) or _BY_CODE.get(code)
    if kind is None:
        kind = Failure.UNREACHABLE if code >= 500 else Failure.REJECTED
    return KubeFailure(Problem(kind, line, {"code": code}, never_sent=_NEVER_SENT.search(line) is not None))


def _one_line(text: str) -> str:
    line = text.splitlines()[0]
    return without_secrets(_QUOTED_URL.sub(r'"\1"', line))[:_LONGEST_DETAIL]


def _message(stderr: str) -> str:
    """Return kubectl's first line for people, shortened and without secrets, since reports show it."""
    after_status = stderr.rpartition("\n}]\n")[2]
    lines = [line.strip() for line in after_status.splitlines() if line.strip() and not _KLOG.match(line)]
    line = lines[0] if lines else "kubectl failed without a message"
    if "error loading config" in line:  # Go's JSON errors quote their surroundings, which may be a token
        return "error loading config: the kubeconfig can't be parsed"
    # The redirect's address may repeat something confidential.
    if "Location header" in line:
        return "the server redirects to what is no address"
    return without_secrets(_QUOTED_URL.sub(r'"\1"', line))[:_LONGEST_DETAIL]


def _status(stderr: str) -> Mapping[str, Any]:
    start = stderr.find("[{", stderr.find(_RESPONSE)) if _RESPONSE in stderr else -1
    if start < 0:
        return {}
    try:
        found, _ = json.JSONDecoder().raw_decode(stderr[start:])
    except (ValueError, RecursionError):
        return {}
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}
