"""The files of a drafted spec, as a person would write them: with comments that say what to raise next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.render.draft.kinds import Draft, Hardware, Pool, Role
from reconciler.render.draft.survey import PLAIN
from reconciler.render.text import count, plain
from reconciler.spec.edit.yaml_text import inline, scalar
from reconciler.spec.ranges import contract

_API: Final = "apiVersion: reconciler.dev/v1alpha1"
_MANY: Final = 12  # nodes that are no ranges: more of them stand in a CSV file


@dataclass(frozen=True, slots=True)
class Access:
    """How the fleet is reached. Files are texts to be put into the spec; None: not verified, and said so."""

    ssh_user: str
    bmc: bool
    ssh: bool
    bmc_ca: str | None
    host_ca: str | None
    cluster: str | None
    context: str | None


def files(draft: Draft, access: Access) -> dict[str, str]:
    """By path below the spec's directory."""
    made = {
        "fleet.yaml": _fleet(draft, access),
        "hardware.yaml": _head("hardware-profile") + _documents(_hardware(one, draft) for one in draft.hardware),
        "personas.yaml": _head("persona") + _documents(_role(one, access) for one in draft.roles),
        "acceptance.yaml": _head("acceptance-profile") + "\n".join(_acceptance(draft)) + "\n",
    }
    if access.cluster is not None:
        made["cluster.yaml"] = _head("cluster") + "\n".join(_cluster(access)) + "\n"
    public = {"pki/bmc-ca.pem": access.bmc_ca, "pki/ssh-host-ca.pub": access.host_ca}
    made |= {name: text for name, text in public.items() if text is not None}
    for pool in draft.pools:
        lines, table = _pool(pool, draft)
        made[f"pools/{pool.name}.yaml"] = _head("node-pool", 2) + "\n".join(lines) + "\n"
        if table:
            made[f"pools/{pool.name}.csv"] = table
    return made


def _head(schema: str, depth: int = 1) -> str:
    """For editors. The schemas stand beside the spec's directory."""
    return f"# yaml-language-server: $schema={'../' * depth}schemas/{schema}.json\n"


def _documents(parts: Iterator[list[str]]) -> str:
    return "---\n".join("\n".join(part) + "\n" for part in parts)


def _resource(kind: str, name: str) -> list[str]:
    return [_API, f"kind: {kind}", f"metadata: {{name: {scalar(name, flow=True)}}}", "spec:"]


def _comment(text: str, indent: int = 0) -> list[str]:
    """Lines of a comment. Machines have a say in it."""
    lines = textwrap.wrap(plain(text, 1000), 116 - indent, break_long_words=False, break_on_hyphens=False)
    return [" " * indent + f"# {line}" for line in lines]


# --- fleet and cluster ---------------------------------------------------------------------------------------------


