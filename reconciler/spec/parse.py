"""Turn documents into resources by kind and name.

Of a resource with errors, the valid rest goes on to the checks across resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from reconciler.model.errors import Diagnostic, Position, did_you_mean
from reconciler.spec.kinds import KINDS
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec
from reconciler.spec.kinds.cluster import ClusterSpec
from reconciler.spec.kinds.fleet import FleetSpec
from reconciler.spec.kinds.golden_image import GoldenImageSpec
from reconciler.spec.kinds.hardware_profile import HardwareProfileSpec
from reconciler.spec.kinds.node_pool import NodePoolSpec
from reconciler.spec.kinds.persona import PersonaSpec
from reconciler.spec.kinds.remediation_policy import RemediationPolicySpec
from reconciler.strict_yaml.parse import Document, Steps, show_path
from reconciler.strict_yaml.read import describe, parse_model

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class DeclaredResource(Generic[S]):
    """A resource and its document. Where faulty keys were removed it is not `whole`: a missing key means nothing."""

    kind: str
    name: str
    spec: S
    document: Document
    whole: bool = True

    def at(self, *steps: str | int, key: bool = False) -> Position:
        """Return the position of a value of the resource's `spec`, or of its key."""
        return self.document.at(("spec", *steps), key=key)

    @property
    def position(self) -> Position:
        return self.document.at(("metadata", "name"))

    def problem(self, steps: Steps, problem: str, hint: str = "", severity: str = "error") -> Diagnostic:
        return Diagnostic(self.at(*steps), show_path(("spec", *steps)), problem, hint, severity)


@dataclass(slots=True)
class Declarations:
    """All resources of a spec by kind and name. Of two with the same name it has the first."""

    fleets: list[DeclaredResource[FleetSpec]] = field(default_factory=list)
    clusters: dict[str, DeclaredResource[ClusterSpec]] = field(default_factory=dict)
    images: dict[str, DeclaredResource[GoldenImageSpec]] = field(default_factory=dict)
    hardware: dict[str, DeclaredResource[HardwareProfileSpec]] = field(default_factory=dict)
    personas: dict[str, DeclaredResource[PersonaSpec]] = field(default_factory=dict)
    acceptance: dict[str, DeclaredResource[AcceptanceProfileSpec]] = field(default_factory=dict)
    remediation: dict[str, DeclaredResource[RemediationPolicySpec]] = field(default_factory=dict)
    pools: dict[str, DeclaredResource[NodePoolSpec]] = field(default_factory=dict)
    unread: dict[str, set[str]] = field(
        default_factory=dict
    )  # kind -> names of resources with too many errors to check
    unread_file: bool = False  # a file has no document that can be read: what it declares is not known

    def table(self, kind: str) -> dict[str, DeclaredResource[Any]]:
        tables: dict[str, dict[str, DeclaredResource[Any]]] = {
            "Cluster": self.clusters,
            "GoldenImage": self.images,
            "HardwareProfile": self.hardware,
            "Persona": self.personas,
            "AcceptanceProfile": self.acceptance,
            "RemediationPolicy": self.remediation,
            "NodePool": self.pools,
        }
        return tables[kind]


def parse_resources(
    documents: Sequence[Document], unreadable: Iterable[Diagnostic] = ()
) -> tuple[Declarations, list[Diagnostic]]:
    """Return the resources of documents, and their problems. `unreadable`: those that the files had before."""
    unread = {problem.at.file for problem in unreadable} - {document.file for document in documents}
    declared = Declarations(unread_file=bool(unread))
    problems: list[Diagnostic] = []
    for document in documents:
        problems += _add(document, declared)
    return declared, problems


def _add(document: Document, declared: Declarations) -> Iterator[Diagnostic]:
    kind = _kind_of(document)
    if isinstance(kind, Diagnostic):
        yield kind
        return
    model, problems = parse_model(KINDS[kind], document)
    yield from problems
    metadata = document.data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        return
    if model is None:
        declared.unread.setdefault(kind, set()).add(name)
        return
    resource: DeclaredResource[Any] = DeclaredResource(kind, name, model.spec, document, whole=not problems)
    if kind == "Fleet":
        declared.fleets.append(resource)
        return
    first = declared.table(kind).setdefault(name, resource)
    if first is not resource:
        yield Diagnostic(
            resource.position,
            "metadata.name",
            f"there are two resources {kind}/{name}",
            f"the other is at {first.position}",
        )


def _kind_of(document: Document) -> str | Diagnostic:
    data = document.data
    if not isinstance(data, dict):
        problem = "this document is empty" if data is None else f"must be a mapping, not {describe(data)}"
        return Diagnostic(document.at(), "", problem, "a resource has apiVersion, kind, metadata and spec")
    kind = data.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind
    if "kind" not in data:
        return Diagnostic(document.at(), "", "key 'kind' is missing", did_you_mean("", KINDS))
    hint = did_you_mean(kind, KINDS) if isinstance(kind, str) else did_you_mean("", KINDS)
    return Diagnostic(document.at(("kind",)), "kind", f"{kind!r} is not a kind of resource", hint)
