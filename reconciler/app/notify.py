"""The `notify` use case: send a test message through the channels of the spec."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.app.delivery import chats, node_events
from reconciler.app.runtime import new_id, run_async
from reconciler.app.workspace import Workspace
from reconciler.model.errors import UsageError, did_you_mean
from reconciler.model.notices import Channel, Message, NotDelivered, Severity


@dataclass(frozen=True, slots=True)
class Tried:
    """The result for one channel. `error`: why it did not take the message; "" when it did."""

    channel: str
    error: str = ""


def try_channels(workspace: Workspace, name: str | None) -> Iterator[Tried]:
    """Send a test message through the channel `name`, or through each, and yield how that ended."""
    declared = workspace.fleet.settings.notifications
    chosen = declared if name is None and declared else (named_channel(workspace, str(name)),)
    senders = chats(workspace), node_events(workspace)
    for channel in chosen:
        messenger = senders[channel.kubernetes]
        try:
            run_async(messenger.send(channel, _test_message(workspace, channel)))
            yield Tried(channel.name)
        except NotDelivered as error:
            yield Tried(channel.name, str(error))


def named_channel(workspace: Workspace, name: str) -> Channel:
    """Return a channel of the spec. Raise UsageError where there is none of that name."""
    declared = workspace.fleet.settings.notifications
    if not declared:
        raise UsageError("the Fleet declares no channels: add `notifications` to it (docs/how-to/notifications.md)")
    for channel in declared:
        if channel.name == name:
            return channel
    hint = did_you_mean(name, [channel.name for channel in declared])
    raise UsageError(f"the Fleet has no channel {name!r}" + (f"; {hint}" if hint else ""))


def _test_message(workspace: Workspace, channel: Channel) -> Message:
    fleet, key = workspace.fleet.settings.fleet, new_id("test", workspace.clock.now())
    title = f"{fleet}: test of the channel {channel.name}"
    body = "This is a test by `reconciler notify test`. Nothing happened, and there is nothing to do."
    return Message(key, channel.name, key, Severity.INFO, True, title, body)
