"""Requests to a forge, with retries where they are safe and pauses as the forge demands.

429, 403 of a limit    retry after Retry-After or X-RateLimit-Reset; for a secondary limit after a minute
5xx, no answer         retry with growing, jittered pauses if repeating does no harm; else AMBIGUOUS
401, other 403         AUTH, with the permission that is needed
404, 410               UNSUPPORTED: absent, or not visible for this token
422, other 4xx         REJECTED, with the forge's message
"""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.ports import Clock
from reconciler.model.printable import shown_url, without_secrets

TRIES: Final = 5
PATIENCE_S: Final = 900.0  # for limits, over all requests of one client
_PAUSE_S: Final = 2.0
_SECONDARY_S: Final = 60.0
_PAGES: Final = 100  # of 100 entries
_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


_GITHUB: Final[Mapping[str, str]] = {
    "Accept": "application/vnd.github+json",
    "X-GitHub-Api-Version": "2022-11-28",
}


def _authorization(token: str, user: str) -> str:
    return f"Basic {b64encode(f'{user}:{token}'.encode()).decode()}" if user else f"Bearer {token}"


class Rest(Confined):
    """A client of one API. The token is sent to its host only, and is in no message."""

    def __init__(
        self,
        url: str,
        token: str,
        clock: Clock,
        *,
        headers: Mapping[str, str] = _GITHUB,
        user: str = "",
        jitter: Callable[[], float] = random.random,
        tries: int = TRIES,
    ) -> None:
        """`headers`: what the API wants, GitHub's by default. `user`: the token is this account's password."""
        try:
            parts, port = urlsplit(url), urlsplit(url).port
        except ValueError:
            port = 0
        if port == 0 or not parts.hostname:
            raise UsageError(f"the API has an address that can't be read: {url}; write https://host/path")
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise UsageError(f"the API is to be an https:// address: {shown_url(url)}")
        if not token.isascii() or not token.isprintable() or not token.strip():
            raise UsageError("the token is empty, or has characters that no token has")
        self._base = url.rstrip("/")
        self._clock = clock
        self._jitter = jitter
        self._tries = tries
        self._patience = PATIENCE_S
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT,
            headers={
                "User-Agent": "gpu-fleet-reconciler",
                "Authorization": _authorization(token.strip(), user),
                **headers,
            },
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: Any = None, *, repeatable: bool | None = None) -> Any:
        """Send a request; return the answer's JSON. `repeatable`: repeating does no harm; default: all but POST."""
        answer = await self._ask(
            method, self._base + path, body, method != "POST" if repeatable is None else repeatable
        )
        return _json(answer)

    async def mutate(self, query: str, variables: Mapping[str, str]) -> None:
        """Run an idempotent GraphQL mutation, for what the REST API lacks."""
        url = self._base.removesuffix("/v3") + "/graphql"
        answer = _json(await self._ask("POST", url, {"query": query, "variables": variables}, repeatable=True))
        errors = answer.get("errors") if isinstance(answer, Mapping) else None
        if errors or not isinstance(answer, Mapping):
            first = errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], Mapping) else {}
            kind = Failure.AUTH if first.get("type") == "FORBIDDEN" else Failure.REJECTED
            raise DriverError(kind, f"POST {shown_url(url)}: {str(first.get('message', 'no answer'))[:500]}")

    async def pages(self, path: str) -> AsyncIterator[Any]:
        """Yield the entries of a list, from all its pages."""
        url = f"{self._base}{path}{'&' if '?' in path else '?'}per_page=100"
        for _ in range(_PAGES):
            answer = await self._ask("GET", url, None, repeatable=True)
            entries = _json(answer)
            if not isinstance(entries, list):
                raise DriverError(Failure.MALFORMED, f"{_where(answer.request)}: no list")
            for entry in entries:
                yield entry
            following = answer.links.get("next", {}).get("url")
            if following is None:
                return
            url = str(answer.url.join(following))
            if urlsplit(url)[:2] != urlsplit(self._base)[:2]:
                raise DriverError(Failure.MALFORMED, f"{_where(answer.request)}: its next page is on another host")
        raise DriverError(Failure.MALFORMED, f"{_where(answer.request)}: more than {_PAGES} pages")

    async def _ask(self, method: str, url: str, body: Any, repeatable: bool) -> httpx.Response:
        for attempt in range(1, self._tries + 1):
            try:
                answer = await self._client.request(method, url, json=body)
            except httpx.ConnectError as error:  # nothing was sent
                failure = DriverError(Failure.UNREACHABLE, _unanswered(method, url, error))
                again = True
            except httpx.HTTPError as error:
                kind = Failure.UNREACHABLE if repeatable else Failure.AMBIGUOUS
                failure, again = DriverError(kind, _unanswered(method, url, error)), repeatable
            else:
                if answer.is_success:
                    return answer
                failure = self._failure(answer, repeatable)
                again = failure.kind is Failure.BUSY or (failure.kind is Failure.UNREACHABLE and repeatable)
            if not again or attempt == self._tries:
                break
            await self._pause(failure, attempt)
        raise failure

    async def _pause(self, failure: DriverError, attempt: int) -> None:
        seconds = failure.retry_after
        if seconds is None:
            seconds = _PAUSE_S * 2 ** (attempt - 1) * (0.75 + self._jitter() / 2)
        else:
            seconds += self._jitter()
        if seconds > self._patience:
            raise failure
        self._patience -= seconds
        await self._clock.sleep(seconds)

    def _failure(self, answer: httpx.Response, repeatable: bool) -> DriverError:
        message, status = _message(answer), answer.status_code
        detail = f"{_where(answer.request)}: HTTP {status}{': ' if message else ''}{message}"
        if (wait := _limit(answer, message, self._clock.now())) is not None:
            return DriverError(Failure.BUSY, detail, retry_after=wait)
        if status in (401, 403):
            needs = answer.headers.get("X-Accepted-GitHub-Permissions", "")
            more = f"; the token needs the permission {needs}" if needs else "; the token is wrong, or may not do this"
            return DriverError(Failure.AUTH, detail + more)
        if status in (404, 410):
            return DriverError(Failure.UNSUPPORTED, f"{detail}; it is not there, or the token may not see it")
        if status >= 500:
            return DriverError(Failure.UNREACHABLE if repeatable else Failure.AMBIGUOUS, detail)
        if answer.is_redirect:
            return DriverError(
                Failure.REJECTED, f"{detail}; it has moved to {shown_url(answer.headers.get('Location', '?'))[:200]}"
            )
        return DriverError(Failure.REJECTED, detail)


