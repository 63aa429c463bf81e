"""What nodes have in the words of a spec, and the proof that a changed spec asks for just that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.diff.compare import Comparer
from reconciler.diff.facts import managed, read_taint
from reconciler.diff.gpus import read_layout
from reconciler.diff.ignore import IgnoreRules
from reconciler.diff.readings import ABSENT, Missing, host, hot
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import Observed, Silent
from reconciler.model.records import NodeRecord
from reconciler.model.units import format_size
from reconciler.model.vocab import Concern

IMAGE: Final = "image"  # name and version, which are adopted together
_NEVER: Final[Mapping[str, str]] = {
    "trust": "trust is proved, not declared: put right what it rests on, the image, the firmware or secure boot",
    "gate": "a node is proved fit by its tests; `reconciler ledger waive` is for nodes that served before",
    "health": "a fault is repaired; one that is none is told by an ignore rule of the Fleet",
    "image.sha256": "what runs is not what was signed: reimage the node, or publish what it runs as a version",
    "image.root_disk": "it runs from another disk than the one that was installed: somebody must look",
    "image.nonce": "it does not run what was installed last: somebody must look",
    "image.kernel": "it is not what the image holds: reimage the node, or publish what it runs as a version",
    "image.driver": "it is not what the image holds: reimage the node, or publish what it runs as a version",
    "cluster.member": "a node that is not Ready is repaired, or its state set to quarantined or retired",
}


_COMPARED_APART: Final = frozenset({"profile", "provenance", "serial", "uuid", "hostname"})  # compared by themselves


class NotAdoptable(Exception):
    """Why a value is not adopted, and what to do."""


def check_path(path: str) -> None:
    """NotAdoptable for what no observation can change."""
    reason = _NEVER.get(path) or _NEVER.get(path.partition(".")[0])
    if reason is not None:
        raise NotAdoptable(f"{path} is never adopted: {reason}")


def adoptable(item: DriftItem, desired: Desired, seen: Observed, images: Mapping[tuple[str, str], str]) -> Any:
    """The value to write: for image.name and image.version, both. `images`: digests of the versions declared.

    None: the spec stops asking for it. NotAdoptable otherwise.
    """
    if item.kind is DriftClass.UNKNOWN:
        raise NotAdoptable(f"{item.path} could not be read ({item.detail}): what is not known is not adopted")
    check_path(item.path)
    if item.kind is DriftClass.IGNORED:
        raise NotAdoptable(f"{item.path} is ignored by a rule of the Fleet ({item.detail}), so nothing is to be done")
    if item.kind is DriftClass.IN_PROGRESS:
        raise NotAdoptable(f"{item.path} is about to change ({item.detail}): adopt it when that has happened")
    if item.path == "boot.secure_boot" and item.desired is True:
        raise NotAdoptable(
            "boot.secure_boot is off, and trust in what boots rests on it: switch it on, or take secureBoot out of the "
            "spec by hand"
        )
    concern, _, rest = item.path.partition(".")
    if item.concern is Concern.IMAGE:
        return _image(seen, images)
    if item.concern is Concern.IDENTITY:
        return _identity(rest, seen)
    special: dict[str, Callable[[], Any]] = {
        "firmware": lambda: _firmware(rest, desired, seen),
        "hardware": lambda: _hardware(rest, item, seen),
        "gpu": lambda: _mig(item.observed),
    }
    if concern in special:
        return special[concern]()
    if item.path.startswith("cluster.taints."):
        return _taint(item)
    if item.observed == ABSENT:
        return None
    if item.observed in ([], "") or item.observed is None:
        raise NotAdoptable(f"{item.path} is empty on the node, and a spec can't ask for that")
    return item.observed


def _image(seen: Observed, images: Mapping[tuple[str, str], str]) -> Mapping[str, str]:
    facts = host(seen)
    image = None if isinstance(facts, Missing) else facts.image
    if image is None or image.image is None or image.version is None:
        raise NotAdoptable("the node does not say which image it runs (/etc/reconciler/image.json)")
    name = f"image {image.image} {image.version}"
    declared = images.get((image.image, image.version))
    if declared is None:
        raise NotAdoptable(
            f"no GoldenImage of the spec has {name}: declare that version first, with url, sha256 and signature"
        )
    if image.sha256 != declared:
        raise NotAdoptable(
            f"{name} runs with digest {image.sha256 or 'none'}, and the spec declares {declared}: an image that is not "
            "what it claims to be is never adopted; reimage the node"
        )
    return {"name": image.image, "version": image.version}


def _identity(part: str, seen: Observed) -> str:
    """What the BMC says, unless the host says something else."""
    system, facts = hot(seen), host(seen)
    value = None if isinstance(system, Missing) else getattr(system, part)
    witness = None if isinstance(facts, Missing) else getattr(facts, part)
    if value is None:
        raise NotAdoptable(f"identity.{part} is not known")
    if witness is None or not normalise.same(value, witness):
        said = "does not answer" if witness is None else f"says {witness}"
        raise NotAdoptable(
            f"identity.{part}: the BMC says {value}, and the host {said}: find out which machine this is first"
        )
    return str(value)


def _firmware(component: str, desired: Desired, seen: Observed) -> str:
    item = next(one for one in desired.profile.firmware if one.component == component)
    assert not isinstance(seen.inventory, Silent)
    assert seen.inventory.value.firmware is not None
    return seen.inventory.value.firmware[item.inventory_id].version.strip()


def _hardware(field: str, item: DriftItem, seen: Observed) -> str | int:
    """What the gate must find is never lowered: a part that is missing is repaired (DESIGN 7.4)."""
    if isinstance(item.desired, int) and item.observed < item.desired:
        raise NotAdoptable(
            f"{item.path} is less than the spec asks for: repair the node, or lower it by hand if it is built so"
        )
    if field in ("manufacturer", "model"):
        system = hot(seen)
        return str(item.observed if isinstance(system, Missing) else getattr(system, field))
    if field == "memory_bytes":
        return format_size(item.observed)
    if field == "gpu_model":
        facts = host(seen)
        names = set() if isinstance(facts, Missing) else {gpu.name for gpu in facts.gpus or () if gpu.name}
        if len(names) != 1:
            raise NotAdoptable("hardware.gpu_model: the GPUs of the node differ, and a profile can't ask for that")
        return str(names.pop())
    return int(item.observed)


def _mig(said: str) -> str | Mapping[str, int]:
    if said == "off":
        return "disabled"
    found = read_layout(said)
    if not found:
        raise NotAdoptable(f"gpu.mig is {said}, and a persona asks for one layout on every GPU")
    return found


def _taint(item: DriftItem) -> Mapping[str, str]:
    if item.observed == ABSENT:
        raise NotAdoptable(f"{item.path} is absent from the node: take the taint out of the persona by hand")
    return read_taint(item.observed)


# --- the proof -----------------------------------------------------------------------------------------------------


def objections(
    before: Fleet,
    after: Fleet,
    seen: Mapping[str, Observed],
    adopted: Mapping[str, Collection[str]],
    rules: IgnoreRules,
) -> Iterator[str]:
    """What speaks against the changed spec. Nothing: the drift at the adopted paths is gone and nothing else changed.

    `adopted`: node -> paths, with `image` for all that an image brings along.
    """
    if _fleetwide(before) != _fleetwide(after):
        yield "something that is for the whole fleet would change"
    if before.nodes.keys() != after.nodes.keys():
        yield "nodes would come or go"
        return
    for name, old in before.nodes.items():
        new, paths = after.nodes[name], adopted.get(name, ())
        if not paths:
            if _values(old) != _values(new):
                yield f"{name} would be wanted otherwise, too"
            continue
        told = [path for path in _changed(old, new) if not _covered(path, paths)]
        if told:
            yield f"{name}: {', '.join(told)} would change, too"
        yield from _drift_left(old, new, seen[name], paths, rules)


def _drift_left(
    old: Desired, new: Desired, seen: Observed, paths: Collection[str], rules: IgnoreRules
) -> Iterator[str]:
    record = NodeRecord(old.node)
    items = [{item.path: item for item in Comparer(rules).compare(one, seen, record)} for one in (old, new)]
    left = [path for path in items[1] if _covered(path, paths) or path not in items[0]]
    if left:
        yield f"{old.node}: {', '.join(left)} would still not be as the node has it"


def _covered(path: str, paths: Collection[str]) -> bool:
    return path in paths or (IMAGE in paths and path.startswith("image."))


def _fleetwide(fleet: Fleet) -> Any:
    holds = [replace(hold, position="") for hold in fleet.holds]
    return replace(fleet.settings, insecure=()), fleet.rollouts, holds


def _values(node: Desired) -> Any:
    """All that is wanted of it, wherever that is said."""
    return replace(node, provenance={}, profile=replace(node.profile, provenance={}))


def _changed(old: Desired, new: Desired) -> list[str]:
    """Paths at which the two differ."""
    tables = [{row.path: row.wanted for row in managed(one.profile)} for one in (old, new)]
    tables[0] |= _rest(old)
    tables[1] |= _rest(new)
    return sorted(path for path in tables[0].keys() | tables[1].keys() if tables[0].get(path) != tables[1].get(path))


def _rest(node: Desired) -> dict[str, Any]:
    """What the diff does not compare, by something like a path."""
    profile = node.profile
    firmware = {f"firmware.{item.component}.rest": replace(item, version="") for item in profile.firmware}
    own = {field.name: getattr(node, field.name) for field in fields(node) if field.name not in _COMPARED_APART}
    return {
        **firmware,
        "node": own,
        "policies": (profile.drain, profile.acceptance, profile.remediation),
        "image.rest": profile.image,
        "identity.serial": node.serial,
        "identity.uuid": node.uuid,
        "host.hostname": node.hostname,
    }
