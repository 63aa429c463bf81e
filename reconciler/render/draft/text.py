"""The files of a drafted spec, as a person would write them: with comments that say what to raise next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.gate.starting_bars import Figure
from reconciler.gate.starting_bars import packaged as starting_bars
from reconciler.render.draft.kinds import Draft, Hardware, Role, twin
from reconciler.render.draft.lines import comment, resource
from reconciler.render.draft.pools import pool_text
from reconciler.render.draft.survey import PLAIN
from reconciler.render.text import count, fold
from reconciler.strict_yaml.edit import inline, scalar


@dataclass(frozen=True, slots=True)
class Access:
    """The access to the fleet. Files are texts to put into the spec; None: not verified, and the draft says so."""

    ssh_user: str
    bmc: bool
    ssh: bool
    bmc_ca: str | None
    host_ca: str | None
    cluster: str | None
    context: str | None


def files(draft: Draft, access: Access) -> dict[str, str]:
    """Return the files by path below the spec's directory."""
    made = {
        "fleet.yaml": _fleet(draft, access),
        "hardware.yaml": _head("hardware-profile") + _documents(_hardware(one, draft) for one in draft.hardware),
        "personas.yaml": _head("persona") + _documents(_role(one, access) for one in draft.roles),
        "acceptance.yaml": _head("acceptance-profile") + "\n".join(_acceptance(draft)) + "\n",
    }
    made["remediation.yaml"] = _head("remediation-policy") + "\n".join(_remediation()) + "\n"
    if access.cluster is not None:
        made["cluster.yaml"] = _head("cluster") + "\n".join(_cluster(access)) + "\n"
    public = {"pki/bmc-ca.pem": access.bmc_ca, "pki/ssh-host-ca.pub": access.host_ca}
    made |= {name: text for name, text in public.items() if text is not None}
    for pool in draft.pools:
        lines, table = pool_text(pool, draft)
        made[f"pools/{pool.name}.yaml"] = _head("node-pool", 2) + "\n".join(lines) + "\n"
        if table:
            made[f"pools/{pool.name}.csv"] = table
    return made


def _head(schema: str, depth: int = 1) -> str:
    """Return the line that tells editors the schema, which is beside the spec's directory."""
    return f"# yaml-language-server: $schema={'../' * depth}schemas/{schema}.json\n"


def _documents(parts: Iterator[list[str]]) -> str:
    return "---\n".join("\n".join(part) + "\n" for part in parts)


# --- fleet and cluster ---------------------------------------------------------------------------------------------


def _fleet(draft: Draft, access: Access) -> str:
    lines = [
        *comment(
            "Written by `reconciler init` from what the nodes were. It asks for nothing else, so that plans are empty "
            "until somebody changes a line. All of it may be edited."
        ),
        *resource("Fleet", draft.fleet),
    ]
    if access.cluster is not None:
        lines.append(f"  cluster: {access.cluster}")
    if access.bmc:
        tls = "{ca: pki/bmc-ca.pem}" if access.bmc_ca else "{insecure: true}"
        lines += ["  redfish:", "    credentials: bmc # a name; what it stands for is outside the repository"]
        lines.append(
            f"    tls: {tls}" + ("" if access.bmc_ca else " # next: the CA that signed the BMCs' certificates")
        )
    if access.ssh:
        keys = "{authorities: [pki/ssh-host-ca.pub]}" if access.host_ca else "{insecure: true}"
        lines += ["  ssh:", f"    user: {scalar(access.ssh_user, flow=False)}", "    credentials: ssh"]
        lines.append(f"    hostKeys: {keys}" + ("" if access.host_ca else " # next: a CA that signs the keys of hosts"))
    labels = sorted({label for row in draft.rows.values() for label in row.domains})
    lines += [
        "  drift: {mode: observe} # next: correct, once you like what plans say; it governs `reconciler run`",
        "  # How many nodes may be out of service at once; those that are out already count. Next: 5%, 10% ...",
        "  budgets:",
        "    - {scope: fleet, nodes: 1}",
        *(f"    # - {{scope: {label}, nodes: 1}}" for label in labels),
        "  # A plan that does more than this is refused as a whole: counts of nodes, or shares.",
        "  guards: {reimage: 1, reboot: 10%, forget: 1}",
        "  # windows: # next: when nodes may be taken out of service",
        "  #   - {kind: deny, days: [mon, tue, wed, thu, fri], from: '08:00', to: '18:00', timezone: Europe/Berlin}",
    ]
    hint = "# next: what is tried on a node that falls ill; without, the next apply isolates it"
    host = "host: {hostname: fromName}"
    lines += ["  defaults:" if draft.from_name else "  # defaults:"]
    mark = "" if draft.from_name else "# "
    lines += [f"  {mark}  {'# ' if not mark else ''}remediation: standard {hint}", f"  {mark}  {host}"]
    if draft.unread:
        lines.append("# Could not be read, and so are in no pool yet:")
        lines += [line for name, why in draft.unread.items() for line in comment(f"  {name}: {why}")]
    return _head("fleet") + "\n".join(lines) + "\n"


