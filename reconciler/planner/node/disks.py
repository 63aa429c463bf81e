"""Find the drives that a root disk rule matches. It has no kernel names, which change between boots (pitfall L4)."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.diff import normalise
from reconciler.model.desired import RootDisk
from reconciler.model.observed import Drive


def matching_drives(rule: RootDisk, drives: Iterable[Drive]) -> list[Drive]:
    """Return the drives that match. An image may be written only if exactly one does."""
    return [drive for drive in drives if _matches(rule, drive)]


def no_single_match(rule: RootDisk, drives: Iterable[Drive]) -> str:
    """Return why the rule names no drive; "" if it names one, or a drive does not tell enough to say."""
    listed = tuple(drives)
    found = matching_drives(rule, listed)
    if len(found) == 1 or not all(_is_told(rule, drive) for drive in listed):
        return ""
    return f"{len(found) or 'no'} drive{'s match' if len(found) > 1 else ' matches'} the root disk rule"


def _is_told(rule: RootDisk, drive: Drive) -> bool:
    sized = rule.min_bytes is not None or rule.max_bytes is not None
    pairs = ((rule.serial, drive.serial), (rule.wwn, drive.wwn), (rule.model, drive.model))
    return all(value is not None for wanted, value in pairs if wanted is not None) and not (
        sized and drive.capacity_bytes is None
    )


def _matches(rule: RootDisk, drive: Drive) -> bool:
    texts = ((rule.serial, drive.serial), (rule.wwn, drive.wwn), (rule.model, drive.model))
    for wanted, value in texts:
        if wanted is not None and (value is None or normalise.text(wanted) != normalise.text(value)):
            return False
    size = drive.capacity_bytes
    if rule.min_bytes is not None and (size is None or size < rule.min_bytes):
        return False
    return rule.max_bytes is None or (size is not None and size <= rule.max_bytes)
