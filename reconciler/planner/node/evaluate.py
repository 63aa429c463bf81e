"""Evaluate all conditions of one node: those of its assessment and those that its drift decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from reconciler.diff import k3s
from reconciler.diff.ignore import IgnoreRules
from reconciler.gate.asked import TESTS
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.observed import Observed
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Activation, Concern, Source
from reconciler.planner.node import possible
from reconciler.planner.node.actions import impossible
from reconciler.planner.node.assessment import Assessment, assess
from reconciler.planner.node.by_person import assess_by_person, was_not_written, without_hold
from reconciler.planner.node.conditions import (
    BIOS,
    BIOS_STAGED,
    BOOT,
    BOOT_STAGED,
    BY_CONCERN,
    GATE,
    GPU_PLAIN,
    IMAGE,
    K3S,
    K3S_RELEASE,
    LABELS,
    MEMBER,
    SIGNATURE,
    TRUST,
    ConditionBuilder,
    Conditions,
    Context,
    ProfileConditions,
    firmware_ok,
    firmware_staged,
)
from reconciler.planner.node.in_place import why_lost
from reconciler.planner.node.record import TOGETHER_MOST, waits_together_since
from reconciler.planner.node.saved import assess_saved
from reconciler.planner.node.serving import assess_serving
from reconciler.planner.node.staged import is_staged


def evaluate(
    desired: Desired,
    observed: Observed,
    items: Sequence[DriftItem],
    record: NodeRecord,
    context: Context,
    rules: IgnoreRules | None = None,
    retracted: Collection[str] = (),
) -> Conditions:
    """Return all conditions of one node at `context.now`.

    `rules`: ignore rules, used for signals; `items` are filtered already. `retracted`: value paths, as for `assess`.
    """
    assessment = assess(desired, observed, record, context, rules, retracted)
    return with_drift(assessment, desired, (*items, *test_items(desired, assessment, record, context)), record, context)


def test_items(desired: Desired, assessment: Assessment, record: NodeRecord, context: Context) -> tuple[DriftItem, ...]:
    """Return the drift of a node in service that its certificate shows: tests that the spec has changed."""
    if not assessment.moved_tests:
        return ()
    asked = context.of_profile(desired.profile).asked
    return tuple([
        DriftItem(
            desired.node, Concern.GATE, path, DriftClass.PENDING, asked[path], "; ".join(reasons),
            applied=record.applied[path].value if path in record.applied else None, source=Source.LEDGER,
        )
        for path, reasons in ((TESTS + name, found) for name, found in assessment.moved_tests.items())
    ])  # fmt: skip


def with_drift(
    assessment: Assessment, desired: Desired, items: Sequence[DriftItem], record: NodeRecord, context: Context
) -> Conditions:
    """Return all conditions of a node with this assessment and this drift, which includes its `test_items`."""
    builder = assessment.conditions.copy()
    _from_drift(builder, context.of_profile(desired.profile), items)
    _from_attempts(builder, desired, record)
    assess_by_person(builder, desired, record, assessment.facts)
    intact = IMAGE in builder.true and was_not_written(record, assessment.facts)
    known = without_hold(record) if intact else record
    assess_saved(builder, desired, known, context.now, unread=bool(assessment.unread.cause))
    assess_serving(builder, desired, record, assessment.signals, context.now)
    builder.set(GPU_PLAIN, assessment.mig_off, *_paths(items, Concern.GPU))
    _signature_and_trust(builder, desired, context, assessment.unproved)
    return Conditions(
        true=frozenset(builder.true),
        unknown=builder.unknown,
        explained=builder.explained,
        because=builder.because,
        signals=assessment.signals,
        reported=assessment.reported,
        ignored=assessment.ignored,
        withheld=assessment.withheld,
        mark=assessment.mark,
        foreign_mark=assessment.foreign_mark,
        foreign_cordon=assessment.foreign_cordon,
        foreign_hold=assessment.foreign_hold,
        tampered=assessment.tampered,
        waiting=assessment.waiting,
        waits_until=assessment.waits_until,
        watched_until=assessment.watched_until,
        unread_log=assessment.unread_log,
        gate_failed=assessment.gate_failed,
        unread=assessment.unread,
        leaving=assessment.leaving,
        repair=None if record.repair is None else record.repair.phase,
        needs_installer=assessment.needs_installer,
        fell_back=assessment.fell_back,
        asked_tests=assessment.asked_tests,
        of_domain=context.of_domain.get(desired.node, {}),
        spare=desired.node in context.spares,
        **_of_inventory(desired, record, assessment, items, context.now, installed=IMAGE in builder.true),
    )


def _of_inventory(
    desired: Desired,
    record: NodeRecord,
    assessment: Assessment,
    items: Sequence[DriftItem],
    now: datetime,
    *,
    installed: bool,
) -> dict[str, Any]:
    """Return what the BMC can't do, now or ever, of a node that needs something."""
    found = assessment.inventory
    if found is None or not (items or assessment.signals or assessment.unproved):
        return {}
    changes = {item.path for item in items if item.kind in ACTIONABLE} | (set() if installed else {possible.IMAGE})
    awaits = not installed and "boot.order" in changes and bool(possible.missing_entry(desired, found))
    cant = impossible(desired, found, changes)
    since = waits_together_since(record, assessment.mark) if assessment.mark is not None and desired.cut_with else None
    if since is not None and since + TOGETHER_MOST <= now:
        shared = f"its outlets give {', '.join(desired.cut_with)} power, too"
        cant.setdefault("ac_cycle", f"{shared}, and for a day not all of them could be cut off: do it by hand")
    if lost := why_lost(desired, assessment.facts, found):
        cant["reimage"] = "; ".join(filter(None, (cant.get("reimage"), lost)))
    return {"impossible": cant, "entry_awaits_image": awaits}


