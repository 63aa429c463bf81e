"""The part of a Cluster that names Helm releases: operators, and any other chart, which the reconciler keeps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from reconciler.model.releases import CrdPolicy, OperatorKind
from reconciler.spec.kinds.base import PositiveDuration, Sha256, TreePath
from reconciler.strict_yaml.models import Matching, Model, Text

VALUES_FILE = ".values.yaml"  # how files of values end; they are no resources of the spec

# Helm's own limit is 53, as names of objects are made of it (pkg/action/action.go, releaseNameMaxLen).
ReleaseName = Annotated[str, Matching(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?", "a release name like gpu-operator")]
Namespace = Annotated[str, Matching(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a namespace like gpu-operator")]
ChartSource = Annotated[
    str, Matching(r"(https?|oci)://[^\s/@?#]+(/[^\s@?#]*)?", "a URL like https://host/path or oci://registry/path")
]
ChartName = Annotated[str, Matching(r"[a-z0-9][a-z0-9._-]*", "the name of a chart like gpu-operator")]


class Owned(StrEnum):
    """The parts of nodes that an operator may own, and we own otherwise."""

    DRIVER = "driver"
    MIG = "mig"
    CORDON = "cordon"


class ChartSpec(Model):
    """A chart, pinned by version and digest."""

    repository: ChartSource | None = Field(
        default=None, description="Where helm pulls it: the URL of a repository, or oci:// and what is before its name."
    )
    file: TreePath | None = Field(default=None, description="The archive below the spec directory, a .tgz.")
    name: ChartName = Field(description="Name of the chart.")
    version: Text = Field(description="Version of the chart, as the repository has it.")
    sha256: Sha256 = Field(description="Digest of the archive: `helm pull`, then sha256sum. Another one is not used.")

    @model_validator(mode="after")
    def _has_one_source(self) -> ChartSpec:
        if (self.repository is None) == (self.file is None):
            raise ValueError("a chart has a repository or a file, and not both")
        return self


class Operator(Model):
    """A Helm release."""

    name: ReleaseName = Field(description="Name of the release.")
    namespace: Namespace = Field(description="Its namespace, which is made where it is missing.")
    kind: OperatorKind = Field(
        default=OperatorKind.CHART,
        description="gpu-operator and network-operator of NVIDIA: what they would do to drivers, MIG and cordons is "
        "checked, and they are ready when their policy is. chart: any other.",
    )
    chart: ChartSpec = Field(description="Its chart.")
    values: Mapping[str, JsonValue] = Field(default={}, description="Values, on top of the chart's own.")
    values_file: TreePath | None = Field(
        default=None, description=f"A file of values below the spec directory, whose name ends in {VALUES_FILE}."
    )
    crds: CrdPolicy = Field(
        default=CrdPolicy.CREATE,
        description="The chart's folder `crds`. create: what is missing, when the release is installed. apply: all of "
        "it, before each install and upgrade, as Helm never upgrades them. skip: nothing of it.",
    )
    timeout: PositiveDuration = Field(
        default="10m", description="How long its objects may take to be ready; then helm goes back to what was before."
    )
    owns: tuple[Owned, ...] = Field(
        default=(),
        description="What of nodes belongs to this operator and not to the reconciler. A chart whose values do more "
        "than this is refused.",
    )

    @model_validator(mode="after")
    def _has_one_place_of_values(self) -> Operator:
        if self.values_file is not None:
            if self.values:
                raise ValueError("values are here or in a file, and not both")
            if not self.values_file.endswith(VALUES_FILE):
                raise ValueError(f"the name of a file of values ends in {VALUES_FILE}")
        return self
