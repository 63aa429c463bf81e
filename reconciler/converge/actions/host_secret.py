"""Give a host the value of a secret, which its spec names."""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, Stop
from reconciler.model.errors import UsageError
from reconciler.model.outcome import Transient

RETRY_S = 60.0


def secret_line(ctx: ActionContext, purpose: str, name: str, server: str | None) -> str:
    """Return a secret of one line. Raise Stop where it can't be had, or may not be used at that server.

    `purpose`: what it is for, in messages.
    """
    try:
        value = ctx.secret(name, server).rstrip("\r\n")
    except UsageError as error:
        raise Stop(Transient(f"{purpose}: {error}", RETRY_S)) from None
    if "\n" in value:
        raise Stop(Transient(f"{purpose}: secret {name} has more than one line", RETRY_S))
    return value
