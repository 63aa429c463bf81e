"""Cluster: what places work on nodes: Kubernetes, Slurm, or both."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from reconciler.model.addresses import SSH_PORT, split_authority
from reconciler.spec import ranges
from reconciler.spec.kinds.base import PositiveDuration, Resource
from reconciler.spec.kinds.k3s import K3s
from reconciler.spec.kinds.operators import Operator
from reconciler.strict_yaml.models import Argv, Model, Name, Text


class ClusterType(StrEnum):
    KUBERNETES = "kubernetes"
    K3S = "k3s"
    SLURM = "slurm"


class Join(Model):
    """How a host joins the cluster."""

    command: Argv = Field(description="Program and arguments, run on the host.")


class Slurm(Model):
    """A Slurm, whose commands are run over SSH."""

    login: Text = Field(
        description="host[:port] where scontrol, squeue and scancel run for an operator of Slurm: its controller, or a "
        "login node. It is reached as `ssh` of the Fleet says."
    )
    user: Text | None = Field(default=None, description="User there. Absent: ssh.user of the Fleet.")
    programs: Annotated[str, Field(pattern=r"^/[^\s]*$")] | None = Field(
        default=None, description="Folder of these commands, like /opt/slurm/bin. Absent: PATH finds them."
    )
    nodes: Mapping[Text, Text] = Field(
        default={},
        description="Names of nodes in this spec -> in slurm.conf; both may be ranges of one length, as in "
        "`gpu-a[001-008]: n[1-8]`. Nodes that are not here have the same name in both.",
    )
    take_over: tuple[Annotated[str, Field(min_length=2)], ...] = Field(
        default=("NHC",),
        description="How the reasons begin that health checks of the site give when they drain a node. Such a node is "
        "ill and nobody's decision: when it is taken out for repair, our reason replaces theirs.",
    )

    reserve: PositiveDuration | None = Field(
        default=None,
        description="How long before they are expected to be taken out in a window nodes are reserved for maintenance, "
        "like 24h, so that no job begins that would run into it. `reconciler run` does it. Give the longest time that "
        "a job may take. Absent: nodes are not reserved.",
    )

    @field_validator("login")
    @classmethod
    def _is_address(cls, login: str) -> str:
        split_authority(login, SSH_PORT)
        return login

    @field_validator("nodes")
    @classmethod
    def _ranges_match(cls, nodes: Mapping[str, str]) -> Mapping[str, str]:
        paired(nodes)
        return nodes


def paired(nodes: Mapping[str, str]) -> dict[str, str]:
    """Return node -> name in Slurm, with ranges expanded. Raise ValueError when they don't match, or name one twice."""
    found: dict[str, str] = {}
    for ours, theirs in nodes.items():
        if ranges.count(ours) != ranges.count(theirs):
            raise ValueError(f"{ours!r} and {theirs!r} differ in length")
        for name, other in zip(ranges.expand(ours), ranges.expand(theirs), strict=True):
            if name in found:
                raise ValueError(f"{name!r} is named twice")
            found[name] = other
    if len(set(found.values())) < len(found):
        raise ValueError("two nodes have one name in Slurm")
    return found


class ClusterSpec(Model):
    """How the cluster is reached and joined."""

    type: ClusterType = Field(
        default=ClusterType.KUBERNETES,
        description="kubernetes: an existing cluster. k3s: one that the reconciler installs. "
        "slurm: an existing Slurm and no Kubernetes.",
    )
    kubeconfig: Name | None = Field(
        default=None, description="Name of a secret that holds a kubeconfig. Absent: kubectl's own default."
    )
    context: Text | None = Field(default=None, description="Context of the kubeconfig. Absent: its current one.")
    join: Join | None = Field(default=None, description="How a host joins. Absent: membership is verified only.")
    k3s: K3s | None = Field(default=None, alias="k3s", description="The cluster of `type: k3s`.")
    operators: tuple[Operator, ...] = Field(
        default=(), description="Helm releases that are kept as they are here, installed one after the other."
    )
    slurm: Slurm | None = Field(
        default=None,
        description="How Slurm is reached. With type kubernetes: a Slurm that places jobs on the same nodes; a node is "
        "drained when both say so.",
    )

    @model_validator(mode="after")
    def _slurm_fits(self) -> ClusterSpec:
        if self.type is ClusterType.SLURM and self.slurm is None:
            raise ValueError("type slurm needs `slurm`, which says how it is reached")
        if self.type is ClusterType.SLURM and (self.kubeconfig is not None or self.context is not None):
            raise ValueError(
                "type slurm has no kubeconfig and no context; a Slurm beside Kubernetes is `slurm` of that"
            )
        return self


class Cluster(Resource):
    """A Kubernetes cluster, a Slurm, or both beside each other."""

    kind: Literal["Cluster"] = Field(description="Cluster.")
    spec: ClusterSpec = Field(description="How the cluster is reached and joined.")