def _fleet(draft: Draft, access: Access) -> str:
    lines = [
        *_comment(
            "Written by `reconciler init` from what the nodes were. It asks for nothing else, so that plans are empty "
            "until somebody changes a line. All of it may be edited."
        ),
        *_resource("Fleet", draft.fleet),
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
    lines += [
        "  # Without a RemediationPolicy a node that falls ill is reported, and isolated by the next apply. Next: name",
        "  # one here that says what is tried first, such as a restart.",
    ]
    if draft.from_name:
        lines += ["  defaults:", "    # remediation: standard", "    host: {hostname: fromName}"]
    else:
        lines += ["  # defaults:", "  #   remediation: standard", "  #   host: {hostname: fromName}"]
    if draft.unread:
        lines.append("# Could not be read, and so are in no pool yet:")
        lines += [line for name, why in draft.unread.items() for line in _comment(f"  {name}: {why}")]
    return _head("fleet") + "\n".join(lines) + "\n"


def _cluster(access: Access) -> Iterator[str]:
    yield from _resource("Cluster", str(access.cluster))
    yield "  type: kubernetes"
    yield "  kubeconfig: kubeconfig # a name; what it stands for is outside the repository"
    if access.context:
        yield f"  context: {scalar(access.context, flow=False)}"
    yield "  # join: {command: [systemctl, enable, --now, kubelet]} # next: how a host joins after an install"


# --- hardware ------------------------------------------------------------------------------------------------------


def _hardware(profile: Hardware, draft: Draft) -> list[str]:
    lines = _resource("HardwareProfile", profile.name)
    twin = next((one for one in draft.hardware if one is not profile and one.match == profile.match), None)
    if twin is not None:
        parts = {*profile.inventory, *twin.inventory}
        odd = [p for p in sorted(parts) if profile.inventory.get(p) != twin.inventory.get(p)]
        told = ", ".join(
            f"{p} {profile.inventory.get(p, 'unknown')} (there {twin.inventory.get(p, 'unknown')})" for p in odd
        )
        lines = [
            *_comment(f"Like {twin.name}, but for {told}. If a part is missing here, use that profile and repair."),
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
    return [*lines, *(line for sentence in profile.left_out for line in _comment(sentence, 2))]


def _quoted(text: str) -> str:
    """Versions look like numbers too often."""
    return scalar(text, flow=True, style='"')


# --- personas ------------------------------------------------------------------------------------------------------


def _role(role: Role, access: Access) -> list[str]:
    lines = _resource("Persona", role.name)
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
    yield from _comment(
        "What a node passes before it is let back into service, once it was taken out. Nodes that served when this was "
        "written were vouched for, and not tested: their certificates are marked `adopted` in the ledger. They lose "
        "them when their hardware, firmware, BIOS, image or these tests change."
    )
    yield from _resource("AcceptanceProfile", "standard")
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
            "        - name: nccl",
            "          tool: nccl-tests",
            "          args: {collective: all_reduce, minBytes: 8G, maxBytes: 16G}",
            "          timeout: 10m",
            "          # next: measure, then set a bar:",
            "          # thresholds: [{metric: busbw_peak, min: 440}]",
        )
    else:
        yield "    # next: a phase with dcgmi-diag, nccl-tests, nvbandwidth or fio"


# --- pools ---------------------------------------------------------------------------------------------------------


def _pool(pool: Pool, draft: Draft) -> tuple[list[str], str]:
    """The document, and the CSV file beside it; "" for none."""
    lines = _resource("NodePool", pool.name)
    lines += _image(pool)
    lines += [f"  hardware: {pool.hardware}", f"  persona: {pool.persona}"]
    lines.append("  # rollout: {waves: [1, 10%, 50%, 100%], bake: 10m} # how a change spreads; these are the defaults")
    runs = _runs(pool, draft)
    singles = [run for run in runs if len(run) == 1 and not _settings(draft, run[0])]
    table = ""
    if len(singles) > _MANY:
        table = _table([run[0] for run in singles], draft)
        runs = [run for run in runs if run not in singles]
        lines.append(f"  inventory: pools/{pool.name}.csv")
    if runs:
        lines.append("  nodes:")
    if any(_settings(draft, run[0]) and run[0] not in draft.parked for run in runs):
        lines += _comment(
            "Some have settings of their own: what others do not have. Take such a line out, and plans put it right.", 4
        )
    for run in runs:
        lines += _entry(run, draft)
    return lines, table


def _image(pool: Pool) -> Iterator[str]:
    if pool.images:
        yield "  # The image is not managed. These nodes run:"
        for image, nodes in pool.images.items():
            yield plain(f"  #   {image}, on {count(nodes, 'node')}", 200)
        what = "To pin one"
    else:
        yield "  # The image is not managed, and no /etc/reconciler/image.json says what these nodes run."
        what = "To install one"
    yield from _comment(
        f"{what}, declare it as a GoldenImage with url, sha256 and signature, and name it here: "
        "image: {name: ..., version: ...}",
        2,
    )


def _settings(draft: Draft, node: str) -> dict[str, Any]:
    parked = {"state": "quarantined"} if node in draft.parked else {}
    return {**parked, **({} if parked else draft.own.get(node, {}))}


def _runs(pool: Pool, draft: Draft) -> list[list[str]]:
    """Nodes that one entry can name: in a row, alike, and with addresses in a row."""
    runs: list[list[str]] = []
    for node in sorted(pool.nodes, key=_natural):
        last = runs[-1] if runs else None
        # Of a long run its ends tell nearly all, and the whole of it is tried once.
        if last and _fits(draft, [last[0], *last[1:][-1:], node]):
            last.append(node)
        else:
            runs.append([node])
    return [part for run in runs for part in ([run] if _fits(draft, run) else [[node] for node in run])]


def _natural(name: str) -> list[tuple[int, int | str]]:
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", name) if part]


def _fits(draft: Draft, nodes: Sequence[str]) -> bool:
    """Whether one entry can name them: the first, and the last two at least follow each other."""
    if len(nodes) == 1:
        return True
    first = draft.rows[nodes[0]].domains, _settings(draft, nodes[0])
    if any((draft.rows[node].domains, _settings(draft, node)) != first or node in draft.parked for node in nodes):
        return False
    columns = _columns(draft, nodes).values()
    return all(values == [None] * len(nodes) or _in_a_row(values) for values in columns)


def _columns(draft: Draft, nodes: Sequence[str]) -> dict[str, list[str | None]]:
    rows = [draft.rows[node] for node in nodes]
    return {
        "name": list(nodes),
        "bmc": [row.bmc for row in rows],
        "host": [row.host for row in rows],
        "serial": [draft.serials.get(node) for node in nodes],
    }


def _in_a_row(values: Sequence[str | None]) -> bool:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or len(set(known)) < len(known):
        return False
    try:
        contract(known)
        return "," not in contract(known[-2:])
    except ValueError:
        return False


def _entry(run: Sequence[str], draft: Draft) -> Iterator[str]:
    why = draft.parked.get(run[0])
    if why is not None:
        yield from _comment(f"left alone: {why.rstrip('.?')}. Put it right, then take `state` out", 4)
    given = {key: [v for v in values if v is not None] for key, values in _columns(draft, run).items()}
    values: dict[str, Any] = {key: contract(texts) for key, texts in given.items() if texts}
    if draft.rows[run[0]].domains:
        values["domains"] = dict(draft.rows[run[0]].domains)
    values |= _settings(draft, run[0])
    if len(run) == 1 and len(line := f"    - {inline(values)}") <= 118:
        yield line
        return
    for at, (key, value) in enumerate(values.items()):
        yield f"    {'-' if at == 0 else ' '} {key}: {inline(value)}"


def _table(nodes: Sequence[str], draft: Draft) -> str:
    labels = sorted({label for node in nodes for label in draft.rows[node].domains})
    lines = [",".join(("name", "bmc", "host", "serial", *(f"domains.{label}" for label in labels)))]
    for node in nodes:
        row = draft.rows[node]
        cells = [node, row.bmc, row.host, draft.serials.get(node), *(row.domains.get(label) for label in labels)]
        lines.append(",".join(_cell(cell or "") for cell in cells))
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[",]', text) else text


def summary(draft: Draft) -> list[str]:
    """What is in it, in words."""
    shared = f"{count(len(draft.hardware), 'hardware profile')}, {count(len(draft.roles), 'persona')}"
    told = [
        f"{count(sum(len(pool.nodes) for pool in draft.pools), 'node')} in {count(len(draft.pools), 'pool')}; {shared}"
    ]
    for pool in draft.pools:
        odd = [node for node in pool.nodes if draft.own.get(node) and node not in draft.parked]
        has_own = f"; {count(len(odd), 'node')} with settings of their own" if odd else ""
        told.append(f"  {pool.name}: {count(len(pool.nodes), 'node')}, {pool.hardware}, {pool.persona}{has_own}")
    told += [f"  {node} is left alone (state: quarantined): {why}" for node, why in draft.parked.items()]
    told += [f"  {node} is not in it: {why}" for node, why in draft.unread.items()]
    return told
