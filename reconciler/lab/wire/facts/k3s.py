"""The fact of K3s, as the script of it prints what the machine has."""

from __future__ import annotations

import hashlib
from typing import Final

from reconciler.lab.hardware.k3s_disk import has_k3s, secret_options, state_lines
from reconciler.lab.hardware.k3s_site import K3S_FILES, RENEW_S, certificates_end, certificates_last_s, version_of
from reconciler.lab.wire.facts.context import FactContext
from reconciler.model.gate import CommandResult
from reconciler.model.k3s import DATASTORE, ENDPOINT, IMAGES, RESTART_DUE, SERVER_TOKEN, UNIT_FILES, K3sRole

METRIC: Final = "apiserver_requested_deprecated_apis"


def k3s(context: FactContext) -> CommandResult:
    disk, active = context.image, context.system.services_active
    lines = [f"version k3s version {version_of(disk)} (56ec5dd4)"] if version_of(disk) else []
    for unit in (role.unit for role in K3sRole):
        if f"{UNIT_FILES}/{unit}.service" in disk.files:
            lines.append(f"unit {unit} {'active' if active.get(unit) else 'inactive'}")
    for path in K3S_FILES:
        if path in disk.files:
            lines.append(f"file {hashlib.sha256(disk.files[path].encode()).hexdigest()}  {path}")
    lines += [f"image {path.rpartition('/')[2]}" for path in sorted(disk.files) if path.startswith(f"{IMAGES}/")]
    lines += state_lines(disk) if has_k3s(disk) else []
    lines += [f"secret {option}" for option in secret_options(disk)]
    has_database = ENDPOINT in secret_options(disk) and SERVER_TOKEN in disk.files
    lines += _deprecated(context) if DATASTORE in disk.files or has_database else []
    lines += ["restart"] if RESTART_DUE in disk.files else []
    if (end := certificates_end(disk, context.now, context.date)) is not None:
        lines.append(f"ends {end:%b %e %H:%M:%S %Y GMT}")
    if certificates_last_s(disk, context.now) < RENEW_S:
        lines.append("renewal due")
    return CommandResult(0, "".join(f"{line}\n" for line in (*lines, "end")))


def _deprecated(context: FactContext) -> list[str]:
    """Return the metric as an API server prints it, its labels in the order of the alphabet."""
    if context.deprecated is None:
        return ["deprecated unknown"]
    return [
        f'deprecated {METRIC}{{group="{one.group}",removed_release="{one.removed}",resource="{one.resource}",'
        f'subresource="",version="{one.version}"}} 1'
        for one in context.deprecated
    ]
