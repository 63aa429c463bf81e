"""The groups of equal nodes: profiles, personas and pools, and what single nodes have otherwise.

What most of a kind have stands in what they share; the others say what they have. What has no place on a node is not
managed, and the files tell so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reconciler.model.observed import Taint
from reconciler.model.units import parse_size
from reconciler.render.draft.survey import PLAIN, Firmware, Found
from reconciler.render.text import count

_FEW: Final = 5  # values of a label that tells what nodes are for
_TOPOLOGY: Final = re.compile(r"topology|rack|zone|region|host|name|id$|serial", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """A node as the CSV file names it."""

    name: str
    bmc: str | None
    host: str | None
    pool: str
    domains: Mapping[str, str]


@dataclass(slots=True)
class Hardware:
    """A HardwareProfile."""

    name: str
    match: Mapping[str, str]
    inventory: Mapping[str, Any]
    firmware: Mapping[str, Firmware]
    bios: Mapping[str, Any]
    secure_boot: bool | None
    boot_order: tuple[str, ...] | None
    left_out: list[str]  # sentences about what differs, or is not managed


@dataclass(slots=True)
class Role:
    """A Persona."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    mig: str | None
    sysctls: Mapping[str, str]
    services: Mapping[str, str]


@dataclass(slots=True)
class Pool:
    name: str
    hardware: str
    persona: str
    nodes: list[str]
    images: Mapping[str, int]  # what their markers say -> on how many


@dataclass(slots=True)
class Draft:
    """`own`: node -> settings of its entry, as YAML has them. `parked`: nodes that nothing is done to, and why."""

    fleet: str
    rows: Mapping[str, Row]
    hardware: list[Hardware] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    serials: dict[str, str] = field(default_factory=dict)
    from_name: bool = False
    parked: dict[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)  # node -> why it is not in the spec


def draft(
    fleet: str, rows: Mapping[str, Row], nodes: Sequence[Found], unread: Mapping[str, str], parked: Mapping[str, str]
) -> Draft:
    """Group nodes into a draft of a spec. Nodes that are `parked` are no example for others."""
    made = Draft(fleet, rows, unread=unread, parked=dict(parked))
    made.serials = {one.node: one.serial for one in nodes if one.serial}
    sound = [one for one in nodes if one.node not in parked]
    hardware: dict[str, str] = {}
    for group in _machines([one for one in nodes if one.node not in parked]):
        profile = _hardware(made, group)
        hardware |= {one.node: profile.name for one in group}
    telling = _telling(sound)
    roles: dict[str, str] = {}
    for group in _grouped(sound, lambda one: (one.mig, one.taints, *(one.labels.get(key) for key in telling))):
        role = _role(made, group, telling)
        roles |= {one.node: role.name for one in group}
    for one in nodes:
        if one.node in parked:
            hardware[one.node] = _resembling(made.hardware, sound, one, hardware, lambda n: (*n.machine.values(),))
            roles[one.node] = _resembling(made.roles, sound, one, roles, lambda n: tuple(map(n.labels.get, telling)))
    _pools(made, nodes, hardware, roles)
    _hostnames(made, sound)
    return made


def twin(made: Draft, profile: Hardware) -> tuple[Hardware, str] | None:
    """Another profile of the same make, and what is otherwise there."""
    other = next((one for one in made.hardware if one is not profile and one.match == profile.match), None)
    if other is None:
        return None
    odd = [
        part
        for part in sorted({*profile.inventory, *other.inventory})
        if profile.inventory.get(part) != other.inventory.get(part)
    ]
    told = (f"{p} {profile.inventory.get(p, 'unknown')} (there {other.inventory.get(p, 'unknown')})" for p in odd)
    return other, ", ".join(told)


def _resembling(
    known: Sequence[Hardware] | Sequence[Role],
    sound: Sequence[Found],
    one: Found,
    chosen: Mapping[str, str],
    key: Callable[[Found], Hashable],
) -> str:
    """Return the values that most nodes like this one have; otherwise the most common ones."""
    alike = [chosen[other.node] for other in sound if key(other) == key(one)]
    return str(_most(alike)) if alike else known[0].name


def _machines(nodes: Sequence[Found]) -> list[list[Found]]:
    """Group machines of one make with the same parts, as far as these are known: in MIG mode GPUs report no NVLinks."""
    groups: list[list[Found]] = []
    for alike in _grouped(nodes, lambda one: (*one.machine.items(), *one.has.items())):
        one = alike[0]
        for group in groups:
            first = group[0]
            shared = one.has.keys() & first.has.keys()
            if first.machine == one.machine and all(one.has[part] == first.has[part] for part in shared):
                group += alike
                break
        else:
            groups.append(list(alike))
    return groups


