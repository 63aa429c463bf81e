"""Have a serving group serve without a node before it is taken out, and with it again once it is back.

Each node that is to serve is told over SSH, and has to answer before the next step is taken. An attempt tells a command
under one name, so that a run that goes on with it learns how the command ended and tells nobody twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.converge.actions.context import ActionContext, Stop, action, poll
from reconciler.converge.guarded_ports import TimedHost
from reconciler.converge.serving_group import NO_ADDRESS
from reconciler.model.errors import DriverError
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.printable import visible
from reconciler.model.serving import (
    CUT_OFF,
    LOOK_S,
    RUNS,
    TELL,
    DesiredServing,
    command_for,
    command_name,
    probe_of,
)
from reconciler.model.units import format_duration

RETRY_S: Final = 60.0
PROBE_S: Final = 20.0
EVERY_S: Final = 5.0
SPARE_S: Final = 60.0  # that a command may take longer than it is allowed, until its host has ended it
TIMED_OUT: Final = (124, 137)  # exit status of timeout(1)


@dataclass(frozen=True, slots=True)
class Server:
    """A node that is to serve."""

    name: str
    host: TimedHost


def _wanted(ctx: ActionContext) -> DesiredServing:
    if ctx.desired.serving is None:
        raise Stop(Declined("not_declared", "the spec has the node in no serving group"))
    return ctx.desired.serving


@action
async def degrade_serving(ctx: ActionContext) -> Outcome:
    """Tell the other nodes of the group to serve without this one, and wait until each of them answers."""
    serving = _wanted(ctx)
    servers = staying(ctx)
    if not servers:
        return Done("no other node of its serving group is in service: nobody is told", changed=False)
    await _tell(ctx, serving.degrade, servers)
    await _answer(ctx, servers)
    return Done(f"{_names(servers)} {_serve(servers)} without it, and {_answered(servers)} at {serving.ready_url}")


@action
async def restore_serving(ctx: ActionContext) -> Outcome:
    """Tell all nodes of the group to serve together, and wait until each of them answers."""
    serving = _wanted(ctx)
    if out := [one.name for one in ctx.group if one.out]:
        return Declined("group_incomplete", f"its serving group is whole again when {', '.join(out)} is in service")
    known = {one.name: one.host for one in ctx.group} | {ctx.node: ctx.host}
    servers = [_server(name, known[name]) for name in serving.group]
    await _tell(ctx, serving.restore, servers)
    await _answer(ctx, servers)
    return Done(f"{_names(servers)} serve together, and {_answered(servers)} at {serving.ready_url}")


async def must_serve_without(ctx: ActionContext) -> None:
    """Raise Stop unless the other nodes of the serving group answer now: what they said before may be long ago."""
    if ctx.desired.serving is None:
        return
    for server in staying(ctx):
        if why := await _silence(ctx, server):
            raise Stop(Transient(f"its serving group does not answer without it, so it stays: {why}", RETRY_S))


def staying(ctx: ActionContext) -> list[Server]:
    return [_server(one.name, one.host) for one in ctx.group if not one.out]


def _server(name: str, host: TimedHost | None) -> Server:
    if host is None:
        raise Stop(Declined("no_port", f"{name}: {NO_ADDRESS}, so it can't be told how to serve"))
    return Server(name, host)


async def _tell(ctx: ActionContext, words: Sequence[str], servers: Sequence[Server]) -> None:
    """Tell one server after the other. Raise Stop at the first on which the command fails or does not end."""
    argv = command_for(words, ctx.node, [one.name for one in servers])
    name = command_name(ctx.ledger.id, ctx.attempt, argv)
    for server in servers:
        ctx.step(f"{server.name}: {' '.join(argv)}")
        await _run(ctx, server, name, argv)


async def _run(ctx: ActionContext, server: Server, name: str, argv: Sequence[str]) -> None:
    allowed = _wanted(ctx).timeout_s
    seconds = max(2.0, ctx.clock.real_seconds(allowed))
    deadline = ctx.clock.monotonic() + allowed + SPARE_S
    asked = ("sh", "-c", TELL, "sh", name, f"{seconds:.0f}", *argv)
    while True:
        status, said = RUNS, ""
        try:
            result = await server.host.run(asked, timeout=LOOK_S + 10.0)
        except DriverError as error:
            said = str(error)  # whatever became of it, the next look tells
        else:
            status, said = (RUNS if result.timed_out else result.exit_status), visible(result.stderr.strip()[-300:])
        if status == 0:
            return
        late = ctx.clock.monotonic() >= deadline
        if status != RUNS or late:
            raise Stop(Transient(f"{server.name}: {argv[0]} {_end(status, allowed)}{said and f': {said}'}", RETRY_S))
        await ctx.clock.sleep(EVERY_S)


def _end(status: int, allowed_s: float) -> str:
    if status == RUNS:
        return "does not end, or its host does not say so"
    if status == CUT_OFF:
        return "was cut off"
    return f"took longer than {format_duration(allowed_s)}" if status in TIMED_OUT else f"exits with {status}"


async def _answer(ctx: ActionContext, servers: Sequence[Server]) -> None:
    """Wait until each server answers. Raise Stop if one does not in the time that the spec allows."""
    serving, why = _wanted(ctx), ""
    for server in servers:

        async def probe(server: Server = server) -> bool | None:
            nonlocal why
            why = await _silence(ctx, server)
            return None if why else True

        ctx.step(f"{server.name}: waits for {serving.ready_url}")
        if await poll(ctx, probe, within_s=serving.ready_s, every_s=EVERY_S, soon=True) is None:
            raise Stop(Transient(f"after {format_duration(serving.ready_s)}, {why}", RETRY_S))


async def _silence(ctx: ActionContext, server: Server) -> str:
    """Return why a server does not count as serving; "" where its URL answers 2xx."""
    url = _wanted(ctx).ready_url
    try:
        result = await server.host.run(probe_of(url), timeout=PROBE_S)
    except DriverError as error:
        return f"{server.name}: {error}"
    code = result.stdout.strip()
    if result.exit_status == 0 and not result.timed_out and len(code) == 3 and code.startswith("2"):
        return ""
    said = visible(result.stderr.strip()[-200:]) or f"HTTP {visible(code[:20])}"
    return f"{server.name}: {url} does not answer 2xx: {said}"


def _names(servers: Iterable[Server]) -> str:
    return ", ".join(one.name for one in servers)


def _serve(servers: Sequence[Server]) -> str:
    return "serves" if len(servers) == 1 else "serve"


def _answered(servers: Sequence[Server]) -> str:
    return "answers" if len(servers) == 1 else "answer"
