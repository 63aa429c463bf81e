"""Let a node join its K3s cluster: the first server begins it, further servers and agents join with a token.

An agent gets a bootstrap token of its own, which K3s ends after 15 minutes and which is deleted as soon as the node is
Ready, also when it does not become so. Bootstrap tokens join agents alone: a server gets the server token, from server
to server, and it appears in no journal and no output (docs.k3s.io, "token").
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from reconciler.converge.actions import k3s as on_node
from reconciler.converge.actions.adjust import take_back_all
from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, poll
from reconciler.converge.actions.files import write_file
from reconciler.converge.actions.k3s_database import (
    check_shared,
    same_datastore,
    shared_token,
    told_of_refusal,
    write_token,
)
from reconciler.converge.k3s_birth import Asked, is_unborn
from reconciler.model.errors import DriverError
from reconciler.model.k3s import (
    BINARY,
    DATASTORE,
    JOIN,
    PASSWORD,
    SERVER_TOKEN,
    TOKEN,
    DesiredK3s,
    K3sRole,
    servers_away,
    way_without,
    why_not_away,
)
from reconciler.model.observed import Member
from reconciler.model.outcome import Declined, Permanent, Transient
from reconciler.model.records import MARK_TAINT, NO_CLUSTER

TTL: Final = "15m"
_MARK: Final = "reconciler: "  # begins the description of our tokens; the node's name follows


@asynccontextmanager
async def joining_k3s(ctx: ActionContext, member: Member | None) -> AsyncIterator[bool]:
    """Start K3s so that the node joins, and yield whether a new node object comes. On exit no token is left.

    `member`: its node object as it is now; None = it has none.
    """
    k3s = on_node.wanted_of(ctx)
    if NO_CLUSTER in ctx.record.silent_since:
        ctx.ledger.note_silences([(ctx.node, NO_CLUSTER, False)], ctx.clock.now())
    if k3s.role is K3sRole.AGENT:
        name, issuer = await _issuer(ctx)
        async with _token(ctx, name, issuer) as token:
            if not await _has(ctx, PASSWORD):
                await _forget_password(ctx, issuer)
            await _write_join(ctx, {}, token)
            await _start(ctx, k3s)
            yield member is None
        return
    same_datastore(k3s, (await ctx.facts()).k3s)
    begun = await _has(ctx, k3s.begun)
    known_otherwise = (begun or k3s.external) and not await _has(ctx, PASSWORD)
    if not begun:
        await _check_mount(ctx)
        member = await _prepare_server(ctx, k3s, member)
    elif await _runs(ctx, k3s):
        if await _comes_by_itself(ctx):
            await on_node.begin_no_more(ctx, k3s)
            yield member is None
            return
        known_otherwise = True  # a run before may have died between a start, which makes a password, and its deletion
        await _guard_quorum(ctx, k3s)  # its kubelet is not Ready, and its etcd may be one that the quorum needs
    elif k3s.external:
        await write_token(ctx, k3s)  # K3s may have refused the one before (told_of_refusal)
    if begun and not k3s.external and not await _has(ctx, JOIN):  # a new image kept its datastore, and not its /etc
        token = await _server_token(ctx, ctx.host, ctx.node)
        await _write_join(ctx, {"server": k3s.endpoint, "token-file": TOKEN}, token)
    await _start_server(ctx, k3s, may_know_another_password=known_otherwise)
    await on_node.begin_no_more(ctx, k3s)
    yield member is None


async def _check_mount(ctx: ActionContext) -> None:
    """Raise Stop where a disk on the way to the datastore is not mounted: the datastore seems absent then.

    A server that would join anew loses its member of etcd first, and could never go on with what is on that disk. Its
    unit would not start without the mount either (RequiresMountsFor).
    """
    away = {
        path for path in await _targets(ctx, "--fstab") if f"{DATASTORE}/".startswith(f"{path.rstrip('/')}/")
    } - await _targets(ctx)
    if away:
        why = (
            f"{min(away)} is in /etc/fstab and is not mounted, so whether {DATASTORE} is there is not known: mount "
            "it, and K3s goes on with what it has; if that disk is gone for good, mount a new one there, or take the "
            "line out of /etc/fstab"
        )
        raise Stop(Declined("not_mounted", why))


async def _targets(ctx: ActionContext, *source: str) -> set[str]:
    """Return the mount points that are mounted, or with --fstab those of /etc/fstab, which may be none."""
    argv = ("findmnt", *source, "--noheadings", "--raw", "--output", "TARGET")
    result = await ctx.host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(on_node.COMMAND_S)))
    if result.timed_out or result.exit_status not in (0, 1):  # 1: nothing found
        raise Stop(Transient("what is mounted on its host can't be read", 30.0))
    return set(result.stdout.splitlines())


async def _comes_by_itself(ctx: ActionContext) -> bool:
    """Wait as long as a start takes, and return whether the node is Ready then: a run before may have just started it.

    A restart of the second of two members takes the quorum away, and with it the API of a server that only starts.
    """
    ctx.step(f"waiting for {ctx.node}, whose K3s runs or starts")

    async def is_ready() -> bool | None:
        with suppress(DriverError):
            member = await ctx.cluster.member(ctx.node)
            return True if member is not None and member.ready else None
        return None

    return await poll(ctx, is_ready, within_s=on_node.STARTS_S, every_s=5.0, soon=True) is not None


async def _guard_quorum(ctx: ActionContext, k3s: DesiredK3s) -> None:
    """Raise Stop where etcd would lack another server beside this one. Those whose API server answers are there.

    Two that are not Ready would wait for each other, if that counted. So would the second server of a new cluster for
    a third, which waits until the second is Ready: of two members, one that is not Ready may restart.
    """
    servers = dict(await on_node.servers_of(ctx))
    if not servers.get(ctx.node, True):
        del servers[ctx.node]
    hosts = {server.name: server.host for server in ctx.servers if server.host is not None}
    for name in servers_away(servers, ctx.node):
        if name in hosts:
            with suppress(DriverError):
                servers[name] = await on_node.answers(ctx, hosts[name])
    if why := why_not_away(servers, ctx.node, external=k3s.external):
        raise Stop(Transient(why, 30.0))


async def _start_server(ctx: ActionContext, k3s: DesiredK3s, *, may_know_another_password: bool) -> None:
    """Start a server, and let its own node register: a datastore that knows it has the password of its disk before.

    Its API server answers all the same, also where it is the only one: K3s asks for the password only of the node.
    """
    async with told_of_refusal(ctx, k3s):
        await _start(ctx, k3s)
        await _wait_serving(ctx)
    if may_know_another_password:
        await _forget_password(ctx, ctx.host)


async def _wait_serving(ctx: ActionContext) -> None:
    if await poll(ctx, lambda: _serves(ctx), within_s=on_node.STARTS_S, every_s=5.0, soon=True) is None:
        raise Stop(Transient("its API server does not become ready"))


async def _serves(ctx: ActionContext) -> bool | None:
    return True if await on_node.answers(ctx, ctx.host) else None


@asynccontextmanager
async def _token(ctx: ActionContext, name: str, issuer: Asked) -> AsyncIterator[str]:
    """Give the node a token that nobody else has had, and delete it in any case. Tokens of a dead run go first."""
    await _revoke(ctx, issuer)
    ctx.step(f"a token of {TTL} from {name}")
    argv = (BINARY, "token", "create", "--ttl", TTL, "--description", _MARK + ctx.node)
    token = (await _on(ctx, issuer, argv)).strip()
    if not token.startswith("K10") or "::" not in token:
        raise Stop(Permanent(f"`k3s token create` on {name} printed no token in the secure format"))
    try:
        yield token
    finally:
        await _revoke(ctx, issuer)


async def _revoke(ctx: ActionContext, issuer: Asked) -> None:
    """Delete every token of ours for this node, and see that none is left."""
    for token in await _tokens(ctx, issuer):
        await _on(ctx, issuer, (BINARY, "token", "delete", token))
    if left := await _tokens(ctx, issuer):
        raise Stop(Transient(f"{len(left)} tokens for this node are still valid; K3s ends them after {TTL}"))


async def _tokens(ctx: ActionContext, issuer: Asked) -> list[str]:
    """Return the ids of our tokens for this node."""
    said = await _on(ctx, issuer, (BINARY, "token", "list", "--output", "json"))
    try:
        listed = [one for one in json.loads(said or "[]") or () if one is not None]  # null: K3s could not read it
        return [_id(one["token"]) for one in listed if one.get("description") == _MARK + ctx.node]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Stop(Transient("`k3s token list` printed no list of tokens")) from None


def _id(token: object) -> str:
    """Return the id of a token, which releases print as id.secret or as an object."""
    return str(token["ID"]) if isinstance(token, dict) else str(token).partition(".")[0]


async def _prepare_server(ctx: ActionContext, k3s: DesiredK3s, member: Member | None) -> Member | None:
    """Write how a server without a datastore begins, and return its node object, if it still has one."""
    if await is_unborn(ctx.servers, ctx.clock):
        if not k3s.bootstrap:
            why = "no server has a datastore, and the spec does not consent to a new cluster (`bootstrap: true`)"
            raise Stop(Declined("no_bootstrap", why))
        ctx.step("beginning a new cluster")
        if k3s.external:
            await _write_join(ctx, {"token-file": TOKEN}, shared_token(ctx, k3s))
        else:
            await _write_join(ctx, {"cluster-init": True}, "")
        return member
    name, issuer = await _issuer(ctx)
    if k3s.external:
        await check_shared(ctx, k3s, name, issuer)
        ctx.step(f"joining as a server, beside {name}")
        await _write_join(ctx, {"token-file": TOKEN}, shared_token(ctx, k3s))
        return member
    await _make_room(ctx, member)
    token = await _server_token(ctx, issuer, name)
    await _forget_password(ctx, issuer)
    ctx.step(f"joining as a server, with the help of {name}")
    await _write_join(ctx, {"server": k3s.endpoint, "token-file": TOKEN}, token)
    return None


async def _server_token(ctx: ActionContext, host: Asked, name: str) -> str:
    """Return the token of servers that the disk of server `name` has."""
    token = (await _on(ctx, host, ("cat", SERVER_TOKEN))).strip()
    if not token.startswith("K10"):
        raise Stop(Permanent(f"{SERVER_TOKEN} of {name} holds no token in the secure format"))
    return token


async def _make_room(ctx: ActionContext, member: Member | None) -> None:
    """See that etcd is whole without this node. A lost server is deleted first: K3s drops its member."""
    if away := servers_away(await on_node.servers_of(ctx), ctx.node):
        way = way_without(away[:1], (server.name for server in ctx.servers))
        raise Stop(Transient(f"server {away[0]} is not Ready: no member of etcd is added meanwhile{way}", 30.0))
    if member is not None:
        ctx.step("deleting the node object of the lost server, and with it its member of etcd")
        await take_back_all(ctx.cluster, member, ctx.ledger.id)
        await ctx.cluster.remove(member)


async def _issuer(ctx: ActionContext) -> tuple[str, Asked]:
    """Return a server whose API server is ready."""
    for server in ctx.servers:
        if server.name == ctx.node or server.host is None:
            continue
        try:
            if await on_node.answers(ctx, server.host):
                return server.name, server.host
        except DriverError:
            continue
    raise Stop(Transient("no server of K3s answers that could admit the node", 30.0))


async def _forget_password(ctx: ActionContext, issuer: Asked) -> None:
    """Delete the password of a node whose disk is new: K3s would reject another one under the same name."""
    name = f"{ctx.node}.node-password.k3s"
    argv = (BINARY, "kubectl", "delete", "secret", name, "--namespace", "kube-system", "--ignore-not-found")
    await _on(ctx, issuer, argv)


async def _write_join(ctx: ActionContext, values: dict[str, object], token: str) -> None:
    if token:
        await write_file(ctx, TOKEN, f"{token}\n")
    own = {"node-name": ctx.node, "node-taint": [f"{MARK_TAINT}=:NoSchedule"]}  # it registers out of service
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in {**own, **values}.items()]
    await write_file(ctx, JOIN, "".join(lines))


async def _start(ctx: ActionContext, k3s: DesiredK3s) -> None:
    unit = k3s.role.unit
    ctx.step(f"starting {unit}")
    await run(ctx, ("systemctl", "enable", unit))
    await run(ctx, ("systemctl", "restart", unit), seconds=on_node.STARTS_S)


async def _runs(ctx: ActionContext, k3s: DesiredK3s) -> bool:
    """Return whether K3s runs or starts: its etcd votes before systemd calls the unit active."""
    argv = ("systemctl", "is-active", k3s.role.unit)
    result = await ctx.host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(on_node.COMMAND_S)))
    return result.timed_out or result.stdout.strip() in ("active", "activating", "reloading")


async def _has(ctx: ActionContext, path: str) -> bool:
    result = await ctx.host.run(("test", "-e", path), timeout=max(2.0, ctx.clock.real_seconds(on_node.COMMAND_S)))
    if result.exit_status not in (0, 1):
        raise Stop(Transient(f"whether {path} exists could not be read"))
    return result.exit_status == 0


async def _on(ctx: ActionContext, host: Asked, argv: tuple[str, ...]) -> str:
    """Run a command on another host; return what it printed. Messages never have it: it may be a token."""
    result = await host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(on_node.COMMAND_S)))
    if result.exit_status or result.timed_out:
        said = result.stderr.strip()[-200:] or f"exit {result.exit_status}"
        raise Stop(Transient(f"{' '.join(argv[:3])} on a server: {said}", 30.0))
    return result.stdout