def _limit(answer: httpx.Response, message: str, now: datetime) -> float | None:
    """Return seconds to wait when a rate limit refused the request, else None."""
    if answer.status_code not in (403, 429, 503):
        return None
    headers = answer.headers
    if (after := headers.get("Retry-After")) is not None:
        return _after(after, now)
    if headers.get("X-RateLimit-Remaining") == "0" and headers.get("X-RateLimit-Reset", "").isdecimal():
        return max(1.0, int(headers["X-RateLimit-Reset"]) - now.timestamp() + 1.0)
    if answer.status_code == 429 or "rate limit" in message.lower() or "abuse detection" in message.lower():
        return _SECONDARY_S
    return None


def _after(text: str, now: datetime) -> float:
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(1.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError):
        return _SECONDARY_S


def _unanswered(method: str, url: str, error: httpx.HTTPError) -> str:
    return f"{method} {shown_url(url)}: {without_secrets(str(error)) or type(error).__name__}"


def _where(request: httpx.Request) -> str:
    return f"{request.method} {shown_url(str(request.url.copy_with(query=None)))}"


def _json(answer: httpx.Response) -> Any:
    if answer.status_code == 204:
        return None
    try:
        return answer.json()
    except ValueError:
        kind = Failure.MALFORMED if answer.request.method == "GET" else Failure.AMBIGUOUS
        raise DriverError(kind, f"{_where(answer.request)}: the answer is not JSON") from None


def _message(answer: httpx.Response) -> str:
    """Return the forge's error message, "" for the page of a proxy."""
    try:
        document = answer.json()
    except ValueError:
        return ""
    if not isinstance(document, dict):
        return ""
    errors = document.get("errors")
    found = [
        str(error.get("message") or error.get("code")) if isinstance(error, dict) else str(error)
        for error in (errors if isinstance(errors, list) else ())
    ]
    return "; ".join([*_words(document.get("message", document.get("error", ""))), *found])[:500].strip("; ")


def _words(said: Any) -> list[str]:
    """Return the sentences of a message: GitLab sends a text, a list, or lists by name of the field at fault."""
    if isinstance(said, dict):
        return [f"{name} {word}" for name, words in said.items() for word in _words(words)]
    return [word for one in said for word in _words(one)] if isinstance(said, list) else [str(said)]
