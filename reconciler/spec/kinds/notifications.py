"""Channels through which people are told what happens to the fleet."""

from __future__ import annotations

from pydantic import Field, model_validator

from reconciler.model.notices import NoticeEvent, Severity
from reconciler.spec.kinds.base import PositiveDuration
from reconciler.spec.kinds.extensions import EntryName
from reconciler.spec.kinds.limits import Hours
from reconciler.strict_yaml.models import Model, Name


class Notification(Model):
    """A channel and what it is told. Of `pools`, `owners` and `personas`, a node must fit each that is given."""

    name: Name = Field(description="Name of the channel, unique in the Fleet.")
    url: Name | None = Field(
        default=None,
        description="Name of a secret that holds the channel's URL as Apprise reads it, such as slack:// or mailtos://.",
    )
    via: EntryName | None = Field(
        default=None,
        description="Name of a notifier of an extension, which gets what the secret `url` holds, in place of Apprise.",
    )
    kubernetes: bool = Field(
        default=False, description="Writes Events of the nodes' objects in the Fleet's cluster, instead of a `url`."
    )
    events: tuple[NoticeEvent, ...] | None = Field(
        default=None,
        min_length=1,
        description="Events that it is told: window (one begins soon, and work waits for it), isolated (a node is, on "
        "evidence of illness), repair (a node waits for a person), incident (a signal on more nodes than isolation may "
        "take), halted (the fleet, a rollout or a plan is, or no node can be reached), done (one of these has ended). "
        "Absent: all.",
    )
    severity: Severity = Field(
        default=Severity.INFO,
        description="Least severity that it is told: info, warning or critical. A window is info, an isolated node "
        "warning; repair, incident and halted are critical.",
    )
    pools: tuple[Name, ...] = Field(default=(), description="Pools that it is told of. Absent: all.")
    owners: tuple[Name, ...] = Field(default=(), description="Owners of the pools that it is told of. Absent: all.")
    personas: tuple[Name, ...] = Field(default=(), description="Personas that it is told of. Absent: all.")
    quiet_hours: tuple[Hours, ...] = Field(
        default=(),
        description="Hours in which it is told only what is critical. The rest follows in one message at their end.",
    )
    digest: PositiveDuration | None = Field(
        default=None,
        description="Collects what is not critical into one message per period this long. Absent: it is told at once.",
    )
    window_notice: PositiveDuration = Field(default="1h", description="How long before a window it is told of it.")

    @model_validator(mode="after")
    def _pools_or_owners(self) -> Notification:
        if self.pools and self.owners:
            raise ValueError("pools and owners exclude each other: owners stand for their pools")
        if (self.url is None) is not self.kubernetes:
            raise ValueError("give either url or `kubernetes: true`")
        if self.via is not None and self.url is None:
            raise ValueError("via needs a url: the notifier is given what that secret holds")
        return self
