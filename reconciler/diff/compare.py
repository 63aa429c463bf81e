"""Compare one node with its spec, and classify what differs.

Nodes with one profile and equal readings share a comparison: a `Comparer` keeps each (profile, readings) pair once, so
a fleet of equal nodes costs one run of DeepDiff. Values that differ on every node (hostname, serial, nonce) are
compared separately, so that they can't prevent the sharing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.diff import normalise
from reconciler.diff.facts import Managed, managed
from reconciler.diff.ignore import IgnoreRules
from reconciler.diff.installed import installed_rows
from reconciler.diff.readings import Missing, Readings, host, hot
from reconciler.diff.structure import changed_keys, compare_structures, describe
from reconciler.model.desired import Desired, Profile
from reconciler.model.drift import DriftClass, DriftItem
from reconciler.model.observed import HostFacts, Observed, RedfishHot
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern, Source, UnknownReason

_Answer = RedfishHot | HostFacts
INSTALLED: Final = "a new install sets it"


@dataclass(frozen=True, slots=True)
class Difference:
    """A path that differs, for all nodes that share the comparison. `kind`: one that needs no record."""

    path: str
    concern: Concern
    source: Source
    desired: Any
    observed: Any
    kind: DriftClass
    detail: str = ""


class Comparer:
    """Compares nodes with their spec, and keeps each comparison for nodes that are equal."""

    def __init__(self, rules: IgnoreRules) -> None:
        self.rules = rules
        self._tables: dict[str, tuple[tuple[Managed, ...], Readings]] = {}
        self._shared: dict[Hashable, tuple[Difference, ...]] = {}
        self._worded: dict[Hashable, str] = {}

    def compare(self, desired: Desired, observed: Observed, record: NodeRecord) -> tuple[DriftItem, ...]:
        table, read = self._table(desired.profile)
        seen = read(observed)
        pending = _pending_bios(observed, desired.profile)
        key = (desired.profile.digest, seen, pending)
        differences = self._shared.get(key)
        if differences is None:
            differences = self._shared[key] = self._differences(table, seen, dict(pending), observed)
        own = (*_own_differences(desired, observed, record), *_installed_differences(desired, observed))
        return tuple([self._tie(desired, record, found) for found in (*own, *differences)])

    def _table(self, profile: Profile) -> tuple[tuple[Managed, ...], Readings]:
        if profile.digest not in self._tables:
            table = managed(profile)
            self._tables[profile.digest] = (table, Readings([row.read for row in table]))
        return self._tables[profile.digest]

    def _differences(
        self, table: tuple[Managed, ...], seen: tuple[Hashable, ...], pending: Mapping[str, str], observed: Observed
    ) -> tuple[Difference, ...]:
        wanted = {row.path: row.wanted for row in table}
        known = {row.path: value for row, value in zip(table, seen, strict=True) if not isinstance(value, Missing)}
        changed = changed_keys({path: wanted[path] for path in known}, known)
        found = []
        for row, value in zip(table, seen, strict=True):
            if isinstance(value, Missing):
                detail = why_missing(value)
                found.append(Difference(row.path, row.concern, row.source, row.shown, None, DriftClass.UNKNOWN, detail))
            elif row.path in changed:
                staged = pending.get(row.path) == row.wanted
                kind = DriftClass.IN_PROGRESS if staged else DriftClass.DRIFTED
                detail = "staged, waits for the next boot" if staged else self._parts(row, value)
                found_as = value if row.raw is None else row.raw(observed)
                shown = list(found_as) if isinstance(found_as, tuple) else found_as
                found.append(Difference(row.path, row.concern, row.source, row.shown, shown, kind, detail))
        return tuple(found)

    def _parts(self, row: Managed, value: Hashable) -> str:
        """Say what differs within a list or a mapping, each difference worked out once; "" for a plain value."""
        if row.parts is None:
            return ""
        key = row.wanted, value
        if key not in self._worded:
            both = row.parts(row.wanted, value)
            self._worded[key] = describe(compare_structures(*both)) if both is not None else ""
        return self._worded[key]

    def _tie(self, desired: Desired, record: NodeRecord, found: Difference) -> DriftItem:
        applied = record.applied.get(found.path)
        rule = self.rules.match(desired, found.path)
        kind, detail = found.kind, found.detail
        if rule is not None:
            kind, detail = DriftClass.IGNORED, rule.reason
        elif kind is DriftClass.DRIFTED and applied is not None:
            kind = _three_way(found, applied.value)
        elif kind is DriftClass.DRIFTED and record.paths is not None and found.path not in record.paths:
            kind = DriftClass.PENDING  # the spec did not manage the path when the node was last converged
        return DriftItem(
            node=desired.node,
            concern=found.concern,
            path=found.path,
            kind=kind,
            desired=found.desired,
            observed=found.observed,
            applied=applied.value if applied is not None else None,
            source=found.source,
            detail=detail,
        )


def _three_way(found: Difference, applied: Any) -> DriftClass:
    """Return what has changed: the node, the spec, or both (conventions D1)."""
    if applied == found.desired:
        return DriftClass.DRIFTED
    return DriftClass.PENDING if _alike(applied, found.observed) else DriftClass.CONFLICT


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other or normalise.attribute(str(one)) == normalise.attribute(str(other)))


def why_missing(missing: Missing) -> str:
    """Return why a fact is not known, in words."""
    if missing.reason is UnknownReason.EXPLAINED:
        return missing.detail or "explained"
    return f"{missing.reason.value}: {missing.detail}" if missing.detail else missing.reason.value


def _pending_bios(observed: Observed, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Return the managed attributes that the next boot will change, normalised (pitfall A11)."""
    system = hot(observed)
    if isinstance(system, Missing) or not system.pending_bios:
        return ()
    return tuple(
        (f"bios.{name}", normalise.attribute(value))
        for name, value in sorted(system.pending_bios.items())
        if name in profile.bios
    )


