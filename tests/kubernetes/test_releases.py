"""The real helm on the real API server: install, compare, upgrade, go back, be killed, and go on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from reconciler.drivers.helm import HelmReleases
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.releases import CrdPolicy, DesiredRelease, OperatorKind, ReleaseFacts, ReleaseStatus, Review
from tests.drivers.helm.charts import CONFIG, DEPLOYMENT, package, release
from tests.drivers.helm.real_helm import helm
from tests.drivers.kube.bench import kubectl
from tests.kubernetes.scene import Scene, until

pytestmark = [pytest.mark.wire, pytest.mark.tool, pytest.mark.kubernetes]
T = TypeVar("T")

CRD = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.nvidia.com}
spec:
  group: nvidia.com
  scope: Cluster
  names: {kind: ClusterPolicy, plural: clusterpolicies, singular: clusterpolicy, listKind: ClusterPolicyList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


@dataclass
class Site:
    """A namespace with a node for the pods of a release, and the driver. One event loop serves all of its calls."""

    scene: Scene
    store: HelmReleases
    folder: Path
    loop: asyncio.AbstractEventLoop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def look(self, wanted: DesiredRelease) -> ReleaseFacts:
        seen: Answered[ReleaseFacts] | Silent = self.run(self.store.look(wanted))
        assert isinstance(seen, Answered), seen
        return seen.value

    def release(self, version: str, templates: dict[str, str], **values: Any) -> DesiredRelease:
        archive = self.folder / f"demo-{version}.tgz"
        if not archive.exists():
            archive = package(self.folder, version, templates, values.pop("crds", None))
        values.pop("crds", None)
        return release(archive, "demo", self.scene.name, scene=self.scene.name, **values)

    def config(self) -> str:
        return str(self.scene.plane.get(self.scene.path("configmaps/demo-config"))["data"]["size"])

    def kill_in(self, work: Coroutine[Any, Any, None], until: Callable[[], bool]) -> None:
        """Kill helm, and all that it started, as soon as `until` is so. The run that awaited it is gone, too."""

        async def killing() -> None:
            task = asyncio.ensure_future(work)
            while not await asyncio.to_thread(until):
                assert not task.done(), "it ended before it could be killed"
                await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait([task])

        self.run(killing())


@pytest.fixture
def site(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("reconciler.drivers.helm.process._STOPS_S", 0.0)  # a kill is no chance to clean up
    scene.add_node()
    store = HelmReleases(
        kubeconfig=scene.kubeconfig, context=None, timeout_s=20.0, now=scene.clock.now, helm=helm(), kubectl=kubectl()
    )
    loop = asyncio.new_event_loop()
    yield Site(scene, store, tmp_path, loop)
    loop.run_until_complete(store.close())
    loop.close()


def test_a_chart_is_installed_compared_and_upgraded(site: Site) -> None:
    wanted = site.release("1.0.0", {"config.yaml": CONFIG}, size=1, password="hunter1")
    absent = site.look(wanted)
    assert absent.status is ReleaseStatus.ABSENT
    assert absent.changes is not None
    assert [(one.change, one.object) for one in absent.changes] == [
        ("added", f"ConfigMap {site.scene.name}/demo-config"), ("added", f"Secret {site.scene.name}/demo-secret"),
    ]  # fmt: skip
    site.run(site.store.install(wanted))
    found = site.look(wanted)
    assert (found.status, found.revision, found.chart, found.inputs) == (
        ReleaseStatus.DEPLOYED, 1, "demo-1.0.0", wanted.inputs,
    )  # fmt: skip
    assert (found.changes, found.not_ready, found.good) == ((), (), 1)

    other = site.release("1.0.0", {}, size=2, password="hunter2")
    changes = site.look(other).changes
    assert changes is not None
    config, secret = changes
    assert [(one.path, one.before, one.after) for one in config.values] == [("data.size", "1", "2")]
    assert "hunter" not in str(secret)
    site.run(site.store.install(other))
    assert (site.look(other).revision, site.config()) == (2, "2")


@pytest.mark.parametrize("review", [Review.MERGED, Review.CHANGED])
def test_a_template_of_a_change_reads_nothing_in_the_cluster(site: Site, review: Review) -> None:
    """A ConfigMap of the chart shows what a Secret of the cluster holds: only for a chart that somebody has merged."""
    site.run(site.store.install(site.release("1.0.0", {"config.yaml": CONFIG}, password="hunter1")))
    stolen = '{{ (lookup "v1" "Secret" .Release.Namespace "demo-secret").data | toJson | quote }}'
    looking = CONFIG.replace('"{{ .Values.size }}"', stolen)
    wanted = replace(site.release("2.0.0", {"config.yaml": looking}, password="hunter1"), review=review)
    changes = site.look(wanted).changes
    assert changes is not None
    encoded = base64.b64encode(b"hunter1").decode()
    assert (encoded in str(changes)) is (review is Review.MERGED)


@pytest.mark.parametrize("source", ["http://127.0.0.1:9/charts", "oci://127.0.0.1:9/charts/demo"])
def test_a_chart_from_a_new_place_is_not_fetched_for_a_change(site: Site, source: str) -> None:
    wanted = site.release("1.0.0", {"config.yaml": CONFIG})
    there = replace(wanted, chart=replace(wanted.chart, source=source, archive=None), review=Review.NEW_SOURCE)
    seen = site.run(site.store.look(there))
    assert isinstance(seen, Silent)
    assert "its chart is fetched once this is merged" in seen.detail


def test_a_release_that_a_person_changed_differs_again(site: Site) -> None:
    wanted = site.release("1.0.0", {"config.yaml": CONFIG}, size=1)
    site.run(site.store.install(wanted))
    command = [
        "upgrade",
        "demo",
        str(site.folder / "demo-1.0.0.tgz"),
        "--namespace",
        site.scene.name,
        "--set",
        "size=7",
    ]
    site.run(site.store._helm.run(command, timeout_s=60.0))
    found = site.look(wanted)
    assert (found.inputs, found.status) == ("", ReleaseStatus.DEPLOYED)
    assert found.changes
    site.run(site.store.install(wanted))
    assert site.config() == "1"


def test_a_failed_upgrade_goes_back_and_a_failed_install_leaves_nothing(site: Site) -> None:
    good = site.release("1.0.0", {"config.yaml": CONFIG}, size=1)
    bad = replace(site.release("2.0.0", {"config.yaml": CONFIG, "web.yaml": DEPLOYMENT}, size=1), timeout_s=3.0)
    bad = replace(bad, values=bad.values.replace(f'"{site.scene.name}"', '"nowhere"'))  # no node takes its pods
    with pytest.raises(DriverError) as caught:
        site.run(site.store.install(bad))
    assert caught.value.kind is Failure.TIMEOUT, caught.value
    assert site.look(bad).status is ReleaseStatus.ABSENT
    site.run(site.store.install(good))
    with pytest.raises(DriverError):
        site.run(site.store.install(bad))
    found = site.look(good)
    assert (found.status, found.chart) == (ReleaseStatus.DEPLOYED, "demo-1.0.0")
    assert found.inputs == ""  # helm describes it as a rollback: it is compared again
    assert found.changes == ()


@pytest.mark.parametrize("kind", ["install", "upgrade"])
def test_a_killed_helm_leaves_a_pending_release_which_is_ended(site: Site, kind: str) -> None:
    if kind == "upgrade":
        site.run(site.store.install(site.release("1.0.0", {"config.yaml": CONFIG}, size=1)))
    slow = site.release("2.0.0", {"config.yaml": CONFIG, "web.yaml": DEPLOYMENT}, size=1)
    stuck = replace(slow, values=slow.values.replace(f'"{site.scene.name}"', '"nowhere"'))
    path = f"/apis/apps/v1/namespaces/{site.scene.name}/deployments"
    site.kill_in(site.store.install(stuck), lambda: bool(site.scene.plane.get(path)["items"]))
    found = site.look(slow)
    assert (found.status.is_pending, found.changes, found.not_ready) == (True, None, None)
    assert found.good == (1 if kind == "upgrade" else 0)
    assert found.since is not None
    with pytest.raises(DriverError) as caught:
        site.run(site.store.install(slow))
    assert caught.value.kind is Failure.BUSY
    site.run(site.store.recover(slow, found))
    site.run(site.store.install(slow))
    assert site.look(slow).status is ReleaseStatus.DEPLOYED
    assert site.look(slow).inputs == slow.inputs


def test_workloads_and_policies_that_are_not_ready_are_named(site: Site) -> None:
    """This server, as Debian builds it, crashes on each custom resource: tests/drivers/helm judges those."""
    wanted = site.release("1.0.0", {"web.yaml": DEPLOYMENT}, size=1, crds={"policy.yaml": CRD})
    wanted = replace(wanted, kind=OperatorKind.GPU)
    site.run(site.store.install(wanted))
    assert site.look(wanted).not_ready == ("there is no ClusterPolicy, so the operator does nothing",)
    deployment = f"/apis/apps/v1/namespaces/{site.scene.name}/deployments/demo"
    elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"scene": "nowhere"}}}}}
    site.scene.plane.patch(deployment, elsewhere)
    charted = replace(wanted, kind=OperatorKind.CHART)
    found = until(lambda: site.look(charted).not_ready)  # the controller takes a moment to begin its rollout
    assert found is not None
    assert found[0].startswith(f"Deployment {site.scene.name}/demo: ")


@pytest.mark.parametrize(("policy", "versions"), [(CrdPolicy.CREATE, ["v1"]), (CrdPolicy.APPLY, ["v1", "v2"])])
def test_definitions_are_upgraded_only_where_the_spec_says_so(
    site: Site, policy: CrdPolicy, versions: list[str]
) -> None:
    group = f"{policy.value}.example.com"
    first = CRD.replace("nvidia.com", group)
    second = first + "  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n"
    for version, text in (("1.0.0", first), ("2.0.0", second)):
        wanted = site.release(version, {"config.yaml": CONFIG}, crds={"policy.yaml": text})
        site.run(site.store.install(replace(wanted, crds=policy)))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterpolicies.{group}"
    assert [one["name"] for one in site.scene.plane.get(path)["spec"]["versions"]] == versions
    site.scene.plane.delete(path)
