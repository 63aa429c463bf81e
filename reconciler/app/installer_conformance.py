"""The `conformance installer` use case: the Fleet's server of install documents, asked as a machine asks it."""

from __future__ import annotations

import ssl
from pathlib import Path

from reconciler.app.extensions import other_installer
from reconciler.app.runtime import run_async
from reconciler.app.workspace import Workspace
from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.installer.conformance import NODE, Bench, check_server
from reconciler.model.access import InstallerPolicy
from reconciler.model.conformance import ConformanceReport
from reconciler.model.errors import UsageError

SENTENCE = f"certify {NODE}"


def check_installer(workspace: Workspace, ca: Path | None, *, writes: bool) -> ConformanceReport:
    """Run the suite of installers. Without `writes` no host key is certified. `ca`: who signs its certificate."""
    settings = workspace.fleet.settings
    policy, authorities = settings.installer, settings.host_keys.authorities
    if workspace.overlay is not None and workspace.overlay.installer is not None:
        target, authorities = workspace.overlay.installer, ()
        policy = InstallerPolicy(target.listen, None, target.iso, host_ca=target.host_ca)
    if policy is None:
        raise UsageError("the Fleet names no `installer` (docs/how-to/installer.md)")
    _refuse_while_machines_install(workspace)
    try:
        trust = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except (OSError, ssl.SSLError):
        raise UsageError(f"--ca {ca}: is no PEM file of certificates") from None

    async def run() -> ConformanceReport:
        if policy.via:
            server = other_installer(settings.extensions, policy, workspace.secrets)
            return await check_server(Bench(server, trust), policy.via, writes=writes)
        ours = HttpInstaller(policy, workspace.secrets, workspace.clock.now, authorities=authorities)
        try:
            return await check_server(Bench(ours, trust), "ours", writes=writes)
        finally:
            await ours.close()

    return run_async(run())


def _refuse_while_machines_install(workspace: Workspace) -> None:
    """The suite's server does not know their documents: its 404 makes an installer give up on a half-written disk."""
    with workspace.present_ledger() as ledger:
        nodes = sorted({one.node for one in ledger.installs() if one.closed_at is None})
    if nodes:
        raise UsageError(
            f"installs of {', '.join(nodes)} are under way, and this would listen in place of the server that they "
            f"report to: let them end (reconciler status), then stop the service and try again"
        )
