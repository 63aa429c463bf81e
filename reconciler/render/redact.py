"""Documents for whoever may read an artifact: without names and addresses of machines, in whatever sentence they are.

By type, not by pattern (DESIGN 10): what must not be shown is taken from where it was read, of each node its own, and
looked for in the words about that node. What the spec itself wants stays, for an approval is compared by it; what is a
node's own of its inputs stays as a digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from reconciler.model.change import Change
from reconciler.model.desired import Desired, Fleet
from reconciler.model.drift import DriftItem
from reconciler.model.inputs import sealed
from reconciler.model.observed import (
    HIDDEN,
    Answered,
    HostFacts,
    Member,
    Observation,
    Observed,
    RedfishHot,
    RedfishInventory,
)
from reconciler.model.plan import NodePlan, Plan
from reconciler.model.records import NodeRecord
from reconciler.model.report import ApplyOutcome, DriftReport

Names = Mapping[str, tuple[str, ...]]  # node -> what is not to be told of it, longest first

_LEAST: Final = 4  # characters: a shorter name would be found in every other word


def names_of(fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord]) -> Names:
    """Serials, UUIDs, host names and addresses of the nodes that were observed."""
    found: dict[str, tuple[str, ...]] = {}
    for name, seen in observation.nodes.items():
        record = records.get(name) or NodeRecord(name)
        told = {text for text in (*_observed(seen), *_recorded(record)) if text}
        told |= set(_addresses(fleet.nodes.get(name)))
        told.discard(name)
        found[name] = tuple(sorted((text for text in told if len(text) >= _LEAST), key=lambda text: (-len(text), text)))
    return found


def _observed(seen: Observed) -> Iterator[str | None]:
    for reading in (seen.hot, seen.inventory, seen.host, seen.member):
        if not isinstance(reading, Answered):
            continue
        match reading.value:
            case RedfishHot() as hot:
                yield from (hot.serial, hot.uuid)
            case RedfishInventory() as inventory:
                yield from (nic.mac for nic in inventory.nics or ())
                yield from (text for drive in inventory.drives or () for text in (drive.serial, drive.wwn))
            case HostFacts() as facts:
                yield from _of_host(facts)
            case Member() as member:
                yield member.system_uuid


def _of_host(facts: HostFacts) -> Iterator[str | None]:
    yield from (facts.hostname, facts.serial, facts.uuid)
    if facts.image is not None:
        yield from (facts.image.root_disk, facts.image.booted_disk, facts.image.nonce)
    for gpu in facts.gpus or ():
        yield from (gpu.uuid, gpu.serial, *(part.uuid for part in gpu.mig_devices))
    yield from (drive.serial for drive in facts.nvme or ())


def _recorded(record: NodeRecord) -> Iterator[str | None]:
    """Also of parts that have been replaced since: what was said then is still told."""
    yield from (record.serial, record.uuid, record.nonce)
    if record.certificate is not None:
        yield from (record.certificate.binding.serial, *record.certificate.binding.gpu_serials)
    disk = record.applied.get("image.root_disk")
    if disk is not None and isinstance(disk.value, str):
        yield disk.value


def _addresses(desired: Desired | None) -> Iterator[str]:
    """With and without scheme and port: a message may have any of them."""
    if desired is None:
        return
    for address in (desired.endpoints.bmc, desired.endpoints.host):
        if address:
            parts = urlsplit(address if "://" in address else f"//{address}")
            yield from (text for text in (address, parts.netloc, parts.hostname) if text)


# --- documents ------------------------------------------------------------------------------------------------------


def redact_plan(plan: Plan, names: Names) -> Plan:
    nodes = {name: _node(node, names.get(name, ())) for name, node in plan.nodes.items()}
    change = None if plan.change is None else _change(plan.change, names)
    return replace(plan, nodes=nodes, change=change)


def redact_drift(report: DriftReport, names: Names) -> DriftReport:
    return replace(report, items=_items(report.items, names))


def redact_outcome(outcome: ApplyOutcome, names: Names) -> ApplyOutcome:
    ends = {
        name: replace(end, detail=redact_text(end.detail, names.get(name, ()))) for name, end in outcome.nodes.items()
    }
    actions = tuple(replace(end, detail=redact_text(end.detail, names.get(end.node, ()))) for end in outcome.actions)
    return replace(outcome, nodes=ends, actions=actions)


def _node(node: NodePlan, hidden: tuple[str, ...]) -> NodePlan:
    blocked = node.blocked
    return replace(
        node,
        situation=redact_text(node.situation, hidden),
        incomplete=tuple(redact_text(text, hidden) for text in node.incomplete),
        drift=tuple(_item(item, hidden) for item in node.drift),
        actions=tuple(
            replace(action, because=tuple(redact_text(text, hidden) for text in action.because))
            for action in node.actions
        ),
        blocked=None if blocked is None else replace(blocked, detail=redact_text(blocked.detail, hidden)),
        inputs=sealed(node.inputs),
    )


def _change(change: Change, names: Names) -> Change:
    void = tuple(
        replace(one, reasons=tuple(redact_text(why, names.get(one.node, ())) for why in one.reasons))
        for one in change.void_certificates
    )
    return replace(
        change, void_certificates=void, caused=_items(change.caused, names), before=_items(change.before, names),
        removed=_items(change.removed, names), unseen=_items(change.unseen, names),
    )  # fmt: skip


def _items(items: tuple[DriftItem, ...], names: Names) -> tuple[DriftItem, ...]:
    return tuple(_item(item, names.get(item.node, ())) for item in items)


def _item(item: DriftItem, hidden: tuple[str, ...]) -> DriftItem:
    found, detail = _value(item.observed, hidden), redact_text(item.detail, hidden)
    return item if (found, detail) == (item.observed, item.detail) else replace(item, observed=found, detail=detail)


def _value(value: Any, hidden: tuple[str, ...]) -> Any:
    return redact_text(value, hidden) if isinstance(value, str) else value


def redact_text(text: str, hidden: tuple[str, ...]) -> str:
    for name in hidden:
        if name in text:
            text = text.replace(name, HIDDEN)
    return text
