"""What a node's approval is bound to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from reconciler.gate.certificate import digest_of
from reconciler.model.desired import Desired
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.vocab import Concern

FINGERPRINT = "1"  # version of the fingerprint's recipe: a new recipe is visible, not a silent mismatch (pitfall M1)


def fingerprint(desired: Desired, items: Sequence[DriftItem], steps: Sequence[tuple[str, str]]) -> str:
    """Over desired values used, drift used and actions; not over commit, time, estimates or text (invariant 13).

    `steps`: of each action its id and its disruption.
    """
    if not items and not steps:
        return _clean(desired.profile.digest)
    used = [_used(item) for item in items if item.kind not in (DriftClass.UNKNOWN, DriftClass.IGNORED)]
    return digest_of([FINGERPRINT, desired.profile.digest, desired.hostname, used, steps])


@lru_cache(maxsize=1024)
def _clean(profile: str) -> str:
    return digest_of([FINGERPRINT, profile])


def _used(item: DriftItem) -> list[str]:
    """Evidence of ill health and of a void certificate is told in words with counts and ages: only its kind is used."""
    if item.concern in (Concern.HEALTH, Concern.GATE):
        return [item.path, item.kind]
    return [item.path, item.kind, repr(item.desired), repr(item.observed)]