def _own_differences(desired: Desired, observed: Observed, record: NodeRecord) -> tuple[Difference, ...]:
    """Compare the values that differ on every node: identity, hostname, and the nonce of the last journaled install."""
    system, os = hot(observed), host(observed)
    found: list[Difference] = []

    def differ(
        path: str,
        concern: Concern,
        source: Source,
        wanted: str,
        value: str | None,
        answer: _Answer | Missing,
        cause: str = "",
    ) -> None:
        if value is None:
            why = None if isinstance(answer, Missing) else answer.unknown.get(path.rpartition(".")[2])
            reason = why_missing(answer) if isinstance(answer, Missing) else why or UnknownReason.UNSUPPORTED.value
            found.append(Difference(path, concern, source, wanted, None, DriftClass.UNKNOWN, reason))
        elif not normalise.same(value, wanted):
            found.append(Difference(path, concern, source, wanted, value, DriftClass.DRIFTED, cause))

    if desired.serial is not None:
        value = None if isinstance(system, Missing) else system.serial
        differ("identity.serial", Concern.IDENTITY, Source.REDFISH, desired.serial, value, system)
    if desired.uuid is not None:
        value = None if isinstance(system, Missing) else system.uuid
        differ("identity.uuid", Concern.IDENTITY, Source.REDFISH, desired.uuid, value, system)
    if record.nonce is not None and desired.profile.image is not None:
        value = None if isinstance(os, Missing) or os.image is None else os.image.nonce or "none"
        cause = "" if isinstance(os, Missing) or os.image is None else os.image.fallback
        differ("image.nonce", Concern.IMAGE, Source.SSH, record.nonce, value, os, cause)
    if desired.hostname is not None:
        value = None if isinstance(os, Missing) else os.hostname
        differ("host.hostname", Concern.HOST, Source.SSH, desired.hostname, value, os)
    return tuple(found)


def _installed_differences(desired: Desired, observed: Observed) -> Iterator[Difference]:
    """Compare what an installer decided. Facts that nobody asked for are no findings: nothing depends on them."""
    for row in installed_rows(desired):
        value = row.read(observed)
        if isinstance(value, Missing):
            if value.reason is not UnknownReason.NOT_ASKED:
                why = why_missing(value)
                yield Difference(row.path, row.concern, row.source, row.shown, None, DriftClass.UNKNOWN, why)
        elif value != row.wanted:
            found = list(value) if isinstance(value, tuple) else value
            yield Difference(row.path, row.concern, row.source, row.shown, found, DriftClass.REPORTED, INSTALLED)
