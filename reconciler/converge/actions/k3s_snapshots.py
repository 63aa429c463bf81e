"""Snapshots of etcd that are taken before another version of K3s touches it, and how many of them stay.

K3s deletes those of its schedule by itself, and never one that was asked for (docs.k3s.io/cli/etcd-snapshot, read in
November 2026: "On-demand snapshots have no retention").
"""

from __future__ import annotations

import re
from typing import Final

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop
from reconciler.model.k3s import BINARY, DesiredK3s, K3sRole
from reconciler.model.k3s_datastore import not_saved
from reconciler.model.outcome import Declined, Permanent

SAVES_S: Final = 600.0
COMMAND_S: Final = 60.0
_BEFORE: Final = "before-"


def check_saved(k3s: DesiredK3s) -> None:
    """Raise Stop where nobody said that the database is saved, also for a server that does not run."""
    if why := not_saved(k3s):
        raise Stop(Declined("not_saved", why))


async def save_etcd(ctx: ActionContext, k3s: DesiredK3s) -> None:
    """Save etcd, if the state is there, and see it in the list."""
    if k3s.external:
        return
    name = f"{_BEFORE}{_word(k3s.version)}"
    ctx.step(f"saving etcd as {name}")
    await run(ctx, (BINARY, "etcd-snapshot", "save", "--name", name), seconds=SAVES_S)
    if not any(found.startswith(f"{name}-") or found == name for found in await _names(ctx)):
        raise Stop(Permanent(f"etcd was saved as {name}, and the list of snapshots does not show it"))


async def prune(ctx: ActionContext, k3s: DesiredK3s, version: str) -> str:
    """Delete the oldest of this node's snapshots before upgrades, and return what of it failed, for the outcome.

    Those of the version that runs, and of the one that is declared, stay: they are the way back. A server that was
    upgraded has not failed because an old file stays.
    """
    if k3s.external or k3s.role is K3sRole.AGENT:
        return ""
    try:
        due = due_to_go(await _names(ctx), ctx.node, k3s.keep, (version, k3s.version))
        if due:
            ctx.step(f"deleting {len(due)} old snapshots of etcd")
            await run(ctx, (BINARY, "etcd-snapshot", "delete", *due), seconds=SAVES_S)
            due = tuple(name for name in await _names(ctx) if name in due)
    except Stop as stop:
        return f"; old snapshots of etcd stay: {stop.outcome.detail}"
    return f"; K3s did not delete these snapshots of etcd: {', '.join(due)}" if due else ""


def due_to_go(names: tuple[str, ...], node: str, keep: int, versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return which snapshots before upgrades go: all but the newest `keep` of the node, and those before `versions`.

    K3s names a snapshot NAME-NODE-SECONDS (pkg/etcd/etcd.go, Snapshot); a name of anybody else is left alone.
    """
    ours = re.compile(rf"{_BEFORE}(?P<version>v[0-9.]+-k3s[0-9]+)-{re.escape(node)}-(?P<at>[0-9]{{1,19}})(\.zip)?")
    found = [match for name in dict.fromkeys(names) if (match := ours.fullmatch(name)) is not None]
    found.sort(key=lambda match: int(match["at"]), reverse=True)
    wanted = {_word(version) for version in versions}
    return tuple(match[0] for match in found[keep:] if match["version"] not in wanted)


def _word(version: str) -> str:
    return version.replace("+", "-")


async def _names(ctx: ActionContext) -> tuple[str, ...]:
    """Return the names in K3s' list: the first column of each line but the head."""
    listed = await run(ctx, (BINARY, "etcd-snapshot", "ls"), seconds=COMMAND_S)
    return tuple(line.split()[0] for line in listed.stdout.splitlines()[1:] if line.strip())
