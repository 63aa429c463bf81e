"""The inputs of a plan as its document holds them, and the fingerprints over them (DESIGN 7.3).

An input is a value that an action may use, as canonical JSON text under its path; a text longer than `LONGEST` is
replaced by its digest. `Plan.shared` holds once what equal nodes share; `NodePlan.inputs` holds a node's own inputs.
Fingerprints are computed from the document alone, so that every reader computes them again and trusts none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.plan import NodePlan, Plan, PlannedAction

RECIPE = "13"  # of the fingerprints: a plan of another one is refused by name, not by a mismatch (pitfall M1)
LONGEST = 72  # characters of a value that is told as it is
MACHINE = ("machine.serial", "machine.uuid", "machine.root_disk")  # what was read of the machine; absent = not known
_DIGEST = "sha256:"  # no JSON text begins so
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_NULL = "null"
_UNUSED = (DriftClass.UNKNOWN, DriftClass.IGNORED, DriftClass.REPORTED)


def digest_of(value: object) -> str:
    """Return SHA-256 over canonical JSON. Raise TypeError for a value that is not made of JSON values."""
    return hashlib.sha256(_CANONICAL.encode(value).encode()).hexdigest()


def text_of(value: object) -> str:
    if value is None:
        return _NULL
    text = _CANONICAL.encode(value)
    return text if len(text) <= LONGEST else _DIGEST + hashlib.sha256(text.encode()).hexdigest()[:32]


def key_of(table: Mapping[str, str]) -> str:
    """Return the key under which a table of shared inputs is kept: a digest of it."""
    return digest_of(dict(table))[:32]


def sealed(inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the inputs for readers who must not see them: a digest over the spec's, one over the machine's.

    The digest of a single address or serial number is soon guessed, so each covers several. Its key names the paths.
    """
    if is_sealed(inputs):
        return inputs
    paths = sorted(inputs)
    groups = ([path for path in paths if path not in MACHINE], [path for path in paths if path in MACHINE])
    return {",".join(group): _mixed(inputs, group) for group in groups if group}


def is_sealed(inputs: Mapping[str, str]) -> bool:
    return len(inputs) <= 2 and any("," in path for path in inputs)  # two groups; no path of one value has a comma


def _mixed(inputs: Mapping[str, str], paths: Iterable[str]) -> str:
    text = "\n".join([f"{path}: {inputs.get(path)}" for path in paths])  # JSON text is of one line
    return _DIGEST + hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def changed_inputs(approved: Mapping[str, str], fresh: Mapping[str, str]) -> list[tuple[str, str | None, str | None]]:
    """Return (path, approved, now) of each input that differs; None = there is none.

    A value of the machine that could not be read, then or now, is no difference: a BMC restarts, the machine stays.
    """
    if is_sealed(approved):
        groups = [(paths, paths.split(","), digest) for paths, digest in approved.items()]
        return [
            (paths.replace(",", ", "), digest, _mixed(fresh, each))
            for paths, each, digest in groups
            if not (set(each) & set(MACHINE) and set(each) - fresh.keys()) and digest != _mixed(fresh, each)
        ]
    unread = {path for path in MACHINE if path not in approved or path not in fresh}
    return [
        (path, approved.get(path), fresh.get(path))
        for path in sorted((approved.keys() | fresh.keys()) - unread)
        if approved.get(path) != fresh.get(path)
    ]


# --- fingerprints ---------------------------------------------------------------------------------------------------


def fingerprint(
    shared: str, inputs: Mapping[str, str], drift: Sequence[DriftItem], actions: Sequence[PlannedAction]
) -> str:
    """Return the fingerprint of one node: nothing that was read goes into it but the identity of the machine.

    A node without actions has no inputs: nothing is approved for it.
    """
    used = [[item.path, item.kind, item.desired] for item in drift if item.kind not in _UNUSED]
    steps = [[action.name, action.target, action.disruption.label] for action in actions]
    if not used and not steps:
        return _NOTHING
    return digest_of([RECIPE, shared, sealed(inputs), used, steps])


_NOTHING = digest_of([RECIPE])


def fingerprint_of(nodes: Mapping[str, NodePlan]) -> str:
    """Return the fingerprint of a plan: a digest of the fingerprints of its nodes."""
    return digest_of({name: node.fingerprint for name, node in nodes.items() if node.actions})


def tampered(plan: Plan) -> str:
    """Name what was edited since the fingerprints of the document were made; "" when nothing was."""
    for key, table in plan.shared.items():
        if key_of(table) != key:
            return f"the shared inputs {key} are not those that it was made with"
    for name, node in plan.nodes.items():
        made = fingerprint(node.shared, node.inputs, node.drift, node.actions)
        if node.node != name or node.fingerprint != made:
            return f"what it says of node {name} is not what it was made with: the fingerprint does not match"
        if node.actions and node.shared not in plan.shared:
            return f"the inputs of node {name} are missing"
    return "" if plan.fingerprint == fingerprint_of(plan.nodes) else "its fingerprint is not that of its nodes"
