"""An observation that anybody may read: it plans as well as the whole one, and names no machine.

Redaction goes by type (DESIGN section 10): the marks of model/privacy.py say of each field what may be published, and
a field without a mark is refused.

Identifiers become digests with a key that is drawn for each document and forgotten with it. Nobody needs the key again:
within a document equal names have equal digests, and the digests of what the spec wanted are published beside them, so
a reader who has the spec of that commit knows the names of these digests, and of no others. A key for each fleet would
have to be kept secret for ever: whoever obtained it could try all serial numbers of a maker against every document.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from reconciler import __version__
from reconciler.diff import normalise
from reconciler.model.desired import Desired, Fleet
from reconciler.model.observed import HIDDEN, AttributeValue, Observation, Observed, Silent, Taint
from reconciler.model.ports import Recollection
from reconciler.model.printable import SEALED
from reconciler.model.privacy import Privacy
from reconciler.model.published import NAMING_PATHS, OWN_NAMES, PUBLISHED_FORMAT, Published, PublishedNode
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, NodeRecord, read_mark, write_mark
from reconciler.model.vocab import UnknownReason
from reconciler.planner.fleet.plan_request import records_needed
from reconciler.render.disclosure import Policy, blank, keep, number

_CACHED: Final = 4096  # sealed last: those of a node recur in its observation, its record and its certificate
_DURATIONS: Final = 2000  # of the newest attempts: enough for estimates


@dataclass(frozen=True, slots=True)
class Mentioned:
    """The BIOS attributes and the keys of labels and taints that a spec mentions. Other values are not published."""

    bios: frozenset[str]
    labels: frozenset[str]
    taints: frozenset[str]

    @classmethod
    def by(cls, fleets: Iterable[Fleet]) -> Mentioned:
        """Return what these specs mention for any node."""
        profiles = {node.profile.digest: node.profile for fleet in fleets for node in fleet.nodes.values()}.values()
        members = [profile.membership for profile in profiles if profile.membership is not None]
        return cls(
            frozenset(name for profile in profiles for name in profile.bios),
            frozenset(key for member in members for key in (*member.labels, *member.allocatable)),
            frozenset(taint.key for member in members for taint in member.taints),
        )

    def __sub__(self, other: Mentioned) -> Mentioned:
        return Mentioned(self.bios - other.bios, self.labels - other.labels, self.taints - other.taints)


@dataclass(frozen=True, slots=True)
class Screen:
    """The view of a fleet that a published document gives: the context of `PUBLISHED`.

    `name` returns the name under which a machine or a part is known in the document. `naming`: the walk is at a value
    path that names a machine.
    """

    name: Callable[[str], str]
    mentioned: Mentioned
    naming: bool = False

    def observed(self, seen: Observed) -> Observed:
        """Return what may be published of an observation."""
        shown = PUBLISHED.show(seen, self)
        member = shown.member
        if isinstance(member, Silent) or member.value is None:
            return shown
        return replace(shown, member=replace(member, value=replace(member.value, name=seen.node)))

    def record(self, record: NodeRecord) -> NodeRecord:
        """Return what may be published of a node's record in the ledger."""
        return PUBLISHED.show(record, self)

    def at(self, path: str) -> Screen:
        return replace(self, naming=True) if path in NAMING_PATHS else self


def _seal(value: str, screen: Screen) -> str:
    return screen.name(value)


def _hide(text: str, _screen: Screen) -> str:
    """Return only that there are words of a machine or a person."""
    return HIDDEN if text else ""


def _of_spec(value: Any, screen: Screen) -> Any:
    return screen.name(value) if screen.naming and isinstance(value, str) else value


def _bios(values: Mapping[str, AttributeValue] | None, screen: Screen) -> dict[str, AttributeValue] | None:
    """Leave out attributes that the spec does not mention: asset tags, accounts, addresses to boot from."""
    return None if values is None else {name: value for name, value in values.items() if name in screen.mentioned.bios}


def _labels(labels: Mapping[str, str], screen: Screen) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key in screen.mentioned.labels}


def _taints(taints: tuple[Taint, ...], screen: Screen) -> tuple[Taint, ...]:
    return tuple(taint for taint in taints if taint.key == MARK_TAINT or taint.key in screen.mentioned.taints)


