"""Tickets as JSON that is posted to a web server, which tells them apart by `ticket`."""

from __future__ import annotations

from typing import Any, Final

import httpx

from reconciler.drivers.secrets import Secret
from reconciler.model.errors import DriverError, Failure
from reconciler.model.notices import Message

_TIMEOUT: Final = httpx.Timeout(30.0, connect=10.0)


class WebhookTickets:
    """No error shows a part of the URL, which is a secret."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        self._client = httpx.AsyncClient(timeout=_TIMEOUT, headers={"User-Agent": "gpu-fleet-reconciler"})

    async def find(self, thread: str) -> tuple[str, str] | None:  # noqa: ARG002 - the port's signature
        """Return None: a receiver keeps what it was posted, and takes a second post of a ticket as the same one."""
        return None

    async def create(self, message: Message) -> tuple[str, str]:
        await self._post(message)
        return message.thread, ""

    async def update(self, number: str, message: Message) -> None:  # noqa: ARG002 - the port's signature
        await self._post(message)

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, message: Message) -> None:
        document: dict[str, Any] = {
            "ticket": message.thread,
            "key": message.key,
            "state": "closed" if message.over else "open",
            "title": message.title,
            "body": message.body,
        }
        try:
            answer = await self._client.post(
                self._url.reveal().strip(), json=document, headers={"Idempotency-Key": message.key}
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DriverError(Failure.UNREACHABLE, type(error).__name__) from None
        if not answer.is_success:
            raise DriverError(Failure.REJECTED, f"HTTP {answer.status_code}")
