"""Calls to the reconciler: TLS verified against this initrd's CAs, retries that end, reports while work goes on."""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.request import (
    BaseHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from reconciler.installer.machine import Failed, say

NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: a battery that is empty sets the clock to 1970
ANSWER: Final = 1 << 20  # bytes; no document is longer
PASSING: Final = frozenset({408, 425, 429})  # and 5xx: another try may get through
_CALL_ERRORS = (OSError, HTTPException)  # OSError has URLError, timeouts and TLS among it


class Unanswered(Exception):
    """A call got no answer, or one that another try may better."""


class Denied(Failed):
    """The server answered that this will not be: a token that is withdrawn, a second host key."""

    def __init__(self, what: str, status: int, reason: str) -> None:
        super().__init__(f"{what}: the server refused it: {status} {reason}".rstrip())
        self.status = status


@dataclass(frozen=True)
class Patience:
    """How long the init tries, in seconds. Tests give less."""

    call: float = 30.0  # without a byte, before a call is given up
    document: float = 600.0  # for the document
    certificate: float = 7200.0  # for what comes after the write: the reconciler may be away, and nothing boots yet
    failed: float = 300.0  # for the report of a failure
    installed: float = 1800.0  # for the report of success: the reconciler may be away
    rest: float = 1.0  # before the second try, doubled for each one more
    longest_rest: float = 30.0
    report: float = 10.0  # between two reports of one phase
    stalled: float = 300.0  # a download slower than `slowest` for so long is given up
    slowest: int = 64 * 1024  # bytes in a second
    disk: float = 30.0  # for the disk to appear


def tls(ca: Path, *, alone: bool = True) -> ssl.SSLContext:
    """Return a context that trusts our CAs, whatever the clock shows. Not `alone`: and those of the system."""
    try:
        context = ssl.create_default_context(cafile=str(ca))
        if not alone:
            context.load_default_certs()
    except OSError as error:
        raise Failed(f"the certificates of the installer ({ca}) can't be read: {error}") from None
    context.verify_flags |= NO_CHECK_TIME
    return context


def opener(ca: Path, proxy: str | None, redirects: bool, *, alone: bool = True) -> OpenerDirector:
    """Return what opens URLs. Through a proxy, https stays end to end: it sees names and sizes."""
    handlers: list[BaseHandler] = [HTTPSHandler(context=tls(ca, alone=alone))]
    handlers.append(ProxyHandler({"http": proxy, "https": proxy} if proxy else {}))
    if not redirects:
        handlers.append(_NoRedirect())
    return build_opener(*handlers)


class _NoRedirect(HTTPRedirectHandler):
    """Leaves a redirect as the answer that it is: a token is for one server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Listener(Protocol):
    """Whoever is told the reports."""

    def once(self, path: str, body: bytes | None = None) -> bytes:
        """Tell it now. Raise Unanswered or Denied."""

    def post(self, path: str, document: dict[str, Any], seconds: float | None = None) -> bytes:
        """Tell it, for `seconds` at most. Raise Failed when it was not told."""


class Client:
    """The calls of one attempt."""

    def __init__(self, url: str, web: OpenerDirector, patience: Patience) -> None:
        self._url, self._web, self._patience = url.rstrip("/"), web, patience

    def once(self, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """Call, and return the answer. Raise Unanswered or Denied."""
        request = Request(f"{self._url}/{path}", data=body)  # noqa: S310  attempt.py checked the scheme
        if body is not None:
            request.add_header("Content-Type", kind)
        try:
            with self._web.open(request, timeout=self._patience.call) as answer:
                text: bytes = answer.read(ANSWER + 1)
        except HTTPError as error:
            with error:
                if error.code in PASSING or error.code >= 500:
                    raise Unanswered(f"{error.code} {error.reason}") from None
                raise Denied(path, error.code, error.read(300).decode(errors="replace").strip()) from None
        except _CALL_ERRORS as error:
            raise Unanswered(reason(error)) from None
        if len(text) > ANSWER:
            raise Failed(f"{path}: the answer is longer than {ANSWER} bytes")
        return text

    def call(self, path: str, body: bytes | None = None, seconds: float | None = None) -> bytes:
        """Call until there is an answer, for `seconds` at most. Raise Failed when there is none."""
        seconds = self._patience.document if seconds is None else seconds
        rests, ends = self._patience.rest, time.monotonic() + seconds
        while True:
            try:
                return self.once(path, body)
            except Unanswered as error:
                say(f"{path}: {error}; trying again")
                if time.monotonic() + rests > ends:
                    raise Failed(f"{path}: no answer within {seconds:.0f} s: {error}") from None
            time.sleep(rests)
            rests = min(rests * 2, self._patience.longest_rest)

    def post(self, path: str, document: dict[str, Any], seconds: float | None = None) -> bytes:
        return self.call(path, dump(document), seconds)


def dump(document: dict[str, Any]) -> bytes:
    """Return canonical JSON, as the contract has it."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def reason(error: BaseException) -> str:
    """Return why a call failed, in words: the one below URLError, and the one of TLS without its brackets."""
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return reason(error.reason)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted here: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).replace("\n", " ")


