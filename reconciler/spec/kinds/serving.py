"""How the nodes of a pool serve together, and what they are told before one of them is taken out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from reconciler.spec.kinds.base import ContainerImageName, DomainLabel, PositiveDuration, SavedPath, WebUrl
from reconciler.spec.kinds.network import LinkName
from reconciler.strict_yaml.models import Argv, Model, Text

Group = Annotated[tuple[Text, ...], Field(min_length=1)]


class ServingCommand(Model):
    """A command that is run on each node that is to serve, over SSH."""

    command: Argv = Field(
        description="Program and arguments; exit 0 means that the node was told. {nodes} in a word stands for the "
        "nodes that are to serve, with commas between them, and {node} for the one that goes, or came back."
    )


class ServingReady(Model):
    """How a node shows that it serves."""

    url: WebUrl = Field(
        description="URL that is asked on each node that is to serve, by curl there; it serves while it answers 2xx."
    )
    timeout: PositiveDuration = Field(
        default="10m", description="How long each node may take until it answers, after the command has ended."
    )


class Sync(Model):
    """Data that the nodes that stay copy from the one that goes, before they are told to serve without it."""

    paths: tuple[SavedPath, ...] = Field(
        default=(), description="Files and directories on the hosts, each with all in it, such as models."
    )
    images: tuple[ContainerImageName, ...] = Field(
        default=(),
        description="Container images, named as `ctr -n k8s.io images ls` of the hosts does, or Docker where that has "
        "them.",
    )
    link: LinkName = Field(
        description="Link of `network` of the nodes, whose first address they copy from. rsync does it, over SSH."
    )
    gbps: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None,
        description="Line rate of that link in Gbit/s, with which the rate of a copy is compared in its report.",
    )

    @model_validator(mode="after")
    def _says_what(self) -> Sync:
        if not self.paths and not self.images:
            raise ValueError("say what is copied: paths or images")
        return self


class Serving(Model):
    """Nodes that serve together, such as those of one tensor-parallel group. One at most is away at a time."""

    groups: tuple[Group, ...] | None = Field(
        default=None, description="Nodes that serve together, a list for each group; ranges like gpu-a[001-002] too."
    )
    domain: DomainLabel | None = Field(
        default=None,
        description="In place of groups: nodes of the pool with one value of this failure-domain label serve together.",
    )
    degrade: ServingCommand = Field(
        description="Run on each node that stays, before one of its group is drained. Its node has to answer after it."
    )
    restore: ServingCommand = Field(
        description="Run on each node of the group, after the one that was away is in service again."
    )
    ready: ServingReady = Field(description="How a node shows that it serves.")
    timeout: PositiveDuration = Field(default="10m", description="How long a command may take on one node.")
    sync: Sync | None = Field(
        default=None,
        description="Data that the nodes that stay need to serve without the other one. Absent: nothing is copied.",
    )

    @model_validator(mode="after")
    def _says_who(self) -> Serving:
        if (self.groups is None) is (self.domain is None):
            raise ValueError("say which nodes serve together in one way: groups or domain")
        return self
