"""Put K3s on a node: program and images by digest, its files as declared, and the restarts that this takes.

A file that tells of a due restart is written before anything changes and removed after the restart was proved, so a run
that dies between the two leaves drift that the next one removes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action, poll
from reconciler.converge.actions.files import write_file
from reconciler.converge.actions.k3s_database import same_datastore, told_of_refusal, write_secrets
from reconciler.converge.actions.k3s_snapshots import check_saved, prune, save_etcd
from reconciler.converge.actions.service import is_active
from reconciler.converge.k3s_birth import Asked
from reconciler.converge.observe import control_plane
from reconciler.diff.k3s import K3S, row_of
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import (
    BINARY,
    CONFIG,
    DATA,
    IMAGES,
    JOIN,
    OUR_IMAGES,
    REGISTRIES,
    RESTART_DUE,
    SERVER_TOKEN,
    TOKEN,
    Artifact,
    DesiredK3s,
    K3sFacts,
    K3sRole,
    why_not_away,
)
from reconciler.model.observed import Answered, ClusterState
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient

DOWNLOAD_S: Final = 1800.0
STARTS_S: Final = 600.0  # a server that joins copies the datastore first
COMMAND_S: Final = 60.0
_OUR_FILES: Final = re.compile(rf"{OUR_IMAGES.pattern}(\.[0-9a-f]{{16}}\.part)?")
READY: Final = (BINARY, "kubectl", "get", "--raw", "/readyz")


def wanted_of(ctx: ActionContext) -> DesiredK3s:
    if ctx.desired.profile.k3s is None:
        raise Stop(Declined("not_declared", "the spec declares no K3s for this node"))
    return ctx.desired.profile.k3s


@action
async def install_k3s(ctx: ActionContext) -> Outcome:
    """Put program and images of the declared release in place, by digest, and let a running K3s change to it."""
    k3s = wanted_of(ctx)
    found = same_datastore(k3s, (await ctx.facts()).k3s)
    other = next(role for role in K3sRole if role is not k3s.role)
    if other.unit in found.units:
        return Declined("other_role", f"the host has the unit {other.unit}: install it anew before it changes its role")
    runs = await is_active(ctx, k3s.role.unit)
    version = found.version if f"{K3S}version" in ctx.postponed else k3s.version
    if k3s.images is not None and k3s.image_file not in found.images:
        await run(ctx, ("mkdir", "-p", IMAGES))
        await _fetch(ctx, k3s.images, f"{IMAGES}/{k3s.image_file}")
    if runs:
        await guard_quorum(ctx)  # before anything changes that a restart by others would take up
    if found.version != version:
        if found.began or await _joins_another_release(ctx, version):
            check_saved(k3s)
        if runs and k3s.role is K3sRole.SERVER:
            await save_etcd(ctx, k3s)
        if runs:
            await announce_restart(ctx)
        await _fetch(ctx, k3s.binary, BINARY, mode="755")
    if runs:
        await restart(ctx, k3s, version)
    if version == k3s.version:
        await _remove_images(ctx, k3s, found)
    said = await prune(ctx, k3s, version) if runs and found.version != version else ""
    return Done(f"{version} is in place" + (", and runs" if runs else "") + said)


@action
async def configure_k3s(ctx: ActionContext) -> Outcome:
    """Write the files of K3s as declared, but for those whose wave has not begun, and restart it if it runs.

    A restart renews certificates which end soon.
    """
    k3s = wanted_of(ctx)
    found = same_datastore(k3s, (await ctx.facts()).k3s)
    runs = await is_active(ctx, k3s.role.unit)
    if runs:
        await guard_quorum(ctx)
        await announce_restart(ctx)
    if not {f"{K3S}secrets", f"{K3S}database", row_of(CONFIG)} & set(ctx.postponed):  # CONFIG names the secrets
        await write_secrets(ctx, k3s, found)
    for path, text in k3s.files.items():
        if row_of(path) in ctx.postponed:
            continue
        if text:
            await write_file(ctx, path, text, mode="644" if path not in (CONFIG, REGISTRIES) else "600")
        else:
            await run(ctx, ("rm", "-f", path))
    await run(ctx, ("systemctl", "daemon-reload"))
    if runs:
        await restart(ctx, k3s, found.version)
    else:
        await run(ctx, ("rm", "-f", RESTART_DUE))
    return Done("its files are as declared" + (", and it was restarted" if runs else ""))


async def _joins_another_release(ctx: ActionContext, version: str) -> bool:
    """Return whether a new server would take a database that others use to its own release."""
    if not wanted_of(ctx).external:
        return False
    members = (await _cluster_of(ctx)).value.members.values()
    return any(one.control_plane and one.kubelet_version not in ("", version) for one in members)


async def announce_restart(ctx: ActionContext) -> None:
    await run(ctx, ("mkdir", "-p", DATA))
    await run(ctx, ("tee", RESTART_DUE), stdin=f"{ctx.plan}\n")


async def restart(ctx: ActionContext, k3s: DesiredK3s, version: str) -> None:
    """Restart K3s and wait until it serves again, with this version. Raise Stop if it does not.

    While waves hold a new release back, the program on the host is another one than the declared.
    """
    await guard_quorum(ctx)  # downloads take long: another server may have gone meanwhile
    await begin_no_more(ctx, k3s)
    ctx.step(f"restarting {k3s.role.unit}")
    async with told_of_refusal(ctx, k3s):
        await run(ctx, ("systemctl", "restart", k3s.role.unit), seconds=STARTS_S)
        await wait_ready(ctx, k3s, version)
    await run(ctx, ("rm", "-f", RESTART_DUE))


async def begin_no_more(ctx: ActionContext, k3s: DesiredK3s) -> None:
    """Let a server that began the cluster join it from now on, should it ever start without its datastore.

    With `cluster-init` it would begin a second, empty cluster then, say when the disk of etcd fails to mount; with
    neither that nor a URL, one in SQLite (k3s-io/k3s pkg/cluster/managed.go). While a datastore is on its disk, K3s
    ignores both (docs.k3s.io, "High Availability Embedded etcd"), so this takes no restart.
    """
    if k3s.role is K3sRole.AGENT or k3s.external:
        return
    found = await ctx.host.run(("cat", JOIN), timeout=max(2.0, ctx.clock.real_seconds(COMMAND_S)))
    kept = [line for line in found.stdout.splitlines() if not line.startswith("cluster-init:")]
    if found.exit_status or len(kept) == len(found.stdout.splitlines()):
        return
    token = (await run(ctx, ("cat", SERVER_TOKEN))).stdout.strip()
    await write_file(ctx, TOKEN, f"{token}\n")
    values = {"server": k3s.endpoint, "token-file": TOKEN}
    lines = (*kept, *(f"{key}: {json.dumps(value)}" for key, value in values.items()))
    await write_file(ctx, JOIN, "".join(f"{line}\n" for line in lines))


async def wait_ready(ctx: ActionContext, k3s: DesiredK3s, version: str) -> None:
    """Wait for the API server of this server, and for the node to be Ready with a version."""

    async def serves() -> bool | None:
        return True if k3s.role is K3sRole.AGENT or await answers(ctx, ctx.host) else None

    async def is_ready() -> bool | None:
        member = await ctx.cluster.member(ctx.node)
        return True if member is not None and member.ready and member.kubelet_version == version else None

    if await poll(ctx, lambda: _later(serves), within_s=STARTS_S, every_s=5.0, soon=True) is None:
        raise Stop(Transient("its API server does not become ready"))
    if await poll(ctx, lambda: _later(is_ready), within_s=STARTS_S, every_s=5.0, soon=True) is None:
        raise Stop(Transient(f"the node does not become Ready with {version}"))


async def _later(probe: Callable[[], Awaitable[bool | None]]) -> bool | None:
    """Ask again where nobody answers: an API server restarts."""
    try:
        return await probe()
    except DriverError:
        return None


async def answers(ctx: ActionContext, host: Asked) -> bool:
    """Return whether the API server on a host says that it is ready."""
    result = await host.run(READY, timeout=max(2.0, ctx.clock.real_seconds(COMMAND_S)))
    return result.exit_status == 0 and result.stdout.strip() == "ok"


async def guard_quorum(ctx: ActionContext) -> None:
    """Raise Stop unless etcd keeps its quorum without this server."""
    if wanted_of(ctx).role is K3sRole.AGENT:
        return
    external = wanted_of(ctx).external
    if why := why_not_away(await servers_of(ctx), ctx.node, external=external):
        raise Stop(Transient(why, 30.0))


async def servers_of(ctx: ActionContext) -> Mapping[str, bool]:
    """Return the members of the control plane as they are now -> Ready. Raise Stop where that is not known."""
    return control_plane(await _cluster_of(ctx))


async def _cluster_of(ctx: ActionContext) -> Answered[ClusterState]:
    state = await ctx.cluster.state()
    if not isinstance(state, Answered):
        raise Stop(Transient(f"whether the other servers are Ready is not known: {state.detail}"))
    return state


async def _fetch(ctx: ActionContext, artifact: Artifact, path: str, *, mode: str = "644") -> None:
    """Download a file beside its place, going on where a download broke off; nothing else ever gets into its place."""
    part = f"{path}.{artifact.sha256[:16]}.part"
    ctx.step(f"fetching {artifact.url}")
    again = ("--continue-at", "-", "--retry", "8", "--retry-connrefused", "--retry-delay", "5")
    argv = ("curl", "--fail", "--silent", "--show-error", "--location", *again, "--output", part, artifact.url)
    await _transfer(ctx, argv)
    digest = (await run(ctx, ("sha256sum", part), seconds=DOWNLOAD_S)).stdout.split()[:1]
    if digest != [artifact.sha256]:
        await run(ctx, ("rm", "-f", part))
        found = digest[0] if digest else "none"
        raise Stop(Permanent(f"{artifact.url} has sha256 {found}, the spec says {artifact.sha256}: it is not used"))
    await run(ctx, ("chmod", mode, part))
    await run(ctx, ("sync", part))
    await run(ctx, ("mv", "-f", part, path))


# Exit codes of curl(1): the server can't go on there, as the file is here to its end; it says so with status 416, too.
_COMPLETE: Final = 33
_REFUSED: Final = 22
_BEYOND: Final = "returned error: 416"


async def _remove_images(ctx: ActionContext, k3s: DesiredK3s, found: K3sFacts) -> None:
    """Remove the images that we fetched for other releases: K3s would load all of them at each start.

    What they hold stays in containerd until the kubelet needs the room. Files of others stay.
    """
    old = [name for name in found.images if _OUR_FILES.fullmatch(name) and not name.startswith(k3s.image_file or "?")]
    if old:
        await run(ctx, ("rm", "-f", *(f"{IMAGES}/{name}" for name in sorted(old))))


async def _transfer(ctx: ActionContext, argv: tuple[str, ...]) -> CommandResult:
    result = await ctx.host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(DOWNLOAD_S)))
    beyond = result.exit_status == _REFUSED and _BEYOND in result.stderr
    done = result.exit_status in (0, _COMPLETE) or beyond
    if result.timed_out or not done:
        said = "took too long" if result.timed_out else result.stderr.strip()[-200:] or f"exit {result.exit_status}"
        raise Stop(Transient(f"the download of {argv[-1]} broke off, and goes on there next time: {said}", 30.0))
    return result
