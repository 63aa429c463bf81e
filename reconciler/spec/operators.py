"""Check the Helm releases of a Cluster, read the files that they name, and turn them into what is to be installed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reconciler.model.errors import Diagnostic, Position
from reconciler.model.releases import Chart, DesiredRelease, OperatorKind
from reconciler.model.units import parse_duration
from reconciler.spec.kinds.cluster import ClusterSpec, ClusterType
from reconciler.spec.kinds.operators import ChartSpec, Operator
from reconciler.spec.parse import Declarations, DeclaredResource
from reconciler.spec.tree import SpecTree
from reconciler.strict_yaml.parse import Document, Steps, UnreadableFile, parse_yaml

_KNOWN_CHARTS: Final = {kind.value: kind for kind in OperatorKind if kind is not OperatorKind.CHART}


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a release, and where each of them is written."""

    data: Mapping[str, Any]
    document: Document
    root: Steps  # steps to the values in that document

    def at(self, *steps: str) -> Position:
        """Return the position of a value; of one that is left out, that of what would hold it."""
        return self.document.at((*self.root, *steps))

    def get(self, *steps: str, default: Any) -> Any:
        """Return a value; the chart's own where it is left out, which the caller knows."""
        found: Any = self.data
        for step in steps:
            if not isinstance(found, dict) or step not in found:
                return default
            found = found[step]
        return found


@dataclass(frozen=True, slots=True)
class DeclaredRelease:
    """A release with its values. `steps`: of its entry in the Cluster."""

    cluster: DeclaredResource[ClusterSpec]
    steps: Steps
    operator: Operator
    values: Values
    archive: str | None

    def problem(self, path: tuple[str, ...], problem: str, hint: str = "") -> Diagnostic:
        """Return a problem of one of the values, at its own line and under its path."""
        return Diagnostic(self.values.at(*path), ".".join(("values", *path)), problem, hint)


def read_releases(declared: Declarations, tree: SpecTree) -> tuple[list[DeclaredRelease], list[Diagnostic]]:
    """Return the releases of the fleet's cluster, and the problems of each Cluster's releases and their files."""
    found: list[DeclaredRelease] = []
    problems: list[Diagnostic] = []
    ours = declared.fleets[0].spec.cluster if declared.fleets else None
    for cluster in declared.clusters.values():
        problems += _checked(cluster)
        for index, operator in enumerate(cluster.spec.operators):
            reader = _Reader(cluster, ("operators", index), tree)
            release = reader.read(operator)
            problems += reader.problems
            if cluster.name == ours:
                found.append(release)
    return found, problems


def _checked(cluster: DeclaredResource[ClusterSpec]) -> Iterator[Diagnostic]:
    operators = cluster.spec.operators
    if operators and cluster.spec.type is ClusterType.SLURM:
        yield cluster.problem(("operators",), "Helm installs into Kubernetes, and this cluster is none")
    seen: dict[str, int] = {}
    for index, one in enumerate(operators):
        if one.name in seen:
            problem = f"there are two releases {one.name!r}"
            yield cluster.problem(("operators", index, "name"), problem, "names are unique, whatever the namespace")
        seen.setdefault(one.name, index)
        known = _KNOWN_CHARTS.get(one.chart.name)
        if known is not None and one.kind is not known:
            problem = f"the chart {one.chart.name} owns parts of nodes, and this entry does not say that it is that"
            yield cluster.problem(("operators", index, "chart", "name"), problem, f"add `kind: {known.value}`")
        if one.owns and one.kind is OperatorKind.CHART:
            problem = "what a chart of any kind does to nodes is not known, so it can own nothing of them"
            yield cluster.problem(("operators", index, "owns"), problem, "say its `kind`")


class _Reader:
    """Reads the files of one release, and collects their problems."""

    def __init__(self, cluster: DeclaredResource[ClusterSpec], steps: Steps, tree: SpecTree) -> None:
        self._cluster = cluster
        self._steps = steps
        self._tree = tree
        self.problems: list[Diagnostic] = []

    def read(self, operator: Operator) -> DeclaredRelease:
        values = self._values(operator)
        return DeclaredRelease(self._cluster, self._steps, operator, values, self._archive(operator.chart))

    def _values(self, operator: Operator) -> Values:
        inline = Values(operator.values, self._cluster.document, ("spec", *self._steps, "values"))
        name = operator.values_file
        if name is None:
            return inline
        try:
            documents, problems = parse_yaml(self._tree.text(name), str(self._tree.where(name).file))
        except UnreadableFile as error:
            self._tell("valuesFile", f"{name!r}: {error.diagnostic.problem}")
            return inline
        self.problems += problems
        if len(documents) != 1 or not isinstance(documents[0].data, dict):
            self._tell("valuesFile", f"{name!r}: it has to hold one mapping of values")
            return inline
        return Values(documents[0].data, documents[0], ())

    def _archive(self, chart: ChartSpec) -> str | None:
        if chart.file is None:
            return None
        try:
            data = self._tree.read(chart.file)
        except UnreadableFile as error:
            self._tell("chart", f"{chart.file!r}: {error.diagnostic.problem}", "file")
            return None
        digest = hashlib.sha256(data).hexdigest()
        if digest != chart.sha256:
            self._tell("chart", f"{chart.file!r} has another digest, {digest}", "sha256")
        return base64.b64encode(data).decode()

    def _tell(self, key: str, problem: str, below: str = "") -> None:
        steps = (*self._steps, key, *((below,) if below else ()))
        self.problems.append(self._cluster.problem(steps, problem))


def desired_releases(found: list[DeclaredRelease]) -> tuple[DesiredRelease, ...]:
    """Return the releases as they are to be, in the order of the spec, in which they are installed."""
    return tuple(map(_desired, found))


def _desired(release: DeclaredRelease) -> DesiredRelease:
    one = release.operator
    chart = one.chart
    source = chart.file or chart.repository or ""
    if source.startswith("oci://"):
        source = f"{source.rstrip('/')}/{chart.name}"
    return DesiredRelease(
        one.name, one.namespace, one.kind,
        Chart(source, chart.name, chart.version, chart.sha256, release.archive),
        json.dumps(release.values.data, sort_keys=True), one.crds, parse_duration(one.timeout),
        release.cluster.at(*release.steps),
    )  # fmt: skip
