"""Messages through the notifiers of extensions, and all others through Apprise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from reconciler.drivers.extensions.api import Notifier
from reconciler.drivers.extensions.load import Extensions
from reconciler.drivers.messenger import AppriseMessenger
from reconciler.drivers.secrets import SecretStore
from reconciler.model.errors import UsageError
from reconciler.model.notices import Channel, Message, NotDelivered

DEADLINE_S: Final = 60.0  # wall clock: of one try, as of Apprise's


class Chats:
    """The channels that are no Events of a cluster."""

    def __init__(self, secrets: Callable[[], SecretStore], extensions: Callable[[], Extensions]) -> None:
        self._secrets = secrets
        self._extensions = extensions
        self._apprise = AppriseMessenger(secrets)

    async def send(self, channel: Channel, message: Message) -> None:
        if not channel.via:
            await self._apprise.send(channel, message)
            return
        try:
            notifier, url = self._notifier(channel), self._secrets().resolve(channel.url, fresh=True)
        except UsageError as error:
            raise NotDelivered(str(error)) from None
        try:
            async with asyncio.timeout(DEADLINE_S):
                await notifier.send(url, message)
        except TimeoutError:
            raise NotDelivered(f"no answer within {DEADLINE_S:g} s") from None
        except NotDelivered:
            raise
        except Exception as error:  # noqa: BLE001 - told by its kind: the text of others' errors may hold the secret
            raise NotDelivered(f"the notifier {channel.via} failed: {type(error).__name__}") from None

    def check(self, channel: Channel) -> str:
        """Return what takes the messages of a channel, and contact nobody. Raise NotDelivered or UsageError."""
        if not channel.via:
            return self._apprise.check(channel)
        self._notifier(channel)
        self._secrets().resolve(channel.url)
        return f"the notifier {channel.via} of an extension"

    def _notifier(self, channel: Channel) -> Notifier:
        return self._extensions().one(Notifier, channel.via)