def lacking(nodes: Sequence[Found]) -> dict[str, str]:
    """Nodes that have fewer parts than most others of their make, and more of none, and what others have.

    What is missing is to be repaired: nobody waives the test of such a node, and no profile is made after it.
    """
    groups = sorted(_machines(nodes), key=lambda group: -len(group))
    found: dict[str, str] = {}
    for at, group in enumerate(groups):
        for usual in groups[:at]:
            if len(usual) > len(group) and (told := _fewer(group, usual)):
                others = count(len(usual), "other")
                found |= dict.fromkeys((one.node for one in group), f"{others} of its model have {told}")
                break
    return found


def _fewer(group: Sequence[Found], usual: Sequence[Found]) -> str:
    """Name the parts of one machine that are fewer than those of the other; "" when they differ in another way."""
    if not group[0].machine or group[0].machine != usual[0].machine:
        return ""
    has, there = ({part: value for one in nodes for part, value in one.has.items()} for nodes in (group, usual))
    odd = [part for part in there if part in has and has[part] != there[part]]
    if "gpuModel" in odd or any(_amount(has[part]) > _amount(there[part]) for part in odd):
        return ""
    return ", ".join(f"{part} {there[part]} (here {has[part]})" for part in odd)


def _amount(said: int | str) -> int:
    return said if isinstance(said, int) else parse_size(said)


def _grouped(nodes: Iterable[Found], key: Callable[[Found], Hashable]) -> list[list[Found]]:
    """Largest first."""
    groups: dict[Hashable, list[Found]] = {}
    for one in nodes:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.values(), key=lambda group: -len(group))


def _most(values: Iterable[Any]) -> Any:
    return Counter(values).most_common(1)[0][0]


