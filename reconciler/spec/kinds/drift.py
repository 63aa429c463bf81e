"""The response of `run` to drift, and the forge on which it is proposed."""

from __future__ import annotations

from pydantic import Field, model_validator

from reconciler.model.forge import ForgeKind
from reconciler.model.vocab import DriftMode
from reconciler.spec.kinds.base import WebUrl
from reconciler.strict_yaml.models import Model, Name, Text


class SpecForge(Model):
    """The repository of this spec on its forge."""

    kind: ForgeKind = Field(description="github or gitlab.")
    repository: Text = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)+$",
        description="OWNER/NAME; on GitLab also with groups between.",
    )
    token: Name = Field(
        description="Name of a secret with a token that may write contents and pull requests; its `allow` lists the "
        "API's host."
    )
    url: WebUrl | None = Field(
        default=None,
        description="Address of the API of a forge of one's own. Absent: that of github.com or gitlab.com.",
    )


class Drift(Model):
    """The response of `run` to drift. An explicit apply corrects every managed difference."""

    mode: DriftMode = Field(
        default=DriftMode.OBSERVE,
        description="observe: report it. propose: also keep a pull request that has the spec want what nodes have. "
        "correct: bring the nodes to the spec.",
    )
    forge: SpecForge | None = Field(default=None, description="The spec's forge, for mode: propose.")

    @model_validator(mode="after")
    def _forge_for_proposals(self) -> Drift:
        if self.mode is DriftMode.PROPOSE and self.forge is None:
            raise ValueError("mode: propose needs forge, with kind, repository and token")
        if self.mode is not DriftMode.PROPOSE and self.forge is not None:
            raise ValueError("forge is for mode: propose alone")
        return self