def _cluster(access: Access) -> Iterator[str]:
    yield from resource("Cluster", str(access.cluster))
    yield "  type: kubernetes"
    yield "  kubeconfig: kubeconfig # a name; what it stands for is outside the repository"
    if access.context:
        yield f"  context: {scalar(access.context, flow=False)}"
    yield "  # join: {command: [systemctl, enable, --now, kubelet]} # next: how a host joins after an install"


def _remediation() -> Iterator[str]:
    yield "# Not in force until `defaults` in fleet.yaml, a pool or a node names it."
    yield from resource("RemediationPolicy", "standard")
    yield from (
        "  window: 1d",
        "  ladder:",
        "    - {action: soft_restart, attempts: 1}",
        "    # - {action: power_cycle, attempts: 1} # next",
        "  ignoreXids: [13, 31, 43, 45] # faults of applications, not of GPUs",
        "  hostDownAfter: 5m",
        "  # nodeConditions: # next: what detectors set on the node object, such as node-problem-detector",
        '  #   - {type: GpuUnhealthy, status: "True"}',
    )


# --- hardware ------------------------------------------------------------------------------------------------------


def _hardware(profile: Hardware, draft: Draft) -> list[str]:
    lines = resource("HardwareProfile", profile.name)
    if (found := twin(draft, profile)) is not None:
        lines = [
            *comment(f"Like {found[0].name}, but for {found[1]}. If a part is missing here, use that one and repair."),
            *lines,
        ]
    if profile.match:
        lines.append(f"  match: {inline(profile.match)}")
    if profile.inventory:
        lines += ["  inventory:", *(f"    {key}: {inline(value)}" for key, value in profile.inventory.items())]
    if profile.firmware:
        lines += [
            "  # Compared, and never updated, as long as no url and sha256 say where the file is. Check activation:",
            "  # it is what usually makes such a component take up a new version.",
            "  firmware:",
        ]
        stages = {"bmc": 1, "bios": 2, "nic": 3}
        for name, item in profile.firmware.items():
            values = {
                "component": name, "inventoryId": item.id, "version": item.version,
                **({"policy": "min"} if item.kind == "nic" else {}),
                "stage": stages[item.kind], "activation": item.activation, "minutes": item.minutes,
            }  # fmt: skip
            shown = {
                key: _quoted(item.version) if key == "version" else inline(value, flow=True)
                for key, value in values.items()
            }
            lines.append("    - {" + ", ".join(f"{key}: {value}" for key, value in shown.items()) + "}")
    if profile.bios:
        lines += ["  bios:", "    attributes: # a few of many; next: those that you care about"]
        lines += [f"      {scalar(key, flow=False)}: {inline(value)}" for key, value in profile.bios.items()]
    if profile.secure_boot is not None:
        lines.append(f"  secureBoot: {inline(profile.secure_boot)}")
    if profile.boot_order is not None:
        lines.append(f"  bootOrder: {inline(profile.boot_order)}")
    if lines[-1] == "spec:":
        lines[-1] = "spec: {}"
    return [*lines, *(line for sentence in profile.left_out for line in comment(sentence, 2))]


def _quoted(text: str) -> str:
    """Versions look like numbers too often."""
    return scalar(text, flow=True, style='"')


# --- personas ------------------------------------------------------------------------------------------------------


def _role(role: Role, access: Access) -> list[str]:
    lines = resource("Persona", role.name)
    if access.cluster is not None:
        if role.labels:
            lines.append(f"  labels: {inline(role.labels)}")
        if role.taints:
            lines.append("  taints:")
            for taint in role.taints:
                lines.append(f"    - {inline({'key': taint.key, 'value': taint.value, 'effect': taint.effect})}")
    if role.mig is not None:
        lines.append(f"  gpu: {{mig: {'disabled' if role.mig == PLAIN else inline(_layout(role.mig))}}}")
    if role.sysctls or role.services:
        lines.append("  host:")
        if role.sysctls:
            lines.append("    sysctls: {" + ", ".join(f"{k}: {_quoted(v)}" for k, v in role.sysctls.items()) + "}")
        if role.services:
            lines.append(f"    services: {inline(role.services)}")
    provider = "kubernetes" if access.cluster is not None else "none"
    hint = "" if access.cluster is not None else " # nothing is waited for; next: {provider: command, command: [...]}"
    lines.append(f"  drain: {{provider: {provider}, timeout: 10m}}{hint}")
    lines.append("  acceptance: standard")
    return lines


