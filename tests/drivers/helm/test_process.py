"""helm as it is run: the real program without a cluster, its digests, and what its last words mean."""

from __future__ import annotations

import asyncio
import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.helm import HelmReleases
from reconciler.drivers.helm.charts import Charts
from reconciler.drivers.helm.process import Helm, NoRelease, _failure
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Silent
from reconciler.model.vocab import UnknownReason
from tests.drivers.helm.charts import CONFIG, package, release
from tests.drivers.helm.real_helm import helm

tool = pytest.mark.tool


def store(tmp_path: Path, program: str = "") -> HelmReleases:
    (tmp_path / "kubeconfig").write_text(NOBODY)
    return HelmReleases(
        kubeconfig=tmp_path / "kubeconfig", context=None, timeout_s=5.0, now=lambda: datetime(2026, 11, 27, tzinfo=UTC),
        helm=program or helm(),
    )  # fmt: skip


NOBODY = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t0ken}}]
current-context: c
"""


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress", Failure.BUSY),
        ("Error: UPGRADE FAILED: release demo failed, and has been rolled back due to atomic being set: timed out "
         "waiting for the condition", Failure.TIMEOUT),
        ("Error: Kubernetes cluster unreachable: Get \"https://127.0.0.1:1/version\": dial tcp 127.0.0.1:1: connect: "
         "connection refused", Failure.UNREACHABLE),
        ('Error: query: failed to query with labels: secrets is forbidden: User "u" cannot list', Failure.AUTH),
        ("Error: values don't meet the specifications of the schema(s) in the following chart(s)", Failure.REJECTED),
        ("", Failure.REJECTED),
    ],
)  # fmt: skip
def test_what_the_last_words_of_helm_mean(said: str, kind: Failure) -> None:
    assert _failure(f"WARNING: Kubernetes configuration file is group-readable\n{said}\n", "upgrade").kind is kind


def test_a_release_that_is_not_there_is_no_failure() -> None:
    assert isinstance(_failure("Error: release: not found\n", "history"), NoRelease)


@tool
@pytest.mark.wire
def test_a_cluster_that_does_not_answer_is_silence(tmp_path: Path) -> None:
    releases = store(tmp_path)
    archive = package(tmp_path, "1.0.0", {"a.yaml": CONFIG})
    seen = asyncio.run(releases.look(release(archive, "demo", "ns")))
    asyncio.run(releases.close())
    assert isinstance(seen, Silent)
    assert seen.reason is UnknownReason.UNREACHABLE, seen


def test_without_helm_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    archive = tmp_path / "demo-1.tgz"
    archive.write_bytes(b"")
    releases = store(tmp_path, "/nonexistent/helm")
    seen = asyncio.run(releases.look(release(archive, "demo", "ns")))
    asyncio.run(releases.close())
    assert isinstance(seen, Silent)
    assert "install Helm 3.13 or newer" in seen.detail


@tool
def test_only_an_archive_of_the_declared_digest_is_used(tmp_path: Path) -> None:
    archive = package(tmp_path, "1.0.0", {"a.yaml": CONFIG})
    wanted = release(archive, "demo", "ns").chart
    charts = Charts(Helm(helm(), None, None, tmp_path), tmp_path)
    kept = asyncio.run(charts.path(wanted))
    assert kept.read_bytes() == archive.read_bytes()
    with pytest.raises(DriverError, match="it is not used") as caught:
        asyncio.run(charts.path(replace(wanted, sha256="0" * 64)))
    assert caught.value.kind is Failure.REJECTED
    assert not list(tmp_path.glob("0000*"))


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """A repository of charts as `helm repo index` makes it, over HTTP."""
    folder = tmp_path / "repository"
    folder.mkdir()
    package(folder, "1.2.3", {"a.yaml": CONFIG})
    subprocess.run([helm(), "repo", "index", str(folder)], check=True, capture_output=True, timeout=60)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@tool
@pytest.mark.wire
def test_a_chart_is_pulled_from_a_repository_and_compared(tmp_path: Path, repository: str) -> None:
    archive = tmp_path / "repository" / "demo-1.2.3.tgz"
    wanted = release(archive, "demo", "ns", source=repository).chart
    charts = Charts(Helm(helm(), None, None, tmp_path), tmp_path)
    assert asyncio.run(charts.path(wanted)).read_bytes() == archive.read_bytes()
    missing = replace(wanted, version="9.9.9", sha256="1" * 64)
    with pytest.raises(DriverError, match=r"9\.9\.9"):
        asyncio.run(charts.path(missing))
