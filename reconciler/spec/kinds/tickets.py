"""Trackers in which `run` opens a ticket for each part that a person must exchange."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reconciler.strict_yaml.models import Model, Name, Text


class GitHubIssues(Model):
    """Issues of a repository on GitHub."""

    repository: Text = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$", description="OWNER/NAME.")
    token: Name = Field(
        description="Name of a secret with a token that may write issues; its `allow` lists the API's host."
    )
    url: Text | None = Field(default=None, description="Address of the API of GitHub Enterprise. Absent: github.com's.")


class JiraIssues(Model):
    """Issues of a Jira project."""

    url: Text = Field(description="Address of Jira, such as https://example.atlassian.net.")
    project: Text = Field(pattern=r"^[A-Z][A-Z0-9_]*$", description="Key of the project.")
    token: Name = Field(description="Name of a secret with an API token (with `user`) or a personal access token.")
    user: Text | None = Field(default=None, description="Mail address of the token's account, as Jira Cloud needs it.")
    issue_type: Text = Field(default="Task", description="Type of its issues.")
    api: Literal[2, 3] = Field(default=2, description="Version of the REST API: 2 for Data Center, 3 for Cloud.")


class Webhook(Model):
    """A web server that is posted each ticket as JSON."""

    url: Name = Field(description="Name of a secret that holds the URL.")


class Tickets(Model):
    """A tracker. Exactly one of `github`, `jira` and `webhook` is given."""

    name: Name = Field(description="Name of the tracker, unique in the Fleet.")
    github: GitHubIssues | None = Field(default=None, description="Issues on GitHub.")
    jira: JiraIssues | None = Field(default=None, description="Issues in Jira.")
    webhook: Webhook | None = Field(default=None, description="A web server of the site's own.")
    labels: tuple[Name, ...] = Field(default=(), description="Labels of its tickets, beside the one they are found by.")
    pools: tuple[Name, ...] = Field(default=(), description="Pools whose parts have tickets here. Absent: all.")
    owners: tuple[Name, ...] = Field(default=(), description="Owners of the pools. Absent: all.")
    personas: tuple[Name, ...] = Field(default=(), description="Personas whose parts have tickets here. Absent: all.")

    @model_validator(mode="after")
    def _one_kind(self) -> Tickets:
        if sum(one is not None for one in (self.github, self.jira, self.webhook)) != 1:
            raise ValueError("give exactly one of github, jira and webhook")
        if self.pools and self.owners:
            raise ValueError("pools and owners exclude each other: owners stand for their pools")
        return self
