"""The database of a K3s cluster: its secrets on a server, and the proofs that no second cluster is begun in it.

K3s begins an empty cluster in an empty database, and asks nobody. So before a server is given a database, what it was
given before is compared, and before it joins, that of a server which serves the cluster. Both are compared on their
hosts (model/k3s_datastore.py): no endpoint leaves a host, and none is an argument of a program.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop
from reconciler.converge.actions.files import write_file
from reconciler.converge.actions.host_secret import secret_line
from reconciler.converge.k3s_birth import Asked
from reconciler.model.k3s import ENDPOINT, SECRETS, SERVER_TOKEN, TOKEN, DesiredK3s, K3sFacts, K3sRole
from reconciler.model.k3s_datastore import DATABASE_LINE, SAME, only_told, other_datastore, place_of
from reconciler.model.outcome import Declined, Permanent, Transient

COMMAND_S: Final = 60.0
# What K3s logs when it ends (pkg/cluster/storage.go, getBootstrapKeyFromStorage), of all releases since v1.21.7.
OTHER_TOKEN: Final = "bootstrap data already found and encrypted with different token"


def same_datastore(k3s: DesiredK3s, found: K3sFacts | None) -> K3sFacts:
    """Return what is on the host. Raise Stop where it would begin anew: K3s moves no state from etcd, or back."""
    if found is None:
        raise Stop(Transient("it can't be read what of K3s is on the host"))
    if why := other_datastore(k3s, found):
        raise Stop(Declined("other_datastore", why))
    return found


async def write_secrets(ctx: ActionContext, k3s: DesiredK3s, found: K3sFacts) -> None:
    """Write the options that hold secrets to a file that root alone reads, or remove it.

    A server that never began has nothing in the database that its file names: a wrong line is simply written anew.
    """
    if not k3s.secrets:
        await run(ctx, ("rm", "-f", SECRETS))
        return
    values = {option: secret_line(ctx, f"{option} of K3s", one.name, one.server) for option, one in k3s.secrets.items()}
    head = ""
    if k3s.external:
        place = _place(k3s, values[ENDPOINT])
        if not only_told(found) and await _answer(ctx, ctx.host, place) == "other":
            why = (
                f"{SECRETS} names another database than secret {k3s.secrets[ENDPOINT].name}, and is left as it is: K3s "
                "would begin an empty cluster there. To move the database, stop K3s on all servers, copy it, change "
                "that line on each, and start them"
            )
            raise Stop(Declined("other_datastore", why))
        head = f"{DATABASE_LINE}{k3s.database}\n"
    lines = (f"{option}: {json.dumps(value)}\n" for option, value in values.items())
    await write_file(ctx, SECRETS, head + "".join(lines))


async def check_shared(ctx: ActionContext, k3s: DesiredK3s, server: str, host: Asked) -> None:
    """Raise Stop unless a server of the cluster has its state in the database of the spec."""
    secret = k3s.secrets[ENDPOINT]
    place = _place(k3s, secret_line(ctx, f"{ENDPOINT} of K3s", secret.name, secret.server))
    if await _answer(ctx, host, place) != "same":
        why = (
            f"server {server} serves the cluster, and keeps its state elsewhere than in the database of secret "
            f"{secret.name}: this one would begin an empty cluster there"
        )
        raise Stop(Declined("other_datastore", why))


def _place(k3s: DesiredK3s, endpoint: str) -> str:
    place = place_of(endpoint, k3s.database)
    if not place:
        name = k3s.secrets[ENDPOINT].name
        raise Stop(Permanent(f"secret {name} does not name {k3s.database}, which the spec says the database has"))
    return place


async def _answer(ctx: ActionContext, host: Asked, place: str) -> str:
    """Return what SAME says: same, other or none. Raise Stop where it can't be told."""
    result = await host.run(("sh", "-c", SAME), timeout=max(2.0, ctx.clock.real_seconds(COMMAND_S)), stdin=f"{place}\n")
    answer = result.stdout.strip()
    if result.timed_out or result.exit_status or answer not in ("same", "other", "none"):
        raise Stop(Transient(f"which database {SECRETS} names can't be read", 30.0))
    return answer


@asynccontextmanager
async def told_of_refusal(ctx: ActionContext, k3s: DesiredK3s) -> AsyncIterator[None]:
    """Start a server within. Where that fails, tell whether the database is another token's."""
    began = ctx.clock.monotonic()
    try:
        yield
    except Stop:
        await _check_refusal(ctx, k3s, ctx.clock.monotonic() - began)
        raise


async def _check_refusal(ctx: ActionContext, k3s: DesiredK3s, within_s: float) -> None:
    """Raise Stop where K3s said that the database is another token's, and end it: it would try again for ever.

    `within_s`: since when it was started. Nothing else of its log is used: it may have a part of the endpoint in it.
    """
    if not k3s.external or k3s.token is None:
        return
    unit = K3sRole.SERVER.unit
    since = f"-{int(ctx.clock.real_seconds(within_s)) + 1}s"
    argv = ("journalctl", "-u", unit, "--since", since, "-q", "--no-pager", "-o", "cat", "-n", "1000")
    said = await ctx.host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(COMMAND_S)))
    if OTHER_TOKEN not in said.stdout:
        return
    await run(ctx, ("systemctl", "disable", "--now", unit))
    why = (
        f"the database at {k3s.database} holds a cluster that was begun with another token, so K3s refuses it, and was "
        f"stopped here: put that cluster's token, which is in {SERVER_TOKEN} of each of its servers, under the name "
        f"{k3s.token.name}, or let secret {k3s.secrets[ENDPOINT].name} name an empty database"
    )
    raise Stop(Permanent(why))


async def write_token(ctx: ActionContext, k3s: DesiredK3s) -> None:
    """Write the token of all servers as the spec names it now, by which a server finds its cluster in the database."""
    await write_file(ctx, TOKEN, f"{shared_token(ctx, k3s)}\n")


def shared_token(ctx: ActionContext, k3s: DesiredK3s) -> str:
    """Return the token of all servers, by which those with a database know one another."""
    if k3s.token is None:
        raise Stop(Declined("no_token", "the spec names no token of the servers"))
    return secret_line(ctx, "the token of K3s' servers", k3s.token.name, k3s.token.server)