def _annotations(annotations: Mapping[str, str], screen: Screen) -> dict[str, str]:
    mark = read_mark(annotations.get(OWNER_ANNOTATION))
    if mark is None:
        return {}
    return {OWNER_ANNOTATION: write_mark(replace(mark, ledger=screen.name(mark.ledger), plan="", reason=""))}


def _fabric_status(status: str | None, _screen: Screen) -> str | None:
    return status if status in (None, "Success") else HIDDEN


def _silent(silent: Silent, _screen: Screen) -> Silent:
    """Leave out details, which name addresses, but for a known cause: those are our words (converge/observe.py)."""
    return silent if silent.reason is UnknownReason.EXPLAINED else replace(silent, detail="")


PUBLISHED: Final = Policy[Screen](
    marks={
        Privacy.PUBLIC: keep,
        Privacy.NODE: keep,
        Privacy.PATH: keep,
        Privacy.IDENTIFIER: _seal,
        Privacy.ADDRESS: blank,
        Privacy.FREE_TEXT: _hide,
        Privacy.UNPUBLISHED: blank,
        Privacy.SPEC_VALUE: _of_spec,
        Privacy.UNORDERED: lambda values, screen: tuple(sorted(map(screen.name, values))),
        Privacy.ORDINAL: number,
        Privacy.BIOS: _bios,
        Privacy.LABELS: _labels,
        Privacy.TAINTS: _taints,
        Privacy.ANNOTATIONS: _annotations,
        Privacy.FABRIC_STATUS: _fabric_status,
    },
    classes={Silent: _silent},
    scopes={Privacy.PATH: Screen.at},
)


def publish(
    fleet: Fleet, observation: Observation, ledger: Recollection, key: bytes, keys: Mapping[str, str]
) -> Published:
    """Return what may be published of the nodes of the fleet that were observed.

    `key`: drawn at random for this document alone. `keys`: public keys of images by name.
    """
    names = [name for name in observation.nodes if name in fleet.nodes]
    records = ledger.nodes(records_needed(fleet, names))
    screen = Screen(sealing(key), Mentioned.by([fleet]))
    return Published(
        format_version=PUBLISHED_FORMAT,
        tool_version=__version__,
        fleet=observation.fleet,
        spec_commit="" if fleet.source.dirty else fleet.source.commit,
        started_at=observation.started_at,
        finished_at=observation.finished_at,
        nodes={name: _published(fleet.nodes[name], observation.nodes[name], records, screen) for name in names},
        ledger=screen.name(ledger.id),
        bios=tuple(sorted(screen.mentioned.bios)),
        labels=tuple(sorted(screen.mentioned.labels)),
        taints=tuple(sorted(screen.mentioned.taints)),
        known=tuple(ledger.known()),
        holds=tuple(PUBLISHED.show(hold, screen) for hold in ledger.holds()),
        rollouts={pool: PUBLISHED.show(rollout, screen) for pool, rollout in ledger.rollouts().items()},
        durations=tuple(ledger.durations(_DURATIONS)),
        keys=keys,
        insecure=fleet.settings.insecure,  # that BMCs have a vendor's login is told to nobody else, as by `redact`
        time_scale=observation.time_scale,
        control_plane={
            name if name in fleet.nodes else screen.name(name): up for name, up in observation.control_plane.items()
        },
    )


def sealing(key: bytes) -> Callable[[str], str]:
    """Return the function that seals names with a key.

    Names that a comparison takes for equal get the same digest. An empty name, and one that is sealed, stays as it is.
    """

    @lru_cache(_CACHED)
    def name(value: str) -> str:
        if not value or value.startswith(SEALED):
            return value
        found = hmac.digest(key, normalise.text(value).encode(errors="replace"), "sha256").hex()
        return SEALED + found[:24]

    return name


def _published(desired: Desired, seen: Observed, records: Mapping[str, NodeRecord], screen: Screen) -> PublishedNode:
    record = records.get(desired.node) or NodeRecord(desired.node)
    paths = None if record.paths is None else tuple(sorted(record.paths))
    wanted = {path: screen.name(value) for path, value in own_names(desired).items()}
    return PublishedNode(screen.observed(seen), screen.record(record), wanted, paths)


def own_names(desired: Desired) -> dict[str, str]:
    """Return the names that the spec itself gives a machine, by value path."""
    values = zip(OWN_NAMES, (desired.serial, desired.uuid, desired.hostname), strict=True)
    return {path: value for path, value in values if value}