def _paths(items: Iterable[DriftItem], *concerns: Concern) -> tuple[str, ...]:
    return tuple(item.path for item in items if item.concern in concerns and item.kind in ACTIONABLE)


_SOURCES: Mapping[Source | None, str] = {Source.REDFISH: "BMC ", Source.SSH: "SSH ", Source.KUBERNETES: "cluster "}


def _verdict(builder: ConditionBuilder, name: str, items: Iterable[DriftItem]) -> None:
    """Set a condition from its drift items: false if one has drifted, else unknown if one is unknown, else true."""
    bad, unknown = [], []
    for item in items:
        if item.kind in ACTIONABLE:
            bad.append(item.path)
        elif item.kind is DriftClass.UNKNOWN:
            unknown.append(f"{item.path} ({_SOURCES.get(item.source, '')}{item.detail})")
    if bad:
        builder.because[name] = (*bad, *builder.because.get(name, ()))
    else:
        builder.set(name, None if unknown else True, *unknown)


def condition_of(item: DriftItem) -> str | None:
    """Return the condition that an item of drift belongs to; None if it belongs to none."""
    if item.concern is Concern.FIRMWARE:
        return firmware_ok(item.path.removeprefix("firmware."))
    if item.concern is Concern.GATE:
        return GATE
    if item.concern is Concern.CLUSTER:
        if item.path.startswith(k3s.K3S):
            return K3S_RELEASE if item.path in k3s.OF_VERSION else K3S
        return MEMBER if item.path == "cluster.member" else LABELS
    return BY_CONCERN.get(item.concern)


def _from_drift(builder: ConditionBuilder, profile: ProfileConditions, items: Sequence[DriftItem]) -> None:
    """Set the conditions that drift decides. A condition without an item of drift is true."""
    builder.true |= profile.compared
    if not items:
        return
    about: dict[str, list[DriftItem]] = {}
    for item in items:
        name = condition_of(item)
        if name is not None:
            about.setdefault(name, []).append(item)
    builder.true.difference_update(about)
    for name, found in about.items():
        _verdict(builder, name, found)
    drifted = [item for item in about.get(BIOS, ()) if item.kind in ACTIONABLE]
    if drifted and all(item.kind is DriftClass.IN_PROGRESS for item in drifted):
        builder.set(BIOS_STAGED, True)


def _from_attempts(builder: ConditionBuilder, desired: Desired, record: NodeRecord) -> None:
    """Set the staged conditions that only our own attempts show."""
    if not record.attempts:
        return
    if BOOT not in builder.true and is_staged(record, "set_boot", "", Activation.REBOOT):
        builder.true.add(BOOT_STAGED)
    for item in desired.profile.firmware:
        if firmware_ok(item.component) not in builder.true and is_staged(
            record, "update_firmware", item.component, item.activation
        ):
            builder.true.add(firmware_staged(item.component))


def _signature_and_trust(builder: ConditionBuilder, desired: Desired, context: Context, unproved: str) -> None:
    image = desired.profile.image
    verified: bool | None = True
    if image is not None:
        verified = context.signatures.get((image.name, image.version))
        if verified:
            builder.true.add(SIGNATURE)
        elif verified is None:
            builder.unknown[SIGNATURE] = f"no trusted key {image.key!r} for image {image.name} {image.version}"
        else:
            builder.because[SIGNATURE] = (f"the signature of image {image.name} {image.version} does not verify",)
    else:
        builder.true.add(SIGNATURE)
    parts = context.of_profile(desired.profile).trusted
    if builder.true.issuperset(parts):
        if unproved:
            builder.because[TRUST] = (unproved,)
        else:
            builder.true.add(TRUST)
        return
    false = [
        part
        for part in parts
        if part not in builder.true and part not in builder.unknown and part not in builder.explained
    ]
    if false:
        builder.because[TRUST] = tuple(why for part in false for why in builder.because.get(part, (part,)))
    else:
        builder.set(TRUST, None, *(builder.unknown[part] for part in parts if part in builder.unknown))
