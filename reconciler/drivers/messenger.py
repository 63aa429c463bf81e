"""`model.notices.Messenger` over Apprise: mail, Slack, Teams, PagerDuty, webhooks and what else it knows.

A channel's URL is a secret, since it holds tokens and passwords: no error shows a part of it. Each try runs in a thread
of its own, which blocks neither the loop nor the end of the process. Apprise takes a second to import, which only
those pay who send: it is imported in that thread.

Texts quote what machines report. Apprise escapes bodies for the formats that it knows, HTML, Markdown and Slack's; what
chats make of plain text (mentions, and Markdown where a chat reads it in any text), and of titles, is taken away here.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.model.errors import UsageError
from reconciler.model.notices import Channel, Message, NotDelivered, Severity
from reconciler.model.printable import HIDDEN, visible

if TYPE_CHECKING:
    from apprise import Apprise, NotifyBase, NotifyType

DEADLINE_S: Final = 60.0  # wall clock: of one try
_MISSING: Final = "the Python package apprise is not installed: pip install '.[notifications]' in the checkout"
_LONGEST: Final = 300  # characters of an error
_PLAIN: Final = ("mailto", "json", "xml", "form", "pagerduty", "opsgenie", "syslog")  # nothing in a text acts there
_MARKDOWN: Final = (
    "discord",
    "guilded",
    "mmost",
    "nctalk",
    "revolt",
    "ryver",
    "zulip",
)  # Apprise escapes nothing there
_TITLES: Final = ("workflow",)  # Teams reads Markdown in a card's heading, too, which Apprise leaves as it is
_MARKUP: Final = re.compile(r"([\\`*_~\[\]>|#])")
_CALLS: Final = re.compile(r"([@<])")  # <!channel> calls a whole channel in Mattermost, too, <users/all> in Google Chat
_WORDS: Final = re.compile(r"[/:@?&=,+#;\s]+")


class AppriseMessenger:
    """Sends messages to the URLs that secrets hold. `deadline_s`: wall clock, of one try."""

    def __init__(self, secrets: Callable[[], SecretStore], *, deadline_s: float = DEADLINE_S) -> None:
        self._secrets = secrets
        self._deadline_s = deadline_s
        self._trying: dict[str, threading.Thread] = {}  # by channel
        self._failed: set[str] = set()  # channels whose secret is read again

    async def send(self, channel: Channel, message: Message) -> None:
        known = self._trying.get(channel.name)
        if known is not None and known.is_alive():
            raise NotDelivered(f"an earlier try still hangs after {self._deadline_s:g} s")
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._in_thread(channel, message)
        except TimeoutError:
            self._failed.add(channel.name)
            raise NotDelivered(f"no answer within {self._deadline_s:g} s") from None
        except NotDelivered:
            self._failed.add(channel.name)
            raise
        self._failed.discard(channel.name)

    def check(self, channel: Channel) -> str:
        """Return the kind of service of a channel, and contact nobody. Raise NotDelivered if it can't be loaded."""
        url = self._url(channel)
        return str(_load(url).service_name)

    async def _in_thread(self, channel: Channel, message: Message) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            self._trying.pop(channel.name, None)
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def work() -> None:
            error: Exception | None = None
            try:
                _send(self._url(channel), message)
            except Exception as met:  # noqa: BLE001 - told by its kind: the text of others' errors may hold the URL
                error = met if isinstance(met, NotDelivered) else NotDelivered(type(met).__name__)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(end, error)

        thread = self._trying[channel.name] = threading.Thread(target=work, name=f"tell {channel.name}", daemon=True)
        thread.start()
        await done

    def _url(self, channel: Channel) -> Secret:
        try:
            return self._secrets().url(channel.url, fresh=channel.name in self._failed)
        except UsageError as error:
            raise NotDelivered(str(error)) from None


def _send(url: Secret, message: Message) -> None:
    service = _load(url)
    _identify(service, message)
    sender = _empty(service.asset)
    sender.add(service)
    title, body = _harmless(message.title, service, _MARKDOWN + _TITLES), _harmless(message.body, service, _MARKDOWN)
    result = sender.notify(body=body, title=title, notify_type=_kind(message), body_format="text")
    if not result:
        said = [entry.message for entry in result.logs()]
        raise NotDelivered(_without_parts("; ".join(said), url) or "it was not accepted")


def _load(url: Secret) -> NotifyBase:
    try:
        from apprise import Apprise, AppriseAsset
        from apprise.common import PersistentStoreMode
    except ImportError:
        raise NotDelivered(_MISSING) from None
    asset = AppriseAsset(storage_mode=PersistentStoreMode.MEMORY, app_id="reconciler", app_desc="GPU fleet reconciler")
    service = Apprise.instantiate(url.reveal().strip(), asset=asset)
    if service is None:
        raise NotDelivered("the secret holds no URL that Apprise can load")
    return service


def _empty(asset: Any) -> Apprise:
    from apprise import Apprise

    return Apprise(asset=asset)


def _kind(message: Message) -> NotifyType:
    from apprise import NotifyType

    if message.over:
        return NotifyType.SUCCESS
    of = {Severity.INFO: NotifyType.INFO, Severity.WARNING: NotifyType.WARNING, Severity.CRITICAL: NotifyType.FAILURE}
    return of[message.severity]


def _identify(service: Any, message: Message) -> None:
    """Tell the receiver which message this is, and of which notice, where the service has a place for it."""
    if hasattr(service, "dedup"):  # PagerDuty: one incident per thread, which the last message resolves
        service.dedup, service.action = message.thread, "map"
    if isinstance(getattr(service, "payload_extras", None), dict):
        service.payload_extras |= {
            "key": message.key,
            "thread": message.thread,
            "severity": message.severity.value,
            "over": message.over,
        }
    if isinstance(getattr(service, "headers", None), dict):
        service.headers["Idempotency-Key"] = message.key
        if _protocols(service) & {"mailto", "mailtos"}:
            service.headers |= {"References": f"<{message.thread}@reconciler>"}


def _harmless(text: str, service: Any, markdown: Sequence[str]) -> str:
    """Return the text without what the service would act on: a machine's words must not call a whole channel.

    `markdown`: services that read Markdown in it.
    """
    protocols = {name.rstrip("s") for name in _protocols(service)}
    if protocols & set(_PLAIN):
        return text
    if protocols & set(markdown):
        text = _MARKUP.sub(r"\\\1", text)
    return _CALLS.sub("\\1\u200b", text)


def _protocols(service: Any) -> set[str]:
    found: set[str] = set()
    for value in (service.protocol, service.secure_protocol):
        found |= {value} if isinstance(value, str) else set(value or ())
    return found


def _without_parts(text: str, url: Secret) -> str:
    """Return a text without any part of the URL: where its tokens are depends on the service."""
    words = {word for part in _WORDS.split(url.reveal()) for word in (part, unquote(part)) if len(word) > 3}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return visible(" ".join(text.split()))[:_LONGEST]
