"""Documents that may be kept where others read them: no sentence in them names a machine or says where it answers.

Redaction goes by type, not by pattern (DESIGN section 10). The walk over what was observed and recorded collects the
identifiers and addresses of each node; the walk over a document replaces them in its free text. What the spec itself
wants stays, since an approval is compared by it. A plan's inputs become digests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from reconciler.model.desired import Fleet
from reconciler.model.inputs import sealed
from reconciler.model.observed import HIDDEN, Observation
from reconciler.model.plan import Plan
from reconciler.model.privacy import Privacy
from reconciler.model.published import NAMING_PATHS
from reconciler.model.records import NodeRecord
from reconciler.model.report import ApplyOutcome, DriftReport
from reconciler.render.disclosure import Policy, blank, keep

D = TypeVar("D", Plan, DriftReport, ApplyOutcome)

Identifiers = Mapping[str, tuple[str, ...]]  # node -> its identifiers and addresses, longest first

_LEAST: Final = 4  # characters: a shorter name would be found in every other word
_NODE_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_SHOWN: Final[Mapping[Privacy, Callable[[Any, Any], Any]]] = dict.fromkeys(
    (
        Privacy.PUBLIC,
        Privacy.NODE,
        Privacy.PATH,
        Privacy.ORDINAL,
        Privacy.BIOS,
        Privacy.LABELS,
        Privacy.TAINTS,
        Privacy.ANNOTATIONS,
    ),
    keep,
)


# --- what must not be read ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Collection:
    """The identifiers of one node. `naming`: the walk is at a value path that names a machine or a part."""

    found: set[str]
    naming: bool = False

    def at(self, path: str) -> _Collection:
        return _Collection(self.found, naming=True) if path in NAMING_PATHS else self


def _collect(value: str, collection: _Collection) -> str:
    collection.found.add(value)
    return value


def _collect_address(address: str | None, collection: _Collection) -> str | None:
    """Collect an address with and without its scheme and port: a message may have any of these."""
    if not address:
        return address
    parts = urlsplit(address if "://" in address else f"//{address}")
    collection.found.update(text for text in (address, parts.netloc, parts.hostname) if text)
    return address


def _collect_of_spec(value: Any, collection: _Collection) -> Any:
    return _collect(value, collection) if collection.naming and isinstance(value, str) else value


COLLECTED: Final = Policy[_Collection](
    marks={
        **_SHOWN,
        Privacy.FREE_TEXT: keep,
        Privacy.FABRIC_STATUS: keep,
        Privacy.IDENTIFIER: _collect,
        Privacy.ADDRESS: _collect_address,
        Privacy.SPEC_VALUE: _collect_of_spec,
    },
    scopes={Privacy.PATH: _Collection.at},
)


def names_of(fleet: Fleet, observation: Observation, records: Mapping[str, NodeRecord]) -> Identifiers:
    """Return the serial numbers, UUIDs, host names and addresses of the nodes that were observed.

    Records add those of parts that have been replaced since: old messages name them.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, seen in observation.nodes.items():
        collection = _Collection(set())
        COLLECTED.show(seen, collection)
        COLLECTED.show(records.get(name) or NodeRecord(name), collection)
        if name in fleet.nodes:
            COLLECTED.show(fleet.nodes[name].endpoints, collection)
        texts = [text for text in collection.found if len(text) >= _LEAST and text != name]
        found[name] = tuple(sorted(texts, key=lambda text: (-len(text), text)))
    return found


# --- documents ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Redaction:
    """Replaces names in texts. `own`: those of the node that the walk is at; None hides all text about it.

    `strict`: hide all text about a node that has no entry in `names`, since nobody can tell what names it.
    """

    names: Identifiers
    own: tuple[str, ...] | None = ()
    strict: bool = False
    _mentioned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _beginnings: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

    def of(self, node: str) -> Redaction:
        own = self.names.get(node, None if self.strict else ())
        return self if own is self.own else Redaction(self.names, own, self.strict, self._mentioned, self._beginnings)

    def text(self, text: str) -> str:
        """Return the text without the names of its own node and of the nodes that it mentions."""
        if self.own is None or not text:
            return HIDDEN if text else ""
        mentioned = self._mentioned.get(text)
        if mentioned is None:
            mentioned = tuple(node for node in _NODE_NAME.findall(text) if node in self.names)
            self._mentioned[text] = mentioned
        for names in (self.own, *map(self.names.__getitem__, mentioned)):
            text = self._without(names, text)
        return text

    def _without(self, names: tuple[str, ...], text: str) -> str:
        """Return the text without these names. Parts of one maker have names that begin alike, and few texts any."""
        beginnings = self._beginnings.get(names)
        if beginnings is None:
            beginnings = self._beginnings[names] = tuple({name[:_LEAST] for name in names})
        for beginning in beginnings:
            if beginning in text:
                break
        else:
            return text
        for name in names:
            text = text.replace(name, HIDDEN)
        return text


def _free(value: Any, redaction: Redaction) -> Any:
    """Redact a text, or all texts in a JSON value."""
    if isinstance(value, str):
        return redaction.text(value)
    if isinstance(value, Mapping):
        return {key: _free(part, redaction) for key, part in value.items()}
    return [_free(part, redaction) for part in value] if isinstance(value, list | tuple) else value


def _hide(value: str, _redaction: Redaction) -> str:
    return HIDDEN if value else ""


REDACTED: Final = Policy[Redaction](
    marks={
        **_SHOWN,
        Privacy.FREE_TEXT: _free,
        Privacy.FABRIC_STATUS: _free,
        Privacy.SPEC_VALUE: keep,
        Privacy.IDENTIFIER: _hide,
        Privacy.ADDRESS: blank,
        Privacy.UNPUBLISHED: blank,
        Privacy.INPUTS: lambda inputs, _redaction: sealed(inputs),
    },
    scopes={Privacy.NODE: Redaction.of},
)


def redact(document: D, names: Identifiers, fleet: Fleet) -> D:
    """Return a document with HIDDEN in place of each name in its texts.

    Of what is insecure it tells what the spec says, not what was found on machines: that BMCs have a vendor's login.
    """
    return REDACTED.show(replace(document, insecure=fleet.settings.insecure), Redaction(names))
