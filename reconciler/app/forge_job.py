"""The job of a forge's CI that this process runs in, from the variables that GitHub Actions and GitLab CI set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.app.clocks import RealClock
from reconciler.drivers.extensions import connected, forge_extension
from reconciler.drivers.forge import api_address, connect
from reconciler.drivers.secrets import Secret, SecretStore
from reconciler.model.errors import UsageError
from reconciler.model.forge import Forge, ForgeKind, SpecForge

_TOKENS = {ForgeKind.GITHUB: "GITHUB_TOKEN", ForgeKind.GITLAB: "GITLAB_TOKEN"}


@dataclass(frozen=True, slots=True)
class ForgeJob:
    """`url`: of the forge's API, "" for the usual one. `run_url`: the page of this job. `repository`: its own.

    `summary`: file that the forge shows as the job's summary. "" = not set.
    """

    kind: ForgeKind
    url: str
    repository: str
    run_url: str
    summary: str


def forge_job(env: Mapping[str, str] = os.environ) -> ForgeJob:
    """Return the job. Outside of a job it is GitHub, and GitLab where CI_API_V4_URL names one."""
    if env.get("CI_API_V4_URL") and not env.get("GITHUB_ACTIONS"):
        project, page = env.get("CI_PROJECT_PATH", ""), env.get("CI_JOB_URL", "")
        return ForgeJob(ForgeKind.GITLAB, env["CI_API_V4_URL"], project, page, "")
    parts = [env.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    server, repository, run = parts
    page = f"{server}/{repository}/actions/runs/{run}/attempts/{env.get('GITHUB_RUN_ATTEMPT', '1')}"
    url, summary = env.get("GITHUB_API_URL", ""), env.get("GITHUB_STEP_SUMMARY", "")
    return ForgeJob(ForgeKind.GITHUB, url, repository, page if all(parts) else "", summary)


def connect_forge(repository: str = "", env: Mapping[str, str] = os.environ) -> Forge:
    """Return the forge of a repository; "" = that of this job. Raise UsageError when it or its token is not known.

    RECONCILER_FORGE names a package of an extension in place of GitHub and GitLab.
    """
    job = forge_job(env)
    if not (repository := repository or job.repository):
        raise UsageError("the repository is not known: give --repo OWNER/NAME")
    token = env.get("RECONCILER_FORGE_TOKEN") or env.get(_TOKENS[job.kind]) or ""
    if not token:
        raise UsageError(f"there is no token: set RECONCILER_FORGE_TOKEN or {_TOKENS[job.kind]}")
    login = env.get("RECONCILER_FORGE_LOGIN", "")
    if other := env.get("RECONCILER_FORGE"):
        extended = forge_extension(other)
        return connected(
            f"the forge of {other}", lambda: extended.connect(repository, token, RealClock(), job.url), Forge
        )
    return connect(repository, token, RealClock(), kind=job.kind, url=job.url, login=login)


def spec_forge(place: SpecForge, secrets: SecretStore) -> tuple[str, Secret]:
    """Return the address of the API of a spec's forge, and the token. Raise UsageError where it may not go there."""
    url = place.url or api_address(place.kind)
    return url, secrets.resolve(place.secret, url, fresh=True)
