"""Express what nodes have as values of a spec, and check that a changed spec asks for exactly that."""

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
    "trust": "trust must be proved, not declared: correct the image, the firmware or secure boot",
    "gate": "a node must pass its tests; `reconciler ledger waive` is for nodes that served before",
    "installed": "a new install brings what the spec declares; write what it should declare instead",
    "health": "a fault must be repaired; if it is none, ignore it by a rule of the Fleet",
    "image.sha256": "the node does not run the signed image: reimage it, or publish what it runs as a version",
    "image.root_disk": "the node runs from another disk than the installed one: inspect it",
    "image.nonce": "the node does not run the image that was installed last: inspect it",
    "image.kernel": "the image contains another kernel: reimage the node, or publish what it runs as a version",
    "image.driver": "the image contains another driver: reimage the node, or publish what it runs as a version",
    "cluster.member": "a node that is not Ready must be repaired, or its state set to quarantined or retired",
}


_COMPARED_APART: Final = frozenset({"profile", "provenance", "serial", "uuid", "hostname"})  # compared by themselves


class NotAdoptable(Exception):
    """A value can't be adopted. The message says why, and what to do."""


def check_path(path: str) -> None:
    """Raise NotAdoptable for a path whose desired value never follows an observation."""
    reason = _NEVER.get(path) or _NEVER.get(path.partition(".")[0])
    if reason is not None:
        raise NotAdoptable(f"{path} is never adopted: {reason}")


def adoptable(item: DriftItem, desired: Desired, seen: Observed, images: Mapping[tuple[str, str], str]) -> Any:
    """Return the value to write into the spec; None when the spec is to stop asking for the path.

    For image.name and image.version the value has both. `images` has the digests of the declared versions, by name and
    version. Raise NotAdoptable when the value must not be adopted.
    """
    if item.kind is DriftClass.UNKNOWN:
        raise NotAdoptable(f"{item.path} could not be read ({item.detail}): an unknown value can't be adopted")
    check_path(item.path)
    if item.kind is DriftClass.IGNORED:
        raise NotAdoptable(f"a rule of the Fleet ignores {item.path} ({item.detail}), so there is nothing to adopt")
    if item.kind is DriftClass.IN_PROGRESS:
        raise NotAdoptable(f"{item.path} is about to change ({item.detail}): adopt it when it has changed")
    if item.path == "boot.secure_boot" and item.desired is True:
        raise NotAdoptable(
            "boot.secure_boot is off, and trust in the boot depends on it: switch it on, or remove secureBoot from the "
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
            f"{name} runs with digest {image.sha256 or 'none'}, and the spec declares {declared}: an image with "
            "another digest is never adopted; reimage the node"
        )
    return {"name": image.image, "version": image.version}


def _identity(part: str, seen: Observed) -> str:
    """Return the identity that the BMC and the host agree on. Raise NotAdoptable when they don't."""
    system, facts = hot(seen), host(seen)
    value = None if isinstance(system, Missing) else getattr(system, part)
    of_host = None if isinstance(facts, Missing) else getattr(facts, part)
    if value is None:
        raise NotAdoptable(f"identity.{part} is not known")
    if of_host is None or not normalise.same(value, of_host):
        answer = "does not answer" if of_host is None else f"says {of_host}"
        raise NotAdoptable(
            f"identity.{part}: the BMC says {value}, and the host {answer}: find out which machine this is first"
        )
    return str(value)


def _firmware(component: str, desired: Desired, seen: Observed) -> str:
    item = next(one for one in desired.profile.firmware if one.component == component)
    assert not isinstance(seen.inventory, Silent)
    assert seen.inventory.value.firmware is not None
    return seen.inventory.value.firmware[item.inventory_id].version.strip()


def _hardware(field: str, item: DriftItem, seen: Observed) -> str | int:
    """Return a value of the inventory. Raise NotAdoptable for fewer parts: a missing one is repaired (DESIGN 7.4)."""
    if isinstance(item.desired, int) and item.observed < item.desired:
        raise NotAdoptable(
            f"{item.path} is less than the spec asks for: repair the node, or edit the spec by hand if it is built so"
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


def _mig(text: str) -> str | Mapping[str, int]:
    if text == "off":
        return "disabled"
    found = read_layout(text)
    if not found:
        raise NotAdoptable(f"gpu.mig is {text}, and a persona asks for one layout on every GPU")
    return found


def _taint(item: DriftItem) -> Mapping[str, str]:
    if item.observed == ABSENT:
        raise NotAdoptable(f"{item.path} is absent from the node: remove the taint from the persona by hand")
    return read_taint(item.observed)


# --- the check -----------------------------------------------------------------------------------------------------


def objections(
    before: Fleet,
    after: Fleet,
    seen: Mapping[str, Observed],
    adopted: Mapping[str, Collection[str]],
    rules: IgnoreRules,
) -> Iterator[str]:
    """Yield the reasons against the changed spec; none when the adopted paths no longer drift and nothing else changed.

    `adopted` has the paths by node, with `image` for everything that an image determines.
    """
    if _fleetwide(before) != _fleetwide(after):
        yield "settings of the whole fleet would change"
    if before.nodes.keys() != after.nodes.keys():
        yield "nodes would be added or removed"
        return
    for name, old in before.nodes.items():
        new, paths = after.nodes[name], adopted.get(name, ())
        if not paths:
            if _values(old) != _values(new):
                yield f"desired values of {name} would change, too"
            continue
        others = [path for path in _changed(old, new) if not _covered(path, paths)]
        if others:
            yield f"{name}: {', '.join(others)} would change, too"
        yield from _drift_left(old, new, seen[name], paths, rules)


def _drift_left(
    old: Desired, new: Desired, seen: Observed, paths: Collection[str], rules: IgnoreRules
) -> Iterator[str]:
    record = NodeRecord(old.node)
    items = [{item.path: item for item in Comparer(rules).compare(one, seen, record)} for one in (old, new)]
    left = [path for path in items[1] if _covered(path, paths) or path not in items[0]]
    if left:
        yield f"{old.node}: {', '.join(left)} would still differ from what the node has"


def _covered(path: str, paths: Collection[str]) -> bool:
    return path in paths or (IMAGE in paths and path.startswith("image."))


def _fleetwide(fleet: Fleet) -> Any:
    holds = [replace(hold, position="") for hold in fleet.holds]
    return replace(fleet.settings, insecure=()), fleet.rollouts, holds


def _values(node: Desired) -> Any:
    """Return all desired values of a node, wherever they are set."""
    return replace(node, provenance={}, profile=replace(node.profile, provenance={}))


def _changed(old: Desired, new: Desired) -> list[str]:
    """Return the paths at which two versions of a node differ."""
    tables = [{row.path: row.wanted for row in managed(one.profile)} for one in (old, new)]
    tables[0] |= _rest(old)
    tables[1] |= _rest(new)
    return sorted(path for path in tables[0].keys() | tables[1].keys() if tables[0].get(path) != tables[1].get(path))


def _rest(node: Desired) -> dict[str, Any]:
    """Return the desired values that the diff does not compare, by names that look like paths."""
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