class Reporter:
    """Tells the server how far the install is, from a thread of its own, so that nothing waits for the network.

    Silence of ten minutes is a failure to the server, so the last report is repeated while a phase goes on.
    """

    def __init__(self, client: Listener, patience: Patience) -> None:
        self._client, self._patience = client, patience
        self._status: dict[str, Any] = {"phase": "started", "detail": "", "percent": None}
        self._changed, self._ended = threading.Event(), False
        self.withdrawn = ""  # why the server wants no more of this attempt
        self._posting = threading.Lock()  # so that no older report comes after a newer one
        self._thread = threading.Thread(target=self._report, daemon=True)

    def start(self, detail: str) -> None:
        self._status["detail"] = detail
        self._changed.set()
        self._thread.start()

    def phase(self, phase: str, detail: str = "") -> None:
        """Begin a phase, and report it at once. Raise Failed when the server has withdrawn the attempt."""
        say(f"{phase}: {detail}")
        self._status = {"phase": phase, "detail": detail, "percent": None}
        self._changed.set()
        self.check()

    def progress(self, detail: str, percent: int) -> None:
        """Say how far the phase is; the next report has it. Raise Failed when the attempt is withdrawn."""
        self._status = {**self._status, "detail": detail, "percent": percent}
        self.check()

    def note(self, detail: str) -> None:
        """Say why it does not go on just now."""
        self._status = {**self._status, "detail": detail}

    def tell(self, phase: str, detail: str, seconds: float, **more: Any) -> None:
        """Begin a phase, and wait until the server knows. `more`: other keys of this report and its repetitions."""
        say(f"{phase}: {detail}")
        self._status = {"phase": phase, "detail": detail, "percent": None, **more}
        with self._posting:
            self._client.post("status", self._status, seconds)

    def check(self) -> None:
        if self.withdrawn:
            raise Failed(f"the attempt was withdrawn: {self.withdrawn}")

    def end(self) -> None:
        """Repeat no report any more."""
        self._ended = True
        self._changed.set()

    def last_word(self, phase: str, detail: str, seconds: float, cause: str = "") -> None:
        """Report how it ended, until the server has it or `seconds` are over."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()
        say(f"{phase}: {detail}")
        try:
            said = {"phase": phase, "detail": detail[:500], **({"cause": cause} if cause else {})}
            self._client.post("status", said, seconds)
        except Failed as error:
            say(str(error))

    def _report(self) -> None:
        while True:
            self._changed.wait(self._patience.report)
            self._changed.clear()
            if self._ended:
                return
            with self._posting:
                self._once()

    def _once(self) -> None:
        try:
            self._client.once("status", dump(self._status))
        except Unanswered as error:
            say(f"status: {error}")
        except Failed as error:
            self.withdrawn = str(error)