def _layout(said: str) -> dict[str, int]:
    parts = (re.fullmatch(r"(\S+?)(?: x(\d+))?", part) for part in said.split(", "))
    return {part[1]: int(part[2] or 1) for part in parts if part is not None}


# --- acceptance ----------------------------------------------------------------------------------------------------


def _acceptance(draft: Draft) -> Iterator[str]:
    counted = bool(draft.hardware) and all(one.inventory.get("gpus") for one in draft.hardware)
    yield from comment(
        "What a node passes before it is let back into service, once it was taken out. Nodes that served when this was "
        "written got certificates without a test, marked `adopted` in the ledger. They lose "
        "them when their hardware, firmware, BIOS, image or these tests change."
    )
    yield from resource("AcceptanceProfile", "standard")
    yield from (
        "  validity: 90d",
        "  phases:",
        "    - name: inventory",
        "      tests:",
        "        - {name: inventory, tool: inventory}",
        "        - {name: xids, tool: xid}",
    )
    if counted:
        yield from (
            "    - name: burn",
            "      tests:",
            "        - {name: dcgm, tool: dcgmi-diag, args: {level: 2}, timeout: 10m}",
        )
        if all(int(one.inventory["gpus"]) > 1 for one in draft.hardware):
            yield from _nccl(draft)
    else:
        yield "    # next: a phase with dcgmi-diag, nccl-tests, nvbandwidth or fio"


def _nccl(draft: Draft) -> Iterator[str]:
    """Yield a collective. A published bar is offered for the GPUs, their number and the size that it is of alone."""
    found = [_published(machine) for machine in draft.hardware]
    bar = found[0] if all(one == found[0] for one in found) else None
    args = {"collective": "all_reduce", "minBytes": "8G", "maxBytes": "16G"} if bar is None else bar.args or {}
    yield from (
        "        - name: nccl",
        "          tool: nccl-tests",
        f"          args: {inline(args)}",
        "          timeout: 10m",
    )
    if bar is None:
        yield "          # next: measure, then set a bar; published ones: reconciler gate bars"
    else:
        yield f"          # next: measure, then set a bar; published for this size alone by {bar.source}:"
        yield f"          # thresholds: [{{metric: {bar.metric}, min: {bar.value:.15g}}}]"


def _published(machine: Hardware) -> Figure | None:
    """Return the bar that is published of a collective over the GPUs of such a machine."""
    bars, scope = starting_bars(), f"one node of {machine.inventory.get('gpus')} GPUs"
    figures = bars.of(bars.model_of_gpu(str(machine.inventory.get("gpuModel"))) or "")
    return next((one for one in figures if one.args and one.tool == "nccl-tests" and one.scope == scope), None)


def summary(draft: Draft) -> list[str]:
    """Describe the draft in words."""
    shared = f"{count(len(draft.hardware), 'hardware profile')}, {count(len(draft.roles), 'persona')}"
    told = [
        f"{count(sum(len(pool.nodes) for pool in draft.pools), 'node')} in {count(len(draft.pools), 'pool')}; {shared}"
    ]
    for pool in draft.pools:
        odd = [node for node in pool.nodes if draft.own.get(node) and node not in draft.parked]
        has_own = f"; {count(len(odd), 'node')} with settings of their own" if odd else ""
        told.append(f"  {pool.name}: {count(len(pool.nodes), 'node')}, {pool.hardware}, {pool.persona}{has_own}")
    told += _twins(draft)
    told += [f"  {node} is left alone (state: quarantined): {why}" for node, why in draft.parked.items()]
    told += [f"  {node} is not in it: {why}" for node, why in draft.unread.items()]
    return told


def _twins(draft: Draft) -> Iterator[str]:
    """Yield the nodes that would be waived with other parts than their like: only people can tell which are right."""
    for at, profile in enumerate(draft.hardware):
        found = twin(draft, profile)
        if found is None or found[0] not in draft.hardware[:at]:
            continue
        nodes = [
            node
            for pool in draft.pools
            for node in pool.nodes
            if node not in draft.parked and draft.own.get(node, {}).get("hardware", pool.hardware) == profile.name
        ]
        yield f"  {fold(nodes)}: hardware {profile.name} is like {found[0].name}, but for {found[1]}; is that right?"
