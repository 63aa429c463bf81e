"""The inventory outside of the spec that its nodes are kept in step with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from reconciler.model.inventory import InventoryKind
from reconciler.spec.kinds.base import NodeShare, PositiveDuration, WebUrl
from reconciler.spec.kinds.drift import SpecForge
from reconciler.strict_yaml.models import Matching, Model, Name, Text

Column = Annotated[str, Matching(r"name|bmc|host|pool|rack|domains\.[a-z][a-z0-9-]*", "a column that nodes have")]
File = Annotated[str, Matching(r"/[^\x00-\x1f]*", "an absolute path")]


class InventorySource(Model):
    """An inventory that knows the nodes. `run` keeps a pull request that brings the spec in step with it."""

    kind: InventoryKind = Field(description="ansible, netbox, ironic, metal3, terraform or maas.")
    url: WebUrl | None = Field(
        default=None, description="For netbox: a query of devices, like https://netbox/api/dcim/devices/?role=gpu."
    )
    token: Name | None = Field(
        default=None, description="Name of a secret with a token for `url` that may read; its `allow` lists the host."
    )
    file: File | None = Field(
        default=None,
        description="Absolute path of a file where `run` is, as `init --from` takes it. Whatever writes it replaces it "
        "as a whole.",
    )
    columns: Mapping[Column, Text] = Field(
        default={},
        description="Where values are in the inventory's objects, by column, like bmc: custom_fields.bmc. Absent: "
        "where they usually are.",
    )
    pool: Name | None = Field(
        default=None, description="Pool of new nodes for which the inventory names none. Absent: those are not added."
    )
    pools: tuple[Name, ...] = Field(
        default=(), description="Pools whose nodes the inventory knows; others are left alone. Absent: all."
    )
    retire: NodeShare = Field(
        default="5%",
        description="Most nodes that one proposal may retire, a count or a share rounded up. With more nothing is "
        "proposed: the inventory may have answered with half.",
    )
    change: NodeShare = Field(
        default="5%",
        description="Most nodes whose addresses or failure domains one proposal may change, a count or a share rounded "
        "up. With more nothing is proposed: the inventory may have them in another place now.",
    )
    interval: PositiveDuration = Field(default="1h", description="Time between two readings of the inventory.")
    forge: SpecForge | None = Field(
        default=None,
        description="The spec's forge. Absent: `run` proposes nothing, and `reconciler inventory propose` does, in a "
        "job of the forge.",
    )

    @model_validator(mode="after")
    def _is_somewhere(self) -> InventorySource:
        if (self.url is None) == (self.file is None):
            raise ValueError("url and file exclude each other, and one of them must be given")
        if self.url is not None and self.kind is not InventoryKind.NETBOX:
            raise ValueError(f"url is for netbox alone: write the answer of {self.kind} to a file, and give file")
        if (self.url is None) != (self.token is None):
            raise ValueError("url and token go together")
        if self.kind is InventoryKind.TERRAFORM and "bmc" not in self.columns:
            raise ValueError("columns must have bmc: no value of a Terraform state is a BMC's address to everybody")
        return self
