"""Cluster: the Kubernetes cluster that nodes belong to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from reconciler.spec.kinds.base import NOT_ENFORCED, Resource
from reconciler.spec.kinds.k3s import K3s
from reconciler.strict_yaml.models import Argv, Model, Name, Text


class ClusterType(StrEnum):
    KUBERNETES = "kubernetes"
    K3S = "k3s"


class Join(Model):
    """How a host joins the cluster."""

    command: Argv = Field(description="Program and arguments, run on the host.")


class ClusterSpec(Model):
    """How the cluster is reached and joined."""

    type: ClusterType = Field(
        default=ClusterType.KUBERNETES,
        description="kubernetes: an existing cluster. k3s: one that the reconciler installs.",
    )
    kubeconfig: Name | None = Field(
        default=None, description="Name of a secret that holds a kubeconfig. Absent: kubectl's own default."
    )
    context: Text | None = Field(default=None, description="Context of the kubeconfig. Absent: its current one.")
    join: Join | None = Field(default=None, description="How a host joins. Absent: membership is verified only.")
    k3s: K3s | None = Field(default=None, alias="k3s", description="The cluster of `type: k3s`.")
    operators: Annotated[tuple[Name, ...] | None, NOT_ENFORCED] = Field(
        default=None, description="Operators that must be healthy before a node is admitted."
    )


class Cluster(Resource):
    """A Kubernetes cluster."""

    kind: Literal["Cluster"] = Field(description="Cluster.")
    spec: ClusterSpec = Field(description="How the cluster is reached and joined.")
