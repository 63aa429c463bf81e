"""All conditions of one node: what is found of it, and what its drift says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from reconciler.diff.ignore import IgnoreRules
from reconciler.model.desired import Desired
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.observed import Observed
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Activation, Concern, Source
from reconciler.planner.node.assessment import Assessment, find
from reconciler.planner.node.conditions import (
    BIOS,
    BIOS_STAGED,
    BOOT,
    BOOT_STAGED,
    GPU_PLAIN,
    LABELS,
    MEMBER,
    OF_CONCERN,
    SIGNATURE,
    TRUST,
    ConditionBuilder,
    Conditions,
    Context,
    OfProfile,
    firmware_ok,
    firmware_staged,
)
from reconciler.planner.node.staged import waits


def evaluate(
    desired: Desired,
    observed: Observed,
    items: Sequence[DriftItem],
    record: NodeRecord,
    context: Context,
    rules: IgnoreRules | None = None,
    retracted: Collection[str] = (),
) -> Conditions:
    """All conditions of one node, as of `context.now`. `rules`: for signals; `items` know them already.

    `retracted`: value paths of signals, as in `find`.
    """
    return with_drift(find(desired, observed, record, context, rules, retracted), desired, items, record, context)


def with_drift(
    findings: Assessment, desired: Desired, items: Sequence[DriftItem], record: NodeRecord, context: Context
) -> Conditions:
    """All conditions of a node with these findings and this drift."""
    sheet = findings.sheet.copy()
    _from_drift(sheet, context.of(desired.profile), items)
    _from_attempts(sheet, desired, record)
    sheet.set(GPU_PLAIN, findings.plain, *_paths(items, Concern.GPU))
    _signature_and_trust(sheet, desired, context)
    return Conditions(
        true=frozenset(sheet.true),
        unknown=sheet.unknown,
        explained=sheet.explained,
        because=sheet.because,
        signals=findings.signals,
        reported=findings.reported,
        ignored=findings.ignored,
        doubted=findings.doubted,
        mark=findings.mark,
        foreign_mark=findings.foreign_mark,
        foreign_cordon=findings.foreign_cordon,
        tampered=findings.tampered,
        waiting=findings.waiting,
        waits_until=findings.waits_until,
        gate_failed=findings.gate_failed,
    )


def _paths(items: Iterable[DriftItem], *concerns: Concern) -> tuple[str, ...]:
    return tuple(item.path for item in items if item.concern in concerns and item.kind in ACTIONABLE)


_WITNESSES: Mapping[Source | None, str] = {Source.REDFISH: "BMC ", Source.SSH: "SSH ", Source.KUBERNETES: "cluster "}


def _verdict(sheet: ConditionBuilder, name: str, items: Iterable[DriftItem]) -> None:
    """A condition from the drift items that speak about it: any drift makes it false, else any unknown unknown."""
    bad, unknown = [], []
    for item in items:
        if item.kind in ACTIONABLE:
            bad.append(item.path)
        elif item.kind is DriftClass.UNKNOWN:
            unknown.append(f"{item.path} ({_WITNESSES.get(item.source, '')}{item.detail})")
    if bad:
        sheet.because[name] = tuple(bad)
    else:
        sheet.set(name, None if unknown else True, *unknown)


def _speaks_of(item: DriftItem) -> str | None:
    """The condition that an item of drift speaks about."""
    if item.concern is Concern.FIRMWARE:
        return firmware_ok(item.path.removeprefix("firmware."))
    if item.concern is Concern.CLUSTER:
        return MEMBER if item.path == "cluster.member" else LABELS
    return OF_CONCERN.get(item.concern)


def _from_drift(sheet: ConditionBuilder, profile: OfProfile, items: Sequence[DriftItem]) -> None:
    """What no item speaks about is as desired."""
    sheet.true |= profile.compared
    if not items:
        return
    about: dict[str, list[DriftItem]] = {}
    for item in items:
        name = _speaks_of(item)
        if name is not None:
            about.setdefault(name, []).append(item)
    sheet.true.difference_update(about)
    for name, found in about.items():
        _verdict(sheet, name, found)
    drifted = [item for item in about.get(BIOS, ()) if item.kind in ACTIONABLE]
    if drifted and all(item.kind is DriftClass.IN_PROGRESS for item in drifted):
        sheet.set(BIOS_STAGED, True)


def _from_attempts(sheet: ConditionBuilder, desired: Desired, record: NodeRecord) -> None:
    """Staged by us, as far as it still is to take effect."""
    if not record.attempts:
        return
    if BOOT not in sheet.true and waits(record, "set_boot", "", Activation.REBOOT):
        sheet.true.add(BOOT_STAGED)
    for item in desired.profile.firmware:
        if firmware_ok(item.component) not in sheet.true and waits(
            record, "update_firmware", item.component, item.activation
        ):
            sheet.true.add(firmware_staged(item.component))


def _signature_and_trust(sheet: ConditionBuilder, desired: Desired, context: Context) -> None:
    image = desired.profile.image
    verified: bool | None = True
    if image is not None:
        verified = context.signatures.get((image.name, image.version))
        if verified:
            sheet.true.add(SIGNATURE)
        elif verified is None:
            sheet.unknown[SIGNATURE] = f"no trusted key {image.key!r} for image {image.name} {image.version}"
        else:
            sheet.because[SIGNATURE] = (f"the signature of image {image.name} {image.version} does not verify",)
    else:
        sheet.true.add(SIGNATURE)
    parts = context.of(desired.profile).trusted
    if sheet.true.issuperset(parts):
        sheet.true.add(TRUST)
        return
    false = [
        part for part in parts if part not in sheet.true and part not in sheet.unknown and part not in sheet.explained
    ]
    if false:
        sheet.because[TRUST] = tuple(why for part in false for why in sheet.because.get(part, (part,)))
    else:
        sheet.set(TRUST, None, *(sheet.unknown[part] for part in parts if part in sheet.unknown))
