"""`HelmReleases`, which implements ports.ReleaseStore with the installed helm and kubectl."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from reconciler.diff.manifests import changes_between, objects_of
from reconciler.drivers.helm.charts import Charts
from reconciler.drivers.helm.process import Helm, NoRelease
from reconciler.drivers.helm.readiness import POLICIES, WORKLOADS, policies_not_ready, workloads_not_ready
from reconciler.drivers.kube.failures import KubeFailure
from reconciler.drivers.kube.process import Kubectl
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure
from reconciler.model.json_text import parse_json
from reconciler.model.observed import Answered, Silent
from reconciler.model.releases import (
    DESCRIPTION,
    CrdPolicy,
    DesiredRelease,
    OperatorKind,
    ReleaseFacts,
    ReleaseStatus,
    Review,
)
from reconciler.model.vocab import UnknownReason

HISTORY: Final = 10  # revisions that are kept, as Helm's own default is
_SPARE_S: Final = 30.0  # helm's own deadline comes first, as it cleans up after itself
_DEPLOYED: Final = ("deployed", "superseded")  # the states of revisions that once worked


class HelmReleases(Confined):
    """The releases of one cluster. `timeout_s`: wall-clock seconds of a read. `close` removes the archives."""

    def __init__(
        self,
        *,
        kubeconfig: Path | None,
        context: str | None,
        timeout_s: float,
        now: Callable[[], datetime],
        helm: str = "helm",
        kubectl: str = "kubectl",
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="reconciler-helm-")
        self._helm = Helm(helm, kubeconfig, context, Path(self._folder.name))
        self._charts = Charts(self._helm, Path(self._folder.name))
        self._kubectl = Kubectl(kubectl, kubeconfig, context, timeout_s)
        self._timeout_s = timeout_s
        self._now = now

    async def close(self) -> None:
        await self._kubectl.close()
        self._folder.cleanup()

    # --- reads ---------------------------------------------------------------------------------------------------

    async def look(self, wanted: DesiredRelease) -> Answered[ReleaseFacts] | Silent:
        if wanted.review is Review.NEW_SOURCE:
            problem = f"nothing that is merged names {wanted.chart.source}: its chart is fetched once this is merged"
            return Silent(self._now(), UnknownReason.NOT_ASKED, problem)
        try:
            facts = await self._facts(wanted)
        except DriverError as error:
            known = error.kind.value in UnknownReason._value2member_map_
            reason = UnknownReason(error.kind.value) if known else UnknownReason.UNSUPPORTED
            return Silent(self._now(), reason, error.detail)
        return Answered(self._now(), facts)

    async def _facts(self, wanted: DesiredRelease) -> ReleaseFacts:
        history = await self._history(wanted)
        if not history:
            return ReleaseFacts(ReleaseStatus.ABSENT, changes=await self._changes(wanted, ""))
        newest = history[-1]
        good = [one for one in history if one.get("status") in _DEPLOYED]
        status = ReleaseStatus(newest["status"])
        said = str(newest.get("description", ""))
        inputs = said.removeprefix(DESCRIPTION) if said.startswith(DESCRIPTION) else ""
        changes, not_ready = None, None
        if not status.is_pending:
            manifest = await self._ask(wanted, "get", "manifest")
            same = status is ReleaseStatus.DEPLOYED and inputs == wanted.inputs
            changes = () if same else await self._changes(wanted, manifest)
            not_ready = await self._not_ready(wanted, manifest)
        return ReleaseFacts(
            status, int(newest["revision"]), str(newest.get("chart", "")), inputs, _instant(newest.get("updated")),
            max((int(one["revision"]) for one in good), default=0), changes, not_ready,
        )  # fmt: skip

    async def _history(self, wanted: DesiredRelease) -> list[Mapping[str, Any]]:
        try:
            said = await self._ask(wanted, "history", "", "--max", str(HISTORY), "--output", "json")
        except NoRelease:
            return []
        try:
            found = parse_json(said.encode())
            return sorted(found, key=lambda one: int(one["revision"]))
        except (ValueError, KeyError, TypeError):
            raise DriverError(Failure.MALFORMED, "helm history printed no history") from None

    async def _changes(self, wanted: DesiredRelease, manifest: str) -> Any:
        """Render as the server would have it, and compare. Nothing is written.

        With --dry-run=client, templates find nothing in the cluster (pkg/action/upgrade.go, interactWithRemote).
        """
        where = "server" if wanted.review is Review.MERGED else "client"
        arguments = [*await self._upgrade(wanted), f"--dry-run={where}"]
        said = await self._helm.run(arguments, timeout_s=self._timeout_s + _SPARE_S, stdin=wanted.values)
        try:
            rendered = parse_json(said.encode())["manifest"]
            return changes_between(manifest, str(rendered), wanted.namespace)
        except (ValueError, KeyError, TypeError) as error:
            raise DriverError(Failure.MALFORMED, f"helm printed no manifest: {error}") from None

    async def _not_ready(self, wanted: DesiredRelease, manifest: str) -> tuple[str, ...] | None:
        try:
            found = [*workloads_not_ready(await self._workloads(wanted, manifest))]
            if wanted.kind in POLICIES:
                found += policies_not_ready(wanted.kind, await self._policies(wanted.kind))
        except KubeFailure:
            return None
        return tuple(found)

    async def _workloads(self, wanted: DesiredRelease, manifest: str) -> list[Any]:
        """Read the workloads of a release as they are. Each is named with its namespace: charts have some in others.

        With --namespace, kubectl refuses objects of any other (cli-runtime, pkg/resource/visitor.go: RequireNamespace).
        """
        try:
            found = objects_of(manifest, wanted.namespace)
        except ValueError as error:
            raise DriverError(Failure.MALFORMED, f"helm printed no manifest: {error}") from None
        asked = [
            {
                "apiVersion": data["apiVersion"], "kind": data["kind"],
                "metadata": {"namespace": namespace, "name": name},
            }
            for (_, namespace, name), data in found.items()
            if data.get("kind") in WORKLOADS
        ]  # fmt: skip
        if not asked:
            return []
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": asked}).encode()
        said = await self._kubectl.run(["get", "-f", "-", "-o", "json", "--ignore-not-found"], listed)
        if not said.strip():
            return []
        found = parse_json(said)
        return list(found["items"]) if found.get("kind") == "List" else [found]

    async def _policies(self, kind: OperatorKind) -> dict[str, list[Any]]:
        return {name: await self._listed(path) for name, path in POLICIES[kind].items()}

    async def _listed(self, path: str) -> list[Any]:
        """Return all objects of a kind; none where the cluster does not have the kind."""
        try:
            return list(parse_json(await self._kubectl.raw("get", path))["items"])
        except KubeFailure as failure:
            if failure.problem.code == 404:
                return []
            raise

    # --- writes --------------------------------------------------------------------------------------------------

    async def install(self, wanted: DesiredRelease) -> None:
        """Install or upgrade; a failed one is rolled back, or uninstalled, by helm itself (`--atomic`)."""
        if wanted.crds is CrdPolicy.APPLY:
            await self._apply_crds(wanted)
        arguments = [*await self._upgrade(wanted), "--atomic", "--timeout", f"{max(1, round(wanted.timeout_s))}s"]
        # As long again for what an atomic upgrade takes to go back.
        await self._helm.run(arguments, timeout_s=2 * wanted.timeout_s + _SPARE_S, stdin=wanted.values)

    async def _upgrade(self, wanted: DesiredRelease) -> list[str]:
        return [
            "upgrade", wanted.name, str(await self._charts.path(wanted.chart)), "--install",
            "--namespace", wanted.namespace, "--create-namespace", "--values", "-", "--reset-values",
            "--history-max", str(HISTORY), "--description", DESCRIPTION + wanted.inputs, "--output", "json",
            *(["--skip-crds"] if wanted.crds is CrdPolicy.SKIP else []),
        ]  # fmt: skip

    async def _apply_crds(self, wanted: DesiredRelease) -> None:
        """Apply the chart's definitions, whose annotations would be too long for a client-side apply."""
        archive = str(await self._charts.path(wanted.chart))
        definitions = await self._helm.run(["show", "crds", archive], timeout_s=self._timeout_s, cluster=False)
        if definitions.strip():
            try:
                await self._kubectl.run(
                    ["apply", "--server-side", "--force-conflicts", "-f", "-"], definitions.encode()
                )
            except KubeFailure as failure:
                raise failure.problem.of_write() from failure

    async def recover(self, wanted: DesiredRelease, found: ReleaseFacts) -> None:
        """End what a helm that is gone left pending: go back to the last revision that worked, or take it all away."""
        limit = ["--namespace", wanted.namespace, "--timeout", f"{max(1, round(wanted.timeout_s))}s"]
        if found.good and found.status is not ReleaseStatus.UNINSTALLING:
            arguments = ["rollback", wanted.name, str(found.good), *limit]
        else:
            arguments = ["uninstall", wanted.name, "--wait", *limit]
        await self._helm.run(arguments, timeout_s=wanted.timeout_s + _SPARE_S)

    async def _ask(self, wanted: DesiredRelease, verb: str, what: str, *more: str) -> str:
        arguments = [verb, *([what] if what else []), wanted.name, "--namespace", wanted.namespace, *more]
        return await self._helm.run(arguments, timeout_s=self._timeout_s + _SPARE_S)


def _instant(text: object) -> datetime | None:
    """Return the instant of helm's "2026-11-27T04:24:20.123456789Z"; None where it is another text."""
    if not isinstance(text, str):
        return None
    head, dot, tail = text.partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    zone = tail[len(digits) :]
    try:
        found = datetime.fromisoformat(f"{head}.{digits[:6]:0<6}{zone}" if dot else text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
