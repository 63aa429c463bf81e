"""The `conformance notifier` use case: a channel of the spec, tried against a receiver on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from reconciler.app.delivery import chats
from reconciler.app.extensions import loaded
from reconciler.app.notify import named_channel
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.drivers.extensions.notifiers import Chats
from reconciler.drivers.loopback_receiver import receiving
from reconciler.drivers.notifier_conformance import HOLD_S, Bench, Send, check_notifier
from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.drivers.secrets_file import SecretsFile, SecretSource
from reconciler.model.conformance import ConformanceReport
from reconciler.model.errors import UsageError
from reconciler.model.notices import Message, NotDelivered

ADDRESS, TOKEN = "ADDRESS", "TOKEN"


def check_channel(workspace: Workspace, name: str, receiver: str | None, *, writes: bool) -> ConformanceReport:
    """Run the suite of notifiers on the channel `name`. Without `writes` nobody gets a message.

    `receiver`: what its secret would be, with ADDRESS for host:port of a receiver of ours, and TOKEN for a secret part.
    """
    channel, real = named_channel(workspace, name), chats(workspace)
    if channel.kubernetes:
        raise UsageError(f"the channel {name} is Events of the cluster: try it with `conformance kubernetes`")
    if receiver is not None and (ADDRESS not in receiver or TOKEN not in receiver):
        raise UsageError(f"--receiver {receiver!r} has no ADDRESS and TOKEN, as json://ADDRESS/TOKEN has them")

    def local(address: str, token: str) -> Send:
        secret = Secret((receiver or "").replace(ADDRESS, address).replace(TOKEN, token))
        contents = SecretsFile(secrets={channel.url: SecretSource(env="of-the-receiver")})
        store = SecretStore(contents, Path("the receiver"), {channel.url: secret})
        sender = Chats(lambda: store, lambda: loaded(workspace.fleet.settings))

        async def send(message: Message) -> None:
            await sender.send(channel, message)

        return send

    async def send(message: Message) -> None:
        try:
            await real.send(channel, message)
        except NotDelivered as error:
            raise NotDelivered(workspace.secrets.conceal(str(error))) from None

    with receiving(HOLD_S) if receiver is not None else nullcontext() as found, _past_proxies():
        bench = Bench(channel, lambda: real.check(channel), send, local, found)
        return run_async(check_notifier(bench, writes=writes))


@contextmanager
def _past_proxies() -> Iterator[None]:
    """Let no proxy of the environment get what is meant for the receiver on this machine."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    listed = ",".join(dict.fromkeys(filter(None, (*before.values(), "127.0.0.1"))))
    os.environ.update(dict.fromkeys(before, listed))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