def _own(made: Draft, node: str) -> dict[str, Any]:
    return made.own.setdefault(node, {})


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "nodes"


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with a number where there is one already."""
    known = set(taken)
    return next(n for n in (name, *(f"{name}-{at}" for at in range(2, len(known) + 3))) if n not in known)


# --- hardware ------------------------------------------------------------------------------------------------------


def _hardware(made: Draft, group: Sequence[Found]) -> Hardware:
    first = group[0]
    name = _free(
        _slug(first.machine.get("model") or first.has.get("gpuModel") or "machine"), (h.name for h in made.hardware)
    )
    left_out: list[str] = []
    firmware = _shared_firmware(made, group, left_out)
    others = sorted({one for node in group for one in node.others})
    if others:
        shown = ", ".join(others[:8]) + (f" and {len(others) - 8} more" if len(others) > 8 else "")
        left_out.append(f"firmware not managed: {shown}")
    profile = Hardware(
        name=name,
        match=first.machine,
        inventory=_inventory(group),
        firmware=firmware,
        bios=_shared(made, group, lambda one: one.bios, ("bios", "attributes")),
        secure_boot=_alike(group, lambda one: one.secure_boot, "secureBoot", left_out),
        boot_order=_alike(group, lambda one: one.boot_order, "bootOrder", left_out),
        left_out=left_out,
    )
    made.hardware.append(profile)
    return profile


def _inventory(group: Sequence[Found]) -> dict[str, Any]:
    """Parts that all tell of; NVLinks also where some do."""
    parts = {part: value for one in group for part, value in one.has.items()}
    order = max((list(one.has) for one in group), key=len)
    return {part: parts[part] for part in order if part == "nvlinksPerGpu" or all(part in one.has for one in group)}


def _shared_firmware(made: Draft, group: Sequence[Found], left_out: list[str]) -> dict[str, Firmware]:
    """Components that all have, in the version that most have."""
    shared: dict[str, Firmware] = {}
    for name in sorted({name for one in group for name in one.firmware}):
        if not all(name in one.firmware for one in group):
            left_out.append(f"firmware {name}: not all of these nodes report it")
            continue
        usual = _most(one.firmware[name] for one in group)
        shared[name] = usual
        for one in group:
            version = one.firmware[name].version
            if version != usual.version:
                _own(made, one.node).setdefault("firmware", []).append({"component": name, "version": version})
    return dict(sorted(shared.items(), key=lambda item: ("bmc", "bios", "nic").index(item[1].kind)))


def _alike(group: Sequence[Found], read: Callable[[Found], Any], what: str, left_out: list[str]) -> Any:
    """Manage a value that has no place on a single node, where all nodes have the same."""
    values = Counter(read(one) for one in group)
    if len(values) == 1:
        return read(group[0])
    told = "; ".join(f"{_words(value)} on {nodes}" for value, nodes in values.most_common())
    odd = [one.node for one in group if read(one) != values.most_common(1)[0][0]]
    shown = ", ".join(odd[:6]) + (f" and {len(odd) - 6} more" if len(odd) > 6 else "")
    left_out.append(f"{what} is not managed, for nodes differ ({told}; odd ones: {shown})")
    return None


def _words(value: Any) -> str:
    return (
        "unknown" if value is None else "[" + ", ".join(value) + "]" if isinstance(value, tuple) else str(value).lower()
    )


def _shared(
    made: Draft, group: Sequence[Found], read: Callable[[Found], Mapping[str, Any]], steps: tuple[str, ...]
) -> dict[str, Any]:
    """Values that all have some of, as most have them; the others say theirs at `steps` of their entry."""
    shared = {}
    for name in sorted({name for one in group for name in read(one)}):
        if not all(name in read(one) for one in group):
            continue
        shared[name] = _most(read(one)[name] for one in group)
        for one in group:
            if read(one)[name] != shared[name]:
                place = _own(made, one.node)
                for step in steps:
                    place = place.setdefault(step, {})
                place[name] = read(one)[name]
    return shared


# --- personas ------------------------------------------------------------------------------------------------------


def _telling(nodes: Sequence[Found]) -> list[str]:
    """Return labels that say what nodes are for: few values, each on several nodes, and not about their location."""
    chosen = []
    for key in sorted({key for one in nodes for key in one.labels}):
        values = Counter(one.labels.get(key) for one in nodes)
        if 1 < len(values) <= _FEW and min(values.values()) > 1 and not _TOPOLOGY.search(key):
            chosen.append(key)
    return chosen[:1]


def _role(made: Draft, group: Sequence[Found], telling: Sequence[str]) -> Role:
    first = group[0]
    said = next((first.labels[key] for key in telling if first.labels.get(key)), "")
    labels = {key: value for key, value in first.labels.items() if all(one.labels.get(key) == value for one in group)}
    usual = said or next((value for key, value in labels.items() if not _TOPOLOGY.search(key)), "")
    plain = "gpu" if any(one.has.get("gpus") for one in group) else "cpu"
    name = _slug(usual or (plain if first.mig in (None, PLAIN) else f"mig-{first.mig}"))
    services = _shared(made, _running(group), lambda one: one.services, ("services",))
    role = Role(
        name=_free(name, (role.name for role in made.roles)),
        labels={key: value for key, value in labels.items() if not _TOPOLOGY.search(key)},
        taints=first.taints,
        mig=first.mig,
        sysctls=_shared(made, group, lambda one: one.sysctls, ("sysctls",)),
        services=services,
    )
    made.roles.append(role)
    return role


def _running(group: Sequence[Found]) -> list[Found]:
    """Keep the services that run on most of the nodes. Nobody manages one that nobody started."""
    names = {name for one in group for name in one.services}
    usual = {name for name in names if _most(one.services.get(name, "stopped") for one in group) == "running"}
    return [replace(one, services={name: one.services[name] for name in one.services.keys() & usual}) for one in group]


# --- pools ---------------------------------------------------------------------------------------------------------


def _pools(made: Draft, nodes: Sequence[Found], hardware: Mapping[str, str], roles: Mapping[str, str]) -> None:
    """Return the pools of the CSV file; otherwise one for each persona on each kind of machine."""
    several = len(made.hardware) > 1
    groups: dict[str, list[Found]] = {}
    for one in nodes:
        kind = f"{roles[one.node]}-{hardware[one.node]}" if several else roles[one.node]
        groups.setdefault(made.rows[one.node].pool or kind, []).append(one)
    for name, group in sorted(groups.items()):
        pool = Pool(
            name=name,
            hardware=_most(hardware[one.node] for one in group),
            persona=_most(roles[one.node] for one in group),
            nodes=[one.node for one in group],
            images=dict(Counter(one.image for one in group if one.image).most_common()),
        )
        made.pools.append(pool)
        for one in group:
            for key, chosen, usual in (
                ("hardware", hardware[one.node], pool.hardware),
                ("persona", roles[one.node], pool.persona),
            ):
                if chosen != usual:
                    _own(made, one.node)[key] = chosen


def _hostnames(made: Draft, nodes: Sequence[Found]) -> None:
    """Hosts are named after their nodes where most are."""
    same = [one for one in nodes if one.hostname == one.node]
    made.from_name = len(same) * 2 > len(nodes) and all(one.hostname is not None for one in nodes)
    for one in nodes:
        if made.from_name and one.hostname != one.node:
            _own(made, one.node)["hostname"] = one.hostname
